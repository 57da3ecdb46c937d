from __future__ import annotations

import argparse
from importlib import import_module

import pytest

from penstock.cli.main import HOMES
from penstock.cli.options import DIALECT_NAMES, Share, key_and_value, target, token_count
from penstock.cli.parser import build_parser
from penstock.conversation.dialects import DIALECTS


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("1", 1),
        ("20000", 20_000),
        ("20_000", 20_000),
        ("1,234,567", 1_234_567),
        ("20k", 20_000),
        ("1M", 1_000_000),
        ("6.5k", 6_500),
        ("0.5K", 500),
        ("1.25m", 1_250_000),
        ("1,234.5k", 1_234_500),
    ],
)
def test_numbers_of_tokens(text, tokens):
    assert token_count(text) == tokens


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "0k",
        "-5",
        "1.5",
        "1.0005k",
        ".5k",
        "1.k",
        "0.0k",
        "2_00",
        "1,23",
        "k",
        "1e4",
        "٣",
        "9" * 13,
        "20 k",
        "0x10",
        "nan",
    ],
)
def test_what_is_no_number_of_tokens(text):
    with pytest.raises(argparse.ArgumentTypeError, match="such as 20000 or 20k"):
        token_count(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("20%", Share(0.2)),
        ("12.5%", Share(0.125)),
        ("100%", Share(1.0)),
        (" 7 % ", Share(0.07)),
        ("20k", 20_000),
        ("600", 600),
    ],
)
def test_targets(text, wanted):
    assert target(text) == wanted


@pytest.mark.parametrize(
    "text", ["0%", "0.0%", "150%", "100.1%", "-5%", "%", "x%", "1e1%", "20%%", "٢%", "5k%"]
)
def test_shares_that_are_none(text):
    with pytest.raises(argparse.ArgumentTypeError, match="more than 0% and at most 100%"):
        target(text)


@pytest.mark.parametrize("text", ["0", "0.2", "-5", "many", "20 percent"])
def test_targets_that_are_none(text):
    with pytest.raises(argparse.ArgumentTypeError, match="such as 20000 or 20k, or a share such as 20%"):
        target(text)


def test_a_value_may_hold_an_equals_sign():
    assert key_and_value("store.url=sqlite:///x?a=b") == ("store.url", "sqlite:///x?a=b")


@pytest.mark.parametrize("text", ["hunter2", "=hunter2", " =hunter2"])
def test_a_setting_without_a_key_is_refused_and_not_shown(text):
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        key_and_value(text)
    assert "hunter2" not in str(caught.value)


def test_the_dialects_are_those_there_are():
    """They are written down again so that help need not load them."""
    assert set(DIALECT_NAMES) == set(DIALECTS)


def leaves(parser, words=()):
    """The commands that can be typed, such as `sessions list`."""
    actions = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    if not actions:
        return [" ".join(words)]
    return [
        leaf
        for action in actions
        for name, child in action.choices.items()
        for leaf in leaves(child, (*words, name))
    ]


def test_every_command_has_a_home():
    assert sorted(leaves(build_parser())) == sorted(HOMES)


@pytest.mark.parametrize("command", HOMES)
def test_every_home_has_its_function(command):
    module, _, name = HOMES[command].partition(":")
    assert callable(getattr(import_module(f"penstock.cli.{module}"), name))


def test_later_settings_win():
    args = build_parser().parse_args(["config", "--set", "a.b=1", "--set", "a.b=2"])
    assert dict(args.settings) == {"a.b": "2"}
