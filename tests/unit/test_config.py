import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config import (
    cache_folder,
    config_path,
    data_folder,
    load_settings,
    own_secrets,
    set_in_file,
    variable_name,
)
from penstock.errors import SettingsError
from penstock.settings import (
    AuxiliaryCompressionSettings,
    CompressionSettings,
    ContextSettings,
    PressureSettings,
    Settings,
    known_keys,
    settings_from,
)

DEFAULTS = {
    "compression.enabled": True,
    "compression.threshold": 0.5,
    "compression.target_ratio": 0.2,
    "compression.protect_last_n": 20,
    "compression.protect_first_n": 3,
    "compression.summary_budget": "flat",
    "compression.importance": "learned",
    "compression.system_note": False,
    "compression.summary_model": None,
    "compression.hygiene_threshold": 0.85,
    "compression.max_attempts": 3,
    "context.engine": "compressor",
    "context.economics": "gated",
    "model.name": None,
    "model.provider": None,
    "model.base_url": None,
    "model.api_key_env": None,
    "model.context_length": None,
    "model.cache_ttl": "5m",
    "model.pictures": None,
    "auxiliary.mode": "auto",
    "auxiliary.compression.provider": None,
    "auxiliary.compression.model": None,
    "auxiliary.compression.base_url": None,
    "auxiliary.compression.api_key_env": None,
    "auxiliary.compression.timeout": 120.0,
    "auxiliary.compression.context_length": None,
    "tools.result_chars": 100_000,
    "tools.turn_chars": 200_000,
    "tools.preview_chars": 1_500,
    "pressure.log": 0.65,
    "pressure.warn": 0.85,
    "pressure.emergency": 0.95,
    "redaction.detector": "own",
    "recall.semantic": False,
    "recall.other_conversations": False,
    "store.url": None,
    "store.retention_days": None,
    "plugins.folder": None,
    "agent.compact_tool": False,
    "agent.allow": None,
    "agent.pass_env": None,
    "agent.mcp_servers": None,
    "agent.remember": True,
    "gateway.host": "127.0.0.1",
    "gateway.port": 8_787,
    "gateway.upstreams": None,
    "gateway.allowed_hosts": None,
    "gateway.answer_client_compactions": False,
    "gateway.recall": False,
    "gateway.dashboard": True,
    "gateway.store": "full",
    "gateway.summarise": "extractive",
    "gateway.compaction": "ours",
    "gateway.seal_key_file": None,
    "gateway.require_keys": False,
    "gateway.models": None,
    "gateway.requests_per_minute": None,
    "gateway.tokens_per_day": None,
    "gateway.requests_at_once": None,
    "gateway.max_requests": 2_048,
    "gateway.request_log": True,
    "gateway.open_metrics": False,
    "gateway.otel": False,
    "gateway.workers": 1,
    "gateway.processes": 1,
    "gateway.memory_mb": 256,
    "gateway.max_body_mb": 64,
    "gateway.connect_seconds": 10.0,
    "gateway.idle_seconds": 600.0,
    "gateway.drain_seconds": 30.0,
    "gateway.retries": 1,
    "gateway.while_busy": "wait",
    "gateway.turn_wait_seconds": 120.0,
    "gateway.hygiene_notice": None,
    "gateway.tools": None,
    "gateway.allow": None,
    "gateway.approval_seconds": 300.0,
    "gateway.memory": False,
}

ALLOWED = {
    "compression.enabled": (True, False),
    "compression.threshold": (0.01, 0.5, 1, 1.0),
    "compression.target_ratio": (0.10, 0.80),
    "compression.protect_last_n": (1, 5_000),
    "compression.protect_first_n": (0, 7),
    "compression.summary_budget": ("flat", "scaled"),
    "compression.importance": ("learned", "rule"),
    "compression.summary_model": (None, "small-model"),
    "compression.max_attempts": (1, 10),
    "context.economics": ("off", "gated", "on"),
    "model.context_length": (None, 1_024, 10_000_000),
    "model.cache_ttl": ("5m", "1h", "off"),
    "model.pictures": (True, False, None),
    "auxiliary.mode": ("auto", "same-as-main", "custom"),
    "auxiliary.compression.base_url": ("http://localhost:8080/v1",),
    "auxiliary.compression.api_key_env": ("SUMMARY_API_KEY",),
    "auxiliary.compression.timeout": (0.5, 3_600),
    "store.url": ("sqlite:///my sessions.db", "postgresql://host/base", "memory:", None),
    "store.retention_days": (1, None),
}

