"""Detectors from elsewhere are asked as well."""

from __future__ import annotations

import pytest
from planted import alnum, hexa

from penstock.redaction import REDACTED, Redactor, Secret


def test_what_a_detector_finds_is_joined_with_what_we_find():
    def detector(text: str) -> list[Secret]:
        at = text.find("zebra")
        return [Secret(at, at + 5, "animal")] if at >= 0 else []

    redactor = Redactor(detectors=[detector])
    assert redactor.redact("a zebra, password=hunter2 ") == f"a {REDACTED}, password={REDACTED} "
    assert [secret.kind for secret in redactor.find("a zebra")] == ["animal"]


def test_a_detector_that_flags_our_own_mark_changes_nothing():
    redactor = Redactor(detectors=[lambda text: [Secret(0, len(text), "all")]])
    assert redactor.redact(f"x {REDACTED}") == f"x {REDACTED}"


@pytest.mark.outside
def test_kingfisher_adds_its_issuers_at_the_right_places():
    pytest.importorskip("kingfisher_sdk")
    from penstock.redaction.kingfisher import kingfisher

    redactor = Redactor(detectors=[kingfisher()])
    token = "npm" + "_" + alnum(36, "kingfisher")
    plain = "é \ud800 disqus_public = '" + hexa(8, "short") + "'\n"
    assert redactor.redact(f"{plain}{token} é") == f"{plain}{REDACTED} é"


@pytest.mark.outside
def test_the_setting_asks_kingfisher_too(tmp_path, monkeypatch):
    pytest.importorskip("kingfisher_sdk")
    import penstock

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    token = "npm" + "_" + alnum(36, "setting")
    roles = ("assistant", "user")
    talk = [
        {"role": roles[n % 2], "content": f"release_{n} uses {token} " + "of many words " * 9}
        for n in range(30)
    ]
    talk.append({"role": "user", "content": "Now publish it."})
    settings = {"redaction": {"detector": "kingfisher"}}
    result = penstock.compress(talk, target_tokens=900, settings=settings)
    texts = [message["content"] for message in result.messages]
    handoff = next(text for text in texts if "<penstock-handoff" in text).partition("</penstock-handoff>")[0]
    assert "uses [REDACTED]" in handoff
    assert token not in handoff
    assert (tmp_path / "penstock" / "kingfisher").exists()
