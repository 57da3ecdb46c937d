"""Lets `penstock wrap` use a gateway that is running already: finds it, verifies it, and has its own requests counted.

    address = find_gateway(settings, upstreams, dialects, secret, version)   # asked by `penstock wrap`
    proof = prove(secret, nonce, place, terms)                               # answered by a gateway, at `/join`

Any program may listen at the gateway's port, and would be given the client's credential. So the server must prove that it
has the secret of the very store that the caller uses, for a nonce of the caller's, and for the address that it was asked at:
a program in between cannot pass the question on to a gateway elsewhere. The proof also covers the terms: what decides how
a request is served, and where it is sent. A gateway with other terms is left alone. Neither side tells a stranger anything.
"""

from __future__ import annotations

import hmac
import http.client
import platform
import re
import secrets
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.accounts.display import format_sum
from penstock.conversation.wire import parse_json
from penstock.gateway.logs import read_tokens, read_word
from penstock.gateway.requests import RouteKind, read_route
from penstock.measure.prices import Money, cost_of
from penstock.measure.usage import Usage
from penstock.measure.wording import pluralise
from penstock.providers.address import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.gateway.callers import ServedRequest
    from penstock.gateway.upstreams import Upstreams
    from penstock.settings import Settings

__all__ = [
    "NONCE",
    "RunTallies",
    "RunTally",
    "find_gateway",
    "name_run",
    "prove",
    "read_run",
    "read_tally",
    "write_terms",
]

NONCE: Final = re.compile(r"\A[0-9a-f]{32}\Z")
_RUNS: Final = "/runs/"
_RUN_CHARS: Final = 32
_MOST_RUNS: Final = 256
_PURPOSE: Final = b"penstock join 1\0"
_SECONDS: Final = 2.0  # for an answer: the gateway is on this machine
_MOST_BYTES: Final = 10_000
_ANYWHERE: Final = {"", "0.0.0.0", "::"}  # noqa: S104 - compared with, not bound to
_DECISIVE: Final = (  # settings of the gateway that decide how a request is served
    "store",
    "summarise",
    "compaction",
    "answer_client_compactions",
    "recall",
    "models",
    "require_keys",
    "seal_key_file",
)
_SECTIONS: Final = ("compression", "context", "model", "auxiliary", "redaction", "recall", "plugins")


# The proof.


def write_terms(settings: Settings, upstreams: Upstreams, dialect: str, version: str) -> bytes | None:
    """Returns what must be the same for two gateways to serve a client's requests alike; None for one that cannot be joined.

    That is one that asks callers for keys, or lends them its own.
    """
    speaking = [one for one in upstreams if dialect in one.dialects]
    if settings.gateway.require_keys or not speaking or any(one.key is not None for one in upstreams):
        return None
    addresses = {one.name: one.address for one in upstreams}
    routes = [(one.address, one.models, [addresses[name] for name in one.fallbacks]) for one in speaking]
    decisive = [getattr(settings.gateway, name) for name in _DECISIVE]
    sections = [getattr(settings, name) for name in _SECTIONS]
    return msgspec.json.encode((version, dialect, routes, decisive, sections))


def prove(secret: bytes, nonce: str, place: tuple[str, int], terms: bytes) -> str:
    """Returns the proof that a gateway on this machine listens at this address and port, and serves on these terms."""
    address, port = place
    said = "\0".join((nonce, platform.node(), address.removeprefix("::ffff:"), str(port))).encode()
    said += b"\0" + terms
    return hmac.new(secret, _PURPOSE + said, "sha256").hexdigest()


def find_gateway(
    settings: Settings, upstreams: Upstreams, dialects: Iterable[str], secret: bytes, version: str
) -> str | None:
    """Returns the address of the gateway at the port of the settings; None where there is none, or none that can be joined.

    `dialects` are those that the client may speak. The server is told nothing but nonces.
    """
    host, port = settings.gateway.host, settings.gateway.port
    host = "127.0.0.1" if host in _ANYWHERE else host
    if not port or not is_loopback(host):
        return None
    for dialect in sorted(dialects):
        terms = write_terms(settings, upstreams, dialect, version)
        if terms is None:
            return None
        nonce = secrets.token_hex(16)
        place, told = _ask(host, port, f"/join?nonce={nonce}&dialect={dialect}")
        proof = str(told.get("proof", "")).encode()
        if not hmac.compare_digest(proof, prove(secret, nonce, place, terms).encode()):
            return None
        host = place[0]  # a name may lead elsewhere the next time
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _ask(host: str, port: int, path: str) -> tuple[tuple[str, int], dict[str, Any]]:
    """Returns where a server of this machine was reached, and the object that it answers: empty where it answers none.

    It is asked without a proxy and without credentials.
    """
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    place, told = (host, port), None
    try:
        connection.connect()
        place = connection.sock.getpeername()[:2]
        connection.request("GET", path)
        answer = connection.getresponse()
        told = parse_json(answer.read(_MOST_BYTES)) if answer.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return place, told if isinstance(told, dict) else {}


