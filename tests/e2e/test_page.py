"""The dashboard in a real Chromium: what a person sees, clicks and types; and what hostile conversations cannot do."""

from __future__ import annotations

import http.client
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from chromium import NEEDS_CHROMIUM, find_barriers, find_overflow
from cli_process import penstock
from page_stage import SECRET, Visit, dashboard_of, fill

from penstock.measure.windows import resolve_window
from penstock.stores.store import open_store

pytestmark = NEEDS_CHROMIUM
PAGES = {
    "conversations": "/",
    "filtered": "/?q=port+sort%3Acost",
    "conversation": "/c/{long}",
    "hostile": "/c/{hostile}",
    "message": "/c/{long}/m3",
    "window": "/c/{long}/window",
    "compaction": "/c/{long}/s1",
    "undo": "/c/{long}/s2/undo",
    "pin": "/c/{long}/m2/pin",
    "search": "/search?q=staging+port",
    "usage": "/usage",
    "login": "/login",
    "missing": "/c/nothing-like-it",
}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    return f"sqlite:///{tmp_path_factory.mktemp('page')}/page.db"


@pytest.fixture(scope="module")
def names(url):
    return fill(url)


@pytest.fixture(scope="module")
def address(url, names):
    with dashboard_of(url) as address:
        yield address


@pytest.fixture
def visit(browser, address):
    """Opens the dashboard; at the end no other host was asked, and nothing went wrong in the browser."""
    visits = []

    def open_dashboard(**options):
        visits.append(Visit(browser, address, **options))
        return visits[-1]

    yield open_dashboard
    for one in visits:
        one.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [380, 1_400])
def test_every_page_fits_and_can_be_read_by_everybody(visit, names, scheme, width):
    opened = visit(color_scheme=scheme, viewport={"width": width, "height": 900})
    for name, path in PAGES.items():
        if name == "missing":
            continue  # a browser reports the answer 404 as an error
        page = opened.go(path.format(**names))
        assert page.locator("h1").count() == 1, name
        assert page.get_by_role("main").count() == 1, name
        assert find_overflow(page) <= 0, name
        assert find_barriers(page) == [], name
        if shots := os.environ.get("PENSTOCK_SHOTS"):  # to be looked at
            page.screenshot(path=Path(shots) / f"{name}-{scheme}-{width}.png", full_page=True)


def test_two_thousand_pixels_are_not_filled_with_one_line_of_text(visit, names):
    page = visit(viewport={"width": 2_000, "height": 1_000}).go("/c/{long}".format(**names))
    assert find_overflow(page) <= 0
    assert page.locator(".words").first.bounding_box()["width"] < 900


def test_pages_are_whole_without_scripts(visit, names):
    opened = visit(java_script_enabled=False)
    for name, path in PAGES.items():
        if name != "missing":
            assert opened.go(path.format(**names)).get_by_role("main").inner_text().strip(), name
    page = opened.go("/c/{long}".format(**names))
    assert page.locator("svg.spark path.value").count() == 2  # both series are drawn
    assert page.locator("svg.spark line.cut").count() >= 2
    page = opened.go("/")
    page.get_by_label("Filter conversations").fill("staging")
    page.get_by_role("button", name="Filter").click()
    assert page.locator("tbody tr").count() == 1


def test_the_list_is_filtered_and_sorted_while_somebody_types(visit, names):
    from playwright.sync_api import expect

    page = visit().go("/")
    assert page.locator("tbody tr").count() == 3
    page.keyboard.press("/")
    page.keyboard.type("gpt-5")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert "staging database" in page.locator("tbody tr").inner_text()
    page.keyboard.press("Control+a")
    page.keyboard.type("sort:-tokens")
    expect(page.locator("tbody tr")).to_have_count(3)
    tokens = [
        int(value)
        for value in page.locator("tbody td.number data").evaluate_all("all => all.map(one => one.value)")
    ]
    assert tokens == sorted(tokens)
    assert page.locator("th[aria-sort=ascending]").inner_text() == "tokens"


