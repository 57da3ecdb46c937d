"""Loads settings from `config.yaml`, then the environment, then flags; later ones win.

The only module of the package that reads the environment. The settings themselves are in `penstock.settings`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.errors import SettingsError
from penstock.settings import (
    AgentSettings,
    AuxiliarySettings,
    CompressionSettings,
    ContextSettings,
    ModelSettings,
    PluginsSettings,
    PressureSettings,
    Settings,
    StoreSettings,
    ToolsSettings,
    find_most_alike,
    known_keys,
    read_values,
    settings_from,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import yaml

    from penstock.redaction import Redactor

__all__ = [
    "AgentSettings",
    "AuxiliarySettings",
    "CompressionSettings",
    "ContextSettings",
    "ModelSettings",
    "PluginsSettings",
    "PressureSettings",
    "SecretText",
    "Settings",
    "Sourced",
    "StoreSettings",
    "ToolsSettings",
    "cache_folder",
    "client_environment",
    "client_history_folders",
    "command_environment",
    "config_path",
    "data_folder",
    "load_settings",
    "own_secrets",
    "plugins_folder",
    "read_given_values",
    "read_named_variables",
    "read_secret",
    "redactor_of_process",
    "require_config_path",
    "set_in_file",
    "settings_from",
    "variable_name",
    "wants_colour",
    "wraps_on_resize",
]

PREFIX = "PENSTOCK_"
NOT_SETTINGS = frozenset({"PENSTOCK_CONFIG", "PENSTOCK_CORPORA"})
"""Variables of ours that are no settings: where the file is, and where benchmarks find their corpora."""

_WRAPPING_VARIABLES = (
    "TMUX",
    "VTE_VERSION",
    "KITTY_WINDOW_ID",
    "KONSOLE_VERSION",
    "WEZTERM_PANE",
    "WT_SESSION",
)
_WRAPPING_PROGRAMS = ("iTerm.app", "Apple_Terminal", "WezTerm", "ghostty", "vscode", "tmux")
_WRAPPING_TERMS = ("tmux", "xterm-kitty", "alacritty", "foot", "xterm-ghostty", "wezterm")


class Sourced(NamedTuple):
    """A value and its source: a file, the name of a variable, or `flag`."""

    value: Any
    source: str


def load_settings(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> Settings:
    """Returns the settings from the file, the environment and flags (dotted keys; None means the flag was not given).

    Text in any of the three is read as the value it spells (`yes`, `0.6`, `null`). Raises SettingsError for a named file
    that cannot be read, bad YAML, an unknown key or variable, or a value that is not allowed; the message says which source
    is at fault.
    """
    given = read_given_values(path, environ, flags)
    return settings_from({key: found.value for key, found in given.items()})


def read_given_values(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> dict[str, Sourced]:
    """Returns the settings that were given, by dotted key; the rest have their defaults. As `load_settings` otherwise."""
    environ = os.environ if environ is None else environ
    file = config_path(path, environ)
    flagged = {key: value for key, value in (flags or {}).items() if value is not None}
    values: dict[str, Sourced] = {}
    if file is not None:
        found = _values_from(str(file), _read_file(file))
        values |= {key: Sourced(value, str(file)) for key, value in found.items()}
    found = _environment_values(environ)
    values |= {key: Sourced(value, variable_name(key)) for key, value in found.items()}
    found = _values_from("command line", flagged)
    return values | {key: Sourced(value, "command line") for key, value in found.items()}


def config_path(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """Returns the file that settings are read from, or None if there is none.

    The given path, else what PENSTOCK_CONFIG names, else `penstock/config.yaml` in the user's configuration
    folder (XDG_CONFIG_HOME, or `.config` at home) if it exists.
    """
    environ = os.environ if environ is None else environ
    if path is not None:
        return path
    if named := environ.get("PENSTOCK_CONFIG"):
        return Path(named)
    file = _find_users_file(environ)
    return file if file is not None and file.is_file() else None


def _find_users_file(environ: Mapping[str, str]) -> Path | None:
    """Returns the path of the user's settings file, which need not exist; None if there is no place for one."""
    home = environ.get("HOME") or environ.get("USERPROFILE")
    folder = environ.get("XDG_CONFIG_HOME", "")
    if not Path(folder).is_absolute():  # the XDG specification: a relative path is to be ignored
        if not home:
            return None
        folder = f"{home}/.config"
    return Path(folder) / "penstock" / "config.yaml"


