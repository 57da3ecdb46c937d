"""The same claims on long generated sessions, at explicit targets from tight to loose, and across processes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from functools import cache

import pytest
from benchmarks.generate import coding_session, service_session
from benchmarks.sessions.wires import DIALECTS
from compaction_claims import NAMES, Case, claim, is_quoted, keep_quick, last_request, quotable, tokens
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.compress import CompressRequest, compress_list
from penstock.writing.handoff import HandoffSection

pytestmark = pytest.mark.sampled(4)  # each of its cases is long

SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.95)


@cache
def session(kind, name):
    if kind == "coding":
        return coding_session(12_000, seed=3, dialect=name)
    return DIALECTS[name](service_session(8_000, seed=5))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", keep_quick("chat"))
@pytest.mark.parametrize("kind", ["coding", "service"])
def test_a_long_session_fits_every_target_between_tight_and_loose(kind, name, share):
    wires = session(kind, name)
    case = Case(name, wires, int(share * tokens(name, wires)))
    seen = case.compress()
    assert seen.result.receipt.outcome == "compacted"
    assert 0.5 * case.target < seen.tokens <= case.target
    assert seen.breaches == set()
    asked = wires[last_request(name, wires)]
    assert any(wire is asked for wire in seen.result.messages) or " ".join(quotable(name, asked)) in seen.text
    for entry in seen.entries:
        if entry.section is HandoffSection.CONTEXT:
            texts = quotable(name, wires[entry.number - 1])
            assert all(is_quoted(line, texts) for line in entry.text.split("\n"))


@pytest.mark.parametrize("name", keep_quick("chat"))
@pytest.mark.parametrize("kind", ["coding", "service"])
def test_a_larger_target_keeps_no_fewer_facts(kind, name):
    wires = session(kind, name)
    total = tokens(name, wires)
    kept = [
        compress_list(
            wires, CompressRequest(target_tokens=int(share * total), dialect=name)
        ).receipt.facts_kept
        for share in (0.1, 0.3, 0.6, 0.9)
    ]
    assert kept == sorted(kept)


@claim(8)
@given(
    window=st.integers(2_000, 40_000),
    kind=st.sampled_from(["coding", "service"]),
    name=st.sampled_from(NAMES),
)
def test_a_window_without_a_target_is_never_exceeded(window, kind, name):
    wires = session(kind, name)
    result = compress_list(wires, CompressRequest(context_length=window, dialect=name))
    assert tokens(name, result.messages) == result.receipt.tokens_after
    if (room := result.receipt.room) is not None:
        assert sum(room.parts.values()) == result.receipt.tokens_after
    assert result.receipt.tokens_after <= window or result.receipt.outcome == "nothing_to_do"


_SCRIPT = """
import hashlib, json, sys
from benchmarks.generate import coding_session
import penstock
wires = coding_session(6_000, seed=3)
result = penstock.compress(wires, target_tokens=2_000)
said = json.dumps([result.messages, [str(verdict) for verdict in result.verdicts]])
print(hashlib.sha256(said.encode()).hexdigest())
"""


@pytest.mark.outside
def test_processes_with_other_hash_seeds_write_the_same():
    digests = {
        subprocess.run(
            [sys.executable, "-c", _SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "4711")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == len(hashlib.sha256().hexdigest())


def test_a_session_is_not_changed_by_its_compaction():
    wires = session("coding", "chat")
    before = json.dumps(wires)
    compress_list(wires, CompressRequest(target_tokens=2_000, dialect="chat"))
    assert json.dumps(wires) == before
