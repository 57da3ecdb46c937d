"""The contract of `ContextEngine`, as tests that any engine can be held to.

    from penstock.testing import EngineContract

    class TestMyEngine(EngineContract):
        def make_engine(self):
            return MyEngine()

pytest finds the methods by their names; without pytest, `check_engine(MyEngine)` runs them all. Nothing here imports a
test framework.
"""

from __future__ import annotations

import copy
import inspect
import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.conversation.dialects import DIALECTS, decode_all
from penstock.conversation.rules import check
from penstock.engine.contract import ContextEngine
from penstock.measure.tokens import tokenizer_for
from penstock.measure.weigh import weigh

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Chat",
    "EngineContract",
    "agent_turns",
    "call_as_host",
    "check_engine",
    "every_shape",
    "giant_result",
    "long_conversation",
]


_STATUS = {
    "last_prompt_tokens",
    "threshold_tokens",
    "context_length",
    "usage_percent",
    "compression_count",
}
_USAGES: tuple[dict[str, Any], ...] = (
    {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050},
    {"input_tokens": 1_000, "output_tokens": 50, "input_tokens_details": {"cached_tokens": 400}},
    {"input_tokens": 100, "output_tokens": 50, "cache_read_input_tokens": 900},
)
_WINDOW = 16_000  # for an engine that has none before it is told of a model
_ROUNDS = 4
_RUBBISH: tuple[dict[str, Any], ...] = (
    {},
    {"prompt_tokens": None},
    {"prompt_tokens": -5, "completion_tokens": "many"},
    {"input_tokens": float("nan"), "output_tokens": []},
)