REFUSED = {
    "compression.enabled": (None, 1, "true", []),
    "compression.threshold": (0, -0.1, 1.01, True, "0.5", None, float("nan"), float("inf")),
    "compression.target_ratio": (0.09, 0.81),
    "compression.protect_last_n": (0, 2.5, True),
    "compression.protect_first_n": (-1,),
    "compression.summary_budget": ("steep", None),
    "compression.importance": ("guessed", None),
    "compression.summary_model": ("", 4),
    "compression.hygiene_threshold": (0, 1.5),
    "compression.max_attempts": (0, 11),
    "context.engine": ("", None),
    "context.economics": ("sometimes",),
    "model.context_length": (0, 1_023, 10_000_001, 128_000.0),
    "model.cache_ttl": ("10m", True),
    "model.pictures": ("some", 1),
    "auxiliary.mode": ("main",),
    "auxiliary.compression.base_url": ("ftp://host", "localhost:8080"),
    "auxiliary.compression.api_key_env": ("", "not-a-name", "lowercase_key", "1ST"),
    "auxiliary.compression.timeout": (0, 3_601, float("nan")),
    "tools.result_chars": (999, -1),
    "tools.turn_chars": (999,),
    "tools.preview_chars": (0, 100_001),
    "pressure.log": (0, 1.1),
    "pressure.warn": (0, 2),
    "pressure.emergency": (-1, 95),
    "redaction.detector": ("all", True),
    "recall.semantic": ("perhaps",),
    "recall.other_conversations": ("perhaps",),
    "store.url": ("mysql://host", "file.db"),
    "store.retention_days": (0, 40_000),
}


def value_at(values, key):
    for part in key.split("."):
        values = getattr(values, part)
    return values


def pairs(table):
    return [(key, value) for key, values in table.items() for value in values]


def config_file(folder, text):
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return file


class TestTable:
    def test_every_key_of_the_table_has_its_default(self):
        assert {key: value_at(Settings(), key) for key in known_keys()} == DEFAULTS

    def test_nothing_given_is_the_defaults(self):
        assert settings_from({}) == Settings()

    @pytest.mark.parametrize(("key", "value"), pairs(ALLOWED))
    def test_allowed_values_are_taken(self, key, value):
        assert value_at(settings_from({key: value}), key) == value

    @pytest.mark.parametrize(("key", "value"), pairs(REFUSED))
    def test_other_values_are_refused_with_key_and_what_is_allowed(self, key, value):
        with pytest.raises(SettingsError) as caught:
            settings_from({key: value})
        assert str(caught.value).startswith(f"{key} ")
        assert known_keys()[key].allowed in str(caught.value)

    def test_an_error_names_key_value_and_range(self):
        with pytest.raises(SettingsError) as caught:
            settings_from({"compression": {"target_ratio": 0.95}})
        assert str(caught.value) == "compression.target_ratio is 0.95; allowed: a number from 0.1 to 0.8"

    def test_a_long_value_is_cut_in_the_error(self):
        with pytest.raises(SettingsError) as caught:
            settings_from({"compression.summary_budget": "x" * 10_000})
        assert len(str(caught.value)) < 200

    @settings(max_examples=60, deadline=None)
    @given(st.floats(allow_nan=True) | st.integers())
    def test_a_threshold_is_taken_exactly_when_it_is_in_range(self, value):
        if 0 < value <= 1:
            assert settings_from({"compression.threshold": value}).compression.threshold == value
        else:
            with pytest.raises(SettingsError):
                settings_from({"compression.threshold": value})


