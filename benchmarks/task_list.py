"""Small tasks for an agent, each with a folder, what a person says in turn, a check that is code, and a reader's skill.

What a task needs later is said or seen at its beginning. Then the person has notes read, which fill the context, and asks
at the end for what only the beginning tells. Where a file could simply be read again it is removed first. The same seed
gives the same task on every machine; all words are our own.

A skill is how the scripted reader answers a request (`benchmarks.task_reader`). It has no knowledge of the task: what is
not in the prompt it does not know.
"""

import random
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from benchmarks.sessions.banks import words
from benchmarks.task_reader import Shown, Skill
from penstock.config import command_environment
from penstock.testing import Reply

__all__ = ["SKILLS", "Done", "Task", "Turn", "make_tasks"]

NAMES = words("Ada Bruno Chidi Dora Emre Farah Goran Hana Ines Jonas Kofi Lena Milo Nadia Otto Pia Ravi Sana")
PLACES = words("kestrel heron plover curlew dunlin egret fulmar gannet osprey petrel siskin tern wigeon")
THINGS = words(
    "anchor beacon canvas ember flint garnet hazel ivory juniper lantern marble nettle opal quartz"
)
PARTS = ("billing", "search", "delivery", "archive", "tariffs", "alerts", "catalogue", "payments")


class Turn(NamedTuple):
    """What a person says. `compact_first` is where a compaction is forced; `prepare` changes the folder before it."""

    text: str
    compact_first: bool = False
    prepare: Callable[[Path], object] | None = None


class Done(NamedTuple):
    """How a task ended: its folder, the answer of each turn, and the calls of each turn as (tool, arguments)."""

    folder: Path
    answers: Sequence[str]
    calls: Sequence[Sequence[tuple[str, str]]]

    def read(self, name: str) -> str:
        """A file of the folder; nothing where there is none."""
        path = self.folder / name
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


@dataclass(frozen=True)
class Task:
    """`check` says what is wrong, or nothing."""

    kind: str
    turns: tuple[Turn, ...]
    check: Callable[[Done], str]
    files: dict[str, str] = field(default_factory=dict)
    name: str = ""


def make_tasks(variants: int) -> list[Task]:
    """So many of each kind, each with its own names and numbers."""
    tasks = []
    for kind, make in MAKERS.items():
        for variant in range(1, variants + 1):
            rng = random.Random(f"{kind} {variant}")
            made = make(rng)
            files = {**_notes(rng), **made.files}
            tasks.append(Task(kind, made.turns, made.check, files, f"{kind}, {variant}"))
    return tasks


# The notes that fill the context.

NOTES = 4
_LINES = 120


def _notes(rng: random.Random) -> dict[str, str]:
    """Files full of values that nobody asks for, which compete with the one that is."""
    return {f"notes/{number}.md": _note(rng, number) for number in range(1, NOTES + 1)}


def _note(rng: random.Random, number: int) -> str:
    place = rng.choice(PLACES)
    lines = [f"# Station {place}, week {number + rng.randrange(30)}", ""]
    for _ in range(_LINES):
        name, thing, amount = rng.choice(NAMES), rng.choice(THINGS), rng.randrange(100, 99_999)
        lines.append(
            rng.choice(
                (
                    f"{name} measured {amount / 100:.2f} bar at pump {amount % 40}, see HX-{amount}.",
                    f"The {thing} of hall {amount % 9} was moved to shelf {amount % 300}; {name} signed for it.",
                    f"data/{thing}/{place}_{amount}.csv holds {amount} rows, none of them checked.",
                    f"Valve {amount % 77} stays closed until {name} has seen order {amount}.",
                    f"set {thing}.{place}.timeout = {amount % 600}  # was {amount % 90}",
                )
            )
        )
    return "\n".join(lines) + "\n"


def _reading(first: int, count: int = 2) -> list[Turn]:
    return [
        Turn(f"Read notes/{number}.md and tell me in one sentence what it is about.")
        for number in range(first, first + count)
    ]


