"""The available engines, by their names for `context.engine`: built in, installed, or in a file.

Built-in engines are listed here and imported when they are chosen. Third parties' engines come from two places: packages
that declare an entry point in the group `penstock.engines`, and the plugin folder, which holds Python files and folders
with an `__init__.py`. Finding engines runs none of their code. Loading one does, so an engine is loaded from the plugin
folder only if no other user may write it.
"""

from __future__ import annotations

import inspect
import os
import stat
import sys
import types
from collections.abc import Callable
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from penstock._installed import list_points
from penstock.config import plugins_folder
from penstock.engine.contract import ContextEngine
from penstock.errors import EngineFailure, PenstockError, SettingsError
from penstock.settings import Settings, find_most_alike

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from importlib.metadata import EntryPoint

    from penstock.engine.compress import Compressed, CompressRequest
    from penstock.engine.summariser import Summariser
    from penstock.recall.history import History
    from penstock.stores.store import Store
    from penstock.stores.values import CompactionRow
    from penstock.writing.notebook import Notebook

__all__ = [
    "BUILT_IN",
    "ENGINES",
    "ENTRY_POINT",
    "FILE",
    "GROUP",
    "EngineOffer",
    "SessionCompactor",
    "blame_engine",
    "compacts_stored_sessions",
    "engine_named",
    "explain_trouble",
    "offers",
    "select_options",
    "session_compactors",
]


GROUP = "penstock.engines"
BUILT_IN, ENTRY_POINT, FILE = "built in", "entry point", "file"
ENGINES = {
    "compressor": "penstock.engine.compressor:ContextCompressor",
    "lossless": "penstock.lossless.engine:LosslessEngine",
}
"""The built-in engines, in the form of an entry point: the module, then the class."""
SESSION_COMPACTORS = {"lossless": "penstock.lossless.engine:SessionNodes"}
"""The maker of a `SessionCompactor` for each engine with its own way to compact a stored session."""

Factory: TypeAlias = Callable[..., Any]

_PACKAGE = "__init__.py"
_FUNCTION = "engine"  # in a plugin file: makes the engine, if a class alone does not say how
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = 0
_REASON_CHARS = 300


class EngineOffer(msgspec.Struct, frozen=True, kw_only=True):
    """An engine that can be chosen by `name`, with the kind and the source of the offer, for people.

    `load` returns the class or function that makes the engine, or raises EngineFailure with the reason.
    """

    name: str
    kind: str
    where: str
    load: Callable[[], Factory]


def _find_installed() -> Iterator[EngineOffer]:
    """Yields the engines of installed packages, by name, except our own."""
    for point in list_points(GROUP):
        if ENGINES.get(point.name) == point.value:
            continue  # `lossless` is declared like a third party's engine; our table works without an installation
        yield EngineOffer(name=point.name, kind=ENTRY_POINT, where=_package(point), load=_loader(point))


