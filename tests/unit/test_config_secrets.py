import copy
import json
import pickle

import msgspec
import pytest

from penstock.config import SecretText, read_secret
from penstock.errors import SettingsError

VALUE = "not-a-real-key-0123456789"


def test_a_secret_is_read_without_the_space_around_it():
    assert read_secret("SOME_KEY", {"SOME_KEY": f"  {VALUE}\n"}).reveal() == VALUE


@pytest.mark.parametrize("environ", [{}, {"SOME_KEY": ""}, {"SOME_KEY": " \n"}, {"OTHER_KEY": VALUE}])
def test_what_is_not_set_is_none(environ):
    assert read_secret("SOME_KEY", environ) is None


def test_it_comes_from_the_environment_unless_told(monkeypatch):
    monkeypatch.setenv("PENSTOCK_TEST_ONLY_KEY", VALUE)
    assert read_secret("PENSTOCK_TEST_ONLY_KEY").reveal() == VALUE


@pytest.mark.parametrize("bad", ["two words", "line\nbreak", "nul\0byte", "schlüssel", "“quoted”"])
def test_what_no_header_can_carry_is_refused_without_showing_it(bad):
    with pytest.raises(SettingsError) as caught:
        read_secret("SOME_KEY", {"SOME_KEY": bad})
    assert "SOME_KEY" in str(caught.value)
    assert bad not in str(caught.value)


def test_a_secret_does_not_show_itself():
    secret = SecretText(VALUE)
    for shown in (str(secret), repr(secret), f"{secret}", f"{secret!r}", f"{[secret]}"):
        assert VALUE not in shown
    assert not hasattr(secret, "__dict__")


def test_a_secret_is_not_serialised():
    secret = SecretText(VALUE)
    for write in (pickle.dumps, copy.copy, json.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            write(secret)
