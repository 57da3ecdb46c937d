"""A coding agent's session: files that come into being as they are looked at, test runs, logs, edits."""

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.needles import values_in
from benchmarks.sessions.banks import (
    ASK,
    BODY,
    BUILD,
    GIT,
    GREP,
    LISTING,
    LOG,
    NOUNS,
    OTHER,
    PYTEST,
    SAY,
    TESTS,
    TRACE,
    VERBS,
)
from benchmarks.sessions.slots import Slots
from benchmarks.sessions.transcript import Chat, Transcript
from benchmarks.sessions.wires import DIALECTS


class Coder:
    """A coding agent at work on a project that comes into being as it is looked at."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.out = Transcript(self.rng)
        self.paths: list[str] = []
        self.opened: list[str] = []
        self.files: dict[str, list[str]] = {}
        self.facts: list[str] = []
        self.scale = 1.0
        self.ceiling = 60_000
        self.exact = 0
        self.slots = Slots(self.rng, self.path, self.fact)
        self.pick = self.slots.pick

    def fill(self, template: str) -> str:
        return template.format_map(self.slots)

    def path(self) -> str:
        """A path of the project: mostly one that was seen not long ago."""
        if self.paths and self.rng.random() > 0.12:
            back = int(len(self.paths) ** self.rng.random())
            return self.paths[-back]
        ending = self.pick(("py", "py", "py", "py", "ts", "yaml", "md"))
        self.paths.append(
            f"src/{self.pick(NOUNS)}/{self.pick(NOUNS)}/{self.pick(VERBS)}_{self.pick(NOUNS)}.{ending}"
        )
        return self.paths[-1]

    def fact(self) -> str:
        """Something a tool result has said: mostly of late, sometimes long ago."""
        if not self.facts:
            return self.path()
        return self.facts[-int(len(self.facts) ** self.rng.random())]

    def size(self) -> int:
        """Characters of the next result: log-normal, as recorded results are, unless an end must be met."""
        return self.exact or int(min(self.ceiling, self.scale * math.exp(self.rng.gauss(6.4, 1.5))))

    def block(self, templates: Sequence[str], size: int) -> str:
        """Lines until the size is reached, in runs of one kind as tools print them."""
        out, room = [], size
        while room > 0:
            line = self.fill(self.pick(templates))
            out.append(line)
            room -= len(line) + 1
        return "\n".join(out)

    def source(self, path: str, count: int) -> list[str]:
        """The file's lines, written when they are first asked for."""
        if path not in self.files:
            self.files[path] = []
            self.opened.append(path)
        lines = self.files[path]
        other = OTHER.get(path.rpartition(".")[2])
        while len(lines) < count:
            if other is not None:
                lines.append(self.fill(self.pick(other)))
                continue
            lines += ["", self.fill("    def {fn}(self, {noun}: {cls}, {var}: int) -> {cls}:")]
            lines.append(
                self.fill('        """{verb} the {noun} of a {noun2}, and its {noun3} where there is one."""')
            )
            depth = 8
            for _ in range(4 + self.slots.bits(4)):
                line = self.fill(BODY[int(len(BODY) * self.rng.random() ** 1.7)])
                lines.append(" " * depth + line)
                depth = min(16, depth + 4) if line.endswith(":") else 8 + 4 * self.slots.bits(1)
        return lines

    def listing(self, size: int) -> tuple[dict[str, Any], str]:
        path, start, count = self.path(), 1, max(3, size // 46)
        if self.opened and self.rng.random() < 0.6:  # agents often read again what they have read
            path = self.opened[-int(len(self.opened) ** self.rng.random())]
            start = 1 + int(self.rng.random() * len(self.files[path])) if self.slots.bits(2) == 0 else 1
        lines = self.source(path, start + count)[start - 1 : start + count]
        text = "\n".join(f"{number:>5}\t{line}" for number, line in enumerate(lines, start))
        return {"path": path, "offset": start, "limit": count}, text

    def document(self, size: int) -> str:
        rows: list[dict[str, Any]] = []
        keys = [self.pick(NOUNS) for _ in range(6)]
        for _ in range(1 + size // 260):
            values = [
                self.fill("{slug}"),
                self.slots.bits(14),
                self.fill("{hex}"),
                self.fill("{noun} {verb}"),
            ]
            rows.append(
                dict(zip(keys, values, strict=False)) | {"id": self.fill("{noun}_{hex}"), "open": True}
            )
        return json.dumps({"count": len(rows), keys[5]: rows}, indent=2)

    def terminal(self, size: int) -> tuple[dict[str, Any], str]:
        kind = self.rng.random()
        if kind < 0.34:
            failed = "\n" + self.block(TRACE, min(size, 900)) if self.rng.random() < 0.4 else ""
            text = self.block(TESTS, size) + failed + self.fill("\n{num} passed in {num}.{num}s")
            return {"command": self.fill("python -m pytest {test_path} -k {fact} -v")}, PYTEST + text
        if kind < 0.54:
            command = "docker logs {noun}-{noun2} --tail {num} | grep {fact}"
            return {"command": self.fill(command)}, self.block(LOG, size)
        if kind < 0.70:
            return {"command": self.fill("git log --stat -- {path}")}, self.block(GIT, size)
        if kind < 0.82:
            return {
                "command": self.fill("curl -s localhost:{port}/api/{noun}s?{noun2}={fact}")
            }, self.document(size)
        if kind < 0.92:
            return {"command": self.fill("make build-{noun} TARGET={slug}")}, self.block(BUILD, size)
        return {"command": self.fill("ls -la src/{noun}")}, self.block(LISTING, size)

    def edit(self) -> tuple[dict[str, Any], str]:
        path = self.path()
        lines = self.source(path, 12)
        at = int(self.rng.random() * (len(lines) - 8))
        old = lines[at : at + 2 + self.slots.bits(2)]
        other = OTHER.get(path.rpartition(".")[2])
        bank = other or tuple(" " * 8 + line for line in BODY)
        new = [old[0], *(self.fill(self.pick(bank)) for _ in range(3 + self.slots.bits(5)))]
        if other is None and self.rng.random() < 0.4:
            new.append(self.fill("        {var} = {fn}({fact})"))
        lines[at : at + len(old)] = new
        note = self.pick(("updated", f"updated {path}", f"updated {path}: {len(new)} lines"))
        return {"path": path, "old": "\n".join(old), "new": "\n".join(new)}, note

    def action(self) -> tuple[str, dict[str, Any], str]:
        kind, size = self.rng.random(), self.size()
        if kind < 0.26:
            return "patch", *self.edit()
        if kind < 0.60:
            return "read_file", *self.listing(size)
        if kind < 0.76:
            found = "no matches" if self.rng.random() < 0.2 else self.block(GREP, size)
            return "search", {"pattern": self.fact(), "path": self.fill("src/{noun}")}, found
        return "terminal", *self.terminal(size)

    def step(self, most: int = 4) -> None:
        """The agent says something or nothing, calls tools, and learns what they say."""
        count = min(most, 2 + self.slots.bits(1)) if self.rng.random() < 0.13 else 1
        said = self.prose(SAY, 1 + self.slots.bits(2)) if self.rng.random() < 0.7 else None
        calls = [self.action() for _ in range(count)]
        self.out.call(said, calls)
        for _, _, result in calls:
            at = int(self.rng.random() * max(0, len(result) - 1_200))
            found = values_in(result[at : at + 1_200])
            if found:
                self.facts += self.rng.sample(found, min(len(found), 3))

    def prose(self, bank: Sequence[str], sentences: int) -> str:
        return " ".join(self.fill(self.pick(bank)) for _ in range(sentences))

    def task(self, done: Callable[[], bool]) -> None:
        """One request, the work on it, and a report."""
        pasted = "\n\n" + self.block(LOG, min(self.size(), 6_000)) if self.rng.random() < 0.2 else ""
        self.out.say("user", self.prose(ASK, 1 + self.slots.bits(1)) + pasted)
        for _ in range(3 + self.slots.bits(4)):
            if done():
                return
            self.step()
        self.out.say("assistant", self.prose(SAY, 4 + self.slots.bits(3)))


def coding_session(target_tokens: int, seed: int = 1, dialect: str = "chat") -> Chat:
    """A coding agent's session of about that many tokens (within 3 % from 10,000 on); the last word is the user's."""
    coder = Coder(seed)
    coder.out.say(
        "system", "You are a coding agent. Look before you change, and run the tests that cover a change."
    )

    def done() -> bool:
        left = target_tokens - coder.out.tokens()
        coder.ceiling = min(40_000, max(200, left))
        return left < max(120, target_tokens // 100)

    while not done():
        coder.task(done)
    if coder.out.messages[-1]["role"] == "tool":
        coder.out.say("assistant", coder.prose(SAY, 1))
    if coder.out.messages[-1]["role"] != "user":
        coder.out.say("user", coder.prose(ASK, 1))
    return DIALECTS[dialect](coder.out.messages)


def window_200k(seed: int = 1) -> Chat:
    """A full window: 200,000 tokens."""
    return coding_session(200_000, seed)


def many_messages(count: int = 20_000, total_bytes: int = 30_000_000, seed: int = 1) -> Chat:
    """Exactly so many messages of about so many bytes of text (within 5 %, at 1,000 bytes a message and more)."""
    coder = Coder(seed)

    def done() -> bool:
        """Steer by what is left: results grow or shrink so that bytes and messages end together."""
        left = count - len(coder.out.messages)
        wanted = (total_bytes - coder.out.characters) / max(1, left)
        coder.scale = min(20.0, max(0.02, wanted / (total_bytes / count))) * (total_bytes / count) / 1_250
        coder.ceiling = int(min(30 * total_bytes / count, total_bytes / 40))
        if left < count // 20:
            coder.exact = int(max(40, 2.4 * wanted - 500))
        return left < 8

    while not done():
        coder.task(done)
    while len(coder.out.messages) < count:
        last = coder.out.messages[-1]["role"]
        coder.out.say(
            *(("user", coder.prose(ASK, 1)) if last == "assistant" else ("assistant", coder.prose(SAY, 2)))
        )
    return coder.out.messages
