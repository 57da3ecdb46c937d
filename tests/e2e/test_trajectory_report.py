"""The page about a run in a real browser, without a network and without scripts: what a person sees."""

from __future__ import annotations

import json

import pytest
from benchmarks.trajectory_rows import sharegpt_row
from chromium import NEEDS_CHROMIUM
from cli_process import penstock

pytestmark = NEEDS_CHROMIUM
CONTRAST = """() => {
  const light = c => { const v = c.map(x => (x /= 255) <= .03928 ? x / 12.92 : ((x + .055) / 1.055) ** 2.4);
                       return .2126 * v[0] + .7152 * v[1] + .0722 * v[2]; };
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const found = [];
  for (const one of document.querySelectorAll('body *')) {
    const own = [...one.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (!own || !one.checkVisibility() || one.closest('title')) continue;
    const style = getComputedStyle(one);
    const ink = parts(one.closest('svg') ? style.fill : style.color);
    let ground = one;
    while (ground && (parts(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0) ground = ground.parentElement;
    const paper = parts(getComputedStyle(ground ?? document.body).backgroundColor);
    const [a, b] = [light(ink), light(paper)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05);
    if (ratio < 4.5) found.push([one.tagName, one.className.baseVal ?? one.className, ratio]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The page, and the metrics of the same run."""
    folder = tmp_path_factory.mktemp("report")
    rows = [sharegpt_row(number + 1, (1_500, 4_000, 9_000)[number % 3]) for number in range(21)]
    rows[4]["conversations"][0]["value"] += "<script>document.title = 'taken over'</script>"
    lines = [json.dumps(row) for row in rows]
    lines[9] = lines[9][:500]
    (folder / "in.jsonl").write_text("".join(f"{line}\n" for line in lines))
    ran = penstock(
        *("trajectories", folder / "in.jsonl", folder / "out.jsonl", "--target-tokens", "3000"),
        *("--summary-tokens", "400", "--report", folder / "r.html", "--metrics", folder / "m.json"),
    )
    assert ran.code == 0, ran.err
    assert f"report          {folder / 'r.html'}" in ran.text
    return folder / "r.html", json.loads((folder / "m.json").read_bytes())


@pytest.fixture
def opened(browser, made):
    """Opens the page as one wishes; nothing but the file itself may be asked for, and nothing may go wrong."""
    pages, asked, said = [], [], []

    def open_page(**options):
        context = browser.new_context(offline=True, java_script_enabled=False, **options)
        page = context.new_page()
        page.set_default_timeout(10_000)
        pages.append(context)
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(made[0].as_uri())
        return page

    yield open_page
    for context in pages:
        context.close()
    assert set(asked) == {made[0].as_uri()}
    assert said == []


def test_a_person_sees_the_figures_of_the_run(opened, made):
    page, totals = opened(), made[1]["totals"]
    assert page.title().startswith("Trajectories: ")
    assert page.get_by_role("heading", level=1).inner_text() == "Trajectories within a budget"
    assert page.locator("#total-rows").inner_text() == "21"
    assert page.get_by_text(f"{totals['tokens_before']:,}", exact=True).first.is_visible()
    assert page.locator("#unread").inner_text() == "1"
    outcomes = page.get_by_role("table", name="Rows by outcome")
    for outcome, rows in totals["outcomes"].items():
        cells = outcomes.get_by_role("row").filter(has_text=outcome.replace("_", " ")).get_by_role("cell")
        assert str(rows) in cells.all_inner_texts()
    bad = page.get_by_role("table", name="Bad lines")
    assert "10" in bad.get_by_role("cell").all_inner_texts()
    assert page.get_by_role("main").is_visible()
    assert page.get_by_role("navigation", name="Contents").is_visible()


def test_charts_are_drawn_to_scale(opened, made):
    page, totals = opened(), made[1]["totals"]
    chart = page.get_by_role("img", name="Tokens of a row")
    for kind in ("before", "after"):
        counts = [rows for rows in totals[f"distribution_{kind}"] if rows]
        bars = [bar.bounding_box() for bar in chart.locator(f"g.{kind} rect").all()]
        assert len(bars) == len(counts)
        unit = max(bar["height"] for bar in bars) / max(counts)
        for bar, rows in zip(bars, counts, strict=True):
            assert bar["height"] == pytest.approx(rows * unit, rel=0.05, abs=1.0)
        numbers = chart.locator(f"g.counts-{kind} text")
        assert numbers.all_text_contents() == [str(rows) for rows in counts]
    assert chart.get_by_text("target 3,000").is_visible()


def test_rows_stand_side_by_side_and_unfold_without_scripts(opened):
    page = opened()
    first = page.locator("details.sample").first
    gone, summary = first.locator(".turn.gone").first, first.locator(".turn.summary")
    left, right = gone.bounding_box(), summary.bounding_box()
    assert left["x"] + left["width"] <= right["x"]
    assert abs(left["y"] - right["y"]) < 2
    assert "penstock-handoff" in summary.inner_text()
    rows = page.get_by_role("table", name="All rows")
    assert not rows.is_visible()
    page.get_by_text("Show the rows").click()
    assert rows.is_visible()
    assert rows.get_by_role("row").count() == 22


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_told_from_its_ground(scheme, opened):
    page = opened(color_scheme=scheme)
    folded = page.locator("details:not([open]) > summary")
    while folded.count():
        folded.first.click()
    assert page.evaluate(CONTRAST) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(int(part) for part in ground[4:-1].split(",")) < 200) is (scheme == "dark")


@pytest.mark.parametrize("width", [360, 1_280, 2_400])
def test_it_fits_screens_of_any_width(width, opened):
    page = opened(viewport={"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
