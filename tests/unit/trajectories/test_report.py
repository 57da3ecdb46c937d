"""The page about a run: its figures are those of the metrics, and no text of the data set can break or leave it."""

from __future__ import annotations

import json
import random
from html.parser import HTMLParser

import msgspec
import pytest

from penstock.errors import RunBroken
from penstock.trajectories.metrics import RowMetrics, Totals, TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.report import FigureSpread, ReportFacts, ReportFigures, render
from penstock.trajectories.run import Run, SerialEngine, run
from penstock.trajectories.shards import ShardJob, ShardResult, cut_lines

pytestmark = pytest.mark.outside  # runs that take long

JOB = ShardJob(options=TrajectoryOptions(target_tokens=400, summary_tokens=150, system_note=True))
HOSTILE = (
    "</td></table></style><script>alert(1)</script><img src='https://tracker.invalid/x.png'>"
    '" onmouseover="alert(2)" <!-- &amp; \x00 \u202e evil \ud800'
)
SECRET = "zQ4vT8mX1nR6yB3kW9dJ"
VOID = {"meta"}


class Page(HTMLParser):
    """Reads a page and accepts no fault in it: whatever is opened is closed, in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.links, self.words = [], [], [], []
        self.elements, self.figures = [], {}
        self._figure = None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"an attribute twice in <{tag}>"
        given = dict(attrs)
        self.elements.append((tag, given))
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if "href" in given else []
        if tag == "data" and (key := given.get("id") or given.get("data-outcome")):
            self.figures[key] = float(given["value"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())

    def count(self, tag, **given):
        wanted = {name.rstrip("_"): value for name, value in given.items()}
        return sum(one == tag and wanted.items() <= attrs.items() for one, attrs in self.elements)


def row(number, exchanges):
    turns = [
        {"from": "system", "value": "You run a store."},
        {"from": "human", "value": f"Order {number}, please. {HOSTILE}"},
        {"from": "gpt", "value": "At once."},
    ]
    for at in range(exchanges):
        asked = f"Item {number}-{at} of the order: api_key = '{SECRET}'"
        told = f"Item {number}-{at} stands on shelf {at * 7 + number}, third from the left. {HOSTILE}"
        turns += [{"from": "human", "value": asked}, {"from": "gpt", "value": told}]
    return json.dumps({"conversations": turns}).encode() + b"\n"


def data(count=60):
    lines = [row(number, number % 30 if number < 60 else 1) for number in range(count)]
    lines[3] = lines[3].replace(b"At once.", b"At once. " + b"Here is all that I know. " * 90)
    lines[7] = b'{"broken <b>\n'
    lines[11] = b"\n"
    return b"".join(lines)


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """The page of a run as text and as read, and the metrics of it."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "in <i>.jsonl").write_bytes(data())
    wanted = Run(
        source=folder / "in <i>.jsonl",
        target=folder / "out.jsonl",
        job=JOB,
        workers=1,
        metrics=folder / "m.json",
        report=folder / "deep" / "report.html",
    )
    run(wanted)
    text = (folder / "deep" / "report.html").read_text(encoding="utf-8")
    assert [path.name for path in (folder / "deep").iterdir()] == ["report.html"]
    return text, Page(text), json.loads((folder / "m.json").read_bytes())


def test_its_figures_are_those_of_the_metrics(reported):
    _, page, metrics = reported
    totals = metrics["totals"]
    assert page.figures["total-rows"] == totals["rows"] == 59
    assert page.figures["tokens-before"] == totals["tokens_before"]
    assert page.figures["tokens-after"] == totals["tokens_after"]
    assert page.figures["total-ratio"] == totals["ratio"]
    assert page.figures["still-over"] == totals["still_over_limit"] > 0
    over = totals["still_over_limit"]
    unchanged = totals["outcomes"].get("not_compressible", 0)
    within = totals["outcomes"]["compressed"] - (over - unchanged)  # as the command counts them
    assert f"{within} were compressed to the target, {over} are still over it." in page.text
    assert f"{over - unchanged} of them are still over the target" in page.text or over == unchanged
    assert page.figures["unread"] == 1
    assert page.figures["seconds"] == metrics["seconds"]
    assert page.figures["cost"] == 0
    for outcome, rows in totals["outcomes"].items():
        assert page.figures[outcome] == rows
    listed = [attrs["value"] for tag, attrs in page.elements if tag == "data"]
    slowest = max(row["metrics"].get("seconds", 0) for row in metrics["rows"])
    assert str(slowest) in listed
    most = max(row["metrics"].get("tokens_before", 0) for row in metrics["rows"])
    assert str(most) in listed
    assert "row 8" not in page.text  # the broken one stands in the list of bad lines
    assert "the line is not JSON" in page.text
    assert "target tokens 400" in page.text


