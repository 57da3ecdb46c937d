"""Whether one search finds the message that answers a question about long everyday talk.

The talk is generated (`benchmarks/sessions/talk.py`), in four languages; no model writes or judges. Beside ours stands plain
SQLite FTS5 with Porter's stems, over each message and, at less weight, the messages next to it. Found means that the sentence
that answers stands in one of the first excerpts of at most 400 characters: both show a message with those around it.
"""

import sqlite3
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from benchmarks.clock import note
from benchmarks.options import Options
from benchmarks.report import Figure, Limit, Table, share
from benchmarks.sessions.talk import Talk, make_talk
from penstock.conversation.dialects import dialect_named
from penstock.recall import Wish
from penstock.recall.memory_history import MemoryHistory
from penstock.recall.terms import STOP_WORDS

__all__ = ["fts5_with_neighbours", "run", "search_talk"]

PLACES = (1, 5, 10)
EXCERPT = 400  # characters: a message and those next to it
BESIDE = 0.4  # of a word in a message next to the one that is found
AHEAD = 4.0  # points that ours must be ahead within ten

Search = Callable[[Talk, int], list[list[str]]]


class Asked(NamedTuple):
    """Where the answers to one talk's questions stood: a rank for each, by kind of question."""

    language: str
    search: str
    ranks: tuple[tuple[str, int], ...]


def run(options: Options) -> list[Table]:
    """The table of what both searches find."""
    seeds = range(1, 3 if options.quick else 13)
    work = [(language, seed) for language in ("en", "de", "es", "fr") for seed in seeds]
    note(f"dialogue: {len(work)} talks, {options.jobs} processes")
    with ProcessPoolExecutor(options.jobs) as pool:
        asked = [one for several in pool.map(score, work) for one in several]
    rows = []
    for language in dict.fromkeys(one.language for one in asked):
        own = [one for one in asked if one.language == language]
        rows += _rows(f"all, {language}", own, lambda _: True)
    for kind in dict.fromkeys(kind for one in asked for kind, _ in one.ranks):
        english = [one for one in asked if one.language == "en"]
        rows += _rows(f"{kind}, en", english, lambda one, kind=kind: one == kind)
    remark = (
        "Generated talk of 600 messages over months, in which two people talk about what they did, with fifty to "
        "seventy questions each, which use other forms of the words and sometimes other words. *Told once*: one "
        "message says it. *By time*: several do, and the "
        "question names the month. *In a reply*: the answer stands in a message without the words. FTS5 has Porter's stems and a "
        f"message's neighbours at {BESIDE}. The floor within ten is FTS5's figure and {AHEAD:.0f} points, or 96 %."
    )
    columns = ("questions, search", "asked", "first place", "first 5", "first 10 (floor)")
    return [Table("dialogue", "Questions about everyday talk", columns, tuple(rows), remark)]


def _rows(name: str, asked: list[Asked], wanted: Callable[[str], bool]) -> list[tuple[str | Figure, ...]]:
    found: dict[str, list[int]] = {}
    for one in asked:
        found.setdefault(one.search, []).extend(rank for kind, rank in one.ranks if wanted(kind))
    rows: list[tuple[str | Figure, ...]] = []
    floor = None
    for search, ranks in found.items():
        shares = [sum(rank < place for rank in ranks) / max(1, len(ranks)) for place in PLACES]
        limit = floor if name.startswith("all") else None
        cells = [
            share(one, limit if place == PLACES[-1] else None)
            for one, place in zip(shares, PLACES, strict=True)
        ]
        rows.append((f"{name}: {search}", Figure(len(ranks)), *cells))
        floor = Limit(min(100 * shares[-1] + AHEAD, 96.0), at_least=True)
    return rows


def score(work: tuple[str, int]) -> list[Asked]:
    """Both searches on one talk."""
    language, seed = work
    talk = make_talk(seed, language=language)
    searches: dict[str, Search] = {
        "FTS5, stems and neighbours": fts5_with_neighbours,
        "penstock": search_talk,
    }
    asked = []
    for name, find in searches.items():
        answers = find(talk, PLACES[-1])
        ranks = [
            next((at for at, text in enumerate(texts) if question.answer in text), sys.maxsize)
            for question, texts in zip(talk.questions, answers, strict=True)
        ]
        kinds = [question.kind for question in talk.questions]
        asked.append(Asked(language, name, tuple(zip(kinds, ranks, strict=True))))
    return asked


def search_talk(talk: Talk, k: int) -> list[list[str]]:
    """Ours: a history in memory, as an engine has it."""
    history = MemoryHistory()
    dialect = dialect_named("chat")
    for number, (message, at) in enumerate(zip(talk.messages, talk.times, strict=True), start=1):
        history.add(number, dialect.decode(message), at)
    return [
        [
            found.excerpt
            for found in history.search(question.text, Wish(hits=k, characters=EXCERPT, now=question.at))
        ]
        for question in talk.questions
    ]


def fts5_with_neighbours(talk: Talk, k: int) -> list[list[str]]:
    """SQLite FTS5 over each message and those beside it; an excerpt is a message with as many around it as fit."""
    texts = [str(message["content"]) for message in talk.messages]
    base = sqlite3.connect(":memory:")
    base.execute(
        "create virtual table talk using fts5(own, beside, tokenize='porter unicode61 remove_diacritics 2')"
    )
    around = ["\n".join(texts[max(0, at - 1) : at] + texts[at + 1 : at + 2]) for at in range(len(texts))]
    base.executemany(
        "insert into talk(rowid, own, beside) values (?, ?, ?)",
        zip(range(len(texts)), texts, around, strict=True),
    )
    answers = []
    for question in talk.questions:
        words = dict.fromkeys(
            "".join(char if char.isalnum() else " " for char in question.text.lower()).split()
        )
        match = " OR ".join(f'"{word}"' for word in words if word not in STOP_WORDS)
        found = base.execute(
            f"select rowid from talk where talk match ? order by bm25(talk, 1.0, {BESIDE}) limit ?",
            (match, k),
        )
        answers.append([_surround(texts, at) for (at,) in found])
    base.close()
    return answers


def _surround(texts: Sequence[str], at: int) -> str:
    """The message with those around it, as many on both sides as fit."""
    low, high = at, at + 1
    room = EXCERPT - len(texts[at])
    while (low or high < len(texts)) and room > 0:
        before = texts[low - 1] if low else ""
        behind = texts[high] if high < len(texts) else ""
        if len(before) + len(behind) + 2 > room:
            break
        room -= len(before) + len(behind) + 2
        low, high = max(0, low - 1), min(len(texts), high + 1)
    return "\n".join(texts[low:high])
