"""Kingfisher's rules beside ours: about five hundred issuers, at the price of some seconds to load them.

Needs the package `kingfisher-secret-scanner`. Why it is not the default: `docs/adr/0003-redaction.md`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import SettingsError
from penstock.redaction.secret import Detector, Secret

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["kingfisher"]


def kingfisher(cache_dir: str | None = None) -> Detector:
    """Returns a detector for `Redactor(detectors=…)`. Takes seconds to make, half a second with a cache: share it.

    Nothing is written unless `cache_dir` names a folder for the compiled rules. Nothing is ever sent: secrets
    are found, not tried out.
    """
    try:
        sdk = import_module("kingfisher_sdk")
    except ImportError as error:
        raise SettingsError(
            "the detector 'kingfisher' is not installed: install the package kingfisher-secret-scanner"
        ) from error
    scanner = sdk.Scanner(sdk.Rules(cache=cache_dir is not None, cache_dir=cache_dir))

    def detect(text: str) -> Iterator[Secret]:
        # A lone surrogate becomes a question mark: one character for one, so that places stay true.
        data = text.encode("utf-8", "replace")
        for finding in scanner.scan(data):
            start, end = finding.location["start_offset"], finding.location["end_offset"]
            secret = finding.secret.encode()
            inner = data.find(secret, start, end)
            if inner >= 0:
                start, end = inner, inner + len(secret)
            first = len(data[:start].decode())
            yield Secret(first, first + len(data[start:end].decode()), finding.rule_id)

    return detect
