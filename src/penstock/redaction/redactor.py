"""The redactor: one pass for the anchors of all rules, then the rules, where their anchors stand.

The process's own secrets are rules too: `secret_variables` says which they are, and each is known in every form in which
it turns up in text.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from itertools import chain
from typing import TYPE_CHECKING

from ahocorasick_rs import AhoCorasick, Implementation

from penstock.redaction import named, tokens
from penstock.redaction.rules import ADDRESS_RULES, COMMAND_RULES, HEADER_RULES, KEY_RULES
from penstock.redaction.secret import REDACTED, Detector, Find, RedactionRule, Secret
from penstock.redaction.value import is_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

__all__ = ["Redactor", "secret_variables"]


_RULES: tuple[RedactionRule, ...] = (
    *KEY_RULES,
    *HEADER_RULES,
    *ADDRESS_RULES,
    *COMMAND_RULES,
    *named.RULES,
    *tokens.RULES,
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_BLOCK = 1 << 22  # characters searched at once, so that the list of anchors found stays small
_SHORTEST = 6
_PASSES = 4  # more than one secret hiding another is rare, a chain of them is made up

# The names of variables whose values are secrets of the process.
_TELLING = re.compile(
    r"(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|DSN|COOKIE|JWT|PAT|AUTH|_PWD|_PASS|_PW)"
    r"(?:_?[0-9]{1,2}|_(?:PROD|DEV|TEST|STAGING|LIVE|VALUE|BASE|B64|BASE64))?$",
    re.IGNORECASE,
)
_PUBLIC = re.compile(r"PUBLIC|PUBLISHABLE|GPG_KEY$|HOTKEY|MONKEY|KEYBOARD|SSH_AUTH", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^\s:/@]*:([^\s/]+)@", re.IGNORECASE)
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SHORTEST_VALUE = 8


class Redactor:
    """Finds secrets in text and blanks them. Immutable, and safe to share between threads.

    `secret_values` are values that must never be shown, the process's own secrets; shorter ones than six
    characters are left out. `detectors` are asked as well, about every text that is not empty.
    """

    __slots__ = ("_anchors", "_detectors", "_finds", "_overlap", "_own")

    def __init__(self, secret_values: Iterable[str] = (), *, detectors: Iterable[Detector] = ()) -> None:
        finds: dict[str, list[Find]] = {}
        own = _own_rules(secret_values)
        for rule in chain(own, _RULES):
            for anchor in rule.anchors:
                finds.setdefault(anchor, []).append(rule.find)
        self._own = len({anchor for rule in own for anchor in rule.anchors})
        self._finds = tuple(map(tuple, finds.values()))
        self._overlap = max(map(len, finds)) - 1
        self._anchors = AhoCorasick(list(finds), store_patterns=False, implementation=Implementation.DFA)
        self._detectors = tuple(detectors)

    def find(self, text: str) -> list[Secret]:
        """Returns the secrets in the text, in order, apart from each other: what `redact` would replace.

        Blanking one secret can bring another to light, whose anchor or border it had covered. So what was
        found is blanked and looked at again, until there is nothing more: a text without secrets is read once.
        """
        secrets = found = self._scan(text)
        for _ in range(_PASSES):
            if not found:
                break
            found = self._scan(_blank(text, secrets))
            secrets = _apart(secrets + _unblank(secrets, found))
        return secrets

    def redact(self, text: str) -> str:
        """Returns the text with `[REDACTED]` in the place of each secret's value. Names and labels stay."""
        secrets = self.find(text)
        return _blank(text, secrets) if secrets else text

    def _scan(self, text: str) -> list[Secret]:
        found: list[Secret] = []
        covered = 0
        for which, start, end in self._hits(text):
            # Inside a secret there is nothing left to find, but for an own value that reaches beyond it.
            if start >= covered or which < self._own:
                for find in self._finds[which]:
                    for secret in find(text, start, end):
                        found.append(secret)
                        covered = max(covered, secret.end)
        for detector in self._detectors:
            found.extend(
                secret for secret in detector(text) if REDACTED not in text[secret.start : secret.end]
            )
        return _apart(found) if found else found

    def _hits(self, text: str) -> Iterator[tuple[int, int, int]]:
        for begin in range(0, len(text), _BLOCK):
            block = text[begin : begin + _BLOCK + self._overlap] if len(text) > _BLOCK else text
            try:
                hits = self._anchors.find_matches_as_indexes(block, overlapping=True)
            except UnicodeEncodeError:
                block = _SURROGATE.sub("\ufffd", block)
                hits = self._anchors.find_matches_as_indexes(block, overlapping=True)
            if not begin and len(text) <= _BLOCK:
                yield from hits
            else:
                yield from (
                    (which, begin + start, begin + end) for which, start, end in hits if start < _BLOCK
                )