def test_a_row_shows_how_full_the_window_is_and_where_it_is_compacted(visit, names):
    row = visit().go("/").locator("tbody tr").filter(has_text="Rename the report")
    said = row.get_by_role("img").get_attribute("aria-label")
    share, tokens, window, threshold = re.fullmatch(
        r"(\d+)% of the window, ([\d,]+) of ([\d,]+) tokens; compacts from ([\d,]+) on", said
    ).groups()
    tokens, window, threshold = (int(one.replace(",", "")) for one in (tokens, window, threshold))
    assert window == resolve_window("gpt-4.1").tokens
    assert 0 < tokens < threshold < window
    assert round(100 * tokens / window) == int(share)
    mark = row.locator("rect.mark")
    assert float(mark.get_attribute("x")) == pytest.approx(100 * threshold / window, abs=0.01)


def test_keys_move_open_and_help(visit):
    page = visit().go("/")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 2
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.closest('tr').rowIndex") == 1
    page.keyboard.press("?")
    assert page.get_by_role("dialog").is_visible()
    page.keyboard.press("Escape")
    assert not page.get_by_role("dialog").is_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/c/*")


def test_a_transcript_folds_calls_and_jumps_to_a_message(visit, names):
    page = visit().go("/c/{long}?at=m1".format(**names))
    call = page.locator("#m2 details.call")
    assert "read_file" in call.locator("summary").inner_text()
    assert "chars" in call.locator(".outcome").inner_text()
    assert not call.locator("pre").first.is_visible()
    call.locator("summary").click()
    assert "part_0" in call.locator("pre").last.inner_text()
    assert page.locator("svg.strip path.cut").count() >= 2
    assert page.locator("#m20 .badge").inner_text() == "in the handoff"
    page.get_by_label("Jump to a message").fill("m14")
    page.keyboard.press("Enter")
    page.wait_for_url("**at=m14*")
    assert page.locator("#m14, #m13").first.is_visible()
    assert page.locator(".uplot canvas").count() == 2  # drawn over the drawing that came with the page


def test_a_hit_of_a_search_is_marked_and_leads_into_the_transcript(visit, names):
    page = visit().go("/usage")
    page.keyboard.press("/")
    page.wait_for_url("**/search")
    page.get_by_label("Search").last.fill("staging database port")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=staging*")
    hit = page.locator("article.hit").filter(has_text="What is the port")
    assert {"staging", "database", "port"} <= set(hit.locator("mark").all_inner_texts())
    assert "user" in hit.inner_text()
    assert hit.locator("time").count() == 1
    hit.get_by_role("link").click()
    page.wait_for_url(re.compile(rf"/c/{names['plain']}\?at=m1#m1"))
    assert page.locator("#m1:target").is_visible()


def test_the_handoff_leads_to_the_messages_that_its_lines_came_from(visit, names):
    page = visit().go("/c/{long}/s2".format(**names))
    line = page.locator(".handoff .entry").filter(has_text="migrations").first
    link = line.get_by_role("link").first
    assert link.inner_text() == "m1"
    assert (
        page.get_by_text(re.compile(r"^Paid \$0\.00, saved \$0\.\d+ since$")).count()
        + page.get_by_text(re.compile("no request since")).count()
    )
    assert "messages became" in page.locator("#receipt + p + ul").inner_text()
    assert page.locator(".compare .side.result").first.is_visible()
    link.click()
    page.wait_for_url(re.compile("#m1$"))
    assert "Never touch" in page.locator("#m1").inner_text()


def test_undo_asks_first_and_then_undoes(visit, names, url):
    store = open_store(url)
    before = store.newest_compaction(names["long"])
    number = len(store.compactions(names["long"], undone=True))
    page = visit().go(f"/c/{names['long']}/s{number}")
    page.get_by_role("link", name="Undo").click()
    page.get_by_role("link", name="Cancel").click()
    assert store.newest_compaction(names["long"]).key == before.key
    page.get_by_role("link", name="Undo").click()
    form = {name: page.locator(f"input[name={name}]").get_attribute("value") for name in ("token", "key")}
    page.get_by_role("button", name="Undo it").click()
    assert "is undone" in page.get_by_role("status").inner_text()
    assert store.newest_compaction(names["long"]).key == before.over
    page.go_back()
    assert "cannot be undone" in page.get_by_role("main").inner_text()
    again = page.context.request.post(page.url, form=form, headers={"origin": page.url.split("/c/")[0]})
    assert "Nothing was undone" in again.text()  # a form that was left open undoes nothing else
    assert store.newest_compaction(names["long"]).key == before.over
    store.close()


