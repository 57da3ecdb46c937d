"""What takes long to start, for the tests that need it: a small, weak model on this machine, and a browser."""

from __future__ import annotations

import pytest
from chromium import start_chromium

from penstock.local import LocalServer, missing


@pytest.fixture(scope="session")
def local_model():
    """A running `LocalServer`: `.base_url`, `.address`, `.model`, `.context_tokens`.

    One thread, as the tests share their cores with others. It reads some 100 tokens a second and writes some 50.
    """
    if lacking := missing():
        pytest.skip(lacking)
    with LocalServer(context_tokens=4_096, threads=1) as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = start_chromium(playwright)
        yield browser
        browser.close()
