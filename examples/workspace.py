"""The fictional repository of the example session, and the tools its agent has.

The files are in `material/` (with `.txt` after their names). Listings, searches and patches are computed from
them, so line numbers and counts in the session are true.
"""

from __future__ import annotations

import difflib
import random
import re
import struct
import zlib
from pathlib import Path

__all__ = ["Workspace", "agent_tools", "incident_log", "png", "pytest_output"]

MATERIAL = Path(__file__).with_name("material")


class Workspace:
    """Files by path. `secrets` fills the `{{name}}` marks of the material."""

    def __init__(self, secrets: dict[str, str]) -> None:
        self.files: dict[str, str] = {}
        for path in sorted(MATERIAL.rglob("*.txt")):
            name = path.relative_to(MATERIAL).as_posix().removesuffix(".txt")
            text = path.read_text(encoding="utf-8")
            for key, value in secrets.items():
                text = text.replace("{{" + key + "}}", value)
            self.files[".env" if name == "env" else name] = text
        self._committed = dict(self.files)

    def read(self, path: str, offset: int = 1, limit: int = 2_000) -> str:
        """A listing with line numbers, as `read_file` gives it."""
        lines = self.files[path].splitlines()[offset - 1 : offset - 1 + limit]
        return "\n".join(f"{number:>5}\t{line}" for number, line in enumerate(lines, start=offset))

    def search(self, pattern: str, under: str = "") -> str:
        """`path:line:text` for every line that matches."""
        wanted = re.compile(pattern)
        hits = [
            f"{path}:{number}:{line}"
            for path, text in self.files.items()
            if path.startswith(under) and path != ".env"
            for number, line in enumerate(text.splitlines(), start=1)
            if wanted.search(line)
        ]
        return "\n".join(hits) or "no matches"

    def patch(self, path: str, old: str, new: str) -> str:
        """Replace one passage. Raises ValueError unless it stands there exactly once."""
        if self.files[path].count(old) != 1:
            raise ValueError(f"{path} holds the passage {self.files[path].count(old)} times, not once")
        self.files[path] = self.files[path].replace(old, new)
        removed, added = len(old.splitlines()), len(new.splitlines())
        return f"patched {path}: 1 hunk, -{removed} +{added} lines"

    def line_of(self, path: str, passage: str) -> int:
        """The number of the first line that holds the passage."""
        return self.files[path][: self.files[path].index(passage)].count("\n") + 1

    def listing(self, others: dict[str, int]) -> str:
        """Tracked files with their sizes; `others` are those that nobody opens."""
        sizes = {path: len(text.encode()) for path, text in self.files.items() if path != ".env"} | others
        return "\n".join(f"{size:>7}  {path}" for path, size in sorted(sizes.items()))

    def diff(self) -> str:
        """All patches so far as a unified diff."""
        return "\n".join(line for path in self.files for line in self._diff_of(path))

    def diff_stat(self) -> str:
        """The same as `git diff --stat` tells it."""
        rows, added, removed = [], 0, 0
        for path in self.files:
            body = self._diff_of(path)[2:]
            plus, minus = (sum(line.startswith(sign) for line in body) for sign in "+-")
            if plus or minus:
                rows.append(f" {path:<32} | {plus + minus:>2} {'+' * plus}{'-' * minus}")
            added, removed = added + plus, removed + minus
        return "\n".join(
            [*rows, f" {len(rows)} files changed, {added} insertions(+), {removed} deletions(-)"]
        )

    def _diff_of(self, path: str) -> list[str]:
        before, after = self._committed[path].splitlines(), self.files[path].splitlines()
        return list(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm=""))

    def tests(self, path: str) -> list[str]:
        """The ids of the tests in a file."""
        return [f"{path}::{name}" for name in re.findall(r"^def (test_\w+)", self.files[path], re.MULTILINE)]


