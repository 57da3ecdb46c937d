"""Whatever is passed by mistake, the error is one of our tree and says what to do instead."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import penstock
from penstock.engine.compressor import ContextCompressor
from penstock.errors import InputError, PenstockError, SettingsError, UnknownDialect, UnknownHandle

M = [{"role": "user", "content": "hello"}]


class LangChainLike:
    def model_dump(self, **_options):
        return {"type": "human", "content": "hello", "additional_kwargs": {}}


class SdkLike:
    def model_dump(self, **_options):
        return dict(M[0])


@dataclasses.dataclass
class Spoken:
    role: str = "user"
    content: str = "hello"


def session(**options):
    return penstock.Session.create(penstock.open_store("memory:"), **options)


LISTS = [None, 5, "hello", b"[]", M[0], SdkLike()]
NO_MESSAGES = [5, None, "hello", ["hello"], Spoken(), object(), LangChainLike()]
TAKE_MESSAGES = [
    penstock.compress,
    lambda given: penstock.handoff(given, tokens=500),
    lambda given: ContextCompressor(9_000).compress(given),
    lambda given: ContextCompressor(9_000).estimate(given),
    lambda given: ContextCompressor(9_000).should_compress_preflight(given),
    lambda given: ContextCompressor(9_000).has_content_to_compress(given),
    lambda given: penstock.LosslessEngine(9_000).compress(given),
    penstock.compress_trajectory,
]


@pytest.mark.parametrize("call", TAKE_MESSAGES)
@pytest.mark.parametrize("given", LISTS, ids=lambda one: type(one).__name__)
def test_what_is_no_list_of_messages(call, given):
    with pytest.raises(InputError, match="list"):
        call(given)


@pytest.mark.parametrize("call", TAKE_MESSAGES[:-1])
@pytest.mark.parametrize("given", NO_MESSAGES, ids=lambda one: type(one).__name__)
def test_what_is_no_message_is_told_the_way_out(call, given):
    with pytest.raises(InputError, match=r"model_dump.*convert_to_openai_messages.*\(message 2\)"):
        call([*M, given])


def test_a_session_says_the_same():
    for given in LISTS:
        with pytest.raises(InputError, match="list"):
            session().append(given)
    for given in (5, None, ["hello"]):
        with pytest.raises(InputError, match="convert_to_openai_messages"):
            session().append([given])


@pytest.mark.parametrize(
    "call",
    [
        lambda: penstock.compress(M, settings=5),
        lambda: penstock.compress(M, settings={"nope": 1}),
        lambda: penstock.compress(M, tools=5),
        lambda: penstock.compress(M, target_tokens="5"),
        lambda: penstock.compress(M, model=5),
        lambda: penstock.compress(M, dialect=5),
        lambda: penstock.compress(M, summariser=5),
        lambda: penstock.handoff(M, tokens=500, settings=5),
        lambda: ContextCompressor("large"),
        lambda: ContextCompressor(1.5),
        lambda: ContextCompressor(True),  # noqa: FBT003 - the mistake
        lambda: ContextCompressor(-1),
        lambda: ContextCompressor(model=5),
        lambda: ContextCompressor(settings=5),
        lambda: ContextCompressor(threshold_percent=7),
        lambda: ContextCompressor(protect_first_n=-1),
        lambda: ContextCompressor(on_notice=5),
        lambda: ContextCompressor(summariser=5),
        lambda: ContextCompressor(store="sqlite:///work.db"),
        lambda: ContextCompressor(reserved_output_tokens=-5),
        lambda: ContextCompressor().update_model("gpt-4o", "large"),
        lambda: penstock.Session.create("sqlite:///work.db"),
        lambda: penstock.Session.resume("sqlite:///work.db", "id"),
        lambda: session(settings=5),
        lambda: session().compact(target_tokens="x"),
        lambda: penstock.open_store(Path("work.db")),
        lambda: penstock.connect(5, "x"),
        lambda: penstock.connect("openai", 5, api_key="k"),
        lambda: penstock.connect("openai", "x", api_key=5),
        lambda: penstock.connect("openai", "x", api_key="k", timeout_seconds="long"),
    ],
)
def test_a_wrong_setting(call):
    with pytest.raises(SettingsError, match=r"[;:]|known"):
        call()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: penstock.compress(M, tools=[object()], context_length=500), InputError),
        (lambda: penstock.compress(M, system=object(), context_length=500), InputError),
        (lambda: penstock.compress([{"role": "user", "content": object()}]), InputError),
        (lambda: penstock.compress(M, dialect=None), UnknownDialect),
        (lambda: penstock.mark_cache(5, dialect="anthropic"), InputError),
        (lambda: ContextCompressor().original(5), UnknownHandle),
        (lambda: session().original(5), UnknownHandle),
        (lambda: penstock.Session.resume(penstock.open_store("memory:"), 5), PenstockError),
        (lambda: session(dialect=5), UnknownDialect),
        (lambda: penstock.compress_trajectory(5), InputError),
    ],
)
def test_other_mistakes(call, error):
    with pytest.raises(error):
        call()
