"""The search process: takes a job as JSON on standard input, writes the hits as JSON to standard output.

Files come in the order of `files_below`. If there is ripgrep, it says which of them are worth reading; lines are always
matched here, so that the hits are the same without it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.agent.tools.walking import files_below, looks_secret
from penstock.loop.globs import compile_path_glob
from penstock.loop.text_files import looks_binary

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["FoundLines", "MatchedLine", "SearchJob", "search"]

_BATCH_FILES = 1_000
_BATCH_CHARS = 100_000  # of their names: what every system takes as arguments
_MOST_FILE_BYTES = 16 << 20
_SHOWN_CHARS = 300
_OTHERWISE_READ = re.compile(r"\[\[|\\[<>]|\\b\{|\(\?[^:)]*[aLuxR-]|\{,")


class SearchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern and the place to search: `start` is a file or folder from `root` on."""

    root: str
    start: str
    pattern: str
    glob: str | None = None
    ignore_case: bool = False
    limit: int = 100
    ripgrep: str | None = None


class MatchedLine(msgspec.Struct, frozen=True):
    """A line that matches."""

    path: str
    line: int
    text: str


class FoundLines(msgspec.Struct, frozen=True, kw_only=True):
    """The first hits, whether there are more, and how many files were looked at."""

    hits: tuple[MatchedLine, ...] = ()
    more: bool = False
    files: int = 0
    error: str = ""


def search(job: SearchJob) -> FoundLines:
    """Searches, and returns the first hits."""
    try:
        regex, alike = _compile_pattern(job)
    except (re.error, RecursionError, OverflowError) as error:
        return FoundLines(
            error=f"the pattern is not a regular expression: {error}; escape . * + ? ( ) [ ] {{ }} with \\"
        )
    if not alike:
        job = msgspec.structs.replace(job, ripgrep=None)
    hits: list[MatchedLine] = []
    files = 0
    for batch in _batches(_paths(job)):
        files += len(batch)
        for path in _choose_promising(batch, job):
            hits.extend(islice(_hits(job, path, regex), job.limit + 1 - len(hits)))
            if len(hits) > job.limit:
                return FoundLines(hits=tuple(hits[: job.limit]), more=True, files=files)
    return FoundLines(hits=tuple(hits), files=files)


def _compile_pattern(job: SearchJob) -> tuple[re.Pattern[str], bool]:
    """Returns the expression, and whether ripgrep reads it as we do: it has set operations and word borders of its own."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        regex = re.compile(job.pattern, re.IGNORECASE if job.ignore_case else 0)
    if said or _OTHERWISE_READ.search(job.pattern):
        return regex, False
    return regex, regex.search("") is None  # what matches nothing at all is in every file anyway


def _paths(job: SearchJob) -> Iterator[str]:
    root = Path(job.root)
    if (root / job.start).is_file():
        return iter([] if looks_secret(job.start) else [job.start])
    paths = (entry.path for entry in files_below(root, job.start) if not looks_secret(entry.path))
    if job.glob is None:
        return paths
    glob, prefix = compile_path_glob(job.glob), f"{job.start}/" if job.start else ""
    return (path for path in paths if glob.matches(path.removeprefix(prefix)))


def _batches(paths: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    chars = 0
    for path in paths:
        batch.append(path)
        chars += len(path)
        if len(batch) == _BATCH_FILES or chars > _BATCH_CHARS:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch


def _choose_promising(batch: list[str], job: SearchJob) -> list[str]:
    """Returns the files that may have a hit: all of them if there is no ripgrep or it rejects the pattern."""
    if job.ripgrep is None:
        return batch
    options = ("--files-with-matches", "--null", "--text", "--no-ignore", "--hidden", "--no-config", "--crlf")
    case = "--ignore-case" if job.ignore_case else "--case-sensitive"
    command = [job.ripgrep, *options, case, "--no-messages", "--regexp", job.pattern, "--", *batch]
    done = subprocess.run(  # noqa: S603 - ripgrep by its path, the pattern is an argument and no shell is there
        command, cwd=job.root, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    if done.returncode not in {0, 1}:
        return batch
    named = {name.decode(errors="surrogateescape") for name in done.stdout.split(b"\0") if name}
    return [path for path in batch if path in named]


def _hits(job: SearchJob, path: str, regex: re.Pattern[str]) -> Iterator[MatchedLine]:
    file = Path(job.root) / path
    try:
        if file.stat().st_size > _MOST_FILE_BYTES:
            return
        data = file.read_bytes()
    except OSError:
        return
    if looks_binary(data):
        return
    shown_path = path.encode(errors="surrogateescape").decode(errors="replace")
    lines = data.decode(errors="replace").split("\n")
    if not lines[-1]:
        lines.pop()  # what stands after the last line end is no line
    for number, line in enumerate(lines, start=1):
        text = line.removesuffix("\r")
        if (match := regex.search(text)) is not None:
            yield MatchedLine(shown_path, number, _around(text, match))


def _around(line: str, match: re.Match[str]) -> str:
    """Returns the line; of a long one, the text around the match."""
    if len(line) <= _SHOWN_CHARS:
        return line
    start = max(0, min(match.start() - _SHOWN_CHARS // 3, len(line) - _SHOWN_CHARS))
    end = start + _SHOWN_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.stdin.buffer.read(), type=SearchJob)
    sys.stdout.buffer.write(msgspec.json.encode(search(asked)))