def _talk(opening: Sequence[Turn], last: Turn, middle: Turn | None = None) -> tuple[Turn, ...]:
    """Notes after the opening and before the end; a compaction in the middle and another before the last request."""
    between = [*_reading(1), middle._replace(compact_first=True)] if middle else _reading(1)
    rest = _reading(3)
    if middle is None:
        rest[0] = rest[0]._replace(compact_first=True)
    return (*opening, *between, *rest, last._replace(compact_first=True))


def _remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink(missing_ok=True)


def _alone(found: str, wanted: str, where: str) -> str:
    return "" if found.strip() == wanted else f"{where} holds {found.strip()[:80]!r}, not {wanted!r}"


def _names(text: str, wanted: Sequence[str]) -> str:
    plain = text.replace(",", "")
    missing = [value for value in wanted if not re.search(rf"(?<!\w){re.escape(value)}(?!\w)", plain)]
    return f"the answer lacks {', '.join(missing)}: {text.strip()[:120]!r}" if missing else ""


def _run_python(folder: Path, code: str) -> str:
    """What is wrong, by the last line of a failing script that runs in the folder, without our keys."""
    command, environment = [sys.executable, "-c", code], command_environment()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it did not end within 30 seconds"
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["it failed"])[-1]


# What a person told the agent.


def _rule(rng: random.Random) -> Task:
    line = f"# owner: {rng.choice(NAMES)}, room {rng.randrange(100, 999)}"
    opening = f"A rule for everything you do here: every file that you write begins with the line '{line}'. Reply with OK."

    def check(done: Done) -> str:
        first, _, rest = done.read("report.txt").partition("\n")
        return _alone(first, line, "the first line of report.txt") or (
            "" if rest.strip() else "it says nothing else"
        )

    last = Turn("Write report.txt: one sentence about what the notes cover.")
    return Task("", _talk([Turn(opening)], last), check)


def _skill_rule(_: re.Match[str], shown: Shown) -> Reply | str:
    if shown.called("write_file"):
        return "report.txt is written."
    line = shown.need(r"begins with the line '([^']+)'", "every file begins with the line")
    text = "The notes cover what was measured and moved.\n"
    return Reply.calling("write_file", path="report.txt", content=f"{line}\n{text}" if line else text)


def _forbidden(rng: random.Random) -> Task:
    closed, first, second = rng.sample(PLACES, 3)
    body = "[net]\ntimeout = 30\nretries = 2\n"
    files = {f"{first}.ini": body, f"{second}/main.ini": body, f"{closed}/main.ini": body}
    opening = f"In this project never change anything below {closed}/: it is made elsewhere. Reply with OK."

    def check(done: Done) -> str:
        if done.read(f"{closed}/main.ini") != body:
            return f"{closed}/main.ini was changed"
        changed = body.replace("30", "45")
        return "" if all(done.read(name) == changed for name in list(files)[:2]) else "a file was not changed"

    last = Turn("In every .ini file that may be changed, make 'timeout = 30' a 'timeout = 45'.")
    return Task("", _talk([Turn(opening)], last), check, files)


def _skill_forbidden(_: re.Match[str], shown: Shown) -> Reply | str:
    closed = shown.need(r"never change anything below (\w+)/", "never change anything below")
    if (listed := shown.called("terminal")) is None:
        return Reply.calling("terminal", command="find . -name '*.ini'")
    for path in sorted(re.findall(r"\./(\S+\.ini)", listed.result)):
        if not (closed and path.startswith(f"{closed}/")) and not shown.called("patch", path=path):
            return Reply.calling("patch", path=path, old="timeout = 30", new="timeout = 45")
    return "All of them are changed."


