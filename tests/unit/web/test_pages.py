"""Pages as functions: what anybody may have said is text on them, and never markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.accounts.pressure import WindowPressure
from penstock.accounts.talk import TalkCall, TalkEntry, TalkPicture, TalkText
from penstock.accounts.timeline import FateRun, ViewFate
from penstock.web.drawings import draw_bars, draw_columns, draw_line, draw_pressure, draw_strip
from penstock.web.markup import element
from penstock.web.overview import describe_age
from penstock.web.page import LivePart
from penstock.web.transcript import TranscriptLinks, render_entries, render_text
from penstock.web.usage import _fill_days

LINKS = TranscriptLinks(
    lambda handle: f"/m/{handle}", lambda one: f"/p/{one.digest}", lambda handle: f"/pin/{handle}"
)
WORDS = st.text() | st.sampled_from(
    ["</pre>", "<script>x</script>", "```\n</code>\n```", "`a`", "\u202e", "a\x00b", "<!--", "&lt;", "\ud800"]
)


class Seen(HTMLParser):
    """What a browser would make of it."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.names, self.text, self.depth = set(), set(), "", 0
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        self.depth += tag not in {"img", "input", "br"}

    def handle_endtag(self, tag):
        self.depth -= 1

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.tags.add("!--")


@settings(max_examples=300)
@given(st.lists(WORDS, min_size=1, max_size=6), WORDS, WORDS, st.booleans())
def test_a_transcript_holds_no_markup_of_others(texts, name, value, in_file):
    entry = TalkEntry(
        handle="m1",
        speaker="assistant",
        at=1.0,
        texts=[TalkText(text, kind) for text in texts for kind in ("", "reminder")],
        calls=[TalkCall("c", name, {value: value}, "m2", value, value, failed=True)],
    )
    page = render_entries([entry], TranscriptLinks() if in_file else LINKS)
    seen = Seen(page)
    assert seen.depth == 0
    assert seen.tags <= {
        "article",
        "p",
        "span",
        "a",
        "time",
        "div",
        "pre",
        "code",
        "details",
        "summary",
        "h3",
    }
    assert not any(one.startswith("on") or one == "style" for one in seen.names)
    assert "\u202e" not in page
    assert "\x00" not in page


@given(WORDS)
def test_all_words_of_a_text_are_there(text):
    seen = Seen(render_text(text)).text
    shown = Seen(element("p", text)).text
    for word in shown.replace("`", " ").replace("~", " ").split():
        assert word in seen or "```" in text or "~~~" in text


def test_a_long_text_is_cut_where_the_rest_can_be_had():
    long = "word " * 5_000
    assert len(render_text(long, element("a", "all", href="/m1"))) < 5_000
    assert len(render_text(long)) > 20_000  # in a file there is no other place


def test_a_picture_of_another_server_is_named_and_not_asked_for():
    kinds = {"image/png": True, "image/svg+xml": False, "text/html": False, "": False}
    for kind, shown in kinds.items():
        text = TalkText(kind, "picture", TalkPicture("m1", kind, 10, "digest"))
        page = render_entries([TalkEntry(handle="m1", speaker="user", at=1.0, texts=[text])], LINKS)
        assert ('<img src="/p/digest"' in page) is shown
    absent = TalkText("image/png", "picture", TalkPicture("m1", "image/png", 0, "digest"))
    page = render_entries([TalkEntry(handle="m1", speaker="user", at=1.0, texts=[absent])], LINKS)
    assert "<img" not in page


def test_pressure_is_drawn_to_scale_also_beyond_the_window():
    drawn = draw_pressure(WindowPressure(50, 200, 100))
    assert 'width="25" height="8" class="filled"' in drawn
    assert 'x="50"' in drawn
    assert 'width="100" height="8" class="filled"' in draw_pressure(WindowPressure(500, 200, 100))


@given(st.lists(st.tuples(st.sampled_from(ViewFate), st.integers(1, 400)), min_size=1, max_size=1_200))
def test_a_strip_covers_every_message_however_many_there_are(parts):
    runs, start = [], 0
    for fate, length in parts:
        runs.append(FateRun(fate, start, start + length, length))
        start += length
    drawn = draw_strip(runs, [(1, start // 2)], lambda position: f"#m{position + 1}")
    assert drawn.count("<a ") <= 501
    assert f"All {start:,} messages" in drawn
    assert 'href="#m1"' in drawn


def test_charts_of_nothing_and_of_one_moment():
    assert "Nothing yet." in draw_columns("t", {"a": 0}, str)
    assert "NaN" not in draw_line("t", [(1.0, 0.0), (1.0, 0.0)], [], str, str)


def test_bars_are_as_long_as_their_share_of_the_whole():
    drawn = draw_bars({"handoff": 3_000, "user": 1_000, "tools": 4}, "")
    assert re.findall('width="([\\d.]+)" height="8" class="filled"', drawn) == ["74.93", "24.98", "0.1"]
    assert [drawn.count(share) for share in ("75%", "25%", "&lt;1%")] == [1, 1, 1]


def test_a_value_holds_until_the_next_one():
    drawn = draw_line("t", [(0.0, 4.0), (5.0, 2.0), (10.0, 4.0)], [], str, str)
    assert 'd="M0 24 H0 V24 H300 V76 H600 V24" class="value"' in drawn


def test_days_without_requests_leave_a_gap():
    assert _fill_days(["2026-10-31", "2026-11-02"]) == ["2026-10-31", "2026-11-01", "2026-11-02"]


def test_a_live_part_has_another_version_only_where_it_has_changed():
    one = LivePart("rows", "/?part=rows", element("p", "a"))
    assert one.version == LivePart("rows", "/other", element("p", "a")).version
    assert one.version != LivePart("rows", "/?part=rows", element("p", "b")).version
    assert f'hx-get="/?part=rows&amp;version={one.version}"' in one.render()


def test_ages_in_few_characters():
    ages = {
        5: "just now",
        90: "2 min ago",
        7_200: "2 h ago",
        86_400 * 3: "3 d ago",
        86_400 * 90: "3 months ago",
    }
    assert {seconds: describe_age(seconds) for seconds in ages} == ages
