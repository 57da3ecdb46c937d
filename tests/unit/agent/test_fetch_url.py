import asyncio
import contextlib
import socket

import msgspec
import pytest
from aiohttp import web

from penstock.agent.tools import fetch_url
from penstock.agent.tools.fetch_url import is_public
from penstock.agent.tools.readable import extract_text
from penstock.loop.approvals import ApprovalReply

pytestmark = pytest.mark.outside

PAGE = """<!DOCTYPE html><html><head><title>Cranes</title><style>p {color: red}</style></head>
<body><script>alert("no")</script><h1>All  about
cranes</h1><p>They lift &amp; <a href="/more">turn</a>.</p><ul><li>one<li>two</ul>
<table><tr><th>load<th>height</tr><tr><td>5 t<td>20 m</tr></table><pre>a
  b</pre></body></html>"""
READ = """\
Cranes

# All about cranes

They lift & [turn]({base}/more).

- one
- two

load | height
5 t | 20 m

a
  b"""


async def page(_request):
    return web.Response(text=PAGE, content_type="text/html")


async def plain(request):
    assert "Cookie" not in request.headers
    response = web.Response(
        body="Größe".encode("latin-1"), headers={"Content-Type": "text/plain; charset=latin-1"}
    )
    response.set_cookie("session", "made-up")
    return response


async def data(_request):
    return web.json_response({"crane": 1})


async def binary(_request):
    return web.Response(body=bytes(3_000), content_type="image/png")


async def mislabelled(_request):
    return web.Response(body=b"PK\0\0" * 100, content_type="text/plain")


async def missing(_request):
    return web.Response(status=404, text="no such crane")


async def endless(request):
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionError):
        for _ in range(2_000):
            await response.write(b"0123456789abcde\n" * 1_000)
    return response


async def slow(_request):
    await asyncio.sleep(30)
    return web.Response()


async def circle(_request):
    raise web.HTTPFound("/circle")


async def onward(request):
    raise web.HTTPFound(request.query["to"])


ROUTES = (page, plain, data, binary, mislabelled, missing, endless, slow, circle, onward)


def fetch(stage, path, *, host="127.0.0.1"):
    """What the tool says of a page of a real server; `{base}` in a path is the server's address."""

    async def whole():
        app = web.Application()
        app.add_routes([web.get(f"/{handler.__name__}", handler) for handler in ROUTES])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        base = f"http://{host}:{site._server.sockets[0].getsockname()[1]}"
        try:
            return await stage.arun("fetch_url", url=f"{base}{path.format(base=base)}"), base
        finally:
            await runner.cleanup()

    return asyncio.run(whole())


class TestTexts:
    def test_html_becomes_readable(self, stage):
        outcome, base = fetch(stage, "/page")
        first, _, text = outcome.text.partition("\n")
        assert first.startswith(f"[{base}/page: 200, text/html, ")
        assert text == READ.replace("{base}", base)

    def test_text_in_its_own_charset_without_cookies(self, stage):
        assert fetch(stage, "/plain")[0].text.endswith("\nGröße")
        assert fetch(stage, "/onward?to=/plain")[0].text.endswith("\nGröße")

    def test_json(self, stage):
        assert fetch(stage, "/data")[0].text.endswith('\n{"crane": 1}')

    @pytest.mark.parametrize("path", ["/binary", "/mislabelled"])
    def test_what_is_no_text_is_refused_with_type_and_size(self, stage, path):
        outcome, _ = fetch(stage, path)
        assert outcome.is_error
        assert "which is not text" in outcome.text

    def test_an_error_of_the_server_is_told_with_its_words(self, stage):
        outcome, base = fetch(stage, "/missing")
        assert outcome.is_error
        assert outcome.text == f"{base}/missing answered 404 Not Found\nno such crane"

    def test_a_body_without_end_is_cut(self, stage):
        outcome, _ = fetch(stage, "/endless")
        assert len(outcome.text) < 41_000
        assert "the rest was not fetched" in outcome.text


