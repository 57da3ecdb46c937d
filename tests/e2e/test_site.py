"""The site, built as `make docs` builds it, in a real Chromium: what a reader sees on a desk and on a phone."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chromium import NEEDS_CHROMIUM, find_barriers, find_overflow
from website.build import build_site
from website.links import find_broken_links, find_outside_loads

pytestmark = [
    *NEEDS_CHROMIUM,
    pytest.mark.skipif(importlib.util.find_spec("zensical") is None, reason="zensical is not installed"),
    pytest.mark.xdist_group("site"),  # it is built once
]
# One page of each kind: the landing page, a guide with code, wide tables, the API reference, source code.
PAGES = [
    "",
    "guides/library/",
    "comparison/",
    "benchmarks/model-summaries/",
    "reference/api/",
    "examples/openai_chat.py/",
]


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    stage = tmp_path_factory.mktemp("website") / "stage"
    assert build_site(stage) == 0
    return stage / "site"


@pytest.fixture(scope="module")
def address(site):
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))
    ) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture
def visit(browser, address):
    """Opens a browser window; at the end, no other host was asked."""
    contexts, asked = [], []

    def open_window(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("request", lambda request: asked.append(request.url))
        return page

    yield open_window
    for context in contexts:
        context.close()
    hosts = {urlsplit(url).netloc for url in asked if not url.startswith(("data:", "blob:"))}
    assert hosts == {urlsplit(address).netloc}


def test_no_link_is_broken_and_nothing_is_loaded_from_elsewhere(site):
    assert len(list(site.rglob("*.html"))) > 90
    assert find_broken_links(site) == []
    assert list(find_outside_loads(site)) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1_400])
def test_pages_can_be_read_on_a_desk_and_on_a_phone(visit, address, width, scheme):
    page = visit(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for path in PAGES:
        page.goto(address + path)
        page.wait_for_load_state("networkidle")  # the theme wraps tables when it is there
        assert page.locator("h1").count() == 1, path
        assert find_overflow(page) <= 0, path
        if (width, scheme) in {(380, "light"), (1_400, "dark")}:  # seconds for a large page
            assert find_barriers(page) == [], path
        if shots := os.environ.get("PENSTOCK_SHOTS"):  # to be looked at
            name = path.strip("/").replace("/", "_") or "home"
            page.screenshot(path=Path(shots) / f"site-{name}-{scheme}-{width}.png", full_page=True)


def test_the_drawing_keeps_a_size_that_can_be_read_on_a_phone(visit, address):
    page = visit(viewport={"width": 380, "height": 900})
    page.goto(address)
    drawing = page.locator("img[src$='before-after.svg']")
    assert drawing.bounding_box()["width"] > 700  # its letters are 13 of 960 units high
    assert find_overflow(page) <= 0


def test_code_can_be_copied(visit, address):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.goto(address)
    block = page.locator(".highlight", has_text="pip install penstock-context").first
    block.hover()
    block.locator("button").first.click()
    page.wait_for_function("navigator.clipboard.readText().then(text => text.trim() !== '')")
    assert page.evaluate("navigator.clipboard.readText()").strip() == "pip install penstock-context"


def test_a_word_is_found_by_the_search(visit, address):
    page = visit(viewport={"width": 1_400, "height": 900})
    page.goto(address)
    page.get_by_role("button", name="Search").first.click()
    page.locator("input[type=text][aria-label=Search]").fill("anti-thrash")
    page.locator("a[href*='glossary/?h=']").first.wait_for()


def test_one_door_for_each_audience(visit, address):
    page = visit()
    page.goto(address)
    doors = page.locator(".door")
    assert doors.count() == 4
    for number in range(4):
        assert doors.nth(number).get_by_role("link").count() >= 2
    page.get_by_role("link", name="Bring your own agent").first.click()
    page.wait_for_url("**/guides/bring-your-own-agent/")


def test_programs_find_the_pages_as_markdown(visit, address):
    page = visit()
    index = page.goto(address + "llms.txt").text()
    assert index.startswith("# Penstock\n")
    assert "](guides/library.md)" in index
    assert page.goto(address + "guides/library.md").text().startswith("# Using the library\n")