class TestShapes:
    def test_nested_and_dotted_mean_the_same(self):
        nested = settings_from({"auxiliary": {"mode": "custom", "compression": {"model": "m"}}})
        assert nested == settings_from({"auxiliary.mode": "custom", "auxiliary.compression.model": "m"})
        assert nested == settings_from({"auxiliary": {"mode": "custom", "compression.model": "m"}})

    def test_the_mapping_is_not_changed(self):
        given_mapping = {"compression": {"threshold": 0.6}, "pressure.log": 0.5}
        before = json.dumps(given_mapping)
        settings_from(given_mapping)
        assert json.dumps(given_mapping) == before

    def test_a_key_given_twice_is_refused(self):
        with pytest.raises(SettingsError, match=r"compression\.threshold is given twice"):
            settings_from({"compression": {"threshold": 0.6}, "compression.threshold": 0.7})

    @pytest.mark.parametrize(
        ("key", "near"),
        [
            ("compression.treshold", "compression.threshold"),
            ("compresion.threshold", "compression.threshold"),
            ("threshold", "compression.threshold"),
            ("auxiliary.compression.api_key", "auxiliary.compression.api_key_env"),
            ("auxiliary.compression.contextlength", "auxiliary.compression.context_length"),
        ],
    )
    def test_an_unknown_key_is_refused_with_the_nearest(self, key, near):
        with pytest.raises(SettingsError) as caught:
            settings_from({key: "unseen-value"})
        assert str(caught.value) == f"{key} is not a setting; did you mean {near}?"

    def test_an_unknown_key_like_no_other_names_the_sections(self):
        with pytest.raises(SettingsError, match="sections are compression, context, model"):
            settings_from({"zzz": {"qqq": 1}})

    def test_a_section_is_not_a_setting(self):
        with pytest.raises(SettingsError, match=r"auxiliary\.compression is a section"):
            settings_from({"auxiliary": {"compression": "small-model"}})

    def test_words_that_yaml_readers_turn_into_booleans(self):
        assert settings_from({"context": {"economics": False}}).context.economics == "off"
        assert settings_from({"context": {"economics": True}}).context.economics == "on"
        assert settings_from({"model": {"cache_ttl": False}}).model.cache_ttl == "off"


class TestDirect:
    def test_sections_check_themselves(self):
        with pytest.raises(SettingsError, match=r"compression\.threshold is 2;"):
            CompressionSettings(threshold=2)
        with pytest.raises(SettingsError, match=r"context\.economics is False;"):
            ContextSettings(economics=False)
        with pytest.raises(SettingsError, match=r"auxiliary\.compression\.timeout is 0;"):
            AuxiliaryCompressionSettings(timeout=0)

    def test_a_changed_copy_checks_itself(self):
        with pytest.raises(SettingsError, match=r"pressure\.warn is 7"):
            msgspec.structs.replace(PressureSettings(), warn=7)

    def test_a_mapping_is_not_a_section(self):
        with pytest.raises(SettingsError, match="compression is a dict; allowed: CompressionSettings"):
            Settings(compression={"threshold": 0.6})

    def test_values_are_frozen(self):
        with pytest.raises(AttributeError):
            Settings().compression.threshold = 0.9


class TestSecrets:
    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("auxiliary.compression.api_key_env", "sk-" + "synthetic" * 4),
            ("auxiliary.compression.base_url", "//user:" + "hidden-word" + "@host/v1"),
            ("store.url", "mysql://user:" + "hidden-word" + "@host/base"),
        ],
    )
    def test_a_value_that_may_be_secret_is_not_shown(self, key, value):
        with pytest.raises(SettingsError) as caught:
            settings_from({key: value})
        assert key in str(caught.value)
        assert "synthetic" not in str(caught.value)
        assert "hidden-word" not in str(caught.value)

    def test_the_value_of_an_unknown_variable_is_not_shown(self):
        with pytest.raises(SettingsError) as caught:
            load_settings(environ={"PENSTOCK_API_KEY": "hidden-word"})
        assert "PENSTOCK_API_KEY" in str(caught.value)
        assert "hidden-word" not in str(caught.value)

    def test_own_secrets_are_the_values_of_secret_variables(self):
        value = "synthetic-" + "value-" * 4
        found = own_secrets({"SUMMARY_API_KEY": value, "LANG": "en_GB.UTF-8"})
        assert value in found
        assert "en_GB.UTF-8" not in found