def set_in_file(text: str, key: str, value: str, source: str = "settings") -> str:
    """Returns the text of a settings file that gives `section.name` that value; all else in it stays as it is.

    Raises SettingsError for a text that is not a settings file, or that cannot be changed without changing more.
    """
    import yaml  # noqa: PLC0415 - only a file needs it

    section, _, name = key.partition(".")
    written = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True).partition("\n")[0]
    before = _read_text(text, source)
    node = yaml.compose(text, Loader=yaml.BaseLoader)
    items = {one.value: (one, found) for one, found in node.value} if before else {}
    known, held = items.get(section, (None, None))
    inside = {one.value: found for one, found in held.value} if isinstance(held, yaml.MappingNode) else {}
    given = inside.get(name) or items.get(key, (None, None))[1]
    if given is not None:
        new = text[: given.start_mark.index] + written + text[given.end_mark.index :]
    elif isinstance(held, yaml.MappingNode):
        at = held.start_mark.index + bool(held.flow_style)
        gap = ", " if held.flow_style else f"\n{' ' * held.start_mark.column}"
        new = f"{text[:at]}{name}: {written}{gap}{text[at:]}"
    elif known is not None:  # a section without anything in it
        at = text.index(":", known.end_mark.index) + 1
        new = f"{text[:at]}\n  {name}: {written}{text[at:]}"
    else:
        gap = "" if not text or text.endswith("\n") else "\n"
        new = f"{text}{gap}{section}:\n  {name}: {written}\n"
    try:
        after = read_values(_read_text(new, source), texts=True)
    except SettingsError:
        after = {}
    if after != {**_values_from(source, before), key: value}:
        raise SettingsError(f"{source} cannot be changed safely; write {key}: {written} into it by hand")
    return new


def require_config_path(path: Path | None = None) -> Path:
    """Returns the file to write settings to: the one that they are read from, or else the user's, which need not exist yet.

    Raises SettingsError if there is no place for one.
    """
    file = config_path(path, os.environ) or _find_users_file(os.environ)
    if file is None:
        raise SettingsError("there is no home folder for a settings file; name one with --config FILE")
    return file


def cache_folder() -> Path:
    """Returns the cache folder: XDG_CACHE_HOME, or `.cache` at home."""
    return _user_folder("XDG_CACHE_HOME", ".cache", os.environ)


def client_history_folders() -> dict[str, Path]:
    """Returns where Claude Code and Codex keep their sessions, by the name of the format; none without a home."""
    home = os.environ.get("HOME") or os.environ.get("USERPROFILE")
    claude, codex = os.environ.get("CLAUDE_CONFIG_DIR"), os.environ.get("CODEX_HOME")
    found: dict[str, Path] = {}
    if claude or home:
        found["claude-code"] = (Path(claude) if claude else Path(str(home)) / ".claude") / "projects"
    if codex or home:
        found["codex"] = (Path(codex) if codex else Path(str(home)) / ".codex") / "sessions"
    return found


def data_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Returns the data folder, where sessions are: XDG_DATA_HOME, or `.local/share` at home."""
    return _user_folder("XDG_DATA_HOME", ".local/share", environ)


def plugins_folder(folder: str | None = None, environ: Mapping[str, str] | None = None) -> Path:
    """Returns the folder of engine files: as `plugins.folder` says, else `plugins` in the data folder.

    Raises SettingsError if that is not an absolute path: code is not loaded from wherever a program happens to start.
    """
    environ = os.environ if environ is None else environ
    path = Path(folder) if folder else data_folder(environ) / "plugins"
    home = environ.get("HOME") or environ.get("USERPROFILE")
    if home and path.parts[:1] == ("~",):
        path = Path(home, *path.parts[1:])
    if not path.is_absolute():
        raise SettingsError(
            f"plugins.folder is {str(path)!r}; allowed: an absolute path, such as ~/engines or /srv/engines"
        )
    return path


def _user_folder(variable: str, at_home: str, environ: Mapping[str, str] | None) -> Path:
    environ = os.environ if environ is None else environ
    folder = environ.get(variable, "")
    if not Path(folder).is_absolute():
        account = _find_home_of_account() if environ is os.environ else "."
        folder = f"{environ.get('HOME') or environ.get('USERPROFILE') or account}/{at_home}"
    return Path(folder) / "penstock"


def _find_home_of_account() -> str:
    """Returns the home folder that the system has on record, for a process without HOME; else the current folder.

    What is kept must not depend on where a process starts: a project could bring conversations and approvals of its own.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - raises nothing
    return home if Path(home).is_absolute() else "."


