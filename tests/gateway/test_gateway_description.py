"""The OpenAPI description is true: Schemathesis asks a running gateway everything that it allows, and some that it does not."""

from __future__ import annotations

import asyncio
import threading
import uuid

import pytest
from hosted_stage import hosted_gateway
from hypothesis import HealthCheck, Phase, settings
from operated_gateway import operated_gateway

from penstock.gateway.hosted import HostedSessions
from penstock.gateway.openapi import OWN_PATHS, describe_api
from penstock.gateway.operations import GatewayOperations
from penstock.gateway.requests import read_wishes
from penstock.gateway.upstreams import Upstreams
from penstock.settings import Settings
from penstock.stores.store import open_store

schemathesis = pytest.importorskip("schemathesis")

from schemathesis.specs.openapi.checks import negative_data_rejection, unsupported_method  # noqa: E402 - only where there is one

PASSED_ON = (negative_data_rejection, unsupported_method)  # what we do not know under /v1 is the upstream's
SCHEMA = schemathesis.openapi.from_dict(describe_api("0"))
SCHEMA.config.generation.modes = [schemathesis.GenerationMode.POSITIVE]


@pytest.fixture(scope="module")
def running():
    """A gateway that needs keys, in a thread of its own: its address, and a key."""
    told, stop = {}, None
    started = threading.Event()

    async def serve():
        nonlocal stop
        stop = asyncio.Event()
        async with operated_gateway(require_keys=True, request_log=False) as gateway:
            told["address"], told["key"] = gateway.gateway.address, gateway.make_key()
            told["loop"] = asyncio.get_running_loop()
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert started.wait(60)
    yield told
    told["loop"].call_soon_threadsafe(stop.set)
    thread.join(60)


@pytest.fixture(scope="module")
def hosting():
    """A gateway with hosted sessions, and one of them, with something said in it."""
    told, stop = {}, None
    started = threading.Event()

    async def serve():
        nonlocal stop
        stop = asyncio.Event()
        async with hosted_gateway(lambda _: "Yes.", model="gpt-5-mini", require_keys=True) as hosted:
            client = hosted.client_with_key()
            session = await client.open()
            await client.say(session, "The port is 5433.")
            told.update(address=hosted.gateway.address, key=client.key, session=session)
            told["loop"] = asyncio.get_running_loop()
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(10)
    yield told
    told["loop"].call_soon_threadsafe(stop.set)
    thread.join()


@SCHEMA.include(path_regex="^(?!/sessions)").parametrize()
@settings(
    max_examples=5,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_described(case, running):
    case.call_and_validate(
        base_url=running["address"],
        headers={"x-penstock-key": running["key"]},
        excluded_checks=PASSED_ON if case.path.startswith("/v1") else (),
    )


HOSTED = schemathesis.openapi.from_dict(describe_api("0")).include(path_regex="^/sessions")
HOSTED.config.generation.modes = list(schemathesis.GenerationMode)


@HOSTED.parametrize()
@settings(
    max_examples=20,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_of_hosted_sessions_is_as_described(case, hosting):
    """With wrong requests, too. The session that is there is used, but not deleted.

    No two requests that are meant to be right have one idempotency key: the second would be refused, and rightly.
    """
    if case.meta.generation.mode.is_positive:
        if case.path_parameters and case.method != "DELETE":
            case.path_parameters["id"] = hosting["session"]
        if case.headers and "Idempotency-Key" in case.headers:
            case.headers["Idempotency-Key"] = uuid.uuid4().hex
    # HTTP itself takes away blanks around a header, so that some wrong ones arrive as right ones.
    headed = not case.meta.generation.mode.is_positive and "Idempotency-Key" in (case.headers or {})
    case.call_and_validate(
        base_url=hosting["address"],
        headers={"x-penstock-key": hosting["key"]},
        excluded_checks=(negative_data_rejection,) if headed else (),
    )


def test_what_is_described_is_what_is_answered():
    operations = GatewayOperations(Settings(), open_store("memory:"))
    assert tuple(operations.routes) == OWN_PATHS
    described = describe_api("0")["paths"]
    assert [path for path in described if not path.startswith(("/v1", "/sessions"))] == list(OWN_PATHS)
    hosted = HostedSessions(Settings(), open_store("memory:"), Upstreams([]))
    assert hosted.paths == {
        path: tuple(method.upper() for method in methods)
        for path, methods in described.items()
        if path.startswith("/sessions")
    }
    names = {one["name"] for one in described["/v1/messages"]["post"]["parameters"]}
    sample = {
        "session": "a",
        "bypass": "true",
        "target-tokens": "9",
        "focus": "b",
        "store": "off",
        "open": "true",
    }
    assert names == {f"x-penstock-{name}" for name in sample}
    wishes = read_wishes({f"x-penstock-{name}": value for name, value in sample.items()})
    assert (wishes.session, wishes.bypass, wishes.target_tokens, wishes.focus, wishes.store) == (
        "a", True, 9, "b", "off",
    )  # fmt: skip