class TestEnvironment:
    @pytest.mark.parametrize(
        ("variable", "text", "key", "value"),
        [
            ("PENSTOCK_COMPRESSION_THRESHOLD", "0.6", "compression.threshold", 0.6),
            ("PENSTOCK_COMPRESSION_THRESHOLD", " 1 ", "compression.threshold", 1.0),
            ("PENSTOCK_COMPRESSION_PROTECT_LAST_N", "7", "compression.protect_last_n", 7),
            ("PENSTOCK_MODEL_CONTEXT_LENGTH", "200_000", "model.context_length", 200_000),
            ("PENSTOCK_CONTEXT_ECONOMICS", "off", "context.economics", "off"),
            ("PENSTOCK_AUXILIARY_COMPRESSION_MODEL", "small", "auxiliary.compression.model", "small"),
            (
                "PENSTOCK_AUXILIARY_COMPRESSION_BASE_URL",
                "https://h/v1",
                "auxiliary.compression.base_url",
                "https://h/v1",
            ),
            ("PENSTOCK_AUXILIARY_MODE", "custom", "auxiliary.mode", "custom"),
        ],
    )
    def test_a_variable_sets_its_key(self, variable, text, key, value):
        assert value_at(load_settings(environ={variable: text}), key) == value

    @pytest.mark.parametrize("word", ["true", "True", "1", "yes", "ON"])
    def test_words_for_true(self, word):
        assert (
            load_settings(environ={"PENSTOCK_COMPRESSION_SYSTEM_NOTE": word}).compression.system_note is True
        )

    @pytest.mark.parametrize("word", ["false", "FALSE", "0", "no", "off"])
    def test_words_for_false(self, word):
        assert load_settings(environ={"PENSTOCK_COMPRESSION_ENABLED": word}).compression.enabled is False

    @pytest.mark.parametrize(
        ("variable", "text", "shown"),
        [
            ("PENSTOCK_COMPRESSION_ENABLED", "perhaps", "'perhaps'"),
            ("PENSTOCK_COMPRESSION_THRESHOLD", "1.5", "1.5"),
            ("PENSTOCK_COMPRESSION_THRESHOLD", "half", "'half'"),
            ("PENSTOCK_COMPRESSION_THRESHOLD", "nan", "nan"),
            ("PENSTOCK_COMPRESSION_MAX_ATTEMPTS", "3.0", "'3.0'"),
            ("PENSTOCK_COMPRESSION_MAX_ATTEMPTS", "null", "'null'"),
        ],
    )
    def test_a_bad_value_names_variable_key_and_value(self, variable, text, shown):
        with pytest.raises(SettingsError) as caught:
            load_settings(environ={variable: text})
        assert variable in str(caught.value)
        assert f"compression.{variable.removeprefix('PENSTOCK_COMPRESSION_').lower()} is {shown};" in str(
            caught.value
        )

    def test_an_unknown_variable_is_an_error_with_the_nearest(self):
        with pytest.raises(SettingsError, match="did you mean PENSTOCK_COMPRESSION_THRESHOLD"):
            load_settings(environ={"PENSTOCK_COMPRESSION_TRESHOLD": "0.6"})

    def test_variables_that_are_no_settings_and_those_of_others_are_left_alone(self):
        environ = {
            "PENSTOCK_CORPORA": "corpora",
            "PENSTOCK_CONFIG": "",
            "COMPRESSION_THRESHOLD": "x",
            "PATH": "/bin",
        }
        assert load_settings(environ=environ) == Settings()

    def test_an_empty_variable_counts_as_not_set(self):
        assert load_settings(environ={"PENSTOCK_COMPRESSION_THRESHOLD": ""}) == Settings()

    def test_every_key_has_a_variable_of_its_own(self):
        assert len({variable_name(key) for key in known_keys()}) == len(known_keys())

    def test_the_process_environment_is_the_default(self, monkeypatch, tmp_path):
        monkeypatch.delenv("PENSTOCK_CONFIG", raising=False)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setenv("PENSTOCK_COMPRESSION_THRESHOLD", "0.7")
        assert load_settings().compression.threshold == 0.7

    @settings(max_examples=80, deadline=None)
    @given(
        st.sampled_from(sorted(known_keys())),
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    )
    def test_any_text_is_taken_or_refused_clearly(self, key, text):
        try:
            loaded = load_settings(environ={variable_name(key): text})
        except SettingsError as error:
            refusal = str(error)
        else:
            assert settings_from({key: value_at(loaded, key)}) == loaded
            return
        assert key in refusal
        assert known_keys()[key].allowed in refusal