class TestLimits:
    def test_time(self, stage, monkeypatch):
        monkeypatch.setattr(fetch_url, "_SECONDS", 0.3)
        outcome, _ = fetch(stage, "/slow")
        assert "did not answer within 0.3 s" in outcome.text

    def test_a_person_may_take_longer_than_a_request(self, stage, monkeypatch):
        async def ask(_permission):
            loop = asyncio.get_running_loop()
            now = loop.time
            monkeypatch.setattr(loop, "time", lambda: now() + 1_000)  # a time limit set before has passed
            await asyncio.sleep(0)
            return ApprovalReply.ONCE

        stage.approvals._ask = ask
        assert not fetch(stage, "/data")[0].is_error

    def test_redirects(self, stage):
        outcome, _ = fetch(stage, "/circle")
        assert "redirects more than 5 times" in outcome.text
        assert len(stage.person.asked) == 1  # for one and the same server

    def test_nobody_answers(self, stage):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            outcome = stage.run("fetch_url", url=f"http://127.0.0.1:{taken.getsockname()[1]}/")
        assert "could not be fetched" in outcome.text

    @pytest.mark.parametrize(
        "url",
        [
            "file:///etc/passwd",
            "ftp://host/x",
            "javascript:alert(1)",
            "/etc/passwd",
            "http://",
            "http://user:word@host/",
            "http://[::1",
            "http://host:99999999/",
            "http://no-such-host.invalid/",
            "http://" + "a" * 300 + "/",
            "",
        ],
    )
    def test_what_is_not_fetched(self, stage, url):
        assert stage.run("fetch_url", url=url).is_error


class TestPrivateAddresses:
    def test_they_are_asked_for(self, stage):
        _, base = fetch(stage, "/data?x=1")
        asked = stage.person.asked[0]
        assert (asked.subject, asked.detail) == (base, f"{base}/data?x=1")
        assert "127.0.0.1 is on this machine" in asked.why

    def test_and_refused_without_a_person(self, stage):
        stage.person.reply = ApprovalReply.NO
        outcome, _ = fetch(stage, "/data")
        assert outcome.summary == "refused: the user said no"
        assert "crane" not in outcome.text

    @pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0"])
    def test_by_whatever_name(self, stage, host):
        stage.person.reply = ApprovalReply.NO
        outcome, _ = fetch(stage, "/data", host=host)
        assert outcome.is_error
        assert "crane" not in outcome.text

    def test_a_redirect_is_judged_anew(self, stage):
        stage.person.reply = ApprovalReply.ONCE
        fetch(stage, "/onward?to=http://localhost:9/x")
        assert [asked.subject.rpartition(":")[0] for asked in stage.person.asked] == [
            "http://127.0.0.1",
            "http://localhost",
        ]
        assert "only http:// and https://" in fetch(stage, "/onward?to=file:///etc/passwd")[0].text

    @pytest.mark.parametrize(
        ("address", "public"),
        [
            ("127.0.0.1", False),
            ("10.1.2.3", False),
            ("192.168.0.1", False),
            ("169.254.169.254", False),
            ("100.64.0.1", False),
            ("0.0.0.0", False),
            ("224.0.0.1", False),
            ("255.255.255.255", False),
            ("::1", False),
            ("fe80::1%eth0", False),
            ("fd00::1", False),
            ("::ffff:127.0.0.1", False),
            ("64:ff9b::7f00:1", False),
            ("2002:7f00:1::", False),
            ("8.8.8.8", True),
            ("2606:4700::1111", True),
            ("::ffff:8.8.8.8", True),
        ],
    )
    def test_which_they_are(self, address, public):
        assert is_public(address) is public


class TestReadable:
    @pytest.mark.parametrize(
        "html",
        [
            "<script>",
            "<svg><p>x",
            "</p></p>",
            "<a href='http://[x'>y</a>",
            "<td>",
            "&#xd800;",
            "<!--",
            "<p" * 500,
        ],
    )
    def test_broken_pages_are_survived(self, html):
        extract_text(html).encode(errors="replace")

    def test_the_context_is_not_needed_for_public_ones(self, stage):
        async def never(_permission):
            raise AssertionError

        stage.context = msgspec.structs.replace(stage.context, approve=never)
        assert stage.run("fetch_url", url="gopher://x").is_error
