"""A tool behind HTTP: sends its arguments as JSON; the text of the answer is the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.conversation.wire import encode_wire, json_text
from penstock.errors import InputError, ProviderError
from penstock.loop.approvals import Access, Permission
from penstock.loop.capping import cap_text
from penstock.loop.tools import ToolOutcome, fail, refuse
from penstock.measure.wording import pluralise
from penstock.providers.http import HttpRequest, TimeLimits
from penstock.recall.tool_arguments import read_object
from penstock.writing.stubs import shorten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.config import SecretText
    from penstock.loop.tools import ToolContext
    from penstock.providers.http import Transport
    from penstock.settings import HttpEndpoint

__all__ = ["HttpTool"]


class HttpTool:
    """A tool that a settings entry describes. `headers` are the values of the variables that the entry names."""

    most_chars: int | None = 50_000

    def __init__(
        self, name: str, endpoint: HttpEndpoint, headers: Mapping[str, SecretText], transport: Transport
    ) -> None:
        self.name = name
        self.description = endpoint.description
        self.parameters: Mapping[str, Any] = endpoint.parameters
        self.access = Access.READ if endpoint.reads_only else Access.RUN
        self._endpoint = endpoint
        self._headers = headers
        self._transport = transport

    async def run(self, args: Any, context: ToolContext) -> ToolOutcome:
        """Asks for approval if the tool does more than read, then sends the arguments."""
        try:
            given = read_object(args)
        except InputError as error:
            return fail(str(error))
        decision = await context.approve(
            Permission(tool=self.name, access=self.access, subject=json_text(given))
        )
        if not decision.allowed:
            return refuse(decision)
        request = HttpRequest(
            url=self._endpoint.url,
            headers={
                "content-type": "application/json",
                "accept": "application/json, text/*",
                **self._headers,
            },
            body=encode_wire(given),
        )
        try:
            reply = await self._transport.send(request, TimeLimits(total_seconds=self._endpoint.timeout))
        except ProviderError as error:
            return fail(f"{self.name} did not answer: {error}")
        text = cap_text(reply.body.decode(errors="replace"), self.most_chars or len(reply.body))
        if reply.status >= 400:
            return fail(f"{self.name} answered with status {reply.status}: {text}")
        lines = text.count("\n") + 1 if text else 0
        return ToolOutcome(
            text or "[the tool returned nothing]",
            summary=shorten(text) if lines == 1 else pluralise(lines, "line"),
        )
