"""The pictures of the README show the program as it is: a screen of the chat, and a page of the dashboard.

`make pictures` makes them again. What they say is compared, since pixels differ from machine to machine: the text of the chat's
picture, and for the page the text that it had when the picture was taken. Numbers may differ by a few per cent: the length of a
folder's name is in them.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import itertools
import json
import os
import re
from html.parser import HTMLParser
from itertools import groupby
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import pytest
from chromium import start_chromium
from page_stage import dashboard_of, play
from tests.e2e.chat_stage import GOLDEN, stage

from penstock.providers.exchange import Called
from penstock.stores.store import open_store
from penstock.testing import Reply

ROOT = Path(__file__).parents[2]
CHAT, PAGE = ROOT / "docs" / "chat.svg", ROOT / "docs" / "page.png"
PAGE_TEXT = GOLDEN / "page_picture.txt"
UPDATE = bool(os.environ.get("UPDATE_GOLDEN"))

NAMED = {
    "red": "#ff8a80",
    "green": "#8cc79a",
    "brown": "#e8b366",
    "blue": "#82b1ff",
    "magenta": "#d59bd8",
    "cyan": "#68c6d5",
    "white": "#e5e8e9",
    "black": "#181c1f",
    "brightblack": "#7c868c",
}
WIDE, HIGH, EDGE, BAR = 8.4, 19, 18, 34  # of a cell, around the text, above it


def play_chat(folder):
    """A long conversation is resumed, compacted, and asked for a value that has left the view: the rows of the screen."""
    script = [
        Reply("", calls=(Called("call_1", "history_search", '{"query": "Paylane endpoint live orders"}'),)),
        Reply("Live orders arrive at **`we_5Kd2Rv81Qx`**. It stands in the Paylane listing, `m28`."),
    ]
    with stage(folder, script, repeat_last=True) as at:
        assert at.command("sessions", "import", ROOT / "examples" / "long_session.json").code == 0
        with at.screen("--resume", "--context-length", "64k", columns=96, rows=34) as chat:
            chat.wait_idle()
            chat.say("/compress")
            chat.wait("compressed .* messages")
            chat.wait_idle()
            chat.say("Which Paylane endpoint receives our live orders?")
            chat.wait("we_5Kd2Rv81Qx.*m28")
            chat.wait_idle()
            rows = [[chat.screen.buffer[y][x] for x in range(96)] for y in range(34)]
    while rows and not "".join(cell.data for cell in rows[-1]).strip():
        rows.pop()
    return rows


def draw_chat(rows):
    """The screen as an SVG that looks the same in any browser: every run of cells has its place and its width."""
    width, height = 2 * EDGE + WIDE * len(rows[0]), BAR + EDGE + HIGH * len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img" aria-labelledby="title">',
        '<title id="title">penstock chat: a conversation is compacted, and a value that left the view is found again</title>',
        (
            "<style>text { font: 14px ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace; "
            "white-space: pre }</style>"
        ),
        f'<rect width="{width:.0f}" height="{height}" rx="10" fill="#111416"/>',
        *(f'<circle cx="{x}" cy="17" r="5.5" fill="#3a4247"/>' for x in (22, 40, 58)),
    ]
    for y, row in enumerate(rows):
        runs, x = [], 0
        for style, cells in groupby(row, key=lambda cell: (cell.fg, cell.bold, cell.italics, cell.reverse)):
            text = "".join(cell.data for cell in cells)
            if text.strip():
                runs.append(_draw_run(text, x, BAR + HIGH * y, style))
            x += len(text)
        parts.append(f'<g class="row">{"".join(runs)}</g>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_run(text, x, y, style):
    colour, bold, italics, _ = style
    fill = NAMED.get(colour) or (f"#{colour}" if re.fullmatch("[0-9a-f]{6}", colour) else "#e5e8e9")
    drawn = text.rstrip()
    looks = ' font-weight="700"' * bold + ' font-style="italic"' * italics
    start = len(drawn) - len(drawn.lstrip())
    return (
        f'<text x="{EDGE + WIDE * (x + start):.1f}" y="{y + 14}" textLength="{WIDE * (len(drawn) - start):.1f}" '
        f'data-column="{x + start}" fill="{fill}"{looks}>{escape(drawn[start:])}</text>'
    )


def read_chat(picture):
    """The rows of the screen that a picture shows."""
    rows = []
    for group in ET.fromstring(picture).iterfind("{*}g"):
        row = ""
        for run in group.iterfind("{*}text"):
            row = row.ljust(int(run.get("data-column"))) + run.text
        rows.append(row)
    return "\n".join(rows)


def mask(text):
    """The text without what is of this run or this machine."""
    text = re.sub(r"^in /.*$", "in ~/bookshop", text, flags=re.MULTILINE)
    text = re.sub(r"\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{8}\b", "3f9c07d1", text)
    text = re.sub(r"\b[\d.,]+\s+m?s\b", "0.2 s", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-17 09:00", text)
    text = re.sub(r"last message .*? ago|last message just now", "last message just now", text)
    return re.sub(r"[━─]+┼[━─]*", "━━━━━━────────┼─", text)


def assert_same(shown, now):
    """The same words, and numbers within a few per cent."""
    number = r"\d[\d,]*(?:\.\d+)?"
    words_shown, words_now = (re.sub(r"\s+", " ", re.sub(number, "N", mask(text))) for text in (shown, now))
    assert words_shown == words_now, "the picture is not current: make pictures"
    for one, other in zip(re.findall(number, mask(shown)), re.findall(number, mask(now)), strict=True):
        a, b = (float(value.replace(",", "")) for value in (one, other))
        assert abs(a - b) <= max(1.0, 0.06 * max(a, b)), (
            f"the picture says {one}, the program {other}: make pictures"
        )


def test_the_picture_of_the_chat_is_current(tmp_path):
    rows = play_chat(tmp_path)
    now = "\n".join("".join(cell.data for cell in row).rstrip() for row in rows)
    if UPDATE:
        CHAT.write_text(draw_chat(rows_masked(rows)), encoding="utf-8")
    assert_same(read_chat(CHAT.read_text(encoding="utf-8")), now)


def rows_masked(rows):
    """The rows with nothing of this machine in them: no folder of a test, no id that is another each time."""
    new = []
    for row in rows:
        text = "".join(cell.data for cell in row)
        shown = mask(text.rstrip()).ljust(len(row))
        same = [a if a.data == b else a._replace(data=b) for a, b in zip(row, shown, strict=True)]
        new.append(same)
    return new


class Words(HTMLParser):
    """The words of a page's main part."""

    def __init__(self, html):
        super().__init__()
        self.found, self._main, self._hidden = [], False, 0
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self._main |= tag == "main"
        self._hidden += tag in {"script", "style"}

    def handle_endtag(self, tag):
        self._main &= tag != "main"
        self._hidden -= tag in {"script", "style"}

    def handle_data(self, data):
        if self._main and not self._hidden and data.strip():
            self.found.append(" ".join(data.split()))


