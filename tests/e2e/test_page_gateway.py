"""The dashboard of a running gateway: it changes while clients talk, and shows each reader what is theirs."""

from __future__ import annotations

import http.client
import json
from contextlib import contextmanager

from chromium import NEEDS_CHROMIUM
from cli_process import listening, penstock
from page_stage import Visit

from penstock.testing.provider_server import scripted_provider
from penstock.testing.scripted import Reply

pytestmark = NEEDS_CHROMIUM


@contextmanager
def serving(upstream, store, *more):
    with listening("serve", "--port", "0", "--upstream", upstream, "--store", store, *more) as (_, address):
        yield address


def talk(address, messages, **headers):
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    body = json.dumps({"model": "gpt-4.1", "messages": messages})
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("POST", "/v1/chat/completions", body, {"content-type": "application/json", **given})
    answer = connection.getresponse()
    said = json.loads(answer.read())
    assert answer.status == 200, said
    connection.close()
    return [*messages, said["choices"][0]["message"]]


def ask(address, path, **headers):
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=30)
    connection.request(
        "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def user(text):
    return {"role": "user", "content": text}


def test_pages_change_while_a_client_talks(browser, tmp_path):
    from playwright.sync_api import expect

    replies = [Reply("The first answer."), Reply("The second answer.")]
    with (
        scripted_provider(replies) as provider,
        serving(provider.base_url, f"sqlite:///{tmp_path}/g.db") as address,
    ):
        visit = Visit(browser, f"{address}/")
        page = visit.page
        expect(page.get_by_text("There are no conversations yet.")).to_be_visible()
        said = talk(address, [user("Why is the lighthouse dark?")], authorization="Bearer made-up")
        row = page.locator("tbody tr").filter(has_text="lighthouse")
        expect(row).to_have_count(1, timeout=20_000)  # nobody has loaded the page again
        expect(page.locator("#per-minute")).not_to_have_text("0", timeout=20_000)
        row.get_by_role("link").click()
        expect(page.locator("#m1")).to_contain_text("lighthouse")
        assert (
            page.locator("#m2").count() == 0
        )  # a gateway logs what clients send: an answer comes with the next request
        talk(address, [*said, user("And <b>now</b>?")], authorization="Bearer made-up")
        expect(page.locator("#m2")).to_contain_text("The first answer.", timeout=20_000)
        expect(page.locator("#m3")).to_contain_text("And <b>now</b>?")
        expect(page.locator("#state")).to_contain_text("2 requests", timeout=20_000)
        assert sum("/c/" in url and "part=" not in url for url in visit.asked) == 1
        visit.close()


def test_a_reader_with_a_key_sees_what_came_with_it(browser, tmp_path):
    store = f"sqlite:///{tmp_path}/g.db"
    keys = {}
    for name in ("ann", "ben"):
        ran = penstock("keys", "create", name, "--store", store)
        assert ran.code == 0, ran.err
        keys[name] = ran.text.strip().splitlines()[0]
    replies = [Reply("one"), Reply("two")]
    with (
        scripted_provider(replies) as provider,
        serving(provider.base_url, store, "--set", "gateway.require_keys=true") as address,
    ):
        talk(address, [user("Ann's question about harbours")], x_penstock_key=keys["ann"])
        talk(address, [user("Ben's question about bridges")], x_penstock_key=keys["ben"])
        status, text = ask(address, "/")
        assert (status, text.count("\n")) == (200, 1)
        assert "harbours" not in text
        assert ask(address, "/usage")[0] == 303
        assert ask(address, "/", host="evil.invalid")[0] == 403
        status, text = ask(address, "/", x_penstock_key=keys["ben"])
        assert "bridges" in text
        assert "harbours" not in text
        visit = Visit(browser, f"{address}/login")
        page = visit.page
        page.get_by_label("One of this gateway's keys").fill("pk-wrong")
        page.get_by_role("button", name="Go in").click()
        assert "does not fit" in page.get_by_role("alert").inner_text()
        assert visit.said.pop().startswith("Failed to load resource")  # 403, as it should be
        page.get_by_label("One of this gateway's keys").fill(keys["ann"])
        page.get_by_role("button", name="Go in").click()
        page.wait_for_url(f"{address}/")
        assert "harbours" in page.get_by_role("main").inner_text()
        assert "bridges" not in page.get_by_role("main").inner_text()
        page.goto(f"{address}/search?q=question")
        assert "bridges" not in page.get_by_role("main").inner_text()
        cookie = next(one for one in visit.context.cookies() if one["name"] == "penstock")
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert keys["ann"].rpartition("-")[2] not in cookie["value"]
        page.get_by_role("button", name="Log out").click()
        page.wait_for_url(f"{address}/login")
        assert ask(address, "/usage")[0] == 303
        visit.close()


def test_a_proxy_here_that_asks_for_others_is_a_stranger(tmp_path):
    with (
        scripted_provider([]) as provider,
        serving(provider.base_url, f"sqlite:///{tmp_path}/g.db") as address,
    ):
        assert "<html" in ask(address, "/")[1]
        for header in ("x_forwarded_for", "forwarded", "via", "x_real_ip"):
            assert ask(address, "/", **{header: "203.0.113.9"})[1].count("\n") == 1
    with (
        scripted_provider([]) as provider,
        serving(
            provider.base_url, f"sqlite:///{tmp_path}/g.db", "--set", "gateway.dashboard=false"
        ) as address,
    ):
        assert ask(address, "/") == (200, "Penstock gateway. APIs are under /v1.\n")
        assert ask(address, "/usage")[0] == 404
