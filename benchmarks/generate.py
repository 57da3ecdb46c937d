"""Generated agent conversations for the benchmarks, and a small measure of what a compaction of them loses.

The same arguments give the same conversation on every machine. All words and names are our own. Sizes, roles and
repetition follow what recorded sessions look like: half the messages are tool results with two thirds to three
quarters of the text, most of them short and a few very long, one line in six said before.
"""

import json
import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import toktok

__all__ = [
    "Needle",
    "Recall",
    "coding_session",
    "cut_at",
    "many_messages",
    "message_tokens",
    "needles",
    "recalled",
    "service_session",
    "window_200k",
]

Chat = list[dict[str, Any]]


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())


NOUNS = _words("""
    account address agent alert archive artifact asset audit balance batch billing bucket budget cache calendar carrier
    cart catalog channel claim cluster column contract counter coupon credit currency cursor customer dashboard deadline
    delivery device digest discount domain draft endpoint entity envelope event export factor feature feed fence field
    filter folder forecast frame gateway grant group handler header history index invoice item journal kernel label
    ledger lease license limit listing lock mailbox manifest margin market matrix member message meter mirror module
    monitor node notice offer order outlet package page parcel partner patch payment period permit phase pipeline plan
    pointer policy pool port portal prefix price probe profile project proof quota quote range rate ratio reader
    receipt record refund region registry relay render reply report request reserve result retry review role rollout
    route rule sample schedule schema scope segment sensor session shard shelf shipment signal slot snapshot source
    stage stock stream summary supplier switch table tariff task tenant ticket timer token topic trace track transfer
    trigger update upload usage vault vendor version view voucher wallet warehouse weight widget window worker zone
""")
VERBS = _words("""
    accept add allocate apply assign attach build cancel check claim clear close collect compare compute confirm convert
    copy count create decode defer delete detect dispatch drain drop emit encode enqueue expand expire export fetch
    filter find flush format freeze gather group import insert join list load lock map mark match measure merge migrate
    move normalise notify open order parse pick plan prepare probe publish pull purge push queue read rebuild record
    reduce refresh register reject release reload remove render replay report reserve reset resolve restore resume
    retry revoke route sample save scan schedule score seal search select send settle shift sign sort split stage start
    stop store submit sync track transfer trim unlock update validate verify watch write
""")
BODY = sorted(
    _lines("""
{var} = self._{var2}.{fn}({var3}, limit={num})
{var} = {fn}({var2}, {var3})
if {var} is None:
if not {var}.{noun}_{noun2} or {var}.{noun2} > {num}:
for {noun} in {var}.{fn}({const}):
with self._{noun}_lock:
return {cls}({var}={var2}, {noun}={var3}.{noun2})
return {var}
return None
self.{noun} = {var}
{var} = {fn}({noun})
if {var}:
if {noun}.{var}:
{noun} = {num}
break
self._{noun}.{verb}()
{var}.{verb}({noun})
raise {cls}Error(f"{noun} {{{var}}} is not a {noun2} of {{self.{noun}_id}}")
log.debug("{verb} {noun} %s after %d {noun2}s", {var}, {num})
self.{var}[{noun}_id] = {fn}({var2}.{noun2})
{var}.append(({noun}_id, {var2}.{noun2}, {num}))
{var} = {{{noun}.{noun2}_id: {noun} for {noun} in {var2} if {noun}.{var3}}}
assert {var}.{noun} == {num}, "{noun} and {noun2} disagree"
# The {noun} may be missing while a {noun2} is being moved, so look at the {noun3} first.
{var}, {var2} = await self._{noun}.{fn}({const}, timeout={num})
try:
except {cls}Error:
continue
total_{noun} += {var}.{noun2}_count * {num}
{const} = {num}
yield {noun}, {var}.{fn}()
if {var}.kind in ("{noun}", "{noun2}", "{verb}_{noun3}"):
self._metrics.{verb}("{noun}_{noun2}_total", {noun3}={var}.{noun3})
"""),
    key=len,
)
OTHER = {
    "ts": _lines("""
export async function {camel}({noun}: {cls}, {noun2}Id: string): Promise<{cls}> {{
  const {var} = await this.{camel}({noun}.{noun2}Id, {{ limit: {num} }});
  if (!{var}.{camel}) return null;
  return {{ ...{noun}, {camel}: {var}.{noun2}, updatedAt: {big} }};
  {camel}: z.string().min({num}).describe("{noun} of the {noun2}"),
import {{ {camel}, {cls} }} from "../{noun}/{noun2}-{noun3}";
  expect({camel}({noun}, {num})).toEqual({{ {noun2}: "{slug}", {noun3}: {big} }});
}}
"""),
    "yaml": _lines("""
{noun}_{noun2}:
  {noun}: {slug}
  {noun}_{noun2}_seconds: {num}
  - name: {slug}
    image: registry.internal.example/{slug}:{version}
    port: {port}
    {noun}: "{noun2} {noun3}"
  # {verb} the {noun} before the {noun2} is up
"""),
    "md": _lines("""
## How to {verb} a {noun}
The {noun} service keeps every {noun2} for {num} days; after that the {noun3} job removes it from `{path}`.
- `{fn}` wants a {noun} and gives back its {noun2}, or nothing when the {noun3} is closed
| `{const}` | {num} | how many {noun}s a {noun2} may hold |
Run `make {verb}-{noun}` on port {port} and wait until the {noun2} answers.
"""),
}
LOG = _lines("""
{stamp} INFO  {module} {verb} {noun}={slug} took={num}ms {noun2}_id={hex}
{stamp} DEBUG {module} {fn} {var}={num} {noun}={hex}
{stamp} WARN  {module} {noun} {noun2} is slow: {big}ms, limit {num}ms, request={hex}
{stamp} ERROR {module} cannot {verb} {noun} {slug}: {cls}Error at {path}:{num}
{stamp} INFO  access {ip} "GET /api/{noun}s/{hex}/{noun2} HTTP/1.1" 200 {big}
""")
TESTS = _lines("""
{test_path}::test_{fn}_{noun} PASSED
{test_path}::Test{cls}::test_{verb}s_{noun}_{noun2} PASSED
{test_path}::test_{noun}_without_{noun2} PASSED
""")
PYTEST = """\
============================= test session starts ==============================
platform linux -- Python 3.12.4, pytest-8.3.2, pluggy-1.5.0
rootdir: /srv/project
configfile: pyproject.toml

"""
TRACE = _lines("""
  File "{path}", line {num}, in {fn}
    {var} = {fn}({var2}, {noun}={num})
  File "{path}", line {num}, in _{verb}_{noun}
    raise {cls}Error("{noun} {slug} has no {noun2}")
""")
GREP = _lines("""
{path}:{num}:    {var} = {fn}({var2}, {noun}={num})
{path}:{num}:def {fn}({noun}: {cls}) -> {cls}:
{path}:{num}:from {module} import {cls}, {fn}
{path}:{num}:{const} = {big}
""")
GIT = _lines("""
{sha} {cls}: {verb} the {noun} before the {noun2}
{sha} {verb} {noun}s by {noun2} (#{big})
 {path} | {num} ++++---
+    {var} = {fn}({noun}, {var2})
-    return {fn}({var}.{noun2})
@@ -{num},7 +{num},9 @@ def {fn}({noun}):
""")
LISTING = _lines("""
-rw-r--r--  1 dev dev {big} {path}
{path}
""")
BUILD = _lines("""
[{num}/240] compiling {path}
{path}:{num}:{num}: warning: `{fn}` is never awaited in `{cls}`
   Fetched {slug} v{version} ({big} bytes)
""")
SAY = _lines("""
`{fn}` in `{path}` looks like the place: it takes the {noun} without looking at its {noun2}.
The {noun} is still wrong after that, so the cause must be earlier, probably where `{fact}` is set.
Now I check how `{fact}` is used by the {noun2} code.
That explains the {noun}: `{fact}` is read before the {noun2} has been written.
Tests for the {noun} pass. Next is `{fact}`.
Two callers of `{fn}` remain, and one of them relies on `{fact}`.
I keep the change small: only `{path}` and its test.
Good, `{fact}` is what the {noun} needs. Let me put it in.
The {noun2} has its own copy of that rule, so I look there before I change anything.
""")
ASK = _lines("""
The {noun} page shows an old {noun2} after a {noun3} was changed. Please find out why and fix it.
Next, make `{fact}` configurable. The default has to stay as it is, and do not rename anything public.
Why does the {noun} job need two minutes? Measure first, then tell me, and only change it when I say so.
Looks good. Now the same for the {noun2}. Never write to the {noun3} table from there, it must go through `{fn}`.
The build is red on my side: something about `{fact}`. Can you look? Use port {port}, the other one is taken.
Please add tests for the {noun} without a {noun2}; only in tests/{noun3}, and always with the fixture we have.
continue
Yes, go on. Keep {noun} ids as they are in the ticket: {hex}.
""")
POLICY = (
    "You serve the customers of a shop that also books journeys. Look a customer up before you speak of an order. "
    "Before anything is changed, list what will be done and wait for a clear yes. An order that is pending can be "
    "cancelled or changed once; a delivered one can be returned or exchanged within 30 days, for items of the same "
    "product. Refunds go to the payment method of the order or to a gift card. Fares of the basic class cannot be "
    "changed, only cancelled within a day. Never make up a price: use what the tools say. One call at a time."
)


