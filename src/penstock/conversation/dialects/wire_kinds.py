"""Every type of item and block that the providers' APIs know: its pair, its stub and its weight.

A request of OpenAI's Responses API is a list of items; a message of Anthropic's API is a list of blocks, and messages of
the OpenAI APIs hold blocks too. Each type has one line here. Read a line as: what it is (`Nature`), who says it, which type
answers it and by which field the two know each other, what can stand in its place (`Stub`), and how its weight is
counted (`Weight`).

    nature     it is answered by         may leave a list                        is quoted in a handoff
    MESSAGE    nobody                    yes                                     yes
    CALL       the client, by an OUTPUT  with its output; unanswered it stays    yes
    USE        the provider, by a RESULT with its result                         yes
    WHOLE      nobody: it holds both     yes                                     mostly
    REASONING  nobody                    with the item that it led to            yes, unless it is sealed
    BARRIER    nobody                    never, if it is the newest one          never
    STANDING   nobody                    never                                   never

A barrier is a provider's own compaction: it stands for everything before it, which the provider no longer reads. A standing item
changes how the provider reads the request: tools that are offered from here on, a reference to an item that only the
provider has. A type that is not in these tables is opaque: it is kept whole or leaves whole, together with everything
that names its id.

The tables follow the types of the official packages; a test says when those know a type that is missing here.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.conversation.message import Opaque, Role, ToolCall, ToolResult
from penstock.conversation.wire import json_text, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.conversation.message import Message, Part

__all__ = [
    "ANTHROPIC_BLOCKS",
    "CHAT_BLOCKS",
    "RESPONSES_BLOCKS",
    "RESPONSES_ITEMS",
    "Nature",
    "Stub",
    "Weight",
    "WireKind",
    "find_barrier",
    "is_attachment",
    "is_barrier",
    "is_fixed",
    "is_standing",
    "known_kind",
    "read_words",
]


class Nature(StrEnum):
    """The part that a type plays in a conversation: see the table above."""

    MESSAGE = "message"
    CALL = "call"
    OUTPUT = "output"
    USE = "use"
    RESULT = "result"
    WHOLE = "whole"
    REASONING = "reasoning"
    BARRIER = "barrier"
    STANDING = "standing"


class Stub(StrEnum):
    """The smaller form that the place of an item or block can hold."""

    TEXT = "text"
    """Its content may be any text. In the arguments of a call, long texts and lists are shortened."""
    CHUNKS = "chunks"
    """Its content is a list of chunks of output; one chunk with a text can stand for all."""
    LINE = "line"
    """A block of text takes its place; of a document in plain text, the start and the end stay."""
    NONE = "none"
    """Nothing smaller is legal there: it stays whole, or leaves with its pair."""


class Weight(StrEnum):
    """The way in which the tokens of a type are counted."""

    TEXT = "text"
    """The words in it; what we do not understand, as its JSON."""
    SEAL = "seal"
    """Its ciphertext, as text: more than a provider charges, never less."""
    PICTURE = "picture"
    """By the size of the picture."""
    PAGES = "pages"
    """A file in base64, by its size: so many pages. Any other source, as its JSON."""
    SECONDS = "seconds"
    """Sound in base64, by its size."""


class WireKind(msgspec.Struct, frozen=True, kw_only=True):
    """One type on the wire."""

    type: str
    nature: Nature
    role: Role = Role.ASSISTANT
    """The role that we read it as."""
    pair: str = ""
    """The type that answers it, or that it answers; empty if every type ending in `_tool_result` does."""
    key: str = ""
    """The field whose value both of a pair share. If a use has none, the next result is its own."""
    content: tuple[str, ...] = ()
    """The fields that hold what a call was given or what came back: the first that is there."""
    stub: Stub = Stub.NONE
    weight: Weight = Weight.TEXT
    quoted: bool = True
    """True if a handoff may quote from it."""


def _table(*kinds: WireKind) -> Mapping[str, WireKind]:
    return MappingProxyType({kind.type: kind for kind in kinds})


def _call(name: str, answer: str, *content: str, stub: Stub = Stub.TEXT) -> WireKind:
    return WireKind(type=name, nature=Nature.CALL, pair=answer, key="call_id", content=content, stub=stub)


def _output(
    name: str, call: str, content: str, stub: Stub, *, weight: Weight = Weight.TEXT, quoted: bool = True
) -> WireKind:
    return WireKind(
        type=name,
        nature=Nature.OUTPUT,
        role=Role.TOOL,
        pair=call,
        key="call_id",
        content=(content,),
        stub=stub,
        weight=weight,
        quoted=quoted,
    )


def _whole(
    name: str,
    *,
    role: Role = Role.ASSISTANT,
    stub: Stub = Stub.NONE,
    weight: Weight = Weight.TEXT,
    quoted: bool = True,
) -> WireKind:
    return WireKind(type=name, nature=Nature.WHOLE, role=role, stub=stub, weight=weight, quoted=quoted)


def _standing(name: str, role: Role = Role.ASSISTANT) -> WireKind:
    return WireKind(type=name, nature=Nature.STANDING, role=role, quoted=False)


def _barrier(name: str) -> WireKind:
    return WireKind(type=name, nature=Nature.BARRIER, weight=Weight.SEAL, quoted=False)


def _words(name: str, role: Role = Role.ASSISTANT) -> WireKind:
    return WireKind(type=name, nature=Nature.MESSAGE, role=role, stub=Stub.TEXT)


def _picture(name: str) -> WireKind:
    return WireKind(
        type=name, nature=Nature.MESSAGE, role=Role.USER, stub=Stub.LINE, weight=Weight.PICTURE, quoted=False
    )


RESPONSES_ITEMS: Final = _table(
    # Words. A message has a role of its own, and its blocks are in the next table.
    _words("message"),
    WireKind(type="reasoning", nature=Nature.REASONING, weight=Weight.SEAL),
    # Calls that the client answers. One that is never answered gets an output of its own type.
    _call("function_call", "function_call_output", "arguments"),
    _output("function_call_output", "function_call", "output", Stub.TEXT),
    _call("custom_tool_call", "custom_tool_call_output", "input"),
    _output("custom_tool_call_output", "custom_tool_call", "output", Stub.TEXT),
    _call("local_shell_call", "local_shell_call_output", "action"),
    _output("local_shell_call_output", "local_shell_call", "output", Stub.TEXT),  # names its call by `id`
    _call("shell_call", "shell_call_output", "action"),
    _output("shell_call_output", "shell_call", "output", Stub.CHUNKS),
    _call("apply_patch_call", "apply_patch_call_output", "operation"),
    _output("apply_patch_call_output", "apply_patch_call", "output", Stub.TEXT),
    _call("computer_call", "computer_call_output", "action", "actions", stub=Stub.NONE),
    _output("computer_call_output", "computer_call", "output", Stub.NONE, weight=Weight.PICTURE),
    _call(
        "tool_search_call", "tool_search_output", "arguments"
    ),  # where the server searched: a use, see below
    _output("tool_search_output", "tool_search_call", "tools", Stub.NONE, quoted=False),
    # What the provider starts and ends in items of their own. A program makes calls in between.
    WireKind(type="program", nature=Nature.USE, pair="program_output", key="call_id"),
    WireKind(type="program_output", nature=Nature.RESULT, pair="program", key="call_id"),
    WireKind(type="mcp_approval_request", nature=Nature.USE, pair="mcp_approval_response", key="id"),
    WireKind(
        type="mcp_approval_response",
        nature=Nature.RESULT,
        role=Role.TOOL,
        pair="mcp_approval_request",
        key="approval_request_id",
    ),
    # What the provider did, call and result in one.
    _whole("mcp_call"),
    _whole("mcp_list_tools", quoted=False),  # left out, the provider asks the server again
    _whole("web_search_call"),
    _whole("file_search_call"),
    _whole("code_interpreter_call"),
    _whole("image_generation_call", weight=Weight.PICTURE, quoted=False),
    # Compactions of the provider: `compaction_summary` is an older name.
    _barrier("compaction"),
    _barrier("compaction_summary"),
    # Items by which the provider reads the others.
    _standing("context_compaction"),
    _standing("compaction_trigger"),  # asks for a compaction, as the last item
    _standing("item_reference"),  # an item that the provider has kept; the type may be left out
    _standing("additional_tools", Role.SYSTEM),
    _standing("configuration_update", Role.SYSTEM),
)

RESPONSES_BLOCKS: Final = _table(
    _words("input_text", Role.USER),
    _words("output_text"),
    _words("refusal"),
    _picture("input_image"),
    _whole("input_file", role=Role.USER, stub=Stub.LINE, weight=Weight.PAGES),
    _whole("input_audio", role=Role.USER, stub=Stub.LINE, weight=Weight.SECONDS, quoted=False),
)

CHAT_BLOCKS: Final = _table(
    _words("text", Role.USER),
    _words("refusal"),
    _picture("image_url"),
    _whole("file", role=Role.USER, stub=Stub.LINE, weight=Weight.PAGES),
    _whole("input_audio", role=Role.USER, stub=Stub.LINE, weight=Weight.SECONDS, quoted=False),
)


def _server_result(name: str, *, quoted: bool = True) -> WireKind:
    use = "mcp_tool_use" if name == "mcp_tool_result" else "server_tool_use"
    return WireKind(type=name, nature=Nature.RESULT, pair=use, key="tool_use_id", quoted=quoted)


ANTHROPIC_BLOCKS: Final = _table(
    # Words, pictures and attachments. Citations in a text are not charged, and an answer may cite a document that is gone.
    _words("text", Role.USER),
    _picture("image"),
    _whole("document", role=Role.USER, stub=Stub.LINE, weight=Weight.PAGES),
    _whole("search_result", role=Role.USER, stub=Stub.LINE),
    WireKind(type="thinking", nature=Nature.REASONING, weight=Weight.SEAL),
    WireKind(type="redacted_thinking", nature=Nature.REASONING, weight=Weight.SEAL),
    # Calls that the client answers, in the next user message.
    WireKind(
        type="tool_use",
        nature=Nature.CALL,
        pair="tool_result",
        key="id",
        content=("input",),
        stub=Stub.TEXT,
    ),
    WireKind(
        type="tool_result",
        nature=Nature.OUTPUT,
        role=Role.USER,
        pair="tool_use",
        key="tool_use_id",
        content=("content",),
        stub=Stub.TEXT,
    ),
    # Tools that the provider runs, within the assistant's turn. Their results hold ciphertext or fixed shapes.
    WireKind(type="server_tool_use", nature=Nature.USE, key="id"),
    _server_result("web_search_tool_result"),
    _server_result("web_fetch_tool_result"),
    _server_result("code_execution_tool_result"),
    _server_result("bash_code_execution_tool_result"),
    _server_result("text_editor_code_execution_tool_result"),
    _server_result("tool_search_tool_result", quoted=False),
    _server_result("advisor_tool_result"),
    WireKind(type="mcp_tool_use", nature=Nature.USE, pair="mcp_tool_result", key="id"),
    _server_result("mcp_tool_result"),
    _whole("mcp_tool_listing", quoted=False),  # left out, the provider asks the server again
    _whole("fallback", quoted=False),  # parts what two models wrote; stays where it is in its message
    # The provider's own compaction. One without content has failed and is no barrier.
    _barrier("compaction"),
    # What the model can use from here on.
    _standing("container_upload", Role.USER),
    _standing("tool_addition", Role.SYSTEM),
    _standing("tool_removal", Role.SYSTEM),
)

_KINDS: Final = MappingProxyType({**CHAT_BLOCKS, **RESPONSES_BLOCKS, **RESPONSES_ITEMS, **ANTHROPIC_BLOCKS})
_SERVER_RESULT = WireKind(
    type="", nature=Nature.RESULT, pair="server_tool_use", key="tool_use_id"
)  # of a tool that came later


def known_kind(part: Opaque) -> WireKind | None:
    """Returns the line of the part's type; None for an unknown type."""
    kind = _KINDS.get(part.kind)
    return _SERVER_RESULT if kind is None and part.kind.endswith("_tool_result") else kind


