"""Every request to hosted conversations at the same moment as itself and as every other one, through three instances over one store.

No answer is a failure of the gateway, nothing acknowledged is lost, twice there or out of order, and what a request says of
other conversations never depends on one that is being deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
from collections import Counter

import pytest
from hosted_stage import HostedClient, hosted_settings, instance, run_for
from test_hosted_turns import answer_by_what_was_asked

from penstock.gateway.hosted import HostedSessions
from penstock.gateway.upstreams import Upstreams
from penstock.loop.approvals import Access, Permission
from penstock.loop.stored_approvals import StoredApprovals
from penstock.settings import Settings
from penstock.stores.store import open_store
from penstock.testing.provider_server import ScriptedProvider

SOAK = "PENSTOCK_SOAK" in os.environ
AT_ONCE = 4  # of each kind
LONG = "A long tale of the harbour, told again and again. " * 40
STALE = {404, 409}
"""What a request may be told where the conversation was deleted meanwhile, or went on meanwhile."""


class Scene:
    """A conversation that has been compacted and has a pin and an open question, and all that was acknowledged in it."""

    def __init__(self, number, session, approval):
        self.number, self.session, self.approval = number, session, approval
        self.path = f"/sessions/{session}"
        self.acknowledged = []


def request(method, path, body=None, *, may=frozenset(), key=""):
    """Returns how a request of one kind is sent: `may` are statuses that it can be refused with, beside 404 after a deletion."""

    async def send(client: HostedClient, scene: Scene, number: int):
        filled = path.format(path=scene.path, number=scene.number)
        given = json.loads(json.dumps(body).replace("APPROVAL", scene.approval)) if body is not None else None
        headers = {"idempotency_key": f"{key}-{scene.number}"} if key else {}
        status, told = await client.ask(method, filled, given, **headers)
        assert status < 500, (method, filled, status, told)
        return status, told

    send.route = (
        method,
        path.partition("?")[0].replace("{path}", "/sessions/{id}").replace("/m1", "/{message}"),
    )
    send.may = may
    return send


def message(*, text, key="", **more):
    """As `request`, for a message: what is acknowledged is noted. `{n}` in the text tells one from another."""

    async def send(client: HostedClient, scene: Scene, number: int):
        said = text.format(n=number)
        headers = {"idempotency_key": f"{key}-{scene.number}"} if key else {}
        body = {"text": said, **more}
        status, told = await client.post(f"{scene.path}/messages", body, **headers)
        assert status < 500, (body, status, told)
        if status == 200 and isinstance(told, str):  # a stream of events
            name, data = told.strip().split("\n\n")[-1].split("\n")
            assert name in ("event: reply", "event: error"), told
            told = json.loads(data.removeprefix("data: "))
            if name == "event: error":
                assert told["type"] in {"unknown_session", "conflict", "busy"}, told
                return 409, told
        if status == 200 and told["status"] != "command":
            assert told["status"] == ("logged" if more.get("answer") is False else "answered")
            scene.acknowledged.append((said, told["message"]))
        return status, told

    send.route = "POST", "/sessions/{id}/messages"
    send.may = frozenset()
    return send


OPENING = {"model": "gpt-5-mini"}
REQUESTS = {
    "open": request("POST", "/sessions", OPENING),
    "open the same": request("POST", "/sessions", OPENING, key="open"),
    "list": request("GET", "/sessions?limit=100"),
    "search all": request("GET", "/sessions/search?q=harbour+tale"),
    "show": request("GET", "{path}"),
    "delete": request("DELETE", "{path}"),
    "read": request("GET", "{path}/messages?limit=3"),
    "say": message(text="said {n}"),
    "say the same": message(text="said with one key", key="say"),
    "stream": message(text="streamed {n}", stream=True),
    "log": message(text="logged {n}", answer=False),
    "command": message(text="/compress"),
    "begin anew": message(text="/new"),
    "search": request("GET", "{path}/search?q=harbour+tale"),
    "compact": request("POST", "{path}/compact", {}),
    "undo": request("POST", "{path}/undo"),
    "pin": request("POST", "{path}/pins", {"message": "m1"}),
    "unpin": request("DELETE", "{path}/pins/m1"),
    "export": request("GET", "{path}/export?view=true"),
    "usage": request("GET", "{path}/usage"),
    "approve": request("POST", "{path}/approvals", {"id": "APPROVAL", "reply": "once"}, may={404}),
}
PAIRS = [
    kinds
    for number, kinds in enumerate(itertools.combinations_with_replacement(REQUESTS, 2))
    # `make soak` takes all of them; otherwise each with itself and with a deletion, and a fourth of the others.
    if SOAK or number % 4 == 0 or kinds[0] == kinds[1] or "delete" in kinds
]
SHARES = 3


@contextlib.asynccontextmanager
async def three_instances(url):
    settings = hosted_settings()
    with contextlib.ExitStack() as stores:
        opened = [stores.enter_context(contextlib.closing(open_store(url))) for _ in range(3)]
        async with (
            ScriptedProvider(answer_by_what_was_asked) as provider,
            contextlib.AsyncExitStack() as all_of,
        ):
            yield [await all_of.enter_async_context(instance(provider, store, settings)) for store in opened]
            assert provider.violations == ()


async def set_the_scene(instances, number):
    client, store = instances[number % 3].client, instances[0].store
    session = await client.open(user=f"user-{number}")  # without a title: the first words are read for it
    for place in range(6):
        await client.say(session, f"{place}: {LONG}", answer=False)
    status, made = await client.post(f"/sessions/{session}/compact", {"keep_exchanges": 1})
    assert (status, made["compacted"]) == (200, True)
    await client.say(session, f"behind it: {LONG}", answer=False)
    asked = Permission(tool="tickets", access=Access.RUN, subject="close")
    return Scene(number, session, StoredApprovals(store, session).ask(asked).id)


async def send_at_once(instances, scene, kinds):
    """Has each kind sent several times, through all instances, and checks the statuses."""
    sent = [(kind, REQUESTS[kind], number) for number in range(AT_ONCE) for kind in kinds]
    clients = [HostedClient(one.client.http) for one in instances]
    answers = await asyncio.gather(
        *(send(clients[place % 3], scene, place) for place, (_, send, _) in enumerate(sent))
    )
    gone = "delete" in kinds
    for (kind, send, _), (status, told) in zip(sent, answers, strict=True):
        stale = STALE if gone and "{id}" in send.route[1] else set()
        assert status < 300 or status in send.may | stale, (kinds, kind, status, told)
    if gone:
        assert sum(status == 204 for status, _ in answers) >= 1
    for kind in {"open", "open the same"} & {*kinds}:
        made = [told["id"] for (one, _, _), (_, told) in zip(sent, answers, strict=True) if one == kind]
        assert len({*made}) == (1 if kind == "open the same" else len(made))


def check_the_log(store, scene):
    """All that was acknowledged is there once, at the place that was told, and nothing else was said by people."""
    log = [json.loads(entry.raw) for entry in store.read_from(scene.session, 0)]
    said = Counter(one["content"] for one in log[7:] if one["role"] == "user")
    assert said == Counter({text: 1 for text, _ in scene.acknowledged}), scene.acknowledged
    for text, handle in scene.acknowledged:
        assert log[int(handle[1:]) - 1]["content"] == text
    for before, after in itertools.pairwise(log):
        if after["role"] == "assistant":
            assert after["content"] == f"You said: {before['content']}"  # nothing came between


def check_nothing_is_left(store, scene):
    """A conversation that was deleted while it was used has left nothing, in any table."""
    assert not store.show([scene.session])
    with store.database.reading() as do:
        left = do.rows("SELECT name FROM notes WHERE key = ?", scene.session)
        for table in ("turns", "queued", "deliveries", "entries", "compactions", "pins"):
            gone = "NOT EXISTS (SELECT 1 FROM conversations c WHERE c.key = conversation)"
            left += do.rows(f"SELECT DISTINCT '{table}' FROM {table} WHERE {gone}")
    assert not left


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_no_two_requests_at_one_moment_make_a_failure(request, tmp_path, database, share):
    url = f"sqlite:///{tmp_path}/races.db"
    if database == "postgresql":
        url = request.getfixturevalue("postgres_url")

    async def race():
        async with three_instances(url) as instances:
            wrong = []  # all of it: the second may tell more than the first
            for number, kinds in enumerate(PAIRS[share::SHARES]):
                scene = await set_the_scene(instances, number)
                try:
                    await send_at_once(instances, scene, kinds)
                    if "delete" in kinds:
                        check_nothing_is_left(instances[0].store, scene)
                    else:
                        check_the_log(instances[0].store, scene)
                except AssertionError as error:
                    wrong.append((kinds, str(error)))
            assert not wrong
            assert not instances[0].store.faults()

    run_for(race(), 300)


def test_every_route_takes_part():
    paths = HostedSessions(Settings(), open_store("memory:"), Upstreams([])).paths
    served = {(method, path) for path, methods in paths.items() for method in methods}
    assert {send.route for send in REQUESTS.values()} == served