class Slots(dict[str, str]):
    """Fills `{slot}` in a template. What is set on it stays; all else is new each time it is asked for."""

    def __init__(self, rng: random.Random, files: Callable[[], str], fact: Callable[[], str]) -> None:
        super().__init__()
        self.random = rng.random
        self.bits = rng.getrandbits
        self.clock = 1_760_000_000
        self.names = [f"{self.pick(VERBS)}_{self.pick(NOUNS)}" for _ in range(6)]
        self.makers: dict[str, Callable[[], str]] = {
            "path": files,
            "fact": fact,
            "fn": self._function,
            "test_path": lambda: f"tests/{self.pick(NOUNS)}/test_{self.pick(NOUNS)}_{self.pick(NOUNS)}.py",
            "verb": lambda: self.pick(VERBS),
            "cls": lambda: self.pick(NOUNS).capitalize() + self.pick(NOUNS).capitalize(),
            "camel": lambda: self.pick(VERBS) + self.pick(NOUNS).capitalize(),
            "const": lambda: f"{self.pick(NOUNS).upper()}_{self.pick(NOUNS).upper()}",
            "module": lambda: f"app.{self.pick(NOUNS)}.{self.pick(NOUNS)}",
            "slug": lambda: f"{self.pick(NOUNS)}-{self.pick(NOUNS)}-{self.bits(12)}",
            "num": lambda: str(2 + int(300 * self.random() ** 2)),
            "big": lambda: str(1_000 + self.bits(16)),
            "port": lambda: str(3_000 + self.bits(12)),
            "hex": lambda: f"{self.bits(40):010x}",
            "sha": lambda: f"{self.bits(28):07x}",
            "ip": lambda: f"10.{self.bits(6)}.{self.bits(7)}.{self.bits(7)}",
            "version": lambda: f"{self.bits(2)}.{self.bits(4)}.{self.bits(5)}",
            "stamp": self._stamp,
        }

    def pick(self, pool: Sequence[Any]) -> Any:
        return pool[int(self.random() * len(pool))]

    def _function(self) -> str:
        if self.random() < 0.04:  # a file speaks of a few functions, and slowly of others
            self.names[self.bits(2)] = f"{self.pick(VERBS)}_{self.pick(NOUNS)}_{self.pick(NOUNS)}"
        return self.pick(self.names)

    def _stamp(self) -> str:
        self.clock += self.bits(3)
        day, second = divmod(self.clock, 86_400)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{self.bits(9):03d}"
        return f"2025-{1 + day // 28 % 12:02d}-{1 + day % 28:02d}T{clock}Z"

    def __missing__(self, slot: str) -> str:
        maker = self.makers.get(slot)
        if maker is not None:
            return maker()
        noun = self.pick(NOUNS)
        return (
            noun if slot.startswith("noun") else f"{self.pick(NOUNS)}_{noun}" if self.bits(2) == 0 else noun
        )


