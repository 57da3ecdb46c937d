"""Engines of third parties: found in packages and in the plugin folder, refused with a reason, made with what they take."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

import pytest
from tests.unit.engine.plugin_stage import LAST_TURNS, install, write_plugin

import penstock
from penstock.config import plugins_folder
from penstock.engine.registry import (
    BUILT_IN,
    ENGINES,
    ENTRY_POINT,
    FILE,
    GROUP,
    blame_engine,
    engine_named,
    explain_trouble,
    offers,
    select_options,
)
from penstock.errors import EngineFailure, SettingsError
from penstock.settings import settings_from

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"
MINIMAL = """
import penstock

class {name}(penstock.ContextEngine):
    name = "{name}"
    def update_from_response(self, usage): pass
    def should_compress(self, prompt_tokens=None): return False
    def compress(self, messages, current_tokens=None, focus_topic=None): return list(messages)
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "plugins"
    path.mkdir(mode=0o755)
    return path


@pytest.fixture
def settings(folder):
    return settings_from({"plugins.folder": str(folder)})


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder on the path, as that of installed packages is."""
    path = tmp_path / "site"
    path.mkdir()
    monkeypatch.syspath_prepend(str(path))
    yield path
    sys.modules.pop("acme_engines", None)
    sys.modules.pop("other_engines", None)


def kinds(settings):
    return [(offer.name, offer.kind) for offer in offers(settings)]


def why(settings, name, kind):
    offer = next(one for one in offers(settings) if (one.name, one.kind) == (name, kind))
    with pytest.raises(EngineFailure) as failed:
        offer.load()
    return str(failed.value)


def test_built_in_engines_come_first_and_are_made_without_looking_further(settings, folder):
    assert kinds(settings) == [("compressor", BUILT_IN), ("lossless", BUILT_IN)]
    write_plugin(folder, "compressor.py", "raise RuntimeError('must not run')")
    assert type(engine_named("compressor", settings)) is penstock.ContextCompressor
    assert "taken by a built-in engine" in why(settings, "compressor", FILE)


def test_lossless_is_declared_as_a_strangers_engine_is_and_offered_once(settings, site):
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["entry-points"][GROUP]
    assert declared == {"lossless": ENGINES["lossless"]}
    install(site, declared, text="", package="penstock_again", distribution="penstock")
    assert kinds(settings) == [("compressor", BUILT_IN), ("lossless", BUILT_IN)]
    assert type(engine_named("lossless", settings)) is penstock.LosslessEngine


def test_a_file_is_an_engine_by_its_name(settings, folder):
    write_plugin(folder)
    write_plugin(folder, "_shared.py", "raise RuntimeError('must not run')")
    write_plugin(folder, "notes.txt", "no engine")
    assert kinds(settings)[2:] == [("last-turns", FILE)]
    engine = engine_named("last-turns", settings, context_length=8_000, store=None, on_notice=print)
    assert isinstance(engine, penstock.ContextEngine)
    assert engine.name == "last-turns"
    engine.update_model("some-model", 8_000)
    assert engine.threshold_tokens == 6_000


def test_an_installed_package_is_an_engine_by_its_entry_point(settings, site):
    install(site, {"last-turns": "acme_engines:LastTurns"})
    assert kinds(settings)[2:] == [("last-turns", ENTRY_POINT)]
    assert [offer.where for offer in offers(settings)][2] == "acme-engines 1.2"
    assert "acme_engines" not in sys.modules  # finding it runs none of its code
    assert type(engine_named("last-turns", settings)).__module__ == "acme_engines"


def test_a_function_makes_an_engine_with_all_that_a_host_has(settings, folder):
    text = (
        LAST_TURNS
        + "\ndef engine(**options):\n    made = LastTurns(5)\n    made.given = options\n    return made\n"
    )
    write_plugin(folder, text=text)
    engine = engine_named("last-turns", settings, context_length=9_000, model="m")
    assert engine.keep == 5
    assert engine.given == {"context_length": 9_000, "model": "m", "settings": settings}


def test_only_the_options_that_are_taken_are_given():
    def some(context_length, *, model=None):
        raise AssertionError

    def positional(context_length, /, model=None):
        raise AssertionError

    options = {"context_length": 1, "model": "m", "store": None}
    assert select_options(some, options) == {"context_length": 1, "model": "m"}
    assert select_options(positional, options) == {"model": "m"}
    assert select_options(lambda **rest: rest, options) == options
    assert select_options(penstock.LosslessEngine, options) == options
    assert select_options(dict.fromkeys, options) == {}


BROKEN = {
    "syntax.py": ("def engine(:\n", "SyntaxError"),
    "raises.py": ("raise RuntimeError('no licence')\n", "RuntimeError: no licence in plugins/raises.py:1"),
    "leaves.py": ("import sys\nsys.exit(3)\n", "SystemExit"),
    "imports.py": ("import a_package_nobody_has\n", "a_package_nobody_has"),
    "nothing.py": ("x = 1\n", "defines no engine"),
    "imported.py": ("from penstock import ContextCompressor\n", "defines no engine"),
    "several.py": (MINIMAL.format(name="One") + MINIMAL.format(name="Two"), "several engines (One, Two)"),
    "partial.py": (
        "import penstock\nclass Half(penstock.ContextEngine):\n    name = 'half'\n",
        "lacks required members: compress, should_compress, update_from_response",
    ),
    "other.py": ("class engine: pass\n", "the class engine"),
}


@pytest.mark.parametrize("file", BROKEN)
def test_a_broken_plugin_is_told_by_name_and_stops_no_other(settings, folder, file):
    text, reason = BROKEN[file]
    write_plugin(folder, file, text)
    write_plugin(folder, "whole.py", MINIMAL.format(name="Whole"))
    name = file.removesuffix(".py")
    assert reason in why(settings, name, FILE)
    assert engine_named("whole", settings).name == "Whole"
    with pytest.raises(SettingsError, match=f"context.engine is '{name}', but that engine cannot be used"):
        engine_named(name, settings)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("acme_engines:Nobody", "Nobody"),
        ("a_package_nobody_has:Engine", "a_package_nobody_has"),
        ("acme_engines:LAST", "is a int"),
        ("not a target", "failed with"),
    ],
)
def test_a_broken_entry_point_is_told_by_name_and_stops_no_other(settings, site, target, reason):
    install(
        site, {"broken": target, "last-turns": "acme_engines:LastTurns"}, text=f"{LAST_TURNS}\nLAST = 7\n"
    )
    assert reason in why(settings, "broken", ENTRY_POINT)
    assert engine_named("last-turns", settings).name == "last-turns"
    with pytest.raises(SettingsError, match=r"context\.engine is 'broken'"):
        engine_named("broken", settings)


def test_of_one_name_the_first_counts_and_the_others_say_so(settings, site, folder):
    install(site, {"last-turns": "acme_engines:LastTurns"})
    install(
        site, {"last-turns": "other_engines:LastTurns"}, package="other_engines", distribution="other-engines"
    )
    write_plugin(folder)
    assert [offer.where for offer in offers(settings)][2:4] == ["acme-engines 1.2", "other-engines 1.2"]
    assert "taken by acme-engines 1.2" in why(settings, "last-turns", FILE)
    assert type(engine_named("last-turns", settings)).__module__ == "acme_engines"


def test_what_cannot_be_made_is_an_error_that_says_why(settings, folder):
    write_plugin(folder, "needs.py", MINIMAL.format(name="Needs") + "    def __init__(self, licence): pass\n")
    write_plugin(folder, "none.py", "def engine(**options): return None\n")
    with pytest.raises(SettingsError, match=r"'needs'.*licence"):
        engine_named("needs", settings)
    with pytest.raises(SettingsError, match=r"made a NoneType, which is not a penstock\.ContextEngine"):
        engine_named("none", settings)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="modes are those of Unix")
class TestWhoMayWrite:
    @pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
    def test_a_file_that_others_may_write_is_not_loaded(self, settings, folder, mode):
        path = write_plugin(folder)
        path.chmod(mode)
        assert f"others may write to {path}; run: chmod go-w '{path}'" in why(settings, "last-turns", FILE)
        path.chmod(0o600)
        assert engine_named("last-turns", settings).name == "last-turns"

    @pytest.mark.parametrize("mode", [0o775, 0o1777])
    def test_nor_one_in_a_folder_where_others_may_put_another(self, settings, folder, mode):
        write_plugin(folder)
        folder.chmod(mode)
        assert f"others may write to {folder}" in why(settings, "last-turns", FILE)
        assert "others may write" in explain_trouble(folder)

    def test_nor_one_that_is_a_link_to_such_a_place(self, settings, folder, tmp_path):
        real = write_plugin(tmp_path / "elsewhere")
        (folder / "last_turns.py").symlink_to(real)
        assert engine_named("last-turns", settings).name == "last-turns"
        real.parent.chmod(0o777)
        assert "others may write" in why(settings, "last-turns", FILE)

    @pytest.mark.parametrize(
        ("mode", "loaded"), [(0o777, False), (0o775, False), (0o1777, True), (0o755, True)]
    )
    def test_nor_one_whose_folder_others_may_put_another_in_place_of(self, tmp_path, mode, loaded):
        above = tmp_path / "above"
        write_plugin(above / "plugins")
        above.chmod(mode)
        settings = settings_from({"plugins.folder": str(above / "plugins")})
        if loaded:
            assert engine_named("last-turns", settings).name == "last-turns"
        else:
            assert f"others may write to {above};" in why(settings, "last-turns", FILE)
            assert str(above) in explain_trouble(above / "plugins")

    @pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root gives files away")
    def test_nor_one_of_another_user(self, settings, folder):
        path = write_plugin(folder)
        os.chown(path, 4_321, -1)
        assert "belongs to another user (uid 4321)" in why(settings, "last-turns", FILE)

    def test_a_folder_that_is_not_there_is_no_error(self, tmp_path):
        missing = tmp_path / "nowhere"
        settings = settings_from({"plugins.folder": str(missing)})
        assert kinds(settings) == [("compressor", BUILT_IN), ("lossless", BUILT_IN)]
        with pytest.raises(SettingsError, match=r"the engines are compressor, lossless .*it does not exist"):
            engine_named("zzz", settings)


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one(settings, folder):
    write_plugin(folder)
    with pytest.raises(SettingsError, match="did you mean last-turns"):
        engine_named("last_turns", settings)


def test_the_folder_is_a_whole_path(tmp_path):
    environ = {"HOME": "/home/someone"}
    assert str(plugins_folder(None, environ)) == "/home/someone/.local/share/penstock/plugins"
    assert str(plugins_folder("~/engines", environ)) == "/home/someone/engines"
    assert str(plugins_folder("/srv/engines", environ)) == "/srv/engines"
    for folder, variables in (("engines", environ), (".", environ), ("~other/engines", environ), (None, {})):
        with pytest.raises(SettingsError, match="an absolute path"):
            plugins_folder(folder, variables)


def test_what_an_engine_raises_is_told_without_its_words():
    with pytest.raises(EngineFailure) as failed, blame_engine("mine"):
        raise ValueError("the user said: my secret plan")
    assert str(failed.value).startswith(
        "the engine 'mine' failed with ValueError in engine/test_engine_plugins.py:"
    )
    assert "secret" not in str(failed.value)
    with pytest.raises(SettingsError), blame_engine("mine"):
        raise SettingsError("ours")


def write_package(folder, **files):
    package = folder / "last_turns"
    package.mkdir(mode=0o755)
    for name, text in files.items():
        path = package / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644)
    return package


def test_a_folder_with_an_init_file_is_an_engine(settings, folder):
    (folder / "notes").mkdir(mode=0o755)  # no __init__.py, no engine
    package = write_package(folder, __init__="from .core import LastTurns\n", core=LAST_TURNS)
    assert kinds(settings)[2:] == [("last-turns", FILE)]
    assert engine_named("last-turns", settings).name == "last-turns"
    (package / "core.py").write_text(
        LAST_TURNS.replace('return "last-turns"', 'return "newer"'), encoding="utf-8"
    )
    assert engine_named("last-turns", settings).name == "newer"  # what is on disk now is loaded


def test_a_file_and_a_folder_of_one_name_are_told_apart(settings, folder):
    write_package(folder, __init__=LAST_TURNS)
    write_plugin(folder)
    assert kinds(settings)[2:] == [("last-turns", FILE), ("last-turns", FILE)]
    second = list(offers(settings))[-1]
    with pytest.raises(EngineFailure, match="is taken by"):
        second.load()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX")
def test_a_folder_in_which_others_may_write_anything_is_refused(settings, folder):
    package = write_package(folder, __init__="from .core import LastTurns\n", core=LAST_TURNS)
    (package / "core.py").chmod(0o666)
    assert f"chmod go-w '{package}/core.py'" in why(settings, "last-turns", FILE)
    (package / "core.py").chmod(0o644)
    (package / "inner").mkdir()
    (package / "inner").chmod(0o777)
    assert f"chmod go-w '{package}/inner'" in why(settings, "last-turns", FILE)
    (package / "inner").rmdir()
    (package / "core.py").rename(folder / "elsewhere.txt")
    (package / "core.py").symlink_to(folder / "elsewhere.txt")
    assert "is a link" in why(settings, "last-turns", FILE)
