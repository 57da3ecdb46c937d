"""`penstock serve`: the gateway, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cli.screen import print_address
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.errors import SettingsError
from penstock.gateway.fitting import ConversationFitter
from penstock.gateway.hosted import HostedSessions
from penstock.gateway.operations import GatewayOperations, require_safe_address
from penstock.gateway.running import run_in_loop, run_processes, serve_until_signal, watch_parent
from penstock.gateway.server import Gateway
from penstock.gateway.upstreams import read_upstreams
from penstock.gateway.workers import Workers
from penstock.local import LocalServer, missing
from penstock.stores.store import open_store

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from penstock.gateway.upstreams import Upstreams
    from penstock.settings import Settings
    from penstock.stores.store import Store

__all__ = ["run"]

_CACHING = (
    "prompt caching: as the cache_control of each request says (5 minutes or 1 hour); the gateway adds none"
)


def run(args: argparse.Namespace) -> int:
    """Serves until a signal, then lets running requests finish. Raises SettingsError if there is no upstream."""
    flags = {
        f"gateway.{name}": str(value)
        for name in ("host", "port", "processes", "summarise", "answer_client_compactions", "recall")
        if (value := getattr(args, name)) is not None
    }
    if args.store is not None:
        flags["store.url"] = args.store
    args.settings = [*args.settings, *flags.items()]
    settings = settings_of(args)
    with ExitStack() as stack:
        url = args.upstream
        if url is None and args.local and not settings.gateway.upstreams:
            url = _start_local_model(stack)
        upstreams = read_upstreams(settings.gateway, url)
        require_safe_address(settings)
        store = stack.enter_context(open_store_of(args))

        def announce(address: str) -> None:
            _announce(address, json_too=args.json)

        try:
            if settings.gateway.processes > 1:
                run_processes(settings, partial(_serve_beside, url), announce)
            else:
                run_in_loop(_serve(upstreams, settings, store, announce))
        except OSError as error:
            raise SettingsError(_explain_address(settings, error)) from None
    return 0


def _serve_beside(url: str | None, settings: Settings, telling: Connection) -> None:
    """Serves as one of several processes, and reports its address to the first."""
    watch_parent()
    with closing(open_store(settings.store.url)) as store:
        run_in_loop(_serve(read_upstreams(settings.gateway, url), settings, store, telling.send))


async def _serve(
    upstreams: Upstreams, settings: Settings, store: Store, announce: Callable[[str], None]
) -> None:
    workers = Workers(settings)
    await workers.start()
    fitter = ConversationFitter(settings.gateway, workers)
    try:
        async with (
            GatewayOperations(settings, store, version=__version__) as operations,
            HostedSessions(settings, store, upstreams) as hosted,
        ):
            operations.watch_workers(workers)
            operations.let_join(settings, upstreams)
            gateway = Gateway(upstreams, settings, fitter=fitter, operations=operations, hosted=hosted)
            await serve_until_signal(gateway, announce)
    finally:
        await fitter.aclose()


def _start_local_model(stack: ExitStack) -> str:
    """Starts the model on this machine, which ends with the command, and returns its address. Raises SettingsError."""
    lacking = missing()
    if lacking is not None:
        raise SettingsError(f"{lacking}; or give an API to send requests to: --upstream URL")
    server = stack.enter_context(LocalServer())
    _say(f"upstream: {server.model} on this machine, {server.context_tokens:,} tokens")
    return server.base_url


def _announce(address: str, *, json_too: bool) -> None:
    """Prints the bare address on standard output, and for people how to point a client at it. Raises SettingsError."""
    print_address(address, json_too=json_too)
    _say(f"OPENAI_BASE_URL={address}/v1")
    _say(f"ANTHROPIC_BASE_URL={address}")
    _say(_CACHING)


def _say(text: str) -> None:
    if sys.stderr is not None:
        print(text, file=sys.stderr, flush=True)


def _explain_address(settings: Settings, error: OSError) -> str:
    where = f"{settings.gateway.host}:{settings.gateway.port}"
    why = error.strerror or type(error).__name__
    return f"cannot listen on {where}: {why}; choose another port (--port 0 takes any free one) or host"