# Counting.


def name_run(address: str) -> str:
    """Returns the base URL for one run of a client: what comes with this path is counted for it."""
    return f"{address}{_RUNS}{secrets.token_hex(_RUN_CHARS // 2)}"


def read_run(path: str) -> str:
    """Returns the run that the path of a request names; empty where it names none."""
    if not path.startswith(_RUNS):
        return ""
    run = path[len(_RUNS) :].partition("/")[0]
    return run if NONCE.match(run) else ""


def read_tally(base_url: str) -> RunTally | None:
    """Asks the gateway what it has counted for a run, by its base URL; None where it does not answer."""
    address, _, run = base_url.rpartition(_RUNS)
    host, _, port = address.partition("://")[2].rpartition(":")
    return RunTally.from_dict(_ask(host.strip("[]"), int(port), f"/runs?run={run}")[1])


class RunTally:
    """Requests of one run of a client, and the tokens that they did not have to send."""

    def __init__(self) -> None:
        self.requests = self.tokens_before = self.tokens_after = self.saved_tokens = self.problems = 0
        self.known_saved = 0.0
        self.price_unknown = False

    def add(self, served: ServedRequest) -> None:
        """Takes in a request that has ended; those without messages do not count."""
        route = read_route(served.route)
        if served.method != "POST" or route is None or route.kind is not RouteKind.CONVERSATION:
            return
        self.requests += 1
        self.problems += served.failure is not None or read_word(served.headers, "passed-through") not in {
            "",
            "bypass",
        }
        before, after = read_tokens(served.headers, "before"), read_tokens(served.headers, "after")
        if before is None or after is None:
            return
        self.tokens_before += before
        self.tokens_after += after
        if fewer := max(0, before - after):
            self.saved_tokens += fewer
            price = cost_of(Usage(cache_read_tokens=fewer), served.model or None)
            if isinstance(price, Money):
                self.known_saved += float(price.usd)
            else:
                self.price_unknown = True

    @property
    def saved(self) -> float | None:
        """The price of the saved tokens as cached ones, the lowest there is; None where that of some is not known."""
        return None if self.price_unknown else self.known_saved

    def to_dict(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {
            "requests": self.requests,
            "problems": self.problems,
            "tokens_before": self.tokens_before,
            "tokens_after": self.tokens_after,
            "saved_tokens": self.saved_tokens,
            "saved": self.saved,
            "known_saved": self.known_saved,
        }

    def describe(self, arrow: str) -> str:
        """Returns it in one line."""
        if not self.requests:
            return "no requests came through the gateway"
        text = f"{pluralise(self.requests, 'request')}, {self.tokens_before:,} {arrow} {self.tokens_after:,} tokens"
        if not self.saved_tokens:
            return f"{text}, nothing had to be compacted"
        if self.saved is None and not self.known_saved:
            return f"{text}, saved {pluralise(self.saved_tokens, 'token')} of unknown price"
        money = format_sum(self.saved, self.known_saved)
        return f"{text}, saved {pluralise(self.saved_tokens, 'token')}, {money} at the price of cached tokens"

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> RunTally | None:
        """Returns what `to_dict` has written; None for anything else."""
        tally = cls()
        for name in ("requests", "problems", "tokens_before", "tokens_after", "saved_tokens", "known_saved"):
            value = told.get(name)
            if not isinstance(value, int | float):
                return None
            setattr(tally, name, value)
        tally.price_unknown = told.get("saved") is None
        return tally


class RunTallies:
    """The tallies of the runs that a gateway serves; those that were used last stay."""

    def __init__(self) -> None:
        self._tallies: OrderedDict[str, RunTally] = OrderedDict()

    def add(self, run: str, served: ServedRequest) -> None:
        """Takes in a request of a run."""
        tally = self._tallies.setdefault(run, RunTally())
        self._tallies.move_to_end(run)
        tally.add(served)
        if len(self._tallies) > _MOST_RUNS:
            self._tallies.popitem(last=False)

    def find(self, run: str) -> RunTally:
        """Returns the tally of a run; an empty one where nothing has come."""
        return self._tallies.get(run) or RunTally()
