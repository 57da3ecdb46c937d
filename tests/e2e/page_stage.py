"""A store worth looking at, a dashboard over it as a process, and a browser at it."""

from __future__ import annotations

import base64
import contextlib
import struct
import zlib
from urllib.parse import urlsplit

from cli_process import assistant, call, listening, result, user, work

from penstock.measure.usage import Usage
from penstock.sessions.session import Session
from penstock.stores.store import open_store

SECRET = "sk-" + "proj-" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3zA5bC7dE9fG1hJ3"
HOSTILE = (
    "Look: <script>document.title = 'taken over'</script><img src=x onerror=\"document.title='taken'\">"
    "</pre></details></article><svg onload=alert(1)> https://evil.invalid/x [a](https://evil.invalid) \u202egnp.exe"
)


def draw_png(width=40, height=24):
    rows = b"".join(
        b"\0" + bytes([x * 6, y * 10, 140][n] for x in range(width) for n in range(3)) for y in range(height)
    )

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + packed


def play(store, messages, *, title="", model="gpt-4.1", compact_at=None):
    """A conversation whose requests are booked, and which is compacted whenever it has so many tokens."""
    session = Session.create(store, model=model, title=title)
    for message in messages:
        session.append([message])
        if message["role"] != "assistant":
            continue
        tokens = session.count()
        session.record_usage(
            Usage(input_tokens=tokens // 4, cache_read_tokens=tokens - tokens // 4, output_tokens=90), tokens
        )
        if compact_at is not None and tokens > compact_at:
            session.compact(target_tokens=compact_at // 2)
    return session.row.conversation


def fill(url):
    """Returns the ids of conversations: one with compactions, one that is hostile, and a plain one."""
    store = open_store(url)
    long = play(store, work(120), title="Rename the report module", compact_at=2_400)
    picture = "data:image/png;base64," + base64.b64encode(draw_png()).decode()
    parts = [
        {"type": "text", "text": HOSTILE},
        {"type": "image_url", "image_url": {"url": picture}},
        {"type": "image_url", "image_url": {"url": "https://evil.invalid/pixel.png"}},
    ]
    hostile = play(
        store,
        [
            {"role": "system", "content": "Be careful."},
            user(parts),
            call("c1", "<b>tool</b>", '{"path": "<script>1</script>"}'),
            result("c1", "x" * 5_000_000),
            call("c2", "terminal", '{"command": "make test"}'),
            result("c2", f"{HOSTILE}\nValueError: no\nexit code 1"),
            assistant(
                f"The key is {SECRET}, and `</code>` is code.\n\n```\n</code></pre><script>2</script>\n```\n"
            ),
            user("<system-reminder>\nRemember.\n</system-reminder>\nGo on with the billing port 5433."),
        ],
        title=f"{HOSTILE[:60]} \u202e",
    )
    plain = play(
        store,
        [user("What is the port of the staging database?"), assistant("It is 5433.")],
        model="gpt-5-mini",
    )
    store.close()
    return {"long": long, "hostile": hostile, "plain": plain}


@contextlib.contextmanager
def dashboard_of(url):
    """The address that `penstock dashboard` prints."""
    with listening("dashboard", "--no-open", "--store", url) as (child, address):
        yield address
        child.terminate()
        child.communicate(timeout=20)
        assert child.returncode == 0


class Visit:
    """A browser at one address: what it asked for, and what went wrong."""

    def __init__(self, browser, address, **options):
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
        self.base = address.split("/?")[0]
        self.asked, self.said = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(address)

    def go(self, path):
        self.page.goto(self.base + path)
        return self.page

    def close(self):
        self.context.close()
        hosts = {urlsplit(url).netloc for url in self.asked if not url.startswith("data:")}
        assert hosts == {urlsplit(self.base).netloc}
        assert self.said == []