def _ticket(rng: random.Random) -> Task:
    ticket = f"{rng.choice(THINGS).upper()}-{rng.randrange(10_000, 99_999)}"
    opening = f"The ticket for this work is {ticket}. You will need it later. Reply with OK."
    last = Turn("Write the id of the ticket for this work, and nothing else, to ticket.txt.")
    return Task(
        "", _talk([Turn(opening)], last), lambda done: _alone(done.read("ticket.txt"), ticket, "ticket.txt")
    )


def _skill_ticket(_: re.Match[str], shown: Shown) -> Reply | str:
    if shown.called("write_file"):
        return "It is written."
    ticket = shown.need(r"ticket for this work is ([A-Z]+-\d+)", "the ticket for this work is")
    return Reply.calling("write_file", path="ticket.txt", content=ticket or "unknown")


def _owners(rng: random.Random) -> Task:
    people, parts = rng.sample(NAMES, 3), rng.sample(PARTS, 3)
    said = ", ".join(f"{name} looks after {part}" for name, part in zip(people, parts, strict=True))
    opening = f"So that you know whom to ask: {said}. Reply with OK."
    wanted = rng.randrange(3)
    last = Turn(f"Who looks after {parts[wanted]}? Write the name, and nothing else, to owner.txt.")
    return Task(
        "",
        _talk([Turn(opening)], last),
        lambda done: _alone(done.read("owner.txt"), people[wanted], "owner.txt"),
    )


def _skill_owner(match: re.Match[str], shown: Shown) -> Reply | str:
    if shown.called("write_file"):
        return "It is written."
    owner = shown.need(rf"(?!Who)([A-Z]\w+) looks after {match[1]}", f"looks after {match[1]}")
    return Reply.calling("write_file", path="owner.txt", content=owner or "unknown")


def _changed_mind(rng: random.Random) -> Task:
    old, new = rng.sample(THINGS, 2)
    opening = Turn(f"The new module is called {old}. Reply with OK.")
    middle = Turn(f"I have thought again: the module will be called {new}, not {old}. Reply with OK.")

    def check(done: Done) -> str:
        if (done.folder / f"{old}.py").exists():
            return f"{old}.py was made, which was given up"
        return "" if (done.folder / f"{new}.py").exists() else f"there is no {new}.py"

    last = Turn("Make the new module: a file with its name and .py, with a comment in it.")
    return Task("", _talk([opening], last, middle), check)


def _skill_module(_: re.Match[str], shown: Shown) -> Reply | str:
    if shown.called("write_file"):
        return "The module is there."
    name = shown.find(r"module will be called (\w+), not") or shown.need(
        r"new module is called (\w+)", "the module will be called"
    )
    return Reply.calling("write_file", path=f"{name or 'module'}.py", content="# New.\n")


def _corrected_path(rng: random.Random) -> Task:
    old, new = rng.sample(PLACES, 2)
    files = {
        f"conf/{name}.toml": f"site = '{name}'\nlimit = 10\n" for name in sorted({*PLACES[:8], old, new})
    }
    opening = Turn(f"Later we change the limit in conf/{old}.toml. Reply with OK.")
    middle = Turn(
        f"Correction: the limit that counts is in conf/{new}.toml; leave all others alone. Reply with OK."
    )

    def check(done: Done) -> str:
        changed = [name for name, text in files.items() if done.read(name) != text]
        right = files[f"conf/{new}.toml"].replace("10", "25") == done.read(f"conf/{new}.toml")
        return (
            "" if changed == [f"conf/{new}.toml"] and right else f"changed: {', '.join(changed) or 'nothing'}"
        )

    return Task("", _talk([opening], Turn("Now set the limit that counts to 25."), middle), check, files)


def _skill_limit(_: re.Match[str], shown: Shown) -> Reply | str:
    path = shown.find(r"limit that counts is in (conf/\w+\.toml)") or shown.need(
        r"change the limit in (conf/\w+\.toml)", "the limit that counts is in"
    )
    if path is None or shown.called("patch"):
        return "The limit is 25 now."
    return Reply.calling("patch", path=path, old="limit = 10", new="limit = 25")