def pytest_output(tests: list[str], failures: dict[str, str], seconds: float) -> str:
    """A verbose pytest run. `failures` maps a test id to the report of its failure."""
    lines = [
        "============================= test session starts ==============================",
        "platform linux -- Python 3.12.7, pytest-8.3.3, pluggy-1.5.0",
        "rootdir: /srv/shopfront",
        "configfile: pyproject.toml",
        f"collected {len(tests)} items",
        "",
    ]
    for number, test in enumerate(tests, start=1):
        outcome = "FAILED" if test in failures else "PASSED"
        lines.append(f"{test} {outcome} [{100 * number // len(tests):>3}%]")
    if failures:
        lines += ["", "=================================== FAILURES ==================================="]
        for test, report in failures.items():
            lines += [f"_______ {test.rpartition('::')[2]} _______", "", report, ""]
        lines += ["=========================== short test summary info ============================"]
        lines += [f"FAILED {test} - {report.splitlines()[-1]}" for test, report in failures.items()]
    passed = len(tests) - len(failures)
    totals = ", ".join([*([f"{len(failures)} failed"] if failures else []), f"{passed} passed"])
    return "\n".join(
        [*lines, f"========================= {totals} in {seconds:.2f}s ========================="]
    )


_ROUTES = (
    "/",
    "/books",
    "/books/search",
    "/cart",
    "/checkout",
    "/healthz",
    "/account/orders",
    "/static/app.css",
)
_WORKER = (
    "shop.worker heartbeat queue=payments:retry depth={n} lag_ms={m}",
    "shop.mail.outbox sent template=confirmation order=HB-{order} ms={m}",
    "shop.stock reserved sku=BK-{order} quantity={q} warehouse=NW2",
    "shop.search reindexed shelf={q} titles={n} ms={m}",
    "shop.cache evicted keys={n} reason=ttl",
)


def incident_log(marked: dict[int, str], lines: int, rejected_from: int) -> str:
    """Web and worker log of the incident night. `marked` puts given lines at given places."""
    rng = random.Random(46)  # noqa: S311 - the log wants variety, not secrecy
    second, out = 0, []
    for number in range(lines):
        second += rng.randint(1, 19)
        stamp = f"2025-11-13T{21 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{rng.randint(0, 999):03d}Z"
        kind = rng.random()
        if number in marked:
            body = marked[number]
        elif kind < 0.45:
            route, status = rng.choice(_ROUTES), rng.choice((200, 200, 200, 304, 404))
            body = f"INFO  gunicorn.access GET {route} {status} {rng.randint(3, 480)}ms req={rng.getrandbits(40):010x}"
        elif kind < 0.62 and number > rejected_from:
            body = f"WARN  shop.payments.webhooks signature rejected reason=digest_differs bytes={rng.randint(412, 980)}"
        else:
            filled = rng.choice(_WORKER).format(
                n=rng.randint(0, 240),
                m=rng.randint(2, 900),
                q=rng.randint(1, 9),
                order=rng.randint(20_000, 20_999),
            )
            body = f"INFO  {filled}"
        out.append(f"{stamp} {body}")
    return "\n".join(out)


def png(width: int, height: int, bars: list[int]) -> bytes:
    """A small grey bar chart, a real PNG without any library."""
    step = width // len(bars)
    rows = []
    for y in range(height):
        row = bytearray([235] * width)
        for index, bar in enumerate(bars):
            if y >= height - bar:
                row[index * step + 2 : (index + 1) * step - 2] = bytes([70] * (step - 4))
        rows.append(b"\x00" + bytes(row))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(rows), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def _tool(name: str, description: str, **fields: str) -> dict[str, object]:
    properties = {
        key: {"type": kind.split(",")[0], "description": kind.partition(",")[2].strip()}
        for key, kind in fields.items()
    }
    required = [key for key, kind in fields.items() if "optional" not in kind]
    schema = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def agent_tools() -> list[dict[str, object]]:
    """The tools of the example's agent, as Chat Completions schemas."""
    return [
        _tool(
            "read_file",
            "Read a file of the repository with line numbers.",
            path="string, path from the repository root",
            offset="integer, optional first line, from 1",
            limit="integer, optional number of lines",
        ),
        _tool(
            "search",
            "Search file contents by regular expression.",
            pattern="string, the expression",
            path="string, optional folder",
        ),
        _tool(
            "terminal",
            "Run a shell command in the repository and return its output.",
            command="string, the command line",
        ),
        _tool(
            "patch",
            "Replace one passage of a file. The old passage must occur exactly once.",
            path="string, the file",
            old="string, the passage as it stands",
            new="string, what replaces it",
        ),
        _tool(
            "fetch", "GET a URL of the company's own services and return the body.", url="string, the address"
        ),
    ]
