"""What the reports look like, word for word. UPDATE_GOLDEN=1 writes them anew; read the difference then."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.e2e.cli_process import assistant, call, encoded, penstock, result, user, work

GOLDEN = Path(__file__).parent / "golden"

LOG = "\n".join(
    f"2024-03-0{1 + n % 9} 12:{n % 60:02}:07 worker-{n % 4} order {48_000 + n * 13} {'FAILED: timeout after 30 s' if n % 11 == 3 else 'done'}"
    for n in range(120)
)
PICTURE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzkAAAAAElFTkSuQmCC"
MESSAGES = [
    {"role": "system", "content": "You are the night operator of a small shop. Be brief."},
    user("Orders hang since midnight. Never restart worker-2 without asking me. Find out which ones failed."),
    call("c1", "terminal", '{"command": "tail -n 120 worker.log"}'),
    result("c1", LOG),
    assistant("Every eleventh order runs into the timeout of 30 s. I look at the settings."),
    call("c2", "read_file", '{"path": "shop/settings.py"}'),
    result("c2", "TIMEOUT_SECONDS = 30\nRETRIES = 0\nQUEUE = 'orders-eu'\n" * 6),
    user(
        [
            {"type": "text", "text": "This is what the dashboard shows."},
            {"type": "image_url", "image_url": {"url": PICTURE}},
        ]
    ),
    assistant("The queue is full since 00:14. With RETRIES = 2 the orders would pass."),
    user("Good. Set RETRIES to 2 and tell me which orders to replay."),
]
BODY = {
    "model": "gpt-4.1",
    "tools": [{"type": "function", "function": {"name": "terminal", "description": "Run a command."}}],
    "messages": MESSAGES,
}
REPORTS = {
    "compress": ("compress", "-", "--target-tokens", "900", "-o", "/dev/null"),
    "compress_json": ("compress", "-", "--target-tokens", "900", "-o", "/dev/null", "--json"),
    "compress_nothing_to_do": ("compress", "-", "-o", "/dev/null"),
    "explain": ("explain", "-", "--target-tokens", "900"),
    "explain_handle": ("explain", "-", "--handle", "m3"),
    "tokens": ("tokens", "-", "--context-length", "8k"),
    "config": ("config", "--set", "compression.threshold=0.6"),
    "help": ("--help",),
    "help_chat": ("chat", "--help"),
    "help_compress": ("compress", "--help"),
    "help_explain": ("explain", "--help"),
    "help_sessions": ("sessions", "--help"),
    "help_sessions_export": ("sessions", "export", "--help"),
    "help_sessions_import": ("sessions", "import", "--help"),
    "help_insights": ("insights", "--help"),
}


def masked(text: str) -> str:
    """Times differ from run to run; the rest may not."""
    text = re.sub(r"(took +)[\d,]+ ms", r"\1# ms", text)
    return re.sub(r'"seconds": [\d.e-]+', '"seconds": #', text)


LONG = {"model": "gpt-4.1", "messages": [*MESSAGES[:1], *work(60)]}
REPORTS_OF_A_LONG_ONE = {
    "explain_runs": ("explain", "-", "--target-tokens", "40%"),
    "explain_nothing_to_do": ("explain", "-"),
}


@pytest.mark.parametrize("name", [*REPORTS, *REPORTS_OF_A_LONG_ONE])
def test_report(name):
    long = name in REPORTS_OF_A_LONG_ONE
    args = REPORTS_OF_A_LONG_ONE[name] if long else REPORTS[name]
    ran = penstock(*args, stdin=encoded(LONG if long else BODY), COLUMNS="100")
    assert (ran.code, ran.err) == (0, "")
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(masked(ran.text))
    assert masked(ran.text) == file.read_text()