def test_pin_and_unpin_by_clicking(visit, names, url):
    store = open_store(url)
    page = visit().go("/c/{plain}".format(**names))
    page.get_by_role("link", name="Pin m2").click()
    page.get_by_role("button", name="Pin it").click()
    assert "Pinned" in page.get_by_role("status").inner_text()
    assert store.pins(names["plain"]) == {1}
    assert page.locator("#m2 .badge.on").inner_text() == "pinned"
    page.get_by_role("link", name="Unpin m2").click()
    page.get_by_role("button", name="Unpin it").click()
    assert store.pins(names["plain"]) == set()
    store.close()


def test_hostile_words_are_shown_and_nothing_of_them_runs_or_leads_away(visit, names):
    opened = visit()
    for path in ("/", "/c/{hostile}", "/c/{hostile}/m2", "/c/{hostile}/m6", "/search?q=taken+over"):
        page = opened.go(path.format(**names))
        assert "taken over" not in page.title().replace(r"document.title = 'taken over'", "")
        assert page.evaluate(
            "[...document.scripts].every(one => one.src.startsWith(location.origin + '/assets/'))"
        )
        assert page.evaluate("[...document.links].every(one => one.origin === location.origin)")
        assert page.evaluate("[...document.images].every(one => one.src.startsWith(location.origin + '/c/'))")
        assert page.evaluate(
            "!document.querySelector('[onerror], [onload], [onclick], [style]:not(.uplot *, .uplot)')"
        )
        text = page.evaluate("document.documentElement.innerText")
        assert "\u202e" not in text
        assert SECRET not in page.content()
    page = opened.go("/c/{hostile}".format(**names))
    assert "<script>document.title = 'taken over'</script>" in page.locator("#m2").inner_text()
    assert "[REDACTED]" in page.locator("#m7").inner_text()
    assert "exit 1" in page.locator("#m5 .outcome").inner_text()
    picture = page.locator("#m2 img")
    assert picture.evaluate("one => [one.naturalWidth, one.naturalHeight]") == [40, 24]
    assert "picture on another server" in page.locator("#m2").inner_text()


def test_a_line_of_five_megabytes_is_folded_and_can_be_had(visit, names):
    opened = visit()
    page = opened.go("/c/{hostile}".format(**names))
    assert len(page.content()) < 300_000
    page.locator("#m3 summary").click()
    page.locator("#m3").get_by_role("link", name="all of m4").click()
    assert "5,000,000 characters" in page.get_by_role("main").inner_text()
    answer = opened.context.request.get(f"{opened.base}/c/{names['hostile']}/m4.txt")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert len(answer.body()) >= 5_000_000


def test_the_exported_file_needs_nothing_and_tells_no_secret(browser, names, url, tmp_path):
    file = tmp_path / "talk.html"
    ran = penstock("sessions", "export", names["hostile"], "--format", "html", "-o", file, "--store", url)
    assert ran.code == 0, ran.err
    assert SECRET not in file.read_text()
    context = browser.new_context(offline=True, java_script_enabled=True)
    page = context.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert said == []
    assert page.locator("article.message").count() == 6
    assert "left out" in page.locator("#m2").inner_text()
    assert page.evaluate("!document.querySelector('script, img, form, iframe')")
    assert (
        page.evaluate("getComputedStyle(document.querySelector('section')).borderRadius") != "0px"
    )  # its styles hold
    assert find_overflow(page) <= 0
    context.close()


# Who may look, and who may change something: by hand, as no browser would.