def secret_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns the values of the variables whose name says that they are secret, and passwords in their addresses.

    A value that is short, a path, a reference or a plain word is left out: to blank it everywhere would
    ruin text and hide nothing.
    """
    found = set()
    for name, value in environ.items():
        if (address := _URL_PASSWORD.match(value)) is not None:
            found.add(address[1])
        elif _TELLING.search(name) and not _PUBLIC.search(name):
            found.add(value.strip())
    return sorted(value for value in found if _is_secret(value))


def _is_secret(value: str) -> bool:
    if len(value) < _SHORTEST_VALUE or not is_literal(value):
        return "://" in value and "@" in value
    return len(value) >= 16 or not (value.isalpha() or value.isdigit())


def _own_rules(values: Iterable[str]) -> list[RedactionRule]:
    return [
        _own_rule(form)
        for form in sorted({form for value in values if len(value) >= _SHORTEST for form in _forms(value)})
    ]


def _own_rule(form: str) -> RedactionRule:
    def find(text: str, start: int, _end: int) -> Iterator[Secret]:
        if text.startswith(form, start):
            yield Secret(start, start + len(form), "own-variable")

    # Long values are known by their beginning: a whole key as an anchor would swell the automaton.
    return RedactionRule((_SURROGATE.sub("\ufffd", form[:48]),), find)


def _forms(value: str) -> set[str]:
    """Returns the value itself, JSON-escaped once and twice, percent-encoded, and as it looks inside base64 at each of three offsets."""
    data = value.encode("utf-8", "surrogatepass")
    percent = "".join(chr(byte) if chr(byte) in _UNRESERVED else f"%{byte:02X}" for byte in data)
    found = {value, json.dumps(value, ensure_ascii=False)[1:-1]}
    found |= {once := json.dumps(value)[1:-1], json.dumps(once)[1:-1]}  # arguments are JSON inside JSON
    found |= {percent, percent.replace("%20", "+"), re.sub("%..", lambda match: match[0].lower(), percent)}
    for offset in range(3):
        # The characters that also carry bits of the neighbours are cut off at both ends.
        encoded = b64encode(bytes(offset) + data).decode()
        inner = encoded[(offset * 8 + 5) // 6 : (offset + len(data)) * 8 // 6]
        found |= {inner, inner.replace("+", "-").replace("/", "_")}
    return {form for form in found if len(form) >= _SHORTEST_VALUE - 2}


# Places of secrets in a text: sorting them, blanking them, and finding the way back from the blanked text.


def _apart(found: list[Secret]) -> list[Secret]:
    """Returns the secrets in order, with overlapping ones joined under the kind of the first."""
    joined: list[Secret] = []
    for secret in sorted(found):
        if joined and secret.start < joined[-1].end:
            last = joined[-1]
            joined[-1] = Secret(last.start, max(last.end, secret.end), last.kind)
        else:
            joined.append(secret)
    return joined


def _blank(text: str, secrets: list[Secret]) -> str:
    """Returns the text with `[REDACTED]` in the place of each secret; they are in order and apart."""
    pieces: list[str] = []
    done = 0
    for secret in secrets:
        pieces += (text[done : secret.start], REDACTED)
        done = secret.end
    return "".join((*pieces, text[done:]))


def _unblank(secrets: list[Secret], found: list[Secret]) -> list[Secret]:
    """Maps findings in the text that `_blank` made back to places in the text that it was made from.

    A place inside a mark stands for the secret under it.
    """
    marks: list[int] = []
    shift = 0
    for secret in secrets:
        marks.append(secret.start + shift)
        shift += len(REDACTED) - (secret.end - secret.start)

    def start_of(place: int) -> int:
        before = bisect_right(marks, place) - 1
        if before < 0:
            return place
        beyond = place - marks[before] - len(REDACTED)
        return secrets[before].end + beyond if beyond >= 0 else secrets[before].start

    def end_of(place: int) -> int:
        before = bisect_left(marks, place) - 1
        return place if before < 0 else secrets[before].end + max(0, place - marks[before] - len(REDACTED))

    return [Secret(start_of(secret.start), end_of(secret.end), secret.kind) for secret in found]