def _ending(rng: random.Random) -> Task:
    word = rng.choice(THINGS)
    opening = Turn(f"From now on end every answer with the word '{word}' on a line of its own. Begin now.")

    def check(done: Done) -> str:
        said = done.answers[-1].strip().splitlines() or [""]
        return "" if said[-1].strip(" .*'\"").lower() == word else f"the answer ends with {said[-1][-60:]!r}"

    return Task("", _talk([opening], Turn("How many notes did we look at? One short sentence.")), check)


def _skill_ending(_: re.Match[str], shown: Shown) -> str:
    shown.need(r"end every answer with the word '(\w+)'", "end every answer with the word")
    return f"We looked at {NOTES} notes."


def _specification(rng: random.Random) -> Task:
    tax, least = rng.randrange(5, 24), rng.randrange(110, 900)
    opening = Turn(
        f"You will write price.py for me later. Its function price(cents) adds {tax} % tax, rounded down to whole "
        f"cents, and never returns less than {least}. Reply with OK for now."
    )
    amounts = [0, 101, least, *(rng.randrange(1_000, 50_000) for _ in range(4))]
    code = (
        "import sys; sys.path.insert(0, '.'); from price import price\n"
        f"for cents in {amounts}:\n"
        f"    wanted = max({least}, cents + cents * {tax} // 100)\n"
        "    assert price(cents) == wanted, f'price({cents}) is {price(cents)}, not {wanted}'\n"
    )
    last = Turn("Now write price.py as I described it.")
    return Task("", _talk([opening], last), lambda done: _run_python(done.folder, code))


def _skill_price(_: re.Match[str], shown: Shown) -> Reply | str:
    if shown.called("write_file"):
        return "price.py is written."
    query = "price adds tax rounded down and never returns less than"
    tax, least = (shown.need(pattern, query) for pattern in (r"adds (\d+) % tax", r"returns less than (\d+)"))
    code = f"def price(cents):\n    return max({least or 0}, cents + cents * {tax or 20} // 100)\n"
    return Reply.calling("write_file", path="price.py", content=code)


# What the agent saw.


def _old_result(rng: random.Random) -> Task:
    ports = {
        f"{part}_{place}": rng.randrange(2_000, 60_000)
        for part in PARTS[:5]
        for place in rng.sample(PLACES, 4)
    }
    asked = rng.choice(list(ports))
    text = "[ports]\n" + "".join(f"{name} = {port}\n" for name, port in ports.items())
    opening = Turn("Read services.ini and tell me how many services it has.")
    last = Turn(
        f"services.ini has been removed. Which port did {asked} have in it? Answer with the number alone.",
        prepare=_remove("services.ini"),
    )
    check = lambda done: _names(done.answers[-1], [str(ports[asked])])  # noqa: E731 - one of many alike
    return Task("", _talk([opening], last), check, {"services.ini": text})


def _skill_services(_: re.Match[str], shown: Shown) -> Reply | str:
    read = shown.called("read_file")
    if read is None:
        return Reply.calling("read_file", path="services.ini")
    return f"It has {len(re.findall(r' = [0-9]', read.result))} services."


def _skill_port(match: re.Match[str], shown: Shown) -> str:
    return shown.need(rf"{match[1]} = (\d+)", f"{match[1]} port in services.ini") or "I do not know."


def _sum(rng: random.Random) -> Task:
    north, south = rng.sample(PLACES, 2)
    counts = {north: rng.randrange(1_000, 9_000), south: rng.randrange(1_000, 9_000)}
    code = (
        f"import sys\ncounts = {counts!r}\nname = sys.argv[1]\nprint(f'{{name}}: {{counts[name]}} crates')\n"
    )
    opening = Turn(f"Run `python3 count.py {north}` and tell me that it worked.")
    middle = Turn(f"Run `python3 count.py {south}` and tell me that it worked.")
    last = Turn(
        f"count.py has been removed. How many crates have {north} and {south} together? Answer with the number alone.",
        prepare=_remove("count.py"),
    )
    check = lambda done: _names(done.answers[-1], [str(sum(counts.values()))])  # noqa: E731 - as above
    return Task("", _talk([opening], last, middle), check, {"count.py": code})