@pytest.fixture
def ask(address, browser):
    parts = urlsplit(address)
    context = browser.new_context()
    context.request.get(address)
    cookie = next(f"{one['name']}={one['value']}" for one in context.cookies())
    context.close()

    def send(method, path, body=None, *, known=True, **headers):
        connection = http.client.HTTPConnection(parts.netloc, timeout=20)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if known:
            given["cookie"] = cookie
        if body is not None:
            given["content-type"] = "application/x-www-form-urlencoded"
        connection.request(method, path, body, given)
        answer = connection.getresponse()
        text = answer.read().decode("utf-8", "replace")
        connection.close()
        return answer, text

    send.origin = f"http://{parts.netloc}"
    return send


def test_a_stranger_sees_one_line(ask, names):
    answer, text = ask("GET", "/", known=False)
    assert (answer.status, text.count("\n")) == (200, 1)
    for path in (f"/c/{names['long']}", "/search?q=port", "/usage", "/usage.json"):
        answer, text = ask("GET", path, known=False)
        assert (answer.status, answer.getheader("location"), text) == (303, "/login", "")
    answer, _ = ask("GET", "/?token=wrong", known=False)
    assert answer.getheader("set-cookie") is None
    answer, _ = ask("GET", "/", known=False, cookie="penstock=link.99999999999.00")
    assert answer.status == 200


def test_a_foreign_host_is_refused(ask):
    assert ask("GET", "/", host="evil.invalid")[0].status == 403


def test_a_change_needs_a_token_and_an_origin_of_our_own(ask, names, url):
    path = f"/c/{names['plain']}/m1/pin"
    token = re.search('name="token" value="([^"]+)"', ask("GET", path)[1])[1]
    body = f"token={token}&to=pin"
    for sent, headers in (
        (body, {}),
        (body, {"origin": "http://evil.invalid"}),
        (body, {"origin": "null"}),
        ("token=wrong&to=pin", {"origin": ask.origin}),
        ("to=pin", {"origin": ask.origin}),
    ):
        assert ask("POST", path, sent, **headers)[0].status == 403
    store = open_store(url)
    assert store.pins(names["plain"]) == set()
    assert ask("GET", f"{path}?token2={token}&to=pin")[0].status == 200  # a GET changes nothing
    assert store.pins(names["plain"]) == set()
    assert ask("POST", path, body, origin=ask.origin)[0].status == 303
    assert store.pins(names["plain"]) == {0}
    store.pin(names["plain"], 0, pinned=False)
    store.close()


def test_headers_forbid_everything_that_pages_do_not_need(ask, names):
    for path in ("/", f"/c/{names['long']}", "/login", "/usage.json"):
        answer, _ = ask("GET", path)
        policy = answer.getheader("content-security-policy")
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert answer.getheader("x-content-type-options") == "nosniff"
        assert answer.getheader("cache-control") == "no-store"


def test_rubbish_in_addresses_is_answered_in_words(ask, names):
    long = names["long"]
    for path in (
        *("/c/", "/c/%00", "/c/%ff%fe", "/c/" + "x" * 3_000, f"/c/{long}/m0", f"/c/{long}/m99999", f"/c/{long}/s9"),
        *(f"/c/{long}/zzz", f"/c/{long}?at=m99999", f"/c/{long}/m1/picture/none", "/assets/../style.css", "/c/a/b/c/d"),
    ):  # fmt: skip
        assert ask("GET", path)[0].status == 404, path
    for path in (
        "/?start=-1",
        "/?start=9999999999999",
        f"/c/{long}?from=x&to=-5",
        f"/c/{long}?part=tail&from=9e9",
    ):
        assert ask("GET", path)[0].status == 200, path
    assert ask("DELETE", "/")[0].status == 405


def test_the_page_of_usage_has_the_figures_of_the_commands(ask, url):
    import json

    told = json.loads(ask("GET", "/usage.json")[1])
    for command, name in (("usage", "usage"), ("insights", "insights")):
        printed = json.loads(penstock(command, "--json", "--store", url).text)
        assert told[name] == printed
    page = ask("GET", "/usage")[1]
    assert f'value="{told["insights"]["total"]["requests"]}" id="requests"' in page