class EngineContract(ABC):
    """The contract that hosts rely on, as tests. Subclass it and say how the engine is made.

    The engine that `make_engine` returns is fresh each time and may know nothing of earlier ones. With `converges`, it is
    also held to its threshold: after one compression the messages fit it, however large a single one of them was.
    """

    converges: ClassVar[bool] = False

    @abstractmethod
    def make_engine(self) -> ContextEngine:
        """Returns a fresh engine."""

    def told_engine(self) -> ContextEngine:
        """Returns a fresh engine that knows a window: its own, or that of a model, which is the first thing a host tells it."""
        engine = self.make_engine()
        if not engine.context_length:
            engine.update_model("some-model", _WINDOW)
        return engine

    def conversation(self) -> Chat:
        """Returns a legal conversation that the engine can make smaller."""
        return long_conversation()

    def test_it_is_an_engine_with_a_name(self) -> None:
        """A host chooses engines by name."""
        engine = self.make_engine()
        _require(isinstance(engine, ContextEngine), "an engine is a ContextEngine")
        _require(bool(engine.name) and engine.name == engine.name.strip(), "its name is a plain word")
        _require(engine.name == self.make_engine().name, "its name does not change")

    def test_a_fresh_engine_has_seen_nothing(self) -> None:
        """All counters start at 0."""
        engine = self.told_engine()
        counters = (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens)
        _require(counters == (0, 0, 0), "no tokens are known before a response")
        _require(engine.compression_count == 0, "nothing was compressed")
        _require(not engine.should_compress(), "without tokens there is no need to compress")

    def test_limits_are_sensible(self) -> None:
        """The threshold lies inside the window."""
        engine = self.told_engine()
        _require(0 < engine.threshold_tokens <= engine.context_length, "0 < threshold ≤ window")
        _require(0 < engine.threshold_percent <= 1, "the threshold is a share")
        _require(engine.protect_first_n >= 0 and engine.protect_last_n >= 1, "counts of messages")

    def test_usage_of_every_provider_is_understood(self) -> None:
        """Prompt tokens include what was read from a cache."""
        for usage in _USAGES:
            engine = self.told_engine()
            given = copy.deepcopy(usage)
            engine.update_from_response(usage)
            _require(engine.last_prompt_tokens == 1_000, f"the prompt of {usage} is 1,000 tokens")
            _require(engine.last_completion_tokens == 50, f"the completion of {usage} is 50 tokens")
            _require(engine.last_total_tokens == 1_050, f"the total of {usage} is 1,050 tokens")
            _require(usage == given, "what was reported is not changed")

    def test_usage_that_says_nothing_does_no_harm(self) -> None:
        """Missing, null and negative numbers never raise and never count below 0."""
        for usage in _RUBBISH:
            engine = self.told_engine()
            engine.update_from_response(usage)
            _require(engine.last_prompt_tokens >= 0, f"no negative prompt from {usage}")
            _require(engine.last_completion_tokens >= 0, f"no negative completion from {usage}")

    def test_it_compresses_at_the_threshold_and_not_at_once(self) -> None:
        """The last reported prompt decides if no number is given."""
        engine = self.told_engine()
        _require(not engine.should_compress(1), "one token is no reason")
        _require(engine.should_compress(engine.context_length), "a full window is one")
        engine.update_from_response({"prompt_tokens": engine.context_length, "completion_tokens": 1})
        _require(engine.should_compress(), "the reported prompt counts where no number is given")
        engine.update_from_response({"prompt_tokens": 1, "completion_tokens": engine.context_length})
        _require(not engine.should_compress(), "completion tokens never decide")

    def test_compressing_changes_nothing_that_was_given(self) -> None:
        """Neither the list nor a message in it."""
        messages = self.conversation()
        before = copy.deepcopy(messages)
        self.told_engine().compress(messages)
        _require(messages == before, "the messages are the host's")

    def test_the_result_is_a_legal_conversation_and_no_longer(self) -> None:
        """Every result has its call, roles fit, and the last word of the user is still there."""
        _require_legal(self.told_engine(), self.conversation(), "the conversation")

    def test_conversations_of_every_shape_stay_legal(self) -> None:
        """Several calls at once, no system prompt, a single request, content in blocks, requests in a row."""
        for shape, messages in every_shape().items():
            _require_legal(self.told_engine(), messages, f"a conversation {shape}")

    def test_a_result_can_be_compressed_again(self) -> None:
        """A compressed conversation goes on, and is compressed again."""
        engine, messages = self.told_engine(), self.conversation()[:-1]
        for number in range(_ROUNDS):
            asked = {"role": "user", "content": f"Go on with round {number}."}
            turns = agent_turns(100 * (number + 1), 100 * (number + 1) + 12)
            messages = _require_legal(engine, [*messages, *turns, asked], f"round {number + 1}")
            messages = [*messages, {"role": "assistant", "content": f"Round {number} is done."}]

    def test_wishes_may_be_given_by_place_or_by_name(self) -> None:
        """`current_tokens` and `focus_topic` are hints; both may be missing."""
        engine, messages = self.told_engine(), self.conversation()
        engine.compress(messages, engine.context_length, "owner_17")
        engine.compress(messages, current_tokens=None, focus_topic=None)
        engine.compress(tuple(messages), focus_topic="owner_17")

    def test_a_compression_is_counted(self) -> None:
        """The count goes up by one where something was compressed."""
        engine, messages = self.told_engine(), self.conversation()
        smaller = engine.compress(messages) != messages
        _require(engine.compression_count == int(smaller), "compression_count says how often it compressed")

    def test_a_compression_keeps_to_the_threshold_where_that_is_promised(self) -> None:
        """With `converges`: messages as long as the window, and one result that is longer than it."""
        if not self.converges:
            return
        engine = self.told_engine()
        for messages in (long_conversation(120), giant_result(12 * engine.context_length)):
            tokens = _tokens(self.told_engine().compress(messages))
            _require(
                tokens <= engine.threshold_tokens,
                f"{tokens:,} tokens are left; the threshold is {engine.threshold_tokens:,}",
            )

    def test_nothing_to_compress_is_no_error(self) -> None:
        """Empty and short lists come back as they are."""
        short = [{"role": "user", "content": "Hello."}]
        _require(self.told_engine().compress([]) == [], "an empty list stays empty")
        _require(self.told_engine().compress(short) == short, "one message stays one message")

    def test_the_same_messages_give_the_same_result(self) -> None:
        """Fresh engines agree."""
        first, second = (self.told_engine().compress(self.conversation()) for _ in range(2))
        _require(first == second, "the result depends on the messages alone")

    def test_the_status_has_its_keys_and_no_share_over_100(self) -> None:
        """The keys that a status line shows."""
        engine = self.told_engine()
        engine.update_from_response({"prompt_tokens": 3 * engine.context_length, "completion_tokens": 1})
        status = engine.get_status()
        _require(status.keys() >= _STATUS, f"the status has {', '.join(sorted(_STATUS))}")
        _require(0 <= status["usage_percent"] <= 100, "a share of the window is at most 100 %")
        json.dumps(status)

    def test_a_smaller_model_lowers_the_threshold(self) -> None:
        """A host that switches models tells the engine."""
        engine = self.told_engine()
        window = max(1_024, engine.context_length // 4)
        engine.update_model("a-smaller-model", window, base_url="", api_key="", provider="")
        _require(engine.context_length == window, "the window is the new model's")
        _require(0 < engine.threshold_tokens <= window, "the threshold follows")
        _require(engine.should_compress(window), "a full window is full for the new model")

    def test_sessions_may_start_switch_reset_and_end(self) -> None:
        """No hook raises; a reset forgets the conversation and keeps the model."""
        engine = self.told_engine()
        window = engine.context_length
        engine.on_session_start("one", model="some-model", something_new="of a later host")
        engine.update_from_response({"prompt_tokens": 1_000, "completion_tokens": 10})
        engine.compress(self.conversation())
        engine.on_session_switch("one", "two", "compression")
        engine.on_session_switch("two", "three", "branch")
        messages = self.conversation()
        before = copy.deepcopy(messages)
        engine.on_session_end("three", messages)
        _require(messages == before, "the end of a session changes nothing")
        engine.on_session_reset()
        counters = (engine.last_prompt_tokens, engine.last_completion_tokens, engine.compression_count)
        _require(counters == (0, 0, 0), "a reset forgets what was counted")
        _require(engine.context_length == window, "a reset keeps the model")

    def test_a_full_conversation_is_compressed_before_its_session_starts(self) -> None:
        """A host tidies a resumed conversation first: nothing was reported yet, and no session has begun."""
        engine = self.told_engine()
        messages = _require_legal(engine, self.conversation(), "a resumed conversation")
        engine.on_session_start("resumed", model="some-model")
        _require(not engine.should_compress(), "without tokens there is no need to compress")
        _require_legal(engine, messages, "a resumed conversation that was tidied")

    def test_tools_are_described_as_function_tools(self) -> None:
        """In OpenAI's format, as JSON, with names that tell them apart."""
        schemas = self.told_engine().get_tool_schemas()
        _require(isinstance(schemas, list), "schemas come as a list")
        json.dumps(schemas)
        for schema in schemas:
            function: Any = schema.get("function")
            _require(schema.get("type") == "function" and isinstance(function, dict), "a tool is a function")
            _require(isinstance(function.get("name"), str) and bool(function["name"]), "it has a name")
            _require(bool(function.get("description")), "the model is told what it is for")
            parameters: Any = function.get("parameters")
            _require(isinstance(parameters, dict), "it says what it takes")
            _require(parameters.get("type") == "object", "arguments are an object")
        names = [schema["function"]["name"] for schema in schemas]
        _require(len(set(names)) == len(names), "no two tools have one name")

    def test_calls_are_answered_in_json_whatever_a_model_sends(self) -> None:
        """Missing, wrong and unknown arguments, and a tool nobody knows, are answers and not exceptions."""
        engine, messages = self.told_engine(), self.conversation()
        before = copy.deepcopy(messages)
        answer = json.loads(engine.handle_tool_call("no_such_tool", {}))
        _require("error" in answer, "an unknown tool is answered with an error")
        for function in (schema.get("function") or {} for schema in engine.get_tool_schemas()):
            name = function.get("name", "")
            wrong = {taken: [None] for taken in function.get("parameters", {}).get("properties", {})}
            for arguments in ({}, wrong, {"no_such_argument": 1}):
                text = engine.handle_tool_call(name, arguments, messages=messages)
                _require(isinstance(text, str), "an answer is a text")
                json.loads(text)
        _require(messages == before, "a tool changes nothing")

    def test_questions_before_a_request_are_answered(self) -> None:
        """Both optional questions have an answer and change nothing."""
        engine = self.told_engine()
        messages = self.conversation()
        before = copy.deepcopy(messages)
        _require(isinstance(engine.should_compress_preflight(messages), bool), "yes or no")
        _require(isinstance(engine.has_content_to_compress(messages), bool), "yes or no")
        _require(messages == before, "asking changes nothing")

    def test_what_newer_hosts_ask_is_answered(self) -> None:
        """Optional questions and hooks of the newest hosts, which leave out what a method does not take."""
        engine, messages = self.told_engine(), self.conversation()
        before = copy.deepcopy(messages)
        due, reason = engine.should_compress_info(1)
        _require(due is False and reason is None, "one token is no reason, and none for a warning")
        _require(engine.should_compress_info(engine.context_length)[0], "a full window is one")
        pruned, count = engine.prune_tool_results_only(messages, current_tokens=1_000)
        _require(len(pruned) == len(messages) and count >= 0, "shortening results removes no message")
        _require(
            bool(count) or pruned is messages,
            "where nothing was shortened, the list is the one that was given",
        )
        selected = engine.select_context(
            messages, conversation_messages=messages, incoming_message=messages[-1], budget_tokens=1_000
        )
        _require(selected is None or isinstance(selected, list), "another list for the request, or none")
        engine.on_turn_complete(messages, usage={"prompt_tokens": 1_000}, turn_id="1", interrupted=False)
        engine.on_turn_complete(messages, usage=None)
        _require(messages == before, "asking changes nothing")
        call_as_host(engine.compress, messages, current_tokens=None, force=True, memory_context="It is late.")
        call_as_host(engine.update_model, "some-model", _WINDOW, api_mode="chat_completions")
        _require(engine.context_length == _WINDOW, "the window is the new model's")

    def test_a_host_may_forget_the_size_of_the_last_prompt(self) -> None:
        """After a compression some hosts write -1: not known before the next response."""
        engine = self.told_engine()
        engine.update_from_response({"prompt_tokens": engine.context_length, "completion_tokens": 1})
        messages = engine.compress(self.conversation())
        engine.last_prompt_tokens = -1
        _require(isinstance(engine.should_compress(), bool), "yes or no")
        status = engine.get_status()
        _require(
            status["last_prompt_tokens"] >= 0 and status["usage_percent"] >= 0, "no number below 0 is shown"
        )
        engine.compress(messages, current_tokens=-1)

    def test_an_engine_can_be_copied_deep(self) -> None:
        """Hosts copy the engine that was registered for each of their agents: it has seen nothing of the other's talk."""
        engine = self.told_engine()
        engine.compress(self.conversation())
        twin = copy.deepcopy(engine)
        _require(twin.name == engine.name, "the copy is the same engine")
        _require(twin.context_length == engine.context_length, "for the same window")
        twin.on_session_reset()
        before = engine.compression_count
        _require_legal(twin, self.conversation(), "the conversation of the copy")
        _require(engine.compression_count == before, "what the copy does is its own")


def call_as_host(method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Calls a method of an engine with those of the options that it takes, as hosts do with engines of older contracts."""
    taken = inspect.signature(method).parameters.values()
    if any(one.kind is one.VAR_KEYWORD for one in taken):
        return method(*args, **options)
    names = {one.name for one in taken}
    return method(*args, **{name: value for name, value in options.items() if name in names})


def check_engine(make_engine: Callable[[], ContextEngine], *, converges: bool = False) -> list[str]:
    """Runs the whole contract against an engine. Returns the names of what was tested; raises AssertionError."""
    chosen = converges

    class Contract(EngineContract):
        converges = chosen

        def make_engine(self) -> ContextEngine:
            return make_engine()

    names = [name for name in dir(Contract) if name.startswith("test_")]
    for name in names:
        try:
            getattr(Contract(), name)()
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error
    return names


def _require_legal(engine: ContextEngine, messages: Chat, what: str) -> Chat:
    """Returns the result of a compression, which a provider would take, and which still holds the last request."""
    before = copy.deepcopy(messages)
    result = engine.compress(messages)
    _require(messages == before, f"{what} is the host's, and is not changed")
    _require(isinstance(result, list), "the result is a list")
    _require(all(isinstance(message, dict) for message in result), "of OpenAI-format dicts")
    _require(len(json.dumps(result)) <= len(json.dumps(messages)), f"{what} is not longer than before")
    chat = DIALECTS["chat"]
    broken = check(decode_all(chat, result), chat.rules)
    _require(broken == [], f"no rule is broken in {what}: {broken}")
    asked = _words([message for message in messages if message["role"] == "user"][-1])
    _require(any(asked in _words(message) for message in result), f"the last request stands in {what}")
    return result


def _words(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if isinstance(block.get("text"), str))


def _tokens(messages: Chat) -> int:
    return sum(weigh(decode_all(DIALECTS["chat"], messages), tokenizer_for("gpt-4o")))


def _require(holds: bool, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)


# Conversations that engines are held to their contract with: legal lists in OpenAI's chat format, of every shape.

Chat = list[dict[str, Any]]

_SYSTEM = {"role": "system", "content": "You are a coding agent."}
_LAST = {"role": "user", "content": "Which part names owner_17?"}


def long_conversation(turns: int = 30) -> Chat:
    """Returns a chat of an agent at work, with a system prompt and a last request."""
    return [dict(_SYSTEM), *agent_turns(0, turns), dict(_LAST)]


def agent_turns(first: int, end: int) -> Chat:
    """Turns of that chat, from the one with the number `first` on: each a request, a call with a long result, and an answer."""
    messages: Chat = []
    for turn in range(first, end):
        messages += [
            {"role": "user", "content": f"Look at part {turn}."},
            _calling(f"call_{turn}"),
            _result(f"call_{turn}", turn),
            {"role": "assistant", "content": f"Part {turn} is fine."},
        ]
    return messages


def every_shape(turns: int = 24) -> dict[str, Chat]:
    """Returns the shapes that lists come in, by what is special about them. Each is long, legal, and ends with its last word."""
    return {
        "with a system prompt": long_conversation(turns),
        "without a system prompt": [*agent_turns(0, turns), dict(_LAST)],
        "with one request and many calls": [
            dict(_SYSTEM),
            dict(_LAST),
            *(one for turn in range(2 * turns) for one in (_calling(f"c{turn}"), _result(f"c{turn}", turn))),
        ],
        "with calls that were made together": [
            dict(_SYSTEM),
            *(one for turn in range(turns) for one in _batch(turn)),
            dict(_LAST),
        ],
        "with content in blocks": [
            dict(_SYSTEM),
            *(one for turn in range(8 * turns) for one in _blocks(turn)),
            {"role": "user", "content": [{"type": "text", "text": _LAST["content"]}]},
        ],
        "with requests that nobody answered": [
            dict(_SYSTEM),
            *({"role": "user", "content": f"Also think of owner_{turn}. " * 40} for turn in range(3 * turns)),
            dict(_LAST),
        ],
    }


def giant_result(characters: int) -> Chat:
    """Returns a chat with one tool result of so many characters right before its end."""
    lines = [f"{number}: the value is {number * 37}" for number in range(characters // 24)]
    return [
        dict(_SYSTEM),
        *agent_turns(0, 3),
        dict(_LAST),
        _calling("giant"),
        {"role": "tool", "tool_call_id": "giant", "content": "\n".join(lines)},
    ]


def _calling(*ids: str) -> dict[str, Any]:
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": "read_file",
                "arguments": json.dumps({"path": f"src/part_{call_id.rpartition('_')[2]}.py"}),
            },
        }
        for call_id in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _result(call_id: str, turn: int) -> dict[str, Any]:
    lines = [f"def step_{turn}_{line}(job): return job.owner_{line}" for line in range(60)]
    return {"role": "tool", "tool_call_id": call_id, "content": "\n".join(lines)}


def _batch(turn: int) -> Chat:
    ids = [f"call_{turn}_{number}" for number in range(3)]
    results = [_result(call_id, turn) for call_id in ids]
    return [{"role": "user", "content": f"Look at part {turn}."}, _calling(*ids), *results]


def _blocks(turn: int) -> Chat:
    picture = {"type": "image_url", "image_url": {"url": f"https://example.org/{turn}.png"}}
    asked = {"type": "text", "text": f"What does picture {turn} show? " * 10}
    answer = {"type": "text", "text": f"It shows part {turn}. " * 20}
    return [{"role": "user", "content": [asked, picture]}, {"role": "assistant", "content": [answer]}]
