"""What a model's text costs on our side: planning with it and without, and checking it against the conversation."""

import json
from collections.abc import Callable

import penstock
from benchmarks.clock import Times, note, timed
from benchmarks.generate import coding_session
from benchmarks.options import Options
from benchmarks.report import Cell, Figure, Table
from benchmarks.scripted_writers import WRITERS
from benchmarks.speed import WINDOW_TOKENS, warm
from penstock.conversation.dialects import dialect_named
from penstock.engine.compress import CompressRequest, new_notebook
from penstock.planning.compact import CompactionResult, compact
from penstock.settings import Settings
from penstock.writing.notebook import Notebook, Opened
from penstock.writing.prose import Prose, read_prose
from penstock.writing.verify import check_prose
from penstock.writing.work import source_of

__all__ = ["run"]

SHOWN = ("good faith", "inventions", "another language")


def run(options: Options) -> Table:
    tokens = 40_000 if options.quick else WINDOW_TOKENS
    note(f"summaries: what checking costs, a {tokens:,}-token window")
    warm()
    session = coding_session(tokens)
    data = json.dumps(session).encode()
    texts = {name: _written(session, tokens, name) for name in SHOWN}
    book = new_notebook(None, Settings())
    opened = book.open(session, dialect_named("chat"))
    planned = _timed(lambda: _planned(opened, book, tokens, None), options)
    rows = [_row("planning without a model's text", planned, None)]
    for name, text in texts.items():
        prose = read_prose(text)
        assert prose is not None
        rows += [
            _row(
                f"planning with one: {name}", _timed(_planner(opened, book, tokens, prose), options), planned
            ),
            _row(f"of that, checking it: {name}", _timed(_checker(opened, book, prose), options), planned),
        ]
    for name in (None, SHOWN[0]):
        whole = timed(_compressor(tokens, name), lambda: json.loads(data), options.repeat)
        what = "without a model" if name is None else "with a model that answers at once"
        rows.append(_row(f"`penstock.compress`, {what}", whole, None))
    remark = (
        f"A coding session of {tokens:,} tokens in a window of as many. Planning is done once without a model's text and "
        "once more with it, on a conversation that was read before. Checking looks every value, number, quote and turn "
        "of the text up in the whole conversation, and looks for its secrets. The last row holds both plans, the "
        f"request and the summariser's own work; no network. Best of {options.repeat} runs, one process."
    )
    columns = ("what", "best", "median", "CPU, best", "CPU against planning without")
    return Table("summaries-cost", "What a model's text costs beside the model", columns, tuple(rows), remark)


def _written(session: list[dict[str, object]], tokens: int, name: str) -> str:
    """What the summariser writes for this conversation."""
    said: list[str] = []

    def write(prompt: str) -> str:
        said.append(WRITERS[name](prompt))
        return said[-1]

    penstock.compress(session, context_length=tokens, dialect="chat", summariser=write)
    return said[-1]


def _planned(opened: Opened, book: Notebook, tokens: int, prose: Prose | None) -> CompactionResult:
    return compact(opened, CompressRequest(context_length=tokens).order(book), prose)


def _planner(opened: Opened, book: Notebook, tokens: int, prose: Prose) -> Callable[[], object]:
    return lambda: _planned(opened, book, tokens, prose)


def _checker(opened: Opened, book: Notebook, prose: Prose) -> Callable[[], object]:
    return lambda: check_prose(prose, source_of(opened.transcript, book.redactor), book.redactor)


def _compressor(tokens: int, name: str | None) -> Callable[[list[dict[str, object]]], object]:
    summariser = WRITERS[name] if name else None
    return lambda messages: penstock.compress(
        messages, context_length=tokens, dialect="chat", summariser=summariser
    )


def _timed(work: Callable[[], object], options: Options) -> Times:
    work()  # what is kept from the first time is there in the second, as in a compaction
    return timed(lambda _: work(), lambda: None, options.repeat)


def _row(what: str, times: Times, against: Times | None) -> tuple[Cell, ...]:
    ratio: Cell = Figure(times.cpu / against.cpu, "×") if against else ""
    best, median, cpu = (Figure(1_000 * value, "ms") for value in (times.best, times.median, times.cpu))
    return what, best, median, cpu, ratio