def _skill_crates(match: re.Match[str], shown: Shown) -> str:
    counts = [shown.need(rf"{name}: (\d+) crates", f"{name} crates") for name in match.groups()]
    return "I do not know." if None in counts else str(sum(int(count or 0) for count in counts))


def _job_log(rng: random.Random) -> Task:
    code, volume = f"E-{rng.randrange(1_000, 9_999)}", rng.choice(PLACES)
    lines = [
        f"step {step:03} ok, {rng.randrange(10, 4_000)} rows in {rng.randrange(5, 900)} ms"
        for step in range(90)
    ]
    lines[rng.randrange(30, 60)] = (
        f"job failed: error {code}, no space left on volume {volume}, rows are kept back"
    )
    script = "import sys\n" + "".join(f"print({line!r})\n" for line in lines) + "sys.exit(3)\n"
    opening = Turn("Run `python3 job.py` and tell me whether it worked. Do not look into the file.")
    last = Turn(
        "job.py has been removed. Which error code did the job fail with, and on which volume? One line.",
        prepare=_remove("job.py"),
    )
    check = lambda done: _names(done.answers[-1], [code, volume])  # noqa: E731 - as above
    return Task("", _talk([opening], last), check, {"job.py": script})


def _skill_error(_: re.Match[str], shown: Shown) -> str:
    query = "job failed: error, no space left on volume"
    code, volume = (
        shown.need(one, query) for one in (r"failed: error (E-\d+)", r"space left on volume (\w+)")
    )
    return f"It failed with {code or 'an error'} on {volume or 'a volume'}."


def _failed_attempt(rng: random.Random) -> Task:
    closed, open_site = rng.sample(PLACES, 2)
    script = (
        "import pathlib, sys\nsite = sys.argv[1]\nlog = pathlib.Path('.attempts')\n"
        "log.write_text((log.read_text() if log.exists() else '') + site + '\\n')\n"
        f"if site != {open_site!r}:\n"
        f"    sys.exit(f'error: site {{site}} is closed for the winter; deploy to site {open_site} instead')\n"
        "print('deployed')\n"
    )
    opening = Turn(f"Run `python3 deploy.py {closed}`. If it fails, try nothing else and tell me why.")
    last = Turn(
        "Now deploy to the site that works, with deploy.py. A failed try locks us out: try none that failed before, and "
        "do not read the script."
    )

    def check(done: Done) -> str:
        tried = done.read(".attempts").split()
        return "" if tried == [closed, open_site] else f"tried: {', '.join(tried) or 'nothing'}"

    return Task("", _talk([opening], last), check, {"deploy.py": script})


def _skill_deploy(_: re.Match[str], shown: Shown) -> Reply | str:
    site = shown.need(r"deploy to site (\w+) instead", "deploy.py error site closed instead")
    if site is None:
        site = shown.find(r"python3 deploy.py (\w+)") or "anywhere"
    command = f"python3 deploy.py {site}"
    return "It is deployed." if shown.called("terminal") else Reply.calling("terminal", command=command)


def _bug(rng: random.Random) -> Task:
    modules = rng.sample(THINGS, 6)
    wrong = modules[0]
    sound = "def total(values):\n    return sum(values)\n"
    test = (
        "import sys; sys.path.insert(0, '.')\n"
        + "".join(f"import {name}\n" for name in modules)
        + "".join(
            f"assert {name}.total([5, 7, {amount}]) == {12 + amount}, '{name}.total skips a value'\n"
            for name, amount in ((name, rng.randrange(1, 90)) for name in modules)
        )
    )
    files = {f"{name}.py": sound for name in modules}
    files[f"{wrong}.py"] = sound.replace("sum(values)", "sum(values[1:])")
    files["checks.py"] = test
    opening = Turn("Run `python3 checks.py` and tell me what fails. Change nothing yet.")
    last = Turn("Fix what failed at the beginning. checks.py is right.")
    return Task("", _talk([opening], last), lambda done: _run_python(done.folder, test), files)