def _find_files(folder: Path) -> Iterator[EngineOffer]:
    """Yields the engines of a plugin folder: one for each `.py` file or package that does not begin with `_` or `.`.

    The name is that of the file or package, with `-` for `_`. A missing or unreadable folder has no engines.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if not path.name.startswith(("_", ".")))
        found = [path for path in paths if path.suffix == ".py" or (path / _PACKAGE).is_file()]
    except OSError:
        return
    for path in found:
        file = path / _PACKAGE if path.is_dir() else path
        name = path.name if path.is_dir() else path.stem
        yield EngineOffer(
            name=name.replace("_", "-"), kind=FILE, where=str(path), load=_file_loader(file, name)
        )


def explain_trouble(folder: Path) -> str:
    """Returns the reason why nothing is loaded from this folder; empty if all is well."""
    try:
        os.scandir(folder).close()
        return _unsafe(folder)
    except FileNotFoundError:
        return "it does not exist"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"


def select_options(factory: Factory, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options that the class or function takes by name; all of them if it takes any."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # some callables have no signature
        return {}
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        return dict(options)
    named = {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    return {name: value for name, value in options.items() if name in named}


@contextmanager
def blame_engine(name: str, *, quote: bool = False) -> Iterator[None]:
    """Turns anything that an engine's code raises inside into EngineFailure; lets our own errors pass.

    Shows the error's own words only with `quote`, since they may quote the conversation.
    """
    try:
        yield
    except PenstockError:
        raise
    except (Exception, SystemExit) as error:  # a third party's code may raise anything
        words = " ".join(str(error).split()) if quote else ""
        what = f"{type(error).__name__}: {words}" if words else type(error).__name__
        shown = what if len(what) <= _REASON_CHARS else f"{what[: _REASON_CHARS - 1]}…"
        raise EngineFailure(f"the engine {name!r} failed with {shown}{_place(error)}") from error


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.value


def _loader(point: EntryPoint) -> Callable[[], Factory]:
    def load() -> Factory:
        with blame_engine(point.name, quote=True):
            found = point.load()
        return _check_factory(found, point.value)

    return load


def _file_loader(path: Path, plugin: str) -> Callable[[], Factory]:
    shown = path.parent if path.name == _PACKAGE else path

    def load() -> Factory:
        if shown.is_dir():
            _require_safe_package(shown)
        source = _source(path)
        name = f"penstock_plugin_{plugin}"
        for known in [known for known in sys.modules if known.startswith(f"{name}.")]:
            del sys.modules[known]  # from an earlier load, perhaps of an earlier version of the files
        module = types.ModuleType(name)
        module.__file__ = str(path)
        if shown.is_dir():
            module.__path__ = [str(shown)]
            module.__package__ = name
        sys.modules[name] = (
            module  # dataclasses, pickles and imports inside the plugin look up their module there
        )
        with blame_engine(shown.name, quote=True):
            exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102 - what a plugin is for; see `_source`
        return _find_defined_in(module, shown)

    return load


def _require_safe_package(folder: Path) -> None:
    """Raises EngineFailure if others may write any file of a plugin folder, since all of them may be imported."""
    try:
        for path in (folder, *sorted(folder.rglob("*"))):
            if path.is_symlink() and path != folder:
                raise EngineFailure(f"{path} is a link; a plugin that is a folder holds its files itself")
            if reason := _unsafe(path) if path.is_dir() else _open_to_others(path, path.stat()):
                raise EngineFailure(reason)
    except OSError as error:
        raise EngineFailure(f"{error.filename or folder} cannot be read: {error.strerror}") from error


def _source(path: Path) -> bytes:
    """Returns the bytes of a plugin file. Raises EngineFailure if others may write or replace the file.

    Opens the file once, so that the file that was checked is the one that is read.
    """
    try:
        for folder in dict.fromkeys((path.parent, path.resolve().parent)):
            if reason := _unsafe(folder):
                raise EngineFailure(reason)
        with path.open("rb") as file:
            if reason := _open_to_others(path, os.fstat(file.fileno())):
                raise EngineFailure(reason)
            return file.read()
    except OSError as error:
        raise EngineFailure(f"{path} cannot be read: {error.strerror}") from error


def _unsafe(folder: Path) -> str:
    """Returns why another user could replace a file or folder there, and what to do; empty if no other user could."""
    for place in (folder, *folder.parents):
        info = place.stat()
        # In a folder such as /tmp, others can make files but not touch ours, which is good enough for a parent folder.
        kept_apart = place != folder and info.st_mode & stat.S_ISVTX
        if reason := _open_to_others(place, info, write=0 if kept_apart else _OTHERS_WRITE):
            return reason
    return ""


def _open_to_others(path: Path, info: os.stat_result, write: int = _OTHERS_WRITE) -> str:
    """Returns why another user may write there, and what to do about it; empty if no other user may."""
    if not hasattr(os, "getuid"):  # Windows has other means for this
        return ""
    if info.st_uid not in (os.getuid(), _ROOT):
        return f"{path} belongs to another user (uid {info.st_uid}); make it yours, or choose another place"
    if info.st_mode & write:
        return f"others may write to {path}; run: chmod go-w '{path}'"
    return ""


def _find_defined_in(module: types.ModuleType, path: Path) -> Factory:
    """Returns the function `engine` of a plugin file, or else the only engine class that it defines."""
    function = vars(module).get(_FUNCTION)
    if callable(function):
        return _check_factory(function, f"{path.name}, {_FUNCTION}")
    classes = [
        one
        for one in dict.fromkeys(one for one in vars(module).values() if isinstance(one, type))
        if issubclass(one, ContextEngine)
        and (one.__module__ == module.__name__ or one.__module__.startswith(f"{module.__name__}."))
        and not one.__name__.startswith("_")
    ]
    whole = [one for one in classes if not inspect.isabstract(one)] or classes
    if len(whole) == 1:
        return _check_factory(whole[0], f"{path.name}, {whole[0].__name__}")
    if whole:
        names = ", ".join(one.__name__ for one in whole)
        raise EngineFailure(
            f"{path.name} defines several engines ({names}); add a function engine(**options) that makes one of them"
        )
    raise EngineFailure(
        f"{path.name} defines no engine: give it a subclass of penstock.ContextEngine, or a function engine(**options)"
    )


def _check_factory(found: Any, where: str) -> Factory:
    """Returns the class or function. Raises EngineFailure if it cannot make an engine."""
    if isinstance(found, type) and issubclass(found, ContextEngine):
        if missing := sorted(found.__abstractmethods__):
            raise EngineFailure(f"{where} lacks required members: {', '.join(missing)}")
        return found
    if isinstance(found, type) or not callable(found):
        kind = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise EngineFailure(
            f"{where} is {kind}; a subclass of penstock.ContextEngine or a function is needed"
        )
    return found  # type: ignore[no-any-return]  # mypy knows no more of it than that it can be called


def _place(error: BaseException) -> str:
    """Returns the place in the engine's code that raised the error."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or isinstance(error, SyntaxError):  # a SyntaxError names its place itself
        return ""
    return f" in {'/'.join(Path(trace.tb_frame.f_code.co_filename).parts[-2:])}:{trace.tb_lineno}"


