"""One line of JSON per request, without content and without credentials.

What a caller writes is not logged as it stands, be it a path, a request id or the name of a model: any of them may hold a
secret. Routes and upstreams have our names, ids are shown only in the forms that programs make, and else as a digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import re
import sys
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TextIO

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from penstock.gateway.callers import ServedRequest

__all__ = ["RequestLog", "describe_request", "name_model", "name_request", "read_tokens", "read_word"]

_MADE_IDS: Final = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # a UUID
    r"|[0-9a-f]{32}"
    r"|req_(?:[0-9a-f]{16,40}|01[A-Za-z0-9]{22})",  # OpenAI's, Anthropic's
    re.ASCII,
)
# Words and versions, such as `meta-llama/Llama-3.3-70B-Instruct`: nothing that could hold a key.
_MODEL_SHAPE: Final = re.compile(
    r"(?:[A-Za-z]{1,12}|[A-Za-z]?[0-9]{1,8}|[A-Za-z0-9]{1,8})"
    r"(?:[-._:/@](?:[A-Za-z]{1,12}|[A-Za-z]?[0-9]{1,8}|[A-Za-z0-9]{1,8})){0,9}",
    re.ASCII,
)
_LONGEST_MODEL: Final = 64
_MOST_WAITING: Final = 10_000  # lines, where standard error takes none
_REST_SECONDS: Final = 0.05
_ENCODE: Final = msgspec.json.Encoder().encode


def name_request(text: str | None) -> str | None:
    """Returns a caller's or an upstream's id of a request where it has the form of one, else a digest to compare it by."""
    if not text:
        return None
    if _MADE_IDS.fullmatch(text):
        return text
    return "digest:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def name_model(model: str) -> str:
    """Returns the name of a model where it looks like one, else `other`: the field is the caller's, and may hold anything."""
    return _name_short_model(model) if len(model) <= _LONGEST_MODEL else "other"


@lru_cache(maxsize=256)
def _name_short_model(model: str) -> str:
    return model if not model or _MODEL_SHAPE.fullmatch(model) else "other"


def describe_request(served: ServedRequest) -> dict[str, Any]:
    """Returns the line for a request. Empty fields and zeros are left out."""
    usage = served.usage
    told: dict[str, Any] = {
        "time": _format_moment(time.time()),
        "request": served.id,
        "client_request": name_request(served.client_request_id),
        "upstream_request": name_request(served.upstream_request_id),
        "key": served.caller.key_id if served.caller is not None else served.refused_key_id,
        "method": served.method if served.method in _METHODS else "other",
        "route": served.route,
        "dialect": served.dialect,
        "model": name_model(served.model),
        "upstream": served.upstream,
        "status": served.status,
        "refused": served.refused,
        "failure": served.failure.kind if served.failure is not None else None,
        "cut_off": served.cut_off,
        "bytes_in": served.bytes_in,
        "bytes_out": served.bytes_out,
        "tokens_before": read_tokens(served.headers, "before"),
        "tokens_after": read_tokens(served.headers, "after"),
        "compacted": read_word(served.headers, "compacted", ("now", "before")),
        "passed_through": read_word(served.headers, "passed-through"),
        "prompt_tokens": usage.prompt_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "cache_read_tokens": usage.cache_read_tokens if usage else None,
        "retries": served.retries,
        "recoveries": served.recoveries,
        "ms": _milliseconds(served.started_at, served.ended_at),
        "ms_to_upstream": _milliseconds(served.started_at, served.sent_at),
        "ms_to_first_byte": _milliseconds(served.started_at, served.first_byte_at),
    }
    return {name: value for name, value in told.items() if value}


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def read_tokens(headers: Mapping[str, str], which: str) -> int | None:
    """Returns the tokens before or after, from the fitter's headers; None where they do not say."""
    text = headers.get(f"x-penstock-tokens-{which}", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def read_word(headers: Mapping[str, str], name: str, known: Collection[str] = ()) -> str:
    """Returns the word in one of the fitter's headers; empty where it is none, or none of those that are known."""
    word = headers.get(f"x-penstock-{name}", "")
    if known:
        return word if word in known else ""
    return word if word.isascii() and word.isidentifier() and len(word) <= 40 else ""


def _milliseconds(start: float, end: float) -> float | None:
    return round((end - start) * 1_000, 1) if end else None


def _format_moment(at: float) -> str:
    whole = int(at)
    return f"{_format_second(whole)}.{int((at - whole) * 1_000):03}Z"


@lru_cache(maxsize=4)
def _format_second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


class RequestLog:
    """Writes lines in a thread of its own: a terminal or a pipe that takes nothing must not stop the gateway."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._waiting: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._ending = threading.Event()
        self.dropped = 0
        """Lines that were lost because standard error did not take them."""
        self._thread = threading.Thread(target=self._write_all, name="request log", daemon=True)
        self._thread.start()

    def write(self, told: dict[str, Any]) -> None:
        """Has a line written, soon."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(told)
        else:
            self.dropped += 1

    def close(self, wait_seconds: float = 2.0) -> None:
        """Writes what is left, if it is taken in time."""
        self._waiting.put(None)
        self._ending.set()
        self._thread.join(wait_seconds)

    def _write_all(self) -> None:
        """Writes what has come, then rests for a moment: waking up for each line would cost as much as a request does."""
        ended = False
        while not ended:
            lines = [self._waiting.get()]
            with contextlib.suppress(queue.Empty):
                while lines[-1] is not None:
                    lines.append(self._waiting.get_nowait())
            ended = lines[-1] is None
            self._write([told for told in lines if told is not None])
            if not ended:
                self._ending.wait(_REST_SECONDS)

    def _write(self, lines: Sequence[dict[str, Any]]) -> None:
        stream = self._stream or sys.stderr
        if stream is None or not lines:
            return
        try:
            stream.write("".join(_ENCODE(told).decode() + "\n" for told in lines))
            stream.flush()
        except (OSError, ValueError):  # closed, or full
            self.dropped += len(lines)
