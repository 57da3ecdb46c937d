"""Which model writes summaries, by the settings and the session."""

from __future__ import annotations

import pytest

from penstock.engine.auxiliary import provider_of, summariser_for
from penstock.engine.compressor import ContextCompressor
from penstock.errors import SettingsError
from penstock.providers.connect import connect
from penstock.settings import settings_from
from penstock.testing import ScriptedModel


def main_model():
    return connect("openai", "big-model", base_url="http://127.0.0.1:9/v1")


def test_without_a_model_there_is_no_summariser():
    assert summariser_for(settings_from({}), None) is None
    assert summariser_for(settings_from({"auxiliary.mode": "same-as-main"}), None) is None


def test_auto_takes_the_session_s_own_model():
    main = main_model()
    assert summariser_for(settings_from({}), main).model is main


def test_auto_takes_another_model_of_the_same_provider_where_one_is_named():
    main = main_model()
    summariser = summariser_for(settings_from({"compression.summary_model": "small-model"}), main)
    assert summariser.model.name == "small-model"
    assert summariser.model.base_url == main.base_url
    assert repr(summariser) == "Summariser(small-model, big-model)"


def test_same_as_main_stays_with_it():
    main = main_model()
    settings = settings_from({"auxiliary.mode": "same-as-main", "compression.summary_model": "small-model"})
    assert summariser_for(settings, main).model is main


def test_a_model_that_is_no_provider_s_has_no_siblings():
    main = ScriptedModel([])
    assert summariser_for(settings_from({"compression.summary_model": "x"}), main).model is main


def test_custom_names_its_own():
    settings = settings_from(
        {
            "auxiliary": {
                "mode": "custom",
                "compression": {"provider": "anthropic", "model": "m-1", "base_url": "http://127.0.0.1:9"},
            }
        }
    )
    summariser = summariser_for(settings, main_model())
    assert (summariser.model.name, summariser.model.dialect) == ("m-1", "anthropic")
    assert repr(summariser) == "Summariser(m-1, big-model)"


def test_custom_without_a_model_is_an_error():
    with pytest.raises(SettingsError, match=r"auxiliary\.compression\.model"):
        summariser_for(settings_from({"auxiliary.mode": "custom"}), None)


def test_providers_by_name():
    assert provider_of("claude-haiku-4-5") == "anthropic"
    assert provider_of("gpt-4.1") == "openai"


def test_the_bundled_model_writes_no_summaries_unless_it_is_named():
    main = main_model()
    assert summariser_for(settings_from({}), main, provider="local") is None
    named = settings_from({"compression.summary_model": main.name})
    same = settings_from({"auxiliary.mode": "same-as-main"})
    for settings in (named, same):
        assert summariser_for(settings, main, provider="local").model is main
    custom = settings_from(
        {
            "auxiliary.mode": "custom",
            "auxiliary.compression.model": "small-model",
            "auxiliary.compression.base_url": main.base_url,
        }
    )
    assert repr(summariser_for(custom, main, provider="local")) == "Summariser(small-model)"
    assert repr(summariser_for(custom, main, provider="openai")) == "Summariser(small-model, big-model)"


def test_an_engine_that_is_told_of_the_bundled_model_asks_it_as_little():
    engine = ContextCompressor()
    engine.update_model("small", 8_192, base_url="http://127.0.0.1:9/v1", provider="local")
    assert engine._summariser is None