def is_barrier(part: Part) -> bool:
    """Returns True if the part is a compaction by the provider that stands for everything before it."""
    if type(part) is not Opaque:
        return False
    kind = _KINDS.get(part.kind)
    if kind is None or kind.nature is not Nature.BARRIER:
        return False
    wire = parse_json(part.text)
    field = "content" if isinstance(wire, dict) and "content" in wire else "encrypted_content"
    return isinstance(wire, dict) and bool(wire.get(field))


def is_standing(part: Part) -> bool:
    """Returns True if a request breaks without the part."""
    kind = _KINDS.get(part.kind) if type(part) is Opaque else None
    return kind is not None and kind.nature is Nature.STANDING


def find_barrier(messages: Sequence[Message], among: Sequence[int] | None = None) -> int | None:
    """Returns the position of the newest message that holds a barrier, or None.

    `among` are the positions of all messages with an `Opaque` part, if the caller knows them: no other can hold one.
    """
    for place in reversed(range(len(messages)) if among is None else among):
        if any(is_barrier(part) for part in messages[place].parts):
            return place
    return None


def is_attachment(part: Opaque) -> bool:
    """Returns True if a line of text can stand in the place of the part, as for a document or a file."""
    kind = _KINDS.get(part.kind)
    return kind is not None and kind.stub is Stub.LINE


def is_fixed(part: Part) -> bool:
    """Returns True if nothing smaller can stand in the place of a call or result."""
    if isinstance(part, ToolCall | ToolResult) and part.kind:
        kind = RESPONSES_ITEMS.get(part.kind)
        return kind is not None and kind.stub is Stub.NONE
    return False


# Fields that hold ciphertext or bytes, at any depth.
_SEALED = frozenset(
    ("encrypted_content", "encrypted_index", "encrypted_stdout", "fingerprint", "signature", "file_data")
)


def read_words(part: Opaque) -> str:
    """Returns what may be read and quoted of the part, as JSON without ciphertext.

    Returns nothing of a barrier, of a standing item, of tool schemas, or of a file.
    """
    kind = known_kind(part)
    if part.media_bytes or (kind is not None and not kind.quoted):
        return ""
    if not any(f'"{name}"' in part.text for name in _SEALED):
        return part.text
    return json_text(_unseal(parse_json(part.text)))


def _unseal(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _unseal(inner) for name, inner in value.items() if name not in _SEALED}
    return [_unseal(inner) for inner in value] if isinstance(value, list) else value
