"""Seals: what was sealed for an owner opens for that owner, on every instance, and nothing else does."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import SettingsError
from penstock.gateway.sealing import (
    FileKeys,
    Sealed,
    SealKey,
    StoreKeys,
    name_conversation,
    open_seal,
    seal,
)
from penstock.stores.store import open_store

KEY = SealKey("0a1b2c3d", bytes(range(32)))
OTHER = SealKey("0a1b2c3d", bytes(range(1, 33)))
texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=300)
sealed_things = st.builds(
    Sealed, text=texts, conversation=st.sampled_from(["", "20261116-abc"]), length=st.integers(0, 10**6)
)


def find_in(*keys):
    return lambda name: next((key for key in keys if key.id == name), None)


@given(sealed_things, texts)
def test_what_was_sealed_opens_for_its_owner(sealed, owner):
    token = seal(KEY, owner, sealed)
    assert token.isascii()
    assert token.isprintable()
    assert open_seal(token, owner, find_in(KEY)) == sealed
    assert name_conversation(token) == sealed.conversation


@given(sealed_things, texts, st.data())
def test_no_flipped_bit_of_a_token_is_believed(sealed, owner, data):
    token = seal(KEY, owner, sealed)
    at, bit = data.draw(st.integers(0, len(token) - 1)), data.draw(st.integers(0, 7))
    changed = token[:at] + chr(ord(token[at]) ^ (1 << bit)) + token[at + 1 :]
    assert open_seal(changed, owner, find_in(KEY)) is None


@given(sealed_things, texts, st.data())
def test_no_part_of_a_token_can_be_cut_added_or_taken_from_another(sealed, owner, data):
    token, other = seal(KEY, owner, sealed), seal(KEY, owner, Sealed(text="something else", length=3))
    cut = data.draw(st.integers(0, len(token) - 1))
    parts, others = token.split("."), other.split(".")
    place = data.draw(st.sampled_from([3, 4]))
    mixed = ".".join([*parts[:place], others[place], *parts[place + 1 :]])
    for changed in (token[:cut], token + "A", token + "=", token + ".", mixed):
        assert open_seal(changed, owner, find_in(KEY)) is None


@given(sealed_things, texts, texts)
def test_a_token_opens_for_no_other_owner(sealed, owner, other):
    found = open_seal(seal(KEY, owner, sealed), other, find_in(KEY))
    assert (found is not None) == (owner == other)


@given(sealed_things, texts)
def test_a_token_opens_with_no_other_key_of_the_same_name_and_with_none(sealed, owner):
    token = seal(KEY, owner, sealed)
    assert open_seal(token, owner, find_in(OTHER)) is None
    assert open_seal(token, owner, find_in()) is None


@given(st.text(max_size=200), texts)
def test_what_is_no_token_opens_to_nothing(text, owner):
    assert open_seal(text, owner, find_in(KEY)) is None
    assert open_seal(f"PENSTOCK~SEALED~HANDOFF~1.0a1b2c3d.-.{text}", owner, find_in(KEY)) is None


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/keys.db"


def test_another_instance_opens_it_and_a_rotated_key_goes_on_opening(url):
    first, second = open_store(url), open_store(url)
    try:
        here, there = StoreKeys(first), StoreKeys(second)
        old = here.current()
        assert there.current() == old
        token = seal(old, "me", Sealed(text="before"))
        new = there.rotate()
        assert here.current() == new != old  # without a restart
        later = seal(here.current(), "me", Sealed(text="after"))
        for keys in (here, there, StoreKeys(second)):
            assert open_seal(token, "me", keys.find) == Sealed(text="before")
            assert open_seal(later, "me", keys.find) == Sealed(text="after")
    finally:
        first.close()
        second.close()


def test_keys_in_a_file_are_private_and_rotate(tmp_path):
    path = tmp_path / "seal.keys"
    with pytest.raises(SettingsError, match="rotate-seal"):
        FileKeys(path).current()
    old = FileKeys(path).rotate()
    token = seal(old, "me", Sealed(text="before"))
    new = FileKeys(path).rotate()
    keys = FileKeys(path)
    assert keys.current() == new
    assert open_seal(token, "me", keys.find) == Sealed(text="before")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert old.secret.hex() not in repr(old)
    path.write_text("no key\n")
    with pytest.raises(SettingsError, match="64 hexadecimal digits"):
        FileKeys(path).current()
