"""The kit of all pages: numbers, elements, charts and the page around them, whatever they are about."""

from __future__ import annotations

from importlib.resources import files

from penstock.web.charts import Classes, distribution, shares, shorten_number
from penstock.web.markup import Html, element
from penstock.web.page import PageSection, read_stylesheet, render_card, render_cards, render_single_page


def test_numbers_are_short_and_elements_are_safe():
    shown = [
        shorten_number(number)
        for number in (0, 9, 950, 1_000, 7_499, 15_250, 132_999, 999_960, 10_259_101, 2e9)
    ]
    assert shown == ["0", "9", "950", "1k", "7.5k", "15.2k", "133k", "1M", "10.3M", "2G"]
    assert element("p", "a < b", title='"x"') == '<p title="&quot;x&quot;">a &lt; b</p>'
    assert element("td", element("b", "&")) == "<td><b>&amp;</b></td>"


def test_the_kit_speaks_of_no_app():
    sources = [one.read_text(encoding="utf-8") for one in files("penstock.web").iterdir() if one.is_file()]
    assert not any("trajector" in source.lower() for source in sources)


def test_charts_name_what_they_count():
    classes = Classes("Tokens of a session", "sessions", "tokens", (10, 100), (1, 2, 0), (3, 0, 0), limit=50)
    drawn = distribution(classes)
    assert "<title>Tokens of a session</title>" in drawn
    assert "Sessions by tokens" in drawn
    assert "sessions before" in drawn
    empty = Classes("Tokens", "sessions", "tokens", (10,), (0, 0), (0, 0), if_none="No session yet.")
    assert "No session yet." in distribution(empty)
    assert ">calls</th>" in shares("Share", "calls", [0, 2])
    assert "None." in shares("Share", "calls", [0, 0], "None.")


def test_a_single_page_brings_its_styles_and_forbids_everything_else():
    section = PageSection(
        "cost", "Cost", render_cards([render_card("spent", Html("$1"), "a <b>", warns=True)])
    )
    page = render_single_page("A & B", element("h1", "Costs"), [section], element("p", "end"), ".own {}")
    assert read_stylesheet() + ".own {}" in page
    assert "default-src &#x27;none&#x27;" in page
    assert "<script" not in page
    assert "a &lt;b&gt;" in page
    assert '<section aria-labelledby="cost"><h2 id="cost">Cost</h2>' in page
