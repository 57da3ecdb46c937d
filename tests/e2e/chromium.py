"""A real Chromium for tests of pages: how it is found and started, and what is measured in it."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

BROWSER = next(
    filter(
        None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"))
    ),
    None,
)
NEEDS_CHROMIUM = [
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed"),
    pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine"),
]
QUIET = (
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--no-first-run", "--disable-gpu", "--no-sandbox"),
)
AXE = Path(__file__).with_name("vendor") / "axe.min.js"


def start_chromium(playwright):
    return playwright.chromium.launch(executable_path=BROWSER, args=list(QUIET))


def find_barriers(page):
    """What keeps people out, by axe-core: the serious and the critical findings."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("async () => (await axe.run(document, {resultTypes: ['violations']})).violations")
    return [
        (one["id"], one["impact"], [node["html"][:200] for node in one["nodes"][:3]])
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]


def find_overflow(page):
    """How many pixels the page is wider than its window."""
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")
