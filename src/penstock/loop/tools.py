"""Tools: each has a name, a description, a schema, its effect on the world, and a way to run it.

`run` never raises for bad arguments or for failures: wrong arguments, a missing file and a refusal are outcomes that tell
the model what to do. Only cancellation passes through.
"""

from __future__ import annotations

import difflib
from abc import ABC, abstractmethod
from collections.abc import Mapping  # noqa: TC003 - a struct's field types are read at run time
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from penstock._structs import read_early
from penstock.errors import InputError, ToolFailure
from penstock.loop.approvals import Access, Decision, Permission
from penstock.loop.capping import cap_text
from penstock.recall.tool_arguments import read_arguments
from penstock.writing.stubs import shorten

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Iterable

    from penstock.loop.memory import Memory
    from penstock.loop.workspace import Workspace

__all__ = ["OwnTool", "Tool", "ToolContext", "ToolOutcome", "Toolbox", "fail", "function_schema", "refuse"]

_Arguments = TypeVar("_Arguments", bound=msgspec.Struct)


class ToolOutcome(msgspec.Struct, frozen=True):
    """The outcome of a call: a text for the model, a flag for a failure, and one line for people."""

    text: str
    is_error: bool = False
    summary: str = ""


def _unheard(_line: str) -> None:
    """For hosts that do not show output as it arrives."""


async def _nothing_stored(_handle: str) -> str | None:
    """For hosts that store no results."""
    return None


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a host gives to the tools of a session.

    `approve` decides on anything that needs approval. `environment` is that of commands, without secrets. `stored` reads a
    stored result by its handle. `on_line` gets the lines of a command as they come. `interrupt`, once set, ends the running
    command, whose outcome then says so; cancelling the call ends it too, without an outcome. `page_chars` bounds a page
    of `read_file`: hosts with small windows give less. `redact` finds secrets in what is written to memory.
    """

    workspace: Workspace
    approve: Callable[[Permission], Awaitable[Decision]]
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)
    memory: Memory | None = None
    stored: Callable[[str], Awaitable[str | None]] = _nothing_stored
    on_line: Callable[[str], None] = _unheard
    interrupt: asyncio.Event | None = None
    page_chars: int = 50_000
    redact: Callable[[str], str] = str


class Tool(Protocol):
    """A tool that an agent's model may call.

    `description` begins with a line that can stand alone. `most_chars` is the limit of its own output, None if it
    limits its output itself. A tool whose access is not READ asks `context.approve` before it does anything.
    """

    @property
    def name(self) -> str:
        """The name by which it is called."""

    @property
    def description(self) -> str:
        """Tells the model what it does."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of its arguments."""

    @property
    def access(self) -> Access:
        """Its effect on the world."""

    @property
    def most_chars(self) -> int | None:
        """The most characters of an outcome's text."""

    async def run(self, args: Any, context: ToolContext) -> ToolOutcome:
        """Runs the tool. `args` is what the model wrote: an object, its JSON, or anything at all."""


