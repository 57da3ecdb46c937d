"""Whether one search of the history brings back what a small view left out, and how long a search takes.

On generated sessions always, on recorded ones where given. `search` is also what the corpora's own scorer takes:

    python $PENSTOCK_CORPORA/search_eval.py --data … --search benchmarks.recall:search
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clock import note, timed
from benchmarks.corpora import load_scorer
from benchmarks.fidelity import MAKERS
from benchmarks.generate import cut_at, many_messages, message_tokens, needles
from benchmarks.options import Options
from benchmarks.pairs import newest_that_fit
from benchmarks.paraphrases import PARAPHRASES
from benchmarks.report import Figure, Limit, Table, share
from penstock.conversation.dialects import dialect_named
from penstock.recall import MemoryIndex, Wish, cut_passages, find_terms, index_terms, read_query
from penstock.recall.query import find_values
from penstock.recall.semantic import wordllama
from penstock.recall.terms import split_tokens

__all__ = ["run", "search", "search_beside", "search_by_meaning"]

Chat = list[dict[str, Any]]
Search = Callable[[Chat, Sequence[str], int], list[list[str]]]

CASES = 15  # of a file, as in the corpora's own table
PLACES = (1, 5, 10, 20)
VIEW = 0.10
ASKED = 12  # needles of a session, at most
GROUPS = {"coding": "openai/c*.jsonl.gz", "customer service": "openai/tau*.jsonl.gz"}
LIMITS = {
    "coding": {1: Limit(54, 62, at_least=True), 10: Limit(86, 90, at_least=True)},
    "customer service": {1: Limit(73, 85, at_least=True), 10: Limit(98.5, at_least=True)},
}
RARE_MS, COMMON_MS = Limit(20), Limit(150)
UNSET = (
    "Not run: PENSTOCK_CORPORA names no folder of recorded sessions with `search_eval.py`. It would add coding and "
    "customer service sessions, with the floors for the first place and the first ten."
)


class Found(NamedTuple):
    """How often a search had the needle among its first places, of how many needles."""

    group: str
    search: str
    asked: int
    within: tuple[int, ...]


def search(messages: Chat, queries: Sequence[str], k: int) -> list[list[str]]:
    """For each query the best excerpts, knowing nothing but the messages."""
    return search_beside([], messages, queries, k)


def search_by_meaning(messages: Chat, queries: Sequence[str], k: int) -> list[list[str]]:
    """The same by meaning, too, with the model of the extra `semantic`."""
    index = MemoryIndex(wordllama())
    index.add_all(map(dialect_named("chat").decode, messages))
    return [[hit.excerpt for hit in index.search(query, Wish(hits=k))] for query in queries]


def search_beside(view: Chat, messages: Chat, queries: Sequence[str], k: int) -> list[list[str]]:
    """The same for somebody who sees `view`, as an agent does."""
    dialect = dialect_named("chat")
    index = MemoryIndex()
    index.add_all(map(dialect.decode, messages))
    seen = [passage.text for message in view for passage in cut_passages(dialect.decode(message))]
    wish = Wish(hits=k, known=find_values(seen))
    return [[hit.excerpt for hit in index.search(query, wish)] for query in queries]


def run(options: Options) -> list[Table]:
    with ProcessPoolExecutor(options.jobs) as pool:
        note(f"recall: generated sessions, {options.jobs} processes")
        tables = [_generated(options, pool), _recorded(options, pool)]
    note("recall: in other words")
    tables.append(_in_other_words())
    note("recall: speed")
    return [*tables, _speed(options)]


def _recorded(options: Options, pool: ProcessPoolExecutor) -> Table:
    title = "Recall on recorded sessions"
    folder = options.corpora
    if folder is None or not (folder / "search_eval.py").is_file():
        return Table("recall", title, (), (), UNSET)
    note(f"recall: recorded sessions, {options.jobs} processes")
    limit = min(CASES, options.limit)
    work = [
        (folder, group, path, limit) for group, files in GROUPS.items() for path in sorted(folder.glob(files))
    ]
    found = [one for several in pool.map(_score_file, work) for one in several]
    remark = (
        f"By the corpora's own needles and scorer, at most {limit} sessions of a file, excerpts of at most 1,200 "
        "characters: the needle is looked up by the words that stood before its first use. *Beside the view* is told "
        "what the agent sees, the 10 % that the needle is missing from, and does not show that again; the floors "
        "apply to the search that knows nothing of the view. *Words ORed* is SQLite FTS5 as the scorer asks it."
    )
    return Table("recall", title, _columns(), _rows(found, LIMITS), remark)


def _score_file(work: tuple[Path, str, Path, int]) -> list[Found]:
    folder, group, path, limit = work
    scorer = load_scorer(folder, "future_recall")
    evaluation = load_scorer(folder, "search_eval")
    cases = []
    for prefix, asked in evaluation.cases(scorer.load(path), limit):
        size = scorer.tokens([message for message in prefix if message["role"] != "system"])
        cases.append((prefix, scorer.head3_tail(prefix, int(VIEW * size)), asked))
    return _score(group, cases, evaluation.fts5_or, scorer.has)


def _generated(options: Options, pool: ProcessPoolExecutor) -> Table:
    seeds = range(1, 3 if options.quick else 13)
    work = [(kind, size, seed) for kind, size in (("coding", 60_000), ("service", 9_000)) for seed in seeds]
    found = [one for several in pool.map(_score_generated, work) for one in several]
    remark = (
        "Sessions of 60,000 and 9,000 tokens, cut where 55 % of the text has passed; looked up are values that the "
        "newest 10 % do not hold and that the agent uses later (`benchmarks/needles.py`), by the words that stood "
        "before their first use. The generator draws what comes next at random, so that those words say little "
        "about the value: the figures are low for every search and serve only for comparison."
    )
    return Table("recall-generated", "Recall on generated sessions", _columns(), _rows(found, {}), remark)


def _in_other_words() -> Table:
    """Questions that share no word with what they ask for, in a generated session."""
    title = "Recall in other words"
    if find_spec("wordllama") is None:
        return Table("recall-meaning", title, (), (), "Not run: the extra `semantic` is not installed.")
    sessions = [[*MAKERS["coding"](60_000, seed), *MAKERS["service"](9_000, seed)] for seed in range(1, 4)]
    messages = [message for session in sessions for message in session if message["role"] != "system"]
    turns = [place for place, message in enumerate(messages) if message["role"] == "user"]
    for number, (said, _) in enumerate(PARAPHRASES):
        place = turns[number * len(turns) // len(PARAPHRASES)] + number
        messages.insert(place, {"role": "user", "content": said})
    rows = []
    for name, find in (("penstock", search), ("penstock, recall.semantic", search_by_meaning)):
        answers = find(messages, [asked for _, asked in PARAPHRASES], PLACES[-1])
        ranks = [
            next((at for at, text in enumerate(texts) if said in text.replace("\n", " ")), PLACES[-1])
            for (said, _), texts in zip(PARAPHRASES, answers, strict=True)
        ]
        shares = [share(sum(rank < place for rank in ranks) / len(ranks)) for place in PLACES]
        rows.append((name, Figure(len(ranks)), *shares))
    remark = (
        "Texts of one sentence, spread over three generated coding sessions and three of customer service, asked for in "
        "other words: no word of a question stands in its text (`benchmarks/paraphrases.py`). By words, such a "
        "text can be found only if it is next to another match."
    )
    columns = ("search", "questions", "first place", *(f"first {place}" for place in PLACES[1:]))
    return Table("recall-meaning", title, columns, tuple(rows), remark)


def _score_generated(work: tuple[str, int, int]) -> list[Found]:
    kind, size, seed = work
    messages = MAKERS[kind](size, seed)
    cut = cut_at(messages)
    prefix = messages[:cut]
    texts = [_text(message) for message in messages]
    view = newest_that_fit(prefix, int(VIEW * message_tokens(prefix)))
    shown = "\n".join(map(_text, view))
    missing = [needle for needle in needles(messages, cut) if needle.value not in shown]
    asked = []
    for needle in missing[:: max(1, len(missing) // ASKED)][:ASKED]:
        text = texts[needle.used_at]
        at = text.find(needle.value)
        before = "\n".join(texts[max(cut, needle.used_at - 6) : needle.used_at])[-500:]
        asked.append((needle.value, f"{text[max(0, at - 300) : at]} {before}".replace(needle.value, " ")))
    return _score(kind, [(prefix, view, asked)], _words_ored, lambda value, text: value in text)


def _score(
    group: str,
    cases: Iterable[tuple[Chat, Chat, list[tuple[str, str]]]],
    baseline: Search,
    holds: Callable[[str, str], bool],
) -> list[Found]:
    """Each search on all cases: how often the value that was asked for stands among its first excerpts."""
    ranks: dict[str, list[int]] = {"penstock": [], "penstock, beside the view": [], "words ORed": []}
    for prefix, view, asked in cases:
        queries = [query for _, query in asked]
        answers = (
            search(prefix, queries, PLACES[-1]),
            search_beside(view, prefix, queries, PLACES[-1]),
            baseline(prefix, queries, PLACES[-1]),
        )
        for own, answer in zip(ranks.values(), answers, strict=True):
            for (value, _), texts in zip(asked, answer, strict=True):
                own.append(next((at for at, text in enumerate(texts) if holds(value, text)), PLACES[-1]))
    return [
        Found(group, name, len(own), tuple(sum(at < place for at in own) for place in PLACES))
        for name, own in ranks.items()
    ]


def _columns() -> tuple[str, ...]:
    return ("sessions, search", "needles", "first place", *(f"first {place}" for place in PLACES[1:]))


def _rows(found: list[Found], limits: dict[str, dict[int, Limit]]) -> tuple[tuple[str | Figure, ...], ...]:
    rows = []
    for group, name in dict.fromkeys((one.group, one.search) for one in found):
        own = [one for one in found if (one.group, one.search) == (group, name)]
        asked = sum(one.asked for one in own)
        wanted = limits.get(group, {}) if name == "penstock" else {}
        shares = [
            share(sum(one.within[at] for one in own) / max(1, asked), wanted.get(place))
            for at, place in enumerate(PLACES)
        ]
        rows.append((f"{group}: {name}", Figure(asked), *shares))
    return tuple(rows)


def _speed(options: Options) -> Table:
    """Indexing and searching a long session in memory."""
    count = 2_000 if options.quick else 40_000
    messages = many_messages(count, 1_500 * count)
    raw = sum(len(json.dumps(message)) for message in messages)
    decoded = list(map(dialect_named("chat").decode, messages))
    index = MemoryIndex()
    start = time.perf_counter()
    index.add_all(decoded)
    seconds = time.perf_counter() - start
    held = {term: index.statistics(read_query(term)).holding.get(term, 0) for term in _some_terms(messages)}
    held = {term: passages for term, passages in held.items() if passages}
    rare = min(held, key=lambda term: (held[term], term))
    common = max(held, key=lambda term: (held[term], term))
    rows: list[tuple[str | Figure, ...]] = [
        (
            f"indexing {count:,} messages, {raw / 1e6:.0f} MB",
            Figure(raw / 1e6 / seconds, "MB/s"),
            Figure(len(index)),
        )
    ]
    asked = (
        (f"a word in {held[rare]:,} passages", rare, RARE_MS),
        (f"a word in {held[common]:,} passages", common, COMMON_MS),
        ("800 characters of what was said", _text(messages[count // 2])[:800], None),
    )
    for what, query, limit in asked:
        times = timed(index.search, lambda query=query: query, max(3, options.repeat))
        rows.append((what, Figure(1_000 * times.best, "ms", limit), ""))
    return Table(
        "recall-speed",
        "Recall in memory",
        ("what", "best (floor)", "passages"),
        tuple(rows),
        "A generated coding session in the index that lives in memory, ten hits with excerpts. Only the terms of "
        "single words are remembered between searches.",
    )


def _some_terms(messages: Chat) -> set[str]:
    """Plain words of a few messages: enough to hold a rare and a common one. A name with parts asks for several."""
    texts = map(_text, messages[len(messages) // 3 :][:40])
    return {term for text in texts for term in index_terms(text) if find_terms(term) == (term,)}


def _words_ored(messages: Chat, queries: Sequence[str], k: int) -> list[list[str]]:
    """SQLite FTS5 over pieces of 1,200 characters, all words of the query joined by OR."""
    base = sqlite3.connect(":memory:")
    base.execute("create virtual table history using fts5(text)")
    texts = [_text(message) for message in messages if message["role"] != "system"]
    pieces = [(text[at : at + 1_200],) for text in texts for at in range(0, len(text), 1_200)]
    base.executemany("insert into history values (?)", pieces)
    answers = []
    for query in queries:
        words = dict.fromkeys(
            term for token in split_tokens(query) for term in find_terms(token) if term.isalnum()
        )
        asked = " OR ".join(f'"{word}"' for word in list(words)[:40])
        wanted = "select text from history where history match ? order by bm25(history) limit ?"
        answers.append([text for (text,) in base.execute(wanted, (asked, k))] if words else [])
    base.close()
    return answers


def _text(message: dict[str, Any]) -> str:
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    return "\n".join([message["content"] or "", *(f"{call['name']}\n{call['arguments']}" for call in calls)])
