"""Every claim of the threat model in SECURITY.md names the test that holds it, and that test exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MODEL = (
    (ROOT / "SECURITY.md").read_text(encoding="utf-8").partition("## Threat model")[2].partition("\n## ")[0]
)
ROWS = [
    line for line in MODEL.splitlines() if re.match(r"\| (?!it )(?!-)", line) and not line.startswith("|---")
]


def test_the_named_tests_exist():
    files = {path.name: path for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", MODEL)
    missing = [
        f"{file}::{test}"
        for file, test in named
        if file not in files or f"def {test}(" not in files[file].read_text(encoding="utf-8")
    ]
    assert missing == []
    assert len(named) >= 25


def test_each_claim_that_something_cannot_be_done_is_held_by_a_test():
    claims = [row for row in ROWS if not row.startswith("| can ")]
    assert [row for row in claims if "::test_" not in row] == []
    assert len(claims) >= 20


def test_all_parties_are_there():
    parties = re.findall(r"^### (.+)$", MODEL, re.MULTILINE)
    for party in (
        "repository",
        "tool result",
        "web page",
        "store",
        "summary model",
        "gateway",
        "upstream",
        "sealed",
        "wrap",
        "plugins",
    ):
        assert any(party in name for name in parties)