class OwnTool(ABC, Generic[_Arguments]):
    """A tool whose arguments are a Struct: they are read, failures become outcomes, and the text is capped."""

    name: ClassVar[str]
    description: ClassVar[str]
    access: ClassVar[Access] = Access.READ
    most_chars: ClassVar[int | None] = 50_000
    arguments: type[_Arguments]

    def __init_subclass__(cls, **options: Any) -> None:
        """Reads the arguments of a new tool."""
        super().__init_subclass__(**options)
        if "arguments" in cls.__dict__:
            read_early(cls.arguments)

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of its arguments, derived from their types."""
        return parameters_of(self.arguments)

    async def run(self, args: Any, context: ToolContext) -> ToolOutcome:
        """Reads the arguments and runs the tool."""
        try:
            wanted = read_arguments(args, self.arguments)
            _refuse_surrogates(wanted)
            outcome = await self.act(wanted, context)
        except InputError as error:
            return fail(f"{error}; {self.name} takes {self._usage()}")
        except ToolFailure as error:
            return fail(str(error))
        except OSError as error:
            return fail(_in_words(error, context))
        text = outcome.text if self.most_chars is None else cap_text(outcome.text, self.most_chars)
        return ToolOutcome(_utf8(text), outcome.is_error, _utf8(outcome.summary))

    @abstractmethod
    async def act(self, wanted: _Arguments, context: ToolContext) -> ToolOutcome:
        """Does the work. May raise ToolFailure and OSError."""

    def _usage(self) -> str:
        schema = self.parameters
        required = set(schema.get("required", ()))
        names = [name if name in required else f"{name}?" for name in schema["properties"]]
        return ", ".join(names)


class Toolbox(msgspec.Struct, frozen=True):
    """Tools by name, in the order in which they are offered."""

    tools: Mapping[str, Tool]

    @classmethod
    def of(cls, tools: Iterable[Tool]) -> Toolbox:
        """Returns these tools. Raises ValueError if two have the same name."""
        named: dict[str, Tool] = {}
        for tool in tools:
            if tool.name in named:
                raise ValueError(f"two tools have the name {tool.name}")
            named[tool.name] = tool
        return cls(named)

    async def run(self, name: str, args: Any, context: ToolContext) -> ToolOutcome:
        """Runs a call. Never raises for what the model wrote; missing arguments are an empty object."""
        tool = self.tools.get(name)
        if tool is None:
            alike = difflib.get_close_matches(name, self.tools, n=3)
            names = ", ".join(alike or self.tools)
            return fail(f"there is no tool {name!r}; {'did you mean' if alike else 'there are'}: {names}")
        nothing = args is None or (isinstance(args, str) and not args.strip())
        return await tool.run({} if nothing else args, context)


def fail(text: str, summary: str = "") -> ToolOutcome:
    """Returns the outcome of a failure; people see its first line."""
    return ToolOutcome(text, is_error=True, summary=shorten(summary or text.partition("\n")[0]))


def refuse(decision: Decision) -> ToolOutcome:
    """Returns the outcome of a call that was not allowed."""
    return fail(
        f"Not done: {decision.reason}. Do not try the same again in another way; ask the user, or go on without it.",
        summary=f"refused: {decision.reason}",
    )


def function_schema(tool: Tool) -> dict[str, Any]:
    """Returns the tool in the format of OpenAI's function tools."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        },
    }


def parameters_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns a flat JSON schema that every provider takes: no references, no null beside another type."""
    schema = _schema_of(arguments)
    properties = {name: _plain_property(given) for name, given in schema["properties"].items()}
    return {
        "type": "object",
        "properties": properties,
        "required": list(schema.get("required", ())),
        "additionalProperties": False,
    }


@cache
def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    _, components = msgspec.json.schema_components([arguments])
    schema: dict[str, Any] = components[arguments.__name__]
    return schema


def _plain_property(given: dict[str, Any]) -> dict[str, Any]:
    kinds = [kind for kind in given.get("anyOf", ()) if kind != {"type": "null"}]
    merged = {**given, **kinds[0]} if len(kinds) == 1 else given
    if "enum" in merged:
        merged = {"type": "string", **merged}
    optional = {"anyOf"} | ({"default"} if merged.get("default", "") is None else set())
    return {key: value for key, value in merged.items() if key not in optional}


def _refuse_surrogates(wanted: msgspec.Struct) -> None:
    """Refuses half of a surrogate pair: JSON can express it; no file, command or address can contain it."""
    for name, value in msgspec.structs.asdict(wanted).items():
        try:
            value.encode() if isinstance(value, str) else None
        except UnicodeEncodeError as error:
            raise InputError(
                f"{name}: character {error.start + 1:,} is half of a surrogate pair; write the whole character"
            ) from None


def _utf8(text: str) -> str:
    """Returns the text as every client can send it: a lone surrogate, as in a file name that is not UTF-8, becomes a `?`."""
    return text.encode(errors="replace").decode()


def _in_words(error: OSError, context: ToolContext) -> str:
    said = error.strerror or str(error)
    if error.filename is None:
        return f"the system refused: {said}"
    name = str(error.filename).removeprefix(f"{context.workspace.root}/")
    return f"{name}: {said}"