class Transcript:
    """A conversation in the making, in the Chat Completions form."""

    def __init__(self, rng: random.Random) -> None:
        self.messages: Chat = []
        self.characters = 0
        self._bits = rng.getrandbits
        self._weighed, self._tokens = 0, 0

    def say(self, role: str, text: str | None) -> None:
        self.characters += len(text or "")
        self.messages.append({"role": role, "content": text})

    def call(self, text: str | None, calls: Sequence[tuple[str, dict[str, Any], str]]) -> None:
        """An assistant message with its calls (tool, arguments, result), and the results after it."""
        self.say("assistant", text)
        entries, ids = [], [f"call_{self._bits(96):024x}" for _ in calls]
        for call_id, (name, arguments, _) in zip(ids, calls, strict=True):
            written = json.dumps(arguments)
            self.characters += len(written)
            entries.append(
                {"id": call_id, "type": "function", "function": {"name": name, "arguments": written}}
            )
        self.messages[-1]["tool_calls"] = entries
        for call_id, (_, _, result) in zip(ids, calls, strict=True):
            self.characters += len(result)
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})

    def tokens(self) -> int:
        self._tokens += message_tokens(self.messages[self._weighed :])
        self._weighed = len(self.messages)
        return self._tokens


def message_tokens(messages: Chat) -> int:
    """o200k tokens: 4 a message and 8 a call beside its text."""
    texts, frames = [], 4 * len(messages)
    for message in messages:
        texts.append(message["content"] or "")
        for call in message.get("tool_calls", ()):
            frames += 8
            texts += [call["function"]["name"], call["function"]["arguments"]]
    return frames + sum(toktok.batch_count(texts, "o200k_base")) if texts else 0


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