@pytest.fixture
def shop(tmp_path, monkeypatch):
    """The address of a dashboard, and the path to the page: the example as an hour of work, compacted three times."""
    url = f"sqlite:///{tmp_path}/shop.db"
    messages = json.loads((ROOT / "examples" / "long_session.json").read_text(encoding="utf-8"))["messages"]
    with monkeypatch.context() as patched:
        patched.setattr("time.time", functools.partial(next, itertools.count(1_794_906_000, 14)))
        store = open_store(url)
        conversation = play(store, messages, title="Paid orders stay pending", compact_at=14_000)
        store.close()
    with dashboard_of(url) as address:
        yield address, f"/c/{conversation}"


def fetch(address, path):
    host, query = urlsplit(address).netloc, urlsplit(address).query
    with contextlib.closing(http.client.HTTPConnection(host, timeout=20)) as connection:
        connection.request("GET", f"/?{query}")
        with connection.getresponse() as answer:
            answer.read()
            cookie = answer.getheader("set-cookie", "").partition(";")[0]
        connection.request("GET", path, headers={"cookie": cookie})
        with connection.getresponse() as answer:
            assert answer.status == 200
            return answer.read().decode()


def test_the_page_still_says_what_its_picture_shows(shop):
    words = Words(fetch(*shop)).found
    first = words.index("Jump to a message, or search in this conversation")
    now = mask("\n".join(words[:first])) + "\n"  # what the picture shows stands before the transcript
    if UPDATE:
        PAGE_TEXT.write_text(now, encoding="utf-8")
    assert_same(PAGE_TEXT.read_text(encoding="utf-8"), now)


@pytest.mark.skipif(not UPDATE, reason="takes the picture, where UPDATE_GOLDEN is set")
def test_take_the_picture_of_the_page(shop):
    from playwright.sync_api import sync_playwright

    address, path = shop
    with sync_playwright() as playwright:
        browser = start_chromium(playwright)
        page = browser.new_page(viewport={"width": 1_280, "height": 634}, color_scheme="light")
        page.goto(address)
        page.goto(address.split("/?")[0] + path)
        page.wait_for_load_state("networkidle")
        page.screenshot(path=PAGE)
        browser.close()