def engine_named(name: str, settings: Settings | None = None, **options: Any) -> ContextEngine:
    """Returns a new engine of that name. Raises SettingsError if there is none, or if it cannot be made.

    A built-in engine takes the options of its class, including the settings. A third party's engine gets those that its
    class or function takes; `update_model` tells it the rest.
    """
    if name in ENGINES:
        built_in: ContextEngine = _load_built_in(name)(settings=settings, **options)
        return built_in
    settings = settings or Settings()
    for offer in offers(settings):
        if offer.name == name:
            try:
                return _make(offer, {"settings": settings, **options})
            except EngineFailure as error:
                raise SettingsError(
                    f"context.engine is {name!r}, but that engine cannot be used: {error}"
                ) from error
    raise SettingsError(f"context.engine is {name!r}, but there is no such engine; {_hint(name, settings)}")


def offers(settings: Settings) -> Iterator[EngineOffer]:
    """Yields all engines: built-in ones, those of packages, those of the plugin folder. The first of each name counts.

    The others are offers that cannot be loaded, with the reason. Raises SettingsError for a folder without a full path.
    """
    seen: dict[str, EngineOffer] = {}
    for offer in _all(settings):
        first = seen.setdefault(offer.name, offer)
        yield offer if first is offer else msgspec.structs.replace(offer, load=partial(_refuse, first))


def _all(settings: Settings) -> Iterator[EngineOffer]:
    for name in ENGINES:
        yield EngineOffer(name=name, kind=BUILT_IN, where="penstock", load=partial(_load_built_in, name))
    yield from _find_installed()
    yield from _find_files(plugins_folder(settings.plugins.folder))


def _load_built_in(name: str) -> Factory:
    return _load_named(ENGINES[name])


def _load_named(place: str) -> Factory:
    module, _, attribute = place.partition(":")
    found: Factory = getattr(import_module(module), attribute)
    return found


def _refuse(first: EngineOffer) -> type[ContextEngine]:
    by = "a built-in engine" if first.kind == BUILT_IN else first.where
    raise EngineFailure(f"the name {first.name!r} is taken by {by}; choose another name for this one")


def _make(offer: EngineOffer, options: dict[str, Any]) -> ContextEngine:
    factory = offer.load()
    with blame_engine(offer.name, quote=True):
        made = factory(**select_options(factory, options))
    if not isinstance(made, ContextEngine):
        raise EngineFailure(
            f"{offer.where} made a {type(made).__name__}, which is not a penstock.ContextEngine"
        )
    return made


def _hint(name: str, settings: Settings) -> str:
    names = dict.fromkeys(offer.name for offer in offers(settings))
    near = find_most_alike(name, names)
    hint = f"did you mean {near}?" if near else f"the engines are {', '.join(names)}"
    folder = plugins_folder(settings.plugins.folder)
    trouble = explain_trouble(folder) if settings.plugins.folder else ""
    return f"{hint} (plugins.folder is {folder}: {trouble})" if trouble else hint


class SessionCompactor(Protocol):
    """Compacts the view of one stored session in an engine's own way, and reads the engine's own records of it."""

    async def compact(
        self,
        wires: Sequence[Any],
        request: CompressRequest,
        notebook: Notebook,
        summariser: Summariser | None,
    ) -> Compressed:
        """Returns the compaction of a view, without committing anything to the log."""

    def history(self, history: History, count: Callable[[str], int], newest: CompactionRow | None) -> History:
        """Returns the session's history with the records of its compactions; `newest` is the one in force."""


def compacts_stored_sessions(name: str) -> bool:
    """Returns True if `Session.compact` gives the same as this engine; third parties' engines need a host."""
    return name in ENGINES


def session_compactors(store: Store, session_id: str) -> dict[str, SessionCompactor]:
    """Returns the session compactors of all engines other than `compressor`, by the engine's name.

    These are not only the settings' engine, so that the records of an engine can be read whichever is chosen now.
    """
    return {name: _load_named(place)(store, session_id) for name, place in SESSION_COMPACTORS.items()}
