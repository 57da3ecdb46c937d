"""The API of hosted conversations: sessions that live here, for chat apps, bots and services.

    POST /sessions                       opens one
    POST /sessions/{id}/messages         says something in it, answered as JSON or as a stream of events

`hosted_description` describes all of it. A caller sees the sessions of its own key. Everything that needs a model or a turn runs
in a loop of its own thread (`side_loop`), so that requests that are only passed on are not held up by a store.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl, unquote

import msgspec
from aiohttp import web

from penstock.accounts.changes import change_pin
from penstock.accounts.conversations import make_title, search_conversations, show_remaining
from penstock.accounts.talk import read_talk
from penstock.accounts.usage import report_usage
from penstock.context.events import Compacted, Noticed, Recovering
from penstock.conversation.dialects import dialect_named
from penstock.conversation.handles import name_message
from penstock.conversation.wire import encode_wire
from penstock.errors import PenstockError, StoreConflict, UnknownSession
from penstock.gateway.callers import Refused
from penstock.gateway.hosted_agents import HOSTED, HostedAgents, HostedProfile, read_profile
from penstock.gateway.hosted_description import (
    CompactionRequest,
    GivenApproval,
    NewHostedSession,
    PinnedMessage,
    SaidText,
)
from penstock.gateway.hosted_errors import HostedError, explain_failure, explain_refusal
from penstock.gateway.hosted_turns import HostedMessage, HostedTurns
from penstock.gateway.keys import read_store_secret
from penstock.gateway.requests import read_credential, stricter_store
from penstock.gateway.side_loop import SideLoop
from penstock.loop.approvals import ApprovalReply
from penstock.loop.events import ApprovalAsked, Said, Thought, ToolEnded, ToolStarted
from penstock.loop.stored_approvals import StoredApprovals
from penstock.measure.usage import Usage
from penstock.recall.ranking import Wish
from penstock.recall.semantic import embedder_for
from penstock.sessions.exporting import LINES, export_conversation, write_document
from penstock.sessions.retention import honour_retention
from penstock.stores.values import Delivery, NewSession

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import TypeAlias

    from penstock.gateway.callers import Caller, Operations, ServedRequest
    from penstock.gateway.upstreams import Upstreams
    from penstock.loop.agent import Agent
    from penstock.loop.events import AgentEvent
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import ConversationRow

    ReadBody: TypeAlias = Callable[[web.BaseRequest], Awaitable[bytes]]

__all__ = ["HostedSessions"]

_ROOT: Final = "/sessions"
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_ALIVE_SECONDS: Final = 15.0  # between two signs of life in a stream
_PAGE, _MOST = 20, 100  # items of a page
_KEY: Final = re.compile(r"[!-~]{1,200}")
_ID_BYTES: Final = 16
_ID: Final = re.compile(r"[0-9a-f]{16,64}")
_CURSOR: Final = re.compile(r"([0-9]{1,12}\.[0-9]{1,9})-([0-9a-f]{16,64})", re.ASCII)
_T = TypeVar("_T")


class _Route:
    """A path, in which a part in braces stands for anything, and what answers each of its methods."""

    def __init__(self, path: str, handlers: Mapping[str, Callable[..., Awaitable[Any]]]) -> None:
        self.path = path
        self.handlers = handlers
        self._parts = path.split("/")

    def matches(self, parts: Sequence[str]) -> bool:
        """Returns True for the parts of a path that is served here."""
        return len(parts) == len(self._parts) and all(
            (own.startswith("{") and part) or own == part
            for own, part in zip(self._parts, parts, strict=True)
        )

    def pick(self, parts: Sequence[str]) -> list[str]:
        """Returns those parts that stand for something."""
        return [part for own, part in zip(self._parts, parts, strict=True) if own.startswith("{")]


class _Visit:
    """A request that was let in."""

    def __init__(
        self, request: web.BaseRequest, served: ServedRequest, caller: Caller, store: Store, read: ReadBody
    ) -> None:
        self.request = request
        self.served = served
        self.caller = caller
        self.store = store.for_owner(caller.owner)
        self.credential = read_credential(request.headers)
        self.query = dict(parse_qsl(request.raw_path.partition("?")[2], keep_blank_values=True))
        self._read = read

    async def body(self, kind: type[_T]) -> tuple[_T, bytes]:
        """Returns what the body holds, and its bytes; an empty one is an empty object. Raises HostedError."""
        if self.request.headers.get("content-encoding", "identity").lower() != "identity":
            raise Refused("content-encoding is not supported here", status=415)
        data = await self._read(self.request)
        self.served.bytes_in = len(data)
        try:
            return msgspec.json.decode(data or b"{}", type=kind), data
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _invalid(f"the body cannot be used: {error}{_list_choices(kind, str(error))}") from None

    def number(self, name: str, default: int, most: int) -> int:
        """Returns a number of the query. Raises HostedError."""
        text = self.query.get(name, str(default))
        if not (text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= most):
            raise _invalid(f"{name} is a number from 1 to {most:,}")
        return int(text)

    def words(self, name: str) -> str:
        """Returns a text of the query. Raises HostedError where it is missing or empty."""
        text = self.query.get(name, "").strip()
        if not text or len(text) > 1_000:
            raise _invalid(f"{name} is missing, empty or longer than 1,000 characters")
        return text

    def delivery(self, data: bytes) -> Delivery | None:
        """Returns the delivery by the request's idempotency key; None where it has none. Raises HostedError."""
        key = self.request.headers.get("idempotency-key")
        if key is None:
            return None
        if not _KEY.fullmatch(key):
            raise _invalid("Idempotency-Key has 1 to 200 printable ASCII characters, and no spaces")
        return Delivery(key, hashlib.sha256(data).digest())

    @property
    def wants_events(self) -> bool:
        """True where the client accepts nothing but a stream."""
        return self.request.headers.get("accept", "").partition(";")[0].strip().lower() == _EVENTS