def test_it_needs_nothing_and_runs_nothing(reported):
    text, page, _ = reported
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "use", "image"}
    for _, attrs in page.elements:
        assert not {"src", "srcset", "data", "action", "poster", "xlink:href"} & set(attrs)
        assert not any(name.startswith("on") or name == "style" for name in attrs)
    assert all(link.startswith("#") and link[1:] in page.ids for link in page.links)
    style = text.partition("<style>")[2].partition("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    policy = [attrs["content"] for _, attrs in page.elements if "http-equiv" in attrs]
    assert len(policy) == 1
    assert policy[0].startswith("default-src 'none'")


def test_it_can_be_read_by_everybody(reported):
    text, page, _ = reported
    assert text.startswith('<!DOCTYPE html>\n<html lang="en">')
    for landmark in ("header", "nav", "main", "footer", "h1", "title"):
        assert page.count(landmark) >= 1
    assert page.count("main") == page.count("h1") == 1
    assert len(page.ids) == len(set(page.ids))
    assert page.count("table") == page.count("caption") == page.count("thead")
    assert page.count("section") == page.count("h2")
    assert all(attrs.get("scope") for tag, attrs in page.elements if tag == "th")
    charts = [attrs for tag, attrs in page.elements if tag == "svg" and "aria-hidden" not in attrs]
    assert len(charts) == 3
    assert all(attrs["role"] == "img" and attrs["aria-label"] for attrs in charts)


def test_texts_of_the_data_set_are_shown_as_they_are_and_secrets_are_not(reported):
    text, page, _ = reported
    assert SECRET not in text
    assert "[REDACTED]" in page.text
    assert "<script>alert(1)</script>" in page.text  # to be read, not run
    assert "<script" not in text
    assert "\x00" not in text
    assert "\u202e" not in text
    assert "\\u202e evil" in page.text
    assert page.count("details", class_="sample") > 1
    assert page.count("div", class_="turn summary") == page.count("details", class_="sample")
    assert page.count("div", class_="turn gone") > 2
    assert "penstock-handoff" in page.text
    assert "may be replaced by a summary" in page.text  # the note in the system turn, on the right side alone


def test_it_is_the_same_whatever_the_order_of_the_shards(tmp_path):
    from penstock.trajectories.shards import Shard, compress_shard

    pieces = list(cut_lines(open_bytes(tmp_path), 20_000))
    assert len(pieces) > 3
    job = msgspec.structs.replace(JOB, samples=True)
    made = [compress_shard(Shard(at, 0, 1 + at * 100, 0, piece), job)[0] for at, piece in enumerate(pieces)]

    def page(shards):
        figures, totals = ReportFigures(), Totals()
        for done in shards:
            figures.add("in.jsonl", done, done.rows)
        for done in made:
            totals.merge(done.totals)
        return render(facts(totals), figures)

    assert page(made) == page(made[::-1]) == page(random.Random(3).sample(made, len(made)))


def open_bytes(folder):
    import io

    return io.BytesIO(data())


def facts(totals):
    return ReportFacts(
        source="in.jsonl",
        output=None,
        totals=totals,
        bad=[],
        files=["in.jsonl"],
        seconds=1.0,
        read_bytes=1,
        written_bytes=0,
        resumed_rows=0,
        target_tokens=400,
        settings={"seed": 0},
    )


def test_a_run_that_was_stopped_and_resumed_reports_every_row(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.trajectories.run.SHARD_BYTES", 1 << 17)  # so that there are several

    class Failing:
        def run(self, shards, job):
            for number, one in enumerate(SerialEngine().run(shards, job)):
                if number == 1:
                    raise RunBroken("the lights went out")
                yield one

    source = tmp_path / "in.jsonl"
    source.write_bytes(data(530))
    wanted = Run(source=source, target=tmp_path / "o", job=JOB, workers=1, report=tmp_path / "r.html")
    with pytest.raises(RunBroken):
        run(wanted, Failing())
    assert not (tmp_path / "r.html").exists()
    finished = run(msgspec.structs.replace(wanted, resume=True))
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert finished.resumed_rows
    assert page.figures["total-rows"] == 529
    assert f"500 of {529:,} rows" in page.text
    assert "had been done by an earlier run" in page.text
    assert page.count("details", class_="sample") >= 3


def test_a_dry_run_and_an_empty_input_have_a_page_too(tmp_path):
    source = tmp_path / "in.jsonl"
    for content in (data(40), b"", b"rubbish\n"):
        source.write_bytes(content)
        run(Run(source=source, target=None, job=JOB, workers=1, report=tmp_path / "r.html"))
        page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
        assert "a dry run: nothing was written" in page.text
        assert page.figures["total-rows"] == len([line for line in content.splitlines() if line.strip()])
    assert "No row could be read." in page.text


def test_what_it_holds_does_not_grow_with_the_rows():
    figures, totals = ReportFigures(), Totals()
    chance = random.Random(1)
    encoder = msgspec.json.Encoder()
    sizes = []
    for shard in range(20):
        rows = []
        for at in range(1_000):
            size = int(chance.lognormvariate(9, 1.5)) + 1
            sizes.append(size)
            rows.append(
                RowMetrics(
                    row=shard * 1_000 + at + 1,
                    metrics=TrajectoryMetrics(
                        outcome=TrajectoryOutcome.COMPRESSED,
                        tokens_before=size,
                        tokens_after=size // 3 + 1,
                        turns_before=size // 100 + 2,
                        turns_after=3,
                        turns_summarised=1,
                        still_over_limit=size > 50_000,
                        seconds=chance.random(),
                    ),
                )
            )
            totals.add(rows[-1].metrics)
        done = ShardResult(shard=shard, file=0, first_row=1, row_count=1_000, totals=Totals())
        figures.add("big.jsonl", done, encoder.encode_lines(rows))
    page = render(facts(totals), figures)
    assert len(page) < 600_000
    assert len(figures.chosen) == 500
    assert [one.metrics.tokens_before for one in figures.over] == sorted(sizes, reverse=True)[:15]
    sizes.sort()
    for share in (0.05, 0.5, 0.95):
        exact = sizes[int(share * len(sizes)) - 1]
        assert figures.tokens_before.quantile(share) == pytest.approx(exact, rel=0.011)
    assert Page(page).figures["total-rows"] == 20_000


def test_a_spread_of_nothing_has_quantiles_too():
    assert FigureSpread().quantile(0.5) == 0.0