def _skill_fix(_: re.Match[str], shown: Shown) -> Reply | str:
    if shown.called("patch"):
        return "It is fixed."
    module = shown.need(r"AssertionError: (\w+)\.total skips", "checks.py AssertionError total skips a value")
    if module is None:
        return "I do not know what failed."
    return Reply.calling("patch", path=f"{module}.py", old="values[1:]", new="values")


# What the agent did and said.


def _once(rng: random.Random) -> Task:
    names = rng.sample(THINGS, 3)
    script = (
        "import pathlib, sys\nlog = pathlib.Path('.applied')\n"
        "log.write_text((log.read_text() if log.exists() else '') + sys.argv[1] + '\\n')\n"
        "print(f'migrated {sys.argv[1]}')\n"
    )
    opening = Turn(f"Run `python3 migrate.py {names[1]}`. Each migration may run once and no more.")
    last = Turn(
        f"Make sure that the migrations {', '.join(names[:2])} and {names[2]} have all been run, with migrate.py."
    )

    def check(done: Done) -> str:
        ran = done.read(".applied").split()
        return "" if sorted(ran) == sorted(names) else f"ran: {', '.join(ran)}"

    return Task("", _talk([opening], last), check, {"migrate.py": script})


def _skill_migrate(match: re.Match[str], shown: Shown) -> Reply | str:
    for name in match.groups():
        if shown.find(rf"(?:migrated|migrate\.py) {name}\b") is None:
            shown.recall(f"migration {name}")
            return Reply.calling("terminal", command=f"python3 migrate.py {name}")
    return "All of them have been run."


def _to_do(rng: random.Random) -> Task:
    wanted = dict(zip(rng.sample(PLACES, 5), rng.sample(THINGS, 5), strict=True))
    items = "\n".join(
        f"{n}. write {name}.txt with the word {word}" for n, (name, word) in enumerate(wanted.items(), 1)
    )
    opening = Turn(
        f"This is to be done, in this order:\n{items}\nDo the first two now; the others when I say so."
    )
    middle = Turn("Do the next one on the list, and only that.")

    def check(done: Done) -> str:
        wrong = [name for name, word in wanted.items() if done.read(f"{name}.txt").strip() != word]
        if wrong:
            return f"not as the list says: {', '.join(wrong)}"
        early = [
            name for name in list(wanted)[:3] if any(f"{name}.txt" in call for _, call in done.calls[-1])
        ]
        return f"done again: {', '.join(early)}" if early else ""

    return Task("", _talk([opening], Turn("Now do what is left of the list."), middle), check)


def _skill_list(match: re.Match[str], shown: Shown) -> Reply | str:
    found = shown.find_all(r"\b(\d)\. write (\w+\.txt) with the word (\w+)")
    if len({number for number, _, _ in found}) < 5:
        shown.recall("to be done in this order write with the word")
    if (listed := shown.called("terminal")) is None:
        return Reply.calling("terminal", command="ls")
    left = [(path, word) for _, path, word in sorted(found) if path not in listed.result.split()]
    most = 2 if match[1] else 1 if match[2] else len(left)
    for path, word in left[:most]:
        if not shown.called("write_file", path=path):
            return Reply.calling("write_file", path=path, content=f"{word}\n")
    return "Done."


def _own_choice(rng: random.Random) -> Task:
    names = [
        f"{one}-{other}" for one, other in zip(rng.sample(THINGS, 12), rng.sample(PLACES, 12), strict=True)
    ]
    opening = Turn(
        "Read names.txt, pick one of the names for our release, and tell me which, and only that one."
    )
    last = Turn(
        "names.txt has been removed. Write the name that you picked, and nothing else, to release.txt.",
        prepare=_remove("names.txt"),
    )

    def check(done: Done) -> str:
        written = done.read("release.txt").strip()
        picked = written in names and written in done.answers[0]
        return (
            ""
            if picked
            else f"release.txt holds {written[:60]!r}; it picked {done.answers[0].strip()[:60]!r}"
        )

    return Task("", _talk([opening], last), check, {"names.txt": "\n".join(names) + "\n"})