WARES = _words(
    "lamp kettle backpack jacket speaker tent bicycle puzzle blender boots watch keyboard desk bottle camera"
)
TRAITS = {
    "colour": _words("black white red teal amber"),
    "size": _words("S M L XL"),
    "material": _words("steel oak wool"),
}
AIRPORTS = _words("BER LIS OSL PRG VIE DUB MAD HEL ZRH GVA")


class Desk:
    """A customer service agent with one customer, whose orders and journeys it looks up and changes."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.out = Transcript(self.rng)
        number = self.digits(5)
        self.customer = {
            "customer_id": f"C-{number}",
            "email": f"customer.{number}@example.com",
            "address": {
                "street": f"{self.digits(3)} {self.rng.choice(NOUNS)} lane",
                "postcode": self.digits(5),
            },
            "payment_methods": [{"id": f"card_{self.digits(7)}", "last_four": self.digits(4)}],
            "gift_card": {"id": f"gift_{self.digits(7)}", "balance": self.rng.randint(5, 300)},
            "orders": [f"#W{self.digits(7)}" for _ in range(4)],
        }
        self.orders: dict[str, dict[str, Any]] = {}

    def digits(self, count: int) -> str:
        return str(self.rng.randrange(10 ** (count - 1), 10**count))

    def ware(self, product: str) -> dict[str, Any]:
        traits = {trait: self.rng.choice(choices) for trait, choices in TRAITS.items()}
        price = round(self.rng.uniform(9, 400), 2)
        return {
            "item_id": self.digits(10),
            "product": product,
            "options": traits,
            "price": price,
            "available": True,
        }

    def order(self, order_id: str) -> dict[str, Any]:
        if order_id not in self.orders:
            items = [self.ware(self.rng.choice(WARES)) for _ in range(self.rng.randint(1, 5))]
            method = self.customer["payment_methods"][0]["id"]
            paid = {"amount": round(sum(item["price"] for item in items), 2), "method": method}
            state = self.rng.choice(("pending", "delivered"))
            parcel = {"carrier": "Northway", "tracking": f"NW{self.digits(10)}", "status": state}
            products = {item["product"]: self.digits(9) for item in items}
            self.orders[order_id] = {"order_id": order_id, "status": state, "items": items, "payment": paid}
            self.orders[order_id] |= {"product_ids": products, "parcel": parcel}
        return self.orders[order_id]

    def tool(self, name: str, result: Any, **arguments: Any) -> None:
        self.out.call(None, [(name, arguments, json.dumps(result))])

    def exchange(self, order_id: str) -> None:
        """Look an order up, offer another item of the same product, and change it after a yes."""
        self.out.say("user", f"Hello, it is about order {order_id}. I would like something in it exchanged.")
        order = self.order(order_id)
        self.tool("get_order", order, order_id=order_id)
        described = ", ".join(f"a {item['product']} at ${item['price']}" for item in order["items"])
        self.out.say(
            "assistant", f"Order {order_id} is {order['status']} and holds {described}. What shall change?"
        )
        old = self.rng.choice(order["items"])
        colour = self.rng.choice(TRAITS["colour"])
        self.out.say(
            "user", f"The {old['product']}: do you have it in {colour}? Any size, but it must be in stock."
        )
        product = order["product_ids"][old["product"]]
        variants = [self.ware(old["product"]) for _ in range(self.rng.randint(3, 8))]
        self.tool("get_product", {"product_id": product, "variants": variants}, product_id=product)
        fitting = [variant for variant in variants if variant["options"]["colour"] == colour]
        new = (fitting or variants)[0]
        change = round(new["price"] - old["price"], 2)
        stock = (
            f"{len(fitting)} of them are in {colour}"
            if fitting
            else f"none is in {colour}, the nearest is this one"
        )
        self.out.say(
            "assistant",
            f"We have {len(variants)} kinds of {old['product']} in stock, {stock}:\n\n- item {new['item_id']}, "
            f"{new['options']['colour']}, size {new['options']['size']}, {new['options']['material']}\n- price "
            f"${new['price']}, a difference of ${change} to what you paid for item {old['item_id']}\n\nThe difference would "
            "be settled with the card that the order was paid with. An exchange can be made only once for an order. "
            "Shall I go ahead?",
        )
        self.out.say(
            "user", self.rng.choice(("Yes, please.", "Yes, go ahead.", "Yes. And nothing else in the order."))
        )
        order["items"] = [new if item is old else item for item in order["items"]]
        done = {"order_id": order_id, "status": "exchange requested", "difference": change}
        pair = {"item_id": old["item_id"], "new_item_id": new["item_id"]}
        self.tool("exchange_item", done, order_id=order_id, **pair, payment_method=order["payment"]["method"])
        self.out.say(
            "assistant",
            f"Done: order {order_id} now has item {new['item_id']}. ${change} is settled by card.",
        )

    def refund(self, order_id: str) -> None:
        """Send back something that was looked up long before, without a second look."""
        item, gift = self.rng.choice(self.orders[order_id]["items"]), self.customer["gift_card"]["id"]
        self.out.say(
            "user",
            f"One more: the {item['product']} of that earlier order can go back, to my gift card please.",
        )
        done = {
            "order_id": order_id,
            "status": "return requested",
            "item_id": item["item_id"],
            "label": self.digits(9),
        }
        self.tool("return_item", done, order_id=order_id, item_id=item["item_id"], refund_to=gift)
        said = f"I asked for the return of item {item['item_id']} of order {order_id}; ${item['price']} will go to {gift}."
        self.out.say(
            "assistant", f"{said} Please use label {done['label']} and send the parcel within 14 days."
        )

    def journey(self) -> None:
        """Search flights, and book the one the customer names by its hour."""
        origin, destination = self.rng.sample(AIRPORTS, 2)
        day = f"2025-{self.rng.randint(1, 12):02d}-{self.rng.randint(1, 28):02d}"
        self.out.say(
            "user", f"I also need a flight from {origin} to {destination} on {day}, economy, the cheapest."
        )
        flights = [
            {
                "flight": f"HL{self.digits(3)}",
                "departs": f"{self.rng.randint(5, 22):02d}:{self.rng.randint(0, 59):02d}",
                "prices": {"basic": self.rng.randint(40, 90), "economy": self.rng.randint(91, 300)},
                "seats": {"basic": self.rng.randint(0, 20), "economy": self.rng.randint(1, 20)},
            }
            for _ in range(self.rng.randint(3, 9))
        ]
        self.tool("search_flights", flights, origin=origin, destination=destination, date=day)
        best = min(flights, key=lambda flight: flight["prices"]["economy"])
        offer = f"{best['flight']} at {best['departs']} for ${best['prices']['economy']} is the cheapest in economy."
        self.out.say("assistant", f"{offer} Shall I book it?")
        self.out.say("user", "Yes, from my gift card if the balance allows it, otherwise by card.")
        price, gift = best["prices"]["economy"], self.customer["gift_card"]
        method = gift["id"] if gift["balance"] >= price else self.customer["payment_methods"][0]["id"]
        booked = {"reservation": f"R{self.digits(6)}", "flight": best["flight"], "date": day, "paid": price}
        self.tool(
            "book_flight", booked, flight=best["flight"], date=day, cabin="economy", payment_method=method
        )
        self.out.say(
            "assistant", f"Booked: reservation {booked['reservation']}, {best['flight']} on {day}, ${price}."
        )


def service_session(target_tokens: int, seed: int = 1) -> Chat:
    """A customer service session of at least that many tokens; it ends with the case during which they are reached."""
    desk = Desk(seed)
    desk.out.say("system", POLICY)
    desk.out.say("user", f"Hi, I need help with some orders. My address is {desk.customer['email']}.")
    desk.tool("find_customer", desk.customer, email=desk.customer["email"])
    desk.out.say(
        "assistant", f"Thank you, I found your account {desk.customer['customer_id']}. What can I do?"
    )
    while desk.out.tokens() < target_tokens:
        kind, unseen = (
            desk.rng.random(),
            [number for number in desk.customer["orders"] if number not in desk.orders],
        )
        if kind < 0.3:
            desk.journey()
        elif kind < 0.55 and desk.orders:
            desk.refund(desk.rng.choice(list(desk.orders)))
        else:
            desk.exchange(unseen[0] if unseen else f"#W{desk.digits(7)}")
    return desk.out.messages


def _as_responses(messages: Chat) -> Chat:
    items: Chat = []
    for message in messages:
        if message["role"] == "tool":
            output = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"type": "function_call_output"} | output)
            continue
        if message["content"]:
            kind = "output_text" if message["role"] == "assistant" else "input_text"
            content = [{"type": kind, "text": message["content"]}]
            items.append({"type": "message", "role": message["role"], "content": content})
        for call in message.get("tool_calls", ()):
            items.append({"type": "function_call", "call_id": call["id"]} | call["function"])
    return items


def _as_anthropic(messages: Chat) -> Chat:
    """Results of one batch in one user message. The system prompt, which is a field there, is left out."""
    turns: Chat = []
    for message in messages:
        if message["role"] == "system":
            continue
        blocks = [{"type": "text", "text": message["content"]}] if message["content"] else []
        for call in message.get("tool_calls", ()):
            function = call["function"]
            use = {"id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}
            blocks.append({"type": "tool_use"} | use)
        role = message["role"]
        if role == "tool":
            role, blocks = (
                "user",
                [{"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": blocks}],
            )
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns


def _as_sharegpt(messages: Chat) -> Chat:
    names = {"system": "system", "user": "human", "assistant": "gpt", "tool": "tool"}
    called: dict[str, str] = {}
    turns: Chat = []
    for message in messages:
        parts = [message["content"]] if message["content"] else []
        for call in message.get("tool_calls", ()):
            function = call["function"]
            called[call["id"]] = function["name"]
            shown = {"name": function["name"], "arguments": json.loads(function["arguments"])}
            parts.append(f"<tool_call>\n{json.dumps(shown)}\n</tool_call>")
        if message["role"] == "tool":
            shown = {"name": called[message["tool_call_id"]], "content": message["content"]}
            parts = [f"<tool_response>\n{json.dumps(shown)}\n</tool_response>"]
        turns.append({"from": names[message["role"]], "value": "\n".join(parts)})
    return turns


DIALECTS: dict[str, Callable[[Chat], Chat]] = {
    "chat": lambda messages: messages,
    "responses": _as_responses,
    "anthropic": _as_anthropic,
    "sharegpt": _as_sharegpt,
}

VALUE = re.compile(r"(?:https?://)?[\w@./#$+-]{5,160}")
TELLING = re.compile(r"\d|\w[_/@.]\w|[a-z][A-Z]")
WORD = re.compile(r"[^\W\d_]{4,}")


class Needle(NamedTuple):
    """A value that stood before the cut and that the assistant uses after it, untold in between."""

    value: str
    last_seen: int
    used_at: int
    words: frozenset[str]


class Recall(NamedTuple):
    """Shares of the needles that a compaction kept; `far` are those last seen in the older 70 % of the messages."""

    needles: int
    recall: float
    far: float
    context: float


def values_in(text: str) -> list[str]:
    """What a reader would copy rather than remember: paths, names, ids, numbers of some length."""
    found = dict.fromkeys(match.strip("./-+") for match in VALUE.findall(text))
    return [value for value in found if len(value) >= 5 and TELLING.search(value)]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "\n".join(part.get("text", "") for part in content)
    calls = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
    return "\n".join([content, *(str(value) for arguments in calls for value in arguments.values())])


def _words_beside(value: str, text: str, most: int = 8) -> set[str]:
    """Plain words within 60 characters of the value's first occurrences."""
    words: set[str] = set()
    at = text.find(value)
    while at >= 0 and most:
        near = text[max(0, at - 60) : at] + " " + text[at + len(value) : at + len(value) + 60]
        words.update(word.lower() for word in WORD.findall(near))
        at, most = text.find(value, at + 1), most - 1
    return words