class HostedSessions:
    """Serves everything under `/sessions`. `async with` runs it."""

    def __init__(self, settings: Settings, store: Store, upstreams: Upstreams) -> None:
        self._settings = settings
        self._store = store
        self._upstreams = upstreams
        self._side: SideLoop
        self._turns: HostedTurns
        self._running: set[asyncio.Future[Any]] = set()
        one = f"{_ROOT}/{{id}}"
        self._routes = (
            _Route(_ROOT, {"GET": self._list, "POST": self._create}),
            _Route(f"{_ROOT}/search", {"GET": self._search_all}),
            _Route(one, {"GET": self._show, "DELETE": self._delete}),
            _Route(f"{one}/messages", {"GET": self._read_messages, "POST": self._say}),
            _Route(f"{one}/search", {"GET": self._search}),
            _Route(f"{one}/compact", {"POST": self._compact}),
            _Route(f"{one}/undo", {"POST": self._undo}),
            _Route(f"{one}/pins", {"POST": self._pin}),
            _Route(f"{one}/pins/{{message}}", {"DELETE": self._unpin}),
            _Route(f"{one}/export", {"GET": self._export}),
            _Route(f"{one}/usage", {"GET": self._tell_usage}),
            _Route(f"{one}/approvals", {"POST": self._approve}),
        )

    @property
    def paths(self) -> dict[str, tuple[str, ...]]:
        """The paths of this API as its description has them, with their methods."""
        return {route.path: tuple(route.handlers) for route in self._routes}

    async def __aenter__(self) -> Self:
        agents = HostedAgents(self._settings, self._store, self._upstreams)
        self._turns = HostedTurns(self._settings.gateway, agents)
        self._side = SideLoop("penstock-hosted")
        self._side.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Lets the turns that run end, for `gateway.drain_seconds` at most, and closes."""
        if self._running:
            done = await asyncio.wait(self._running, timeout=self._settings.gateway.drain_seconds)
            for late in done[1]:
                late.cancel()
        await asyncio.wait([self._side.begin(self._turns.aclose())])
        await self._side.stop()

    def serves(self, path: str) -> bool:
        """Returns True for the paths of this API."""
        return path == _ROOT or path.startswith(f"{_ROOT}/")

    async def answer(
        self, request: web.BaseRequest, served: ServedRequest, operations: Operations, read: ReadBody
    ) -> web.StreamResponse:
        """Returns the answer to a request for one of these paths; errors too, in one shape."""
        try:
            try:
                response = await self._answer(request, served, operations, read)
            except Refused as refused:
                raise explain_refusal(refused) from None
            except PenstockError as error:
                raise explain_failure(error) from None
        except HostedError as error:
            response = web.Response(
                status=error.status,
                body=encode_wire(error.to_dict()),
                headers={"content-type": _JSON, "x-request-id": served.id, **error.headers},
            )
        served.status = response.status
        return response

    async def _answer(
        self, request: web.BaseRequest, served: ServedRequest, operations: Operations, read: ReadBody
    ) -> web.StreamResponse:
        path = request.raw_path.partition("?")[0]
        parts = path.split("/")
        route = next((one for one in self._routes if one.matches(parts)), None)
        if route is None:
            raise HostedError(
                404, "unknown_route", "there is nothing here", "/openapi.json lists what there is"
            )
        served.route, handlers = route.path, route.handlers
        handler = handlers.get(request.method)
        if handler is None:
            raise HostedError(
                405,
                "method_not_allowed",
                f"{request.method} is not served here",
                f"use {' or '.join(handlers)}",
                headers={"allow": ", ".join(handlers)},
            )
        served.caller = caller = await operations.authorise(request, served)
        if stricter_store(self._settings.gateway.store, caller.store) != "full":
            raise HostedError(
                403,
                "not_kept",
                "this gateway may not keep what this caller says (gateway.store, or the key's own)",
                "use a key whose conversations may be kept",
            )
        visit = _Visit(request, served, caller, self._store, read)
        named = [unquote(part) for part in route.pick(parts)]
        if named and not _ID.fullmatch(named[0]):
            raise UnknownSession("no id has this form")
        answer = await handler(visit, *named)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(body=encode_wire(answer), headers={"content-type": _JSON})

    # Sessions.

    async def _create(self, visit: _Visit) -> web.Response:
        wanted, data = await visit.body(NewHostedSession)
        model = wanted.model or self._settings.model.name
        if model is None:
            raise _invalid("no model is named, and the gateway has none of its own (model.name)")
        if not visit.caller.allows(model):
            raise HostedError(
                403,
                "model_not_allowed",
                f"this key may not use the model {model[:80]!r}",
                "name another model",
            )
        dialect = self._choose_dialect(model, wanted.dialect)
        delivery = visit.delivery(data)
        new_id = secrets.token_hex(_ID_BYTES)
        if delivery is not None:  # the same for the same key, and for nobody else to guess
            name = f"{visit.caller.owner}\0{delivery.name}".encode()
            secret = await asyncio.to_thread(read_store_secret, self._store)
            new_id = hmac.digest(secret, name, "sha256")[:_ID_BYTES].hex()
        profile = HostedProfile(wanted.system, wanted.user, "" if delivery is None else delivery.digest.hex())
        new = NewSession(id=new_id, at=time.time(), dialect=dialect, model=model, title=wanted.title)
        made = await asyncio.to_thread(self._open, visit.store, new, profile)
        shown = await asyncio.to_thread(self._describe, visit.store, new_id)
        return web.Response(
            status=201 if made else 200,
            body=encode_wire(shown),
            headers={"content-type": _JSON, "location": f"{_ROOT}/{new_id}"},
        )

    def _choose_dialect(self, model: str, wanted: str | None) -> str:
        found = self._upstreams.choose(wanted, model)
        if not found:
            raise HostedError(
                404,
                "no_upstream",
                f"no upstream serves the model {model[:80]!r}",
                "name a model that gateway.upstreams serves",
            )
        return wanted or found[0].dialects[0]

    def _open(self, store: Store, new: NewSession, profile: HostedProfile) -> bool:
        """Creates the session; returns False where the same request has done so before."""
        honour_retention(store, self._settings, time.time())
        made = not (profile.request and store.show([new.id]))
        if made:
            try:
                store.create(new)
            except StoreConflict:  # the same request, at the same moment
                made = False
        kept = HostedProfile() if made else read_profile(store, new.id)
        if kept not in (profile, HostedProfile()):
            raise HostedError(
                422,
                "idempotency_key_reused",
                "this idempotency key was used to open another session",
                "use a new key for each session",
            )
        if kept != profile:  # also where the first request was cut off before it got here
            store.put_note(HOSTED, new.id, msgspec.json.encode(profile), session_id=new.id)
        return made

    async def _list(self, visit: _Visit) -> dict[str, Any]:
        limit, after = visit.number("limit", _PAGE, _MOST), _read_cursor(visit.query.get("cursor"))

        def read() -> dict[str, Any]:
            rows = visit.store.list(limit=limit + 1, after=after)
            shown = rows[:limit]
            more = len(rows) > limit
            return {
                "data": list(show_remaining(shown, lambda row: _describe_row(visit.store, row))),
                "next_cursor": _write_cursor(shown[-1]) if more else None,
            }

        return await asyncio.to_thread(read)

    async def _show(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        return await asyncio.to_thread(self._describe, visit.store, session_id)

    def _describe(self, store: Store, session_id: str) -> dict[str, Any]:
        tip = store.tip(session_id)
        rows = store.show([tip.conversation])
        if not rows:
            raise UnknownSession("it was deleted meanwhile")
        return {
            **_describe_row(store, rows[0]),
            "pins": [name_message(place + 1) for place in sorted(store.pins(tip.id))],
            "busy": bool(store.find_turn(tip.id, time.time())),
            "approvals": [
                {
                    "id": one.id,
                    "tool": one.asked.tool,
                    "access": str(one.asked.access),
                    "subject": one.asked.subject,
                    "detail": one.asked.detail,
                }
                for one in StoredApprovals(store, tip.conversation).list_open()
            ],
        }

    async def _delete(self, visit: _Visit, session_id: str) -> web.Response:
        row = await asyncio.to_thread(visit.store.session, session_id)
        await asyncio.to_thread(visit.store.delete, row.id)
        await self._side.begin(self._turns.forget(visit.caller.owner, row.conversation))
        return web.Response(status=204)

    async def _tell_usage(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        def read() -> dict[str, Any]:
            return report_usage(visit.store, visit.store.tip(session_id).id).to_dict()

        return await asyncio.to_thread(read)

    async def _export(self, visit: _Visit, session_id: str) -> web.Response:
        dialect, of_view = visit.query.get("dialect"), visit.query.get("view") == "true"
        if dialect is not None:
            dialect_named(dialect)
        made = await asyncio.to_thread(
            export_conversation, visit.store, session_id, view=of_view, dialect=dialect
        )
        return web.Response(
            body=write_document(made.messages, LINES),
            headers={"content-type": "application/x-ndjson", "x-penstock-dialect": made.dialect},
        )

    # Messages.

    async def _read_messages(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        limit, text = visit.number("limit", _PAGE, _MOST), visit.query.get("cursor", "0")
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise _invalid("this cursor is none of ours")
        start = int(text)

        def read() -> dict[str, Any]:
            tip = visit.store.tip(session_id)
            talk = read_talk(visit.store, tip.id, start, limit)
            more = visit.store.log_tip(tip.id).length > start + limit
            return {
                "data": [msgspec.to_builtins(entry) for entry in talk],
                "next_cursor": str(start + limit) if more else None,
            }

        return await asyncio.to_thread(read)

    async def _say(self, visit: _Visit, session_id: str) -> web.StreamResponse | dict[str, Any]:
        wanted, data = await visit.body(SaidText)
        said = HostedMessage(
            session_id=session_id,
            caller=visit.caller,
            credential=visit.credential,
            text=wanted.text,
            answer=wanted.answer,
            delivery=visit.delivery(data),
        )
        if wanted.stream or visit.wants_events:
            return await self._stream(visit, said)
        reply = await asyncio.shield(self._begin(self._turns.say(said, _ignore)))
        _book(visit.served, reply.usage)
        return msgspec.to_builtins(reply)  # type: ignore[no-any-return]

    async def _stream(self, visit: _Visit, said: HostedMessage) -> web.StreamResponse:
        """Streams the turn as it goes. What fails before it has begun is an ordinary error."""
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[tuple[str, Any] | None] = asyncio.Queue()

        def tell(event: AgentEvent) -> None:  # in the side loop
            shown = _show_event(event)
            if shown is not None:
                loop.call_soon_threadsafe(told.put_nowait, shown)

        work = self._begin(self._turns.say(said, tell))
        work.add_done_callback(lambda _: told.put_nowait(None))
        first = await told.get()
        if first is None:
            work.result()  # raises what went wrong
        response = web.StreamResponse(
            headers={"content-type": _EVENTS, "cache-control": "no-store", "x-accel-buffering": "no"}
        )
        await response.prepare(visit.request)
        while first is not None:
            await _write_event(response, *first)
            while True:
                try:
                    async with asyncio.timeout(_ALIVE_SECONDS):
                        first = await told.get()
                    break
                except TimeoutError:
                    await response.write(b": still here\n\n")
        try:
            reply = work.result()
        except HostedError as error:
            await _write_event(response, "error", error.to_dict()["error"])
        except PenstockError as error:
            await _write_event(response, "error", explain_failure(error).to_dict()["error"])
        else:
            _book(visit.served, reply.usage)
            await _write_event(response, "reply", msgspec.to_builtins(reply))
        visit.served.complete = True
        await response.write_eof()
        return response

    async def _search_all(self, visit: _Visit) -> dict[str, Any]:
        return await self._find(visit, None)

    async def _search(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        return await self._find(visit, session_id)

    async def _find(self, visit: _Visit, session_id: str | None) -> dict[str, Any]:
        query, limit = visit.words("q"), visit.number("limit", 10, 50)

        def find() -> dict[str, Any]:
            tip = None if session_id is None else visit.store.tip(session_id).id
            embedder = embedder_for(self._settings)
            found = search_conversations(visit.store, query, Wish(hits=limit), tip, embedder)

            def name(one: dict[str, Any]) -> dict[str, Any]:
                return {**one, "session": visit.store.session(one["session"]).conversation}

            return {"data": list(show_remaining(found.to_dicts(), name))}

        return await asyncio.to_thread(find)

    # Changes.

    async def _compact(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        wanted, _ = await visit.body(CompactionRequest)

        async def compact(agent: Agent) -> dict[str, Any]:
            before = agent.context.tokens()
            keep = None if wanted.keep_exchanges is None else int(wanted.keep_exchanges)
            made = await agent.compact(wanted.focus, keep)
            return {
                "compacted": made is not None,
                "tokens_before": before,
                "tokens_after": agent.context.tokens(),
                "notice": "" if made is not None else "nothing to compact yet",
            }

        return await self._change(visit, session_id, compact)  # type: ignore[no-any-return]

    async def _undo(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        async def undo(agent: Agent) -> dict[str, Any]:
            before = agent.context.tokens()
            undone = agent.context.undo()
            return {
                "undone": undone,
                "tokens_before": before,
                "tokens_after": agent.context.tokens(),
                "notice": "" if undone else "nothing to undo yet",
            }

        return await self._change(visit, session_id, undo)  # type: ignore[no-any-return]

    async def _change(self, visit: _Visit, session_id: str, work: Callable[[Agent], Any]) -> Any:
        change = self._turns.change(session_id, visit.caller, visit.credential, work)
        return await asyncio.shield(self._begin(change))

    async def _pin(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        wanted, _ = await visit.body(PinnedMessage)
        return await self._change_pin(visit, session_id, wanted.message, pinned=True)

    async def _unpin(self, visit: _Visit, session_id: str, handle: str) -> dict[str, Any]:
        return await self._change_pin(visit, session_id, handle, pinned=False)

    async def _change_pin(
        self, visit: _Visit, session_id: str, handle: str, *, pinned: bool
    ) -> dict[str, Any]:
        done = await asyncio.to_thread(change_pin, visit.store, session_id, handle, pinned=pinned)
        return {"pins": list(done.pins), "changed": done.changed, "notice": str(done)}

    async def _approve(self, visit: _Visit, session_id: str) -> dict[str, Any]:
        given, _ = await visit.body(GivenApproval)
        row = await asyncio.to_thread(visit.store.session, session_id)
        book = StoredApprovals(visit.store, row.conversation)
        if not await asyncio.to_thread(book.reply, given.id, ApprovalReply(given.reply)):
            raise HostedError(
                404,
                "unknown_approval",
                "no call with this id waits for approval",
                "GET /sessions/{id} lists those that do",
            )
        await self._side.begin(self._turns.wake(visit.caller.owner, row.conversation))
        return {"id": given.id, "reply": given.reply}

    def _begin(self, work: Any) -> asyncio.Future[Any]:
        """Begins work that goes on also where its caller goes away."""
        future = self._side.begin(work)
        self._running.add(future)
        future.add_done_callback(self._end)
        return future

    def _end(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            future.exception()  # the caller may have gone


def _describe_row(store: Store, row: ConversationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "title": make_title(store, row.tip, row.title),
        "model": row.tip.model,
        "dialect": row.tip.dialect,
        "created": row.started,
        "updated": row.updated,
        "messages": row.messages,
        "tokens": row.tokens,
        "view_tokens": row.view_tokens,
        "compactions": row.compactions,
        "cost": row.cost,
    }


def _show_event(event: AgentEvent) -> tuple[str, dict[str, Any]] | None:
    """Returns an event as the stream has it; None for what no client needs."""
    shown: tuple[str, dict[str, Any]] | None = None
    match event:
        case Said(text=text):
            shown = "text", {"text": text}
        case Thought(text=text):
            shown = "reasoning", {"text": text}
        case ToolStarted(call_id=call, name=name, about=about):
            shown = "tool", {"state": "started", "call": call, "name": name, "about": about}
        case ToolEnded(call_id=call, name=name, summary=about, is_error=failed):
            state = "failed" if failed else "done"
            shown = "tool", {"state": state, "call": call, "name": name, "about": about}
        case ApprovalAsked():
            shown = "approval", msgspec.to_builtins(event)
        case Compacted(receipt=receipt, reason=reason):
            before, after = receipt.tokens_before, receipt.tokens_after
            shown = "compacted", {"reason": reason, "tokens_before": before, "tokens_after": after}
        case Noticed(level=level, text=text) if level != "log":
            shown = "notice", {"text": text}
        case Recovering(step=step):
            shown = "notice", {"text": step}
    return shown


async def _write_event(response: web.StreamResponse, name: str, data: Any) -> None:
    await response.write(b"event: %b\ndata: %b\n\n" % (name.encode(), encode_wire(data)))


def _book(served: ServedRequest, usage: dict[str, Any]) -> None:
    """Has the turn count for the caller's budget of tokens."""
    if usage.get("requests"):
        served.usage = Usage(usage["prompt_tokens"], usage["output_tokens"])


def _ignore(_event: AgentEvent) -> None:
    """For clients that wait for the whole reply."""


def _invalid(message: str) -> HostedError:
    return HostedError(400, "invalid_request", message, "correct the request; /openapi.json describes it")


def _list_choices(kind: type[Any], error: str) -> str:
    """Returns the values that the field which an error names may have, where these are listed: the error does not say them."""
    name = error.rpartition("`$.")[2].removesuffix("`")
    for field in msgspec.structs.fields(kind):
        literals = [one for one in (field.type, *get_args(field.type)) if get_origin(one) is Literal]
        if field.encode_name == name and literals:
            return f"; allowed: {', '.join(get_args(literals[0]))}"
    return ""


def _write_cursor(row: ConversationRow) -> str:
    return f"{row.updated:.9f}-{row.id}"  # as many digits as the moment of a clock has


def _read_cursor(cursor: str | None) -> tuple[float, str] | None:
    if cursor is None:
        return None
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise _invalid("this cursor is none of ours")
    return float(found[1]), found[2]