def variable_name(key: str) -> str:
    """Returns the environment variable of a dotted key: `compression.threshold` is PENSTOCK_COMPRESSION_THRESHOLD."""
    return PREFIX + key.replace(".", "_").upper()


def own_secrets(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Returns the values of the process's own secret variables, for the redactor. Never shown, never stored."""
    from penstock.redaction import secret_variables  # noqa: PLC0415 - its rules cost time that `--help` must not pay

    return tuple(secret_variables(os.environ if environ is None else environ))


@lru_cache(maxsize=2)
def redactor_of_process(detector: str = "own") -> Redactor:
    """Returns the redactor that also knows the values of this process's own secret variables.

    "kingfisher" adds that detector's rules, which take a moment to load, less if they were loaded on this machine before.
    Raises SettingsError if it is not installed.
    """
    from penstock.redaction import Redactor  # noqa: PLC0415 - its rules cost time that `--help` must not pay
    from penstock.redaction.kingfisher import kingfisher  # noqa: PLC0415

    detectors = [kingfisher(str(cache_folder() / "kingfisher"))] if detector == "kingfisher" else []
    return Redactor(own_secrets(), detectors=detectors)


def client_environment() -> dict[str, str]:
    """Returns the whole environment, for a program that the user starts through ours. It holds secrets: never shown."""
    return dict(os.environ)


def command_environment(
    keep: Collection[str] = (), environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Returns the environment for commands that an agent runs: without the variables that hold a secret.

    A variable is left out because of its name or its value, and if it contains the value of one that is left out.
    Variables named in `keep` stay, even if they are secret.
    """
    from penstock.redaction import Redactor  # noqa: PLC0415 - its rules cost time that `--help` must not pay

    environ = os.environ if environ is None else environ
    redactor = Redactor(own_secrets(environ))
    return {
        name: value for name, value in environ.items() if name in keep or not redactor.find(f"{name}={value}")
    }


def read_named_variables(names: Collection[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Returns the values of these variables; those that are not set are left out. Never shown, never stored."""
    environ = os.environ if environ is None else environ
    return {name: environ[name] for name in names if name in environ}


class SecretText:
    """A text that is only shown by `reveal`: never in `str`, `repr`, a pickle or JSON."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Returns the text itself, for the code that sends it."""
        return self._text

    def __repr__(self) -> str:
        return "SecretText([REDACTED])"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a secret cannot be pickled: let the other process read its own environment")


def read_secret(variable: str, environ: Mapping[str, str] | None = None) -> SecretText | None:
    """Returns the secret in a variable of the environment, or None if it is not set or empty.

    White space around it is dropped. Raises SettingsError if it holds anything but printable ASCII, which no key does and no
    header can carry; the message names only the variable.
    """
    text = (os.environ if environ is None else environ).get(variable, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isprintable() and " " not in text):
        raise SettingsError(
            f"environment: the value of {variable} is not a key: it holds a space, a line break or a character "
            "outside ASCII; set it again"
        )
    return SecretText(text)


def wants_colour() -> bool:
    """Returns True if a terminal may show colour: not with NO_COLOR, nor with TERM=dumb."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def wraps_on_resize(environ: Mapping[str, str] | None = None) -> bool:
    """Returns True if the terminal rewraps long lines when its width changes, instead of cutting them off."""
    environ = os.environ if environ is None else environ
    if environ.get("STY"):  # GNU screen, whatever it runs in
        return False
    return (
        any(environ.get(name) for name in _WRAPPING_VARIABLES)
        or environ.get("TERM_PROGRAM", "") in _WRAPPING_PROGRAMS
        or environ.get("TERM", "").startswith(_WRAPPING_TERMS)
    )


def _environment_values(environ: Mapping[str, str]) -> dict[str, Any]:
    variables = {variable_name(key): key for key in known_keys()}
    values: dict[str, Any] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX) or variable in NOT_SETTINGS:
            continue
        if variable not in variables:
            near = find_most_alike(variable, variables)
            hint = f"did you mean {near}?" if near else "unset it or see the reference of settings"
            raise SettingsError(f"environment: {variable} is not a setting; {hint}")
        if text.strip():  # a variable that is set but empty counts as not set
            values |= _values_from(f"environment, {variable}", {variables[variable]: text})
    return values


def _values_from(source: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return read_values(mapping, texts=True)
    except SettingsError as error:
        raise SettingsError(f"{source}: {error}") from None


def _read_file(file: Path) -> Mapping[str, Any]:
    """Returns the file as nested mappings of text."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise SettingsError(
            f"{file} cannot be read: {error.strerror}; name another file or leave it out"
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{file} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8") from error
    return _read_text(text, file)


def _read_text(text: str, file: Path | str) -> dict[str, Any]:
    """Returns a file as nested mappings of text. Scalars stay text, so that `off` is a word and not a boolean."""
    import yaml  # noqa: PLC0415 - only a file needs it

    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.reader.ReaderError as error:
        raise SettingsError(
            f"{file} holds a character that YAML does not allow (character {error.position + 1})"
        ) from error
    except yaml.MarkedYAMLError as error:
        raise SettingsError(
            f"{file}: not valid YAML{_position(error.problem_mark)}: {error.problem}"
        ) from error
    except RecursionError:
        raise SettingsError(f"{file}: nested too deeply; settings have at most three levels") from None
    if node is None or node.value == "":
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise SettingsError(f"{file}: expected sections such as `compression:`, found a {node.id}")
    return _plain(node, file)


def _plain(node: yaml.MappingNode, file: Path | str, section: str = "") -> dict[str, Any]:
    """Returns a mapping node as a dict. Refuses what no setting has: lists where none belong, keys given twice, other levels."""
    import yaml  # noqa: PLC0415 - as above

    values: dict[str, Any] = {}
    for key, value in _items(node, file):
        name = f"{section}{key.value}"
        known = known_keys().get(name)
        if known is not None and known.structured:
            values[key.value] = _tree(value, file)
        elif isinstance(value, yaml.ScalarNode):
            values[key.value] = value.value
        elif isinstance(value, yaml.MappingNode) and section.count(".") < 2:
            values[key.value] = _plain(value, file, f"{name}.")
        else:
            where = _position(key.start_mark)
            raise SettingsError(f"{file}: {key.value}{where} holds a {value.id}; this setting does not")
    return values


_DEEPEST = 12  # levels: the parameters of an HTTP tool are a JSON Schema; an alias may stand inside of itself


def _tree(node: Any, file: Path | str, depth: int = 1, *, schema: bool = False) -> Any:
    """Returns a value that is a list or mapping, as it stands there. Scalars stay text, but for those of a JSON Schema."""
    import yaml  # noqa: PLC0415 - as above

    if depth > _DEEPEST:
        raise SettingsError(f"{file}: nested too deeply{_position(node.start_mark)}")
    if isinstance(node, yaml.SequenceNode):
        return [_tree(item, file, depth + 1, schema=schema) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        return {
            key.value: _tree(value, file, depth + 1, schema=schema or key.value == "parameters")
            for key, value in _items(node, file)
        }
    if schema and node.style is None:  # not in quotes: `minimum: 1` is a number
        with suppress(msgspec.DecodeError):
            return msgspec.json.decode(node.value)
    return node.value


def _items(node: yaml.MappingNode, file: Path | str) -> Iterator[tuple[yaml.ScalarNode, Any]]:
    """Yields the keys and values of a mapping. Refuses keys that are not strings, and keys given twice."""
    import yaml  # noqa: PLC0415 - as above

    seen = set()
    for key, value in node.value:
        where = _position(key.start_mark)
        if not isinstance(key, yaml.ScalarNode):
            raise SettingsError(f"{file}: a key must be a word{where}")
        if key.value in seen:
            raise SettingsError(f"{file}: {key.value} is given twice{where}; keep one of the two")
        seen.add(key.value)
        yield key, value


def _position(mark: yaml.Mark | None) -> str:
    return f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