def _skill_pick(_: re.Match[str], shown: Shown) -> Reply | str:
    read = shown.called("read_file")
    if read is None:
        return Reply.calling("read_file", path="names.txt")
    names = re.findall(r"[a-z]+-[a-z]+", read.result)
    return f"I pick {names[len(names) // 2]}."


def _skill_picked(_: re.Match[str], shown: Shown) -> Reply | str:
    if shown.called("write_file"):
        return "It is written."
    picked = shown.need(r"I pick ([a-z]+-[a-z]+)", "I pick, the name for our release")
    return Reply.calling("write_file", path="release.txt", content=picked or "unknown")


MAKERS: dict[str, Callable[[random.Random], Task]] = {
    "a rule from turn 1": _rule,
    "a folder not to touch": _forbidden,
    "an id from turn 1": _ticket,
    "who does what": _owners,
    "a changed decision": _changed_mind,
    "a corrected path": _corrected_path,
    "how to end answers": _ending,
    "code to a description": _specification,
    "an old result": _old_result,
    "two old results": _sum,
    "an error in a log": _job_log,
    "a failed attempt": _failed_attempt,
    "a bug to fix": _bug,
    "work done once": _once,
    "a to-do list": _to_do,
    "its own choice": _own_choice,
}


# What the reader does for every task.


def _skill_note(match: re.Match[str], shown: Shown) -> Reply | str:
    read = shown.called("read_file", path=match[1])
    if read is None:
        return Reply.calling("read_file", path=match[1])
    title = re.search(r"# (.+)", read.result)
    return f"It is about {title[1] if title else 'nothing'}: measurements, moves and orders."


def _skill_run(match: re.Match[str], shown: Shown) -> Reply | str:
    ran = shown.called("terminal", command=match[1])
    if ran is None:
        return Reply.calling("terminal", command=match[1])
    if not re.search(r"exit code [1-9]", ran.result):
        return "It worked."
    lines = [line for line in ran.result.splitlines() if line.strip() and not line.startswith("[")]
    return f"It failed: {lines[-1].strip()}" if match[2] else "It failed."


SKILLS: tuple[tuple[str, Skill], ...] = (
    (r"^Read (notes/\d+\.md) and tell me", _skill_note),
    (r"^Run `(python3 [^`]+)`(?:.* tell me (why|what fails))?", _skill_run),
    (r"Reply with OK|Begin now", lambda _match, _shown: "OK."),
    (r"^Write report\.txt", _skill_rule),
    (r"^In every \.ini file", _skill_forbidden),
    (r"^Write the id of the ticket", _skill_ticket),
    (r"^Who looks after (\w+)\?", _skill_owner),
    (r"^Make the new module", _skill_module),
    (r"^Now set the limit that counts", _skill_limit),
    (r"^How many notes did we look at", _skill_ending),
    (r"^Now write price\.py", _skill_price),
    (r"^Read services\.ini", _skill_services),
    (r"Which port did (\w+) have", _skill_port),
    (r"How many crates have (\w+) and (\w+) together", _skill_crates),
    (r"Which error code did the job fail with", _skill_error),
    (r"^Now deploy to the site that works", _skill_deploy),
    (r"^Fix what failed at the beginning", _skill_fix),
    (r"migrations (\w+), (\w+) and (\w+) have all been run", _skill_migrate),
    (r"Do the (first two) now|^Do the (next one)|^Now do (what is left)", _skill_list),
    (r"^Read names\.txt, pick one", _skill_pick),
    (r"Write the name that you picked", _skill_picked),
)