class TestFile:
    def test_a_file_is_read(self, tmp_path):
        file = config_file(
            tmp_path,
            "compression:\n  threshold: 0.6\n  enabled: no\n  summary_model: null\n  max_attempts: 5\n"
            "context:\n  economics: off\nmodel:\n  cache_ttl: 1h\n  context_length: 200000\n"
            "auxiliary:\n  compression:\n    model: small\nstore:\n  url: 'memory:'\ntools:\npressure.log: 0.5\n",
        )
        loaded = load_settings(file, environ={})
        assert loaded == settings_from(
            {
                "compression": {"threshold": 0.6, "enabled": False, "max_attempts": 5},
                "context": {"economics": "off"},
                "model": {"cache_ttl": "1h", "context_length": 200_000},
                "auxiliary": {"compression": {"model": "small"}},
                "store": {"url": "memory:"},
                "pressure": {"log": 0.5},
            }
        )

    @pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "compression:\n"])
    def test_an_empty_file_is_the_defaults(self, tmp_path, text):
        assert load_settings(config_file(tmp_path, text), environ={}) == Settings()

    @pytest.mark.parametrize(
        ("text", "position"),
        [
            ("compression:\n  threshold: [0.6\n", "line 3, column 1"),
            ("store:\n  url: memory:\n", "line 2, column 14"),
            ("compression:\n\tthreshold: 0.6\n", "line 2, column 1"),
            ("compression: {}\n---\nmodel: {}\n", "line 2, column 1"),
            ("compression: *nowhere\n", "line 1, column 14"),
            ("compression:\n  threshold: 0.6\n  threshold: 0.7\n", "line 3, column 3"),
            ("compression: {}\ncompression: {}\n", "line 2, column 1"),
            ("compression:\n  threshold: [0.6]\n", "line 2, column 3"),
            ("a: &a\n  b: *a\n", "line 2, column 3"),
            ("? [a, b]\n: 1\n", "line 1, column 3"),
        ],
    )
    def test_what_cannot_be_settings_is_an_error_with_line_and_column(self, tmp_path, text, position):
        file = config_file(tmp_path, text)
        with pytest.raises(SettingsError) as caught:
            load_settings(file, environ={})
        assert str(file) in str(caught.value)
        assert position in str(caught.value)

    @pytest.mark.outside
    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (b"- a\n- b\n", "expected sections"),
            (b"just words\n", "expected sections"),
            (b"\xff\xfe\x00", "not UTF-8"),
            (b"compression: \x07\n", "character"),
            (b"[" * 20_000, "nested too deeply"),
            (b"compression:\n  treshold: 0.5\n", "did you mean compression.threshold?"),
            (b"compression:\n  threshold: 7\n", "compression.threshold is 7.0"),
        ],
    )
    def test_other_broken_files_are_one_clear_error(self, tmp_path, content, words):
        file = tmp_path / "config.yaml"
        file.write_bytes(content)
        with pytest.raises(SettingsError) as caught:
            load_settings(file, environ={})
        assert str(file) in str(caught.value)
        assert words in str(caught.value)

    def test_a_named_file_must_exist(self, tmp_path):
        with pytest.raises(SettingsError, match="cannot be read"):
            load_settings(tmp_path / "absent.yaml", environ={})
        with pytest.raises(SettingsError, match="cannot be read"):
            load_settings(environ={"PENSTOCK_CONFIG": str(tmp_path)})


