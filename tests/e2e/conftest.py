"""A real model for the tests that need one: small, weak, and on this machine."""

from __future__ import annotations

import pytest

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