def cut_at(messages: Chat, share: float = 0.55) -> int:
    """The first index past that share of the text where no call is parted from its result."""
    sizes = [len(_text(message)) for message in messages]
    wanted, passed = share * sum(sizes), 0
    for index, (message, size) in enumerate(zip(messages, sizes, strict=True)):
        if passed >= wanted and message["role"] != "tool":
            return index
        passed += size
    return len(messages)


def needles(messages: Chat, cut: int) -> tuple[Needle, ...]:
    """Values from before `cut` (the system prompt apart) that the assistant uses after it, by first use."""
    texts = [_text(message) for message in messages]
    last_seen: dict[str, int] = {}
    for index in range(cut):
        if messages[index]["role"] != "system":
            last_seen.update(dict.fromkeys(values_in(texts[index]), index))
    told: set[str] = set()
    found = []
    for index in range(cut, len(messages)):
        for value in values_in(texts[index]):
            if value in last_seen and value not in told and messages[index]["role"] == "assistant":
                words = _words_beside(value, texts[last_seen[value]])
                found.append(Needle(value, last_seen[value], index, frozenset(words)))
            told.add(value)
    return tuple(found)


def recalled(wanted: Sequence[Needle], cut: int, kept: Chat) -> Recall:
    """How many of the needles the kept messages still hold, and beside two of the words they stood with."""
    text = "\n".join(_text(message) for message in kept if message["role"] != "system")
    present = [needle for needle in wanted if needle.value in text]
    distant = [needle for needle in wanted if needle.last_seen < 0.7 * cut]
    beside = [
        needle
        for needle in present
        if len(_words_beside(needle.value, text, most=40) & needle.words) >= min(2, len(needle.words))
    ]
    far = sum(needle in present for needle in distant)
    total = max(1, len(wanted))
    return Recall(len(wanted), len(present) / total, far / max(1, len(distant)), len(beside) / total)