class TestPlaces:
    def test_the_given_path_comes_first_then_the_variable_then_the_folder(self, tmp_path):
        home = tmp_path / ".config" / "penstock"
        home.mkdir(parents=True)
        standard = config_file(home, "")
        environ = {"HOME": str(tmp_path)}
        assert config_path(environ=environ) == standard
        assert config_path(environ={**environ, "PENSTOCK_CONFIG": "named.yaml"}) == Path("named.yaml")
        assert config_path(Path("given.yaml"), {**environ, "PENSTOCK_CONFIG": "named.yaml"}) == Path(
            "given.yaml"
        )

    def test_the_configuration_folder_of_the_user(self, tmp_path):
        folder = tmp_path / "xdg" / "penstock"
        folder.mkdir(parents=True)
        file = config_file(folder, "")
        assert config_path(environ={"XDG_CONFIG_HOME": str(tmp_path / "xdg")}) == file
        assert config_path(environ={"XDG_CONFIG_HOME": "xdg", "HOME": str(tmp_path)}) is None
        assert config_path(environ={}) is None

    def test_environment_wins_over_file_and_flags_over_both(self, tmp_path):
        file = config_file(
            tmp_path, "compression:\n  threshold: 0.6\n  max_attempts: 4\n  protect_first_n: 1\n"
        )
        environ = {"PENSTOCK_COMPRESSION_THRESHOLD": "0.7", "PENSTOCK_COMPRESSION_MAX_ATTEMPTS": "5"}
        flags = {
            "compression.threshold": 0.8,
            "compression.protect_last_n": None,
            "compression.system_note": "yes",
        }
        loaded = load_settings(file, environ, flags).compression
        assert loaded == CompressionSettings(
            threshold=0.8, max_attempts=5, protect_first_n=1, system_note=True
        )

    def test_null_in_the_environment_overrides_the_file(self, tmp_path):
        file = config_file(tmp_path, "model:\n  context_length: 8192\n")
        loaded = load_settings(file, {"PENSTOCK_MODEL_CONTEXT_LENGTH": "null"})
        assert loaded.model.context_length is None

    def test_a_bad_flag_says_that_it_is_one(self):
        with pytest.raises(SettingsError, match=r"^command line: compression\.threshold is 2\.0;"):
            load_settings(environ={}, flags={"compression.threshold": "2"})


@pytest.mark.outside
def test_importing_config_loads_nothing_heavy():
    code = "import sys, penstock.config; print(*[m for m in ('yaml', 'difflib', 'asyncio', 'numpy') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert result.stdout.strip() == ""


def test_the_reference_states_every_setting():
    page = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(known_keys())
    for row, key in zip(rows, known_keys().values(), strict=True):
        _, _, default, allowed, meaning, _ = (cell.strip() for cell in row.split("|"))
        spelled = default.strip("`").replace(",", "")
        assert (spelled if isinstance(key.default, str) else json.loads(spelled)) == key.default
        assert allowed == key.allowed
        assert meaning


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("", "context:\n  engine: lossless\n"),
        (
            "# mine\nstore:\n  retention_days: 3",
            "# mine\nstore:\n  retention_days: 3\ncontext:\n  engine: lossless\n",
        ),
        ("context:\n  engine: x # why\n", "context:\n  engine: lossless # why\n"),
        ("context.engine: x\n", "context.engine: lossless\n"),
        ("context: {engine: x}\n", "context: {engine: lossless}\n"),
        ("context: # empty\nplugins: {}\n", "context:\n  engine: lossless # empty\nplugins: {}\n"),
    ],
)
def test_one_setting_is_changed_in_a_file_and_nothing_else(text, new):
    assert set_in_file(text, "context.engine", "lossless") == new


@pytest.mark.parametrize("text", ["{}", "--- {}\n...\n"])
def test_a_file_that_cannot_be_changed_safely_is_left_to_its_owner(text):
    with pytest.raises(SettingsError, match="by hand"):
        set_in_file(text, "context.engine", "lossless")


def test_without_home_the_data_folder_is_the_one_of_the_account(monkeypatch, tmp_path):
    for name in ("HOME", "USERPROFILE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    pwd = pytest.importorskip("pwd")
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        pytest.skip("the account is not on record")
    assert data_folder() == Path(home, ".local/share/penstock")
    assert cache_folder() == Path(home, ".cache/penstock")
