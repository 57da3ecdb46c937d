"""The redactor: one pass for the anchors of all rules, then the rules, where their anchors stand.

A text is read as it stands and with its escapes undone: JSON may write the `=` of `PASSWORD=` as four hexadecimal
digits, which hides the anchor until the text is decoded. The process's own secrets are rules too: `secret_variables`
lists them, and each is known in every form in which it turns up in text.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from itertools import accumulate, chain
from typing import TYPE_CHECKING, NamedTuple

from penstock.redaction import named, nearby, places, tables, tokens
from penstock.redaction.anchors import open_anchors, replace_surrogates
from penstock.redaction.secret import REDACTED, Detector, Find, RedactionRule, Secret, ends_escape, is_literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.redaction.anchors import AnchorHit

__all__ = ["Redactor", "secret_variables"]


_RULES: tuple[RedactionRule, ...] = (
    *places.RULES,
    *named.RULES,
    *tokens.RULES,
    *tables.RULES,
    *nearby.RULES,
)
_BLOCK = 1 << 22  # characters searched at once, so that the list of anchors found stays small
_SHORTEST = 6
_PASSES = 4  # more than one secret hiding another is rare, a chain of them is made up
_SEEN_BACK, _SEEN_AHEAD = (
    1_000,
    4_000,
)  # characters around an anchor that a rule may look at before it finds anything

# Escapes of JSON. Those that can hide an anchor are looked for in the same pass as the anchors.
_HIDING = ("\\u", "\\/")
_ESCAPE = re.compile(r"""\\(?:u([0-9A-Fa-f]{4})|(["'/\\bfnrt]))""")
_PLAIN_FORM = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LEVELS = 4  # JSON in JSON in JSON: arguments of a call that quote a result that quotes a file
# Where an escape other than a quote stands between a name and its value: `password:\n…`, `API_KEY=\\\n…`, `"password"\n"value": …`.
_ESCAPE_IN_TIE = re.compile(
    r"""
    [A-Za-z0-9_-]{0,24}+(?:\\{0,63}["'`\]])*+[ \t]{0,4}
    (?: [=:：]{1,2}[ \t]{0,4}(?:[>|][-+]?)?\\{1,63}[nrt]
      | \\{1,63}t
      | \\{1,63}[nr][^\\\n]{0,80}+\\{1,63}t  # the head of a table whose cells are parted by tabs
      | (?:\\{1,63}[nr]|[ ]){1,12}+,?(?:\\{1,63}[nrt]|[ ]){0,12}+\\{0,63}["']?[Vv]alue )
    """,
    re.VERBOSE,
)
# So many anchors that close together are no text that a person or a program writes. To ask every rule at each would take
# longer than the text is worth, so whatever has a digit in it goes, with a name or without.
_CROWD = 64  # anchors in a row
# The most characters from one to the next on average: as the text stands, with its escapes undone once, and again. A text
# with escapes in it is read once for each level, so fewer anchors are too many.
_CROWDED = (22, 32, 64)
_FULL = 80  # characters to a secret, on average, in a text that is full of them
_RUN = re.compile(
    r"""(?<![^\s"'`,;&<>(){}\[\]\\|=:：＝是为為は는은])(?!(?<=\\)u[0-9A-Fa-f]{4})"""  # an escape is read where it is undone
    r"""(?=[^\s"'`,;&<>(){}\[\]\\|=:：＝是为為は는은0-9]{0,63}[0-9])[^\s"'`,;&<>(){}\[\]\\|=:：＝是为為は는은]{6,}"""
)
_BLANK_NEXT = tuple(tie + REDACTED for tie in ("", " ", "=", ": ", ":", '="', "='"))
# Undoing the escapes around an anchor is dear: once in so many characters it may be in vain, beyond the first few.
_LOOK_EACH, _LOOK_FREE = 200, 1_600
_WINDOW_BEFORE, _WINDOW_AFTER = 48, 120

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
_SMALL = frozenset("abcdefghijklmnopqrstuvwxyz")
_WORDY = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")


class Redactor:
    """Finds secrets in text and blanks them. Safe to share between threads.

    `secret_values` are values that must never be shown, the process's own secrets; shorter ones than six
    characters are left out. `detectors` are asked as well, about every text that is not empty.
    """

    __slots__ = (
        "_detectors",
        "_ends_word",
        "_escapes",
        "_find_anchors",
        "_finds",
        "_free",
        "_last",
        "_named",
        "_overlap",
        "_own",
    )

    def __init__(self, secret_values: Iterable[str] = (), *, detectors: Iterable[Detector] = ()) -> None:
        finds: dict[str, list[Find]] = {}
        own = _own_rules(secret_values)
        for rule in chain(own, _RULES):
            for anchor in rule.anchors:
                finds.setdefault(anchor, []).append(rule.find)
        bound = {anchor for rule in chain(own, _RULES) if not rule.stands_free for anchor in rule.anchors}
        self._free = [anchor not in bound for anchor in finds]
        open_ended = {anchor for rule in chain(own, _RULES) if not rule.ends_word for anchor in rule.anchors}
        self._ends_word = [anchor not in open_ended and anchor[-1].isalpha() for anchor in finds]
        self._own = len({anchor for rule in own for anchor in rule.anchors})
        told_by_name = {anchor for rule in named.RULES for anchor in rule.anchors}
        self._named = {which for which, anchor in enumerate(finds) if anchor in told_by_name}
        self._escapes = len(finds)
        finds |= {escape: [] for escape in _HIDING}
        self._finds = tuple(map(tuple, finds.values()))
        self._overlap = max(map(len, finds)) - 1
        self._find_anchors = open_anchors(list(finds))
        self._detectors = tuple(detectors)
        self._last: tuple[str, tuple[Secret, ...]] = ("", ())

    def find(self, text: str) -> list[Secret]:
        """Returns the secrets in the text, in order, apart from each other: what `redact` would replace.

        Blanking one secret can bring another to light, whose anchor or border it had covered. So what was
        found is blanked and looked at again near the blanks, until there is nothing more: a text without secrets is read once.
        """
        asked, answer = self._last
        if asked is text:  # a message is read for its values, its facts and its state, one after the other
            return list(answer)
        secrets: list[Secret] = []
        known: set[Secret] = set()
        marks: list[int] = []  # where the mark of each secret begins in `shown`
        near: list[int] | None = None
        shown = text
        for _ in range(1 + _PASSES):
            found: list[Secret] = []
            is_escaped = False
            for hits in self._hits(shown):
                is_escaped |= self._apply_rules(shown, hits, found, near)
            if is_escaped:
                count = len(found) if near is None else len(near)
                found += self._scan_unescaped(shown, near, is_full=count > max(_CROWD, len(shown) // _FULL))
            for detector in self._detectors:
                found += [one for one in detector(shown) if REDACTED not in shown[one.start : one.end]]
            if not found:
                break
            secrets = _join_overlapping(secrets + _unblank(secrets, marks, found))
            marks = _locate_marks(secrets)
            near = [mark for mark, secret in zip(marks, secrets, strict=True) if secret not in known]
            known, shown = set(secrets), _blank(text, secrets)
        self._last = text, tuple(secrets)
        return secrets

    def redact(self, text: str) -> str:
        """Returns the text with `[REDACTED]` in the place of each secret's value. Names and labels stay."""
        secrets = self.find(text)
        return _blank(text, secrets) if secrets else text

    def _apply_rules(
        self,
        text: str,
        hits: list[AnchorHit],
        found: list[Secret],
        near: list[int] | None,
        level: int = 0,
    ) -> bool:
        """Adds what the rules find at their anchors, or at those near places that are given.

        Returns True if escapes may hide more anchors.
        """
        in_vain = 0
        has_escapes = "\\" in text
        is_escaped = has_escapes and any(which >= self._escapes for which, _, _ in hits)
        if is_escaped:
            hits = [hit for hit in hits if hit[0] < self._escapes]
        hits = self._drop_bound(text, hits)
        if len(hits) > _CROWD:
            hits = self._drop_crowded(text, hits, found, _CROWDED[min(level, 2)])
        if near is not None:
            hits = _keep_near(hits, near)
        own, finds = self._own, self._finds
        last_start = last_end = 0  # of the secret that reaches furthest
        for which, start, end in hits:
            # Inside a secret there is nothing left to find, but for an own value that reaches beyond it.
            if last_start <= start < last_end and which >= own:
                continue
            before = len(found)
            for find in finds[which]:
                found += find(text, start, end)
            if (
                has_escapes
                and len(found) == before
                and which in self._named
                and _ESCAPE_IN_TIE.match(text, end)
                and in_vain * _LOOK_EACH <= start + _LOOK_FREE
            ):
                found += self._look_through_escapes(text, which, start, end)
                in_vain += len(found) == before
            for secret in found[before:]:
                if secret.end > last_end:
                    last_start, last_end = secret.start, secret.end
        return is_escaped

    def _drop_crowded(
        self, text: str, hits: list[AnchorHit], found: list[Secret], most_apart: int
    ) -> list[AnchorHit]:
        """Returns the hits that do not stand in a crowd, and adds what is found in the crowds."""
        starts, ends = [-1], [-1]  # of the crowds, and of none before the first
        for number in (*range(0, len(hits) - _CROWD, _CROWD), len(hits) - _CROWD - 1):
            start, end = hits[number][1], hits[number + _CROWD][2]
            if end - start >= _CROWD * most_apart:
                continue
            if start <= ends[-1]:
                ends[-1] = end
            else:
                starts.append(start)
                ends.append(end)
        if len(starts) == 1:
            return hits
        for start, end in zip(starts[1:], ends[1:], strict=True):
            found += _find_in_crowd(text, start, end)
        own = self._own
        return [hit for hit in hits if hit[1] >= ends[bisect_right(starts, hit[1]) - 1] or hit[0] < own]

    def _drop_bound(self, text: str, hits: list[AnchorHit]) -> list[AnchorHit]:
        """Returns the hits without those that cannot lead to a value: to ask their rules takes longer."""
        free, ends_word = self._free, self._ends_word
        if REDACTED in text:  # an anchor right before a blank has had its value, and no rule looks beyond it
            hits = [hit for hit in hits if hit[0] < self._own or not text.startswith(_BLANK_NEXT, hit[2])]
        return [
            hit
            for hit in hits
            if not (
                (
                    ends_word[hit[0]]
                    and text[hit[2] : hit[2] + 1] in _SMALL
                    and named.OTHER_WORD.match(text, hit[2])
                )
                or (free[hit[0]] and hit[1] and text[hit[1] - 1] in _WORDY and not ends_escape(text, hit[1]))
            )
        ]

    def _look_through_escapes(self, text: str, which: int, start: int, end: int) -> Iterator[Secret]:
        """Yields what the rules of an anchor find when the escapes around it are undone."""
        first = max(0, start - _WINDOW_BEFORE)
        window, place = text[first : end + _WINDOW_AFTER], start - first
        maps: list[_Unescaped] = []
        width = end - start
        while _ESCAPE_IN_TIE.match(window, place + width) and (undone := _undo_escapes(window)) is not None:
            maps.append(undone)
            window, place = undone.text, undone.locate(place)
            for find in self._finds[which]:
                for secret in find(window, place, place + width):
                    yield _map_back(secret, maps, first)

    def _scan_unescaped(self, text: str, near: list[int] | None, *, is_full: bool) -> list[Secret]:
        """Returns the secrets that the text shows once its escapes are undone, and again while some may hide anchors.

        A text that is full of secrets as it stands is taken for a crowd: to ask every rule again on each level would take
        longer than the text is worth.
        """
        found: list[Secret] = []
        maps: list[_Unescaped] = []
        is_escaped = True
        while is_escaped and len(maps) < _LEVELS and (undone := _undo_escapes(text)) is not None:
            maps.append(undone)
            text = undone.text
            near = None if near is None else [undone.locate(place) for place in near]
            shown: list[Secret] = []
            if is_full:
                shown += _find_in_crowd(text, 0, len(text))
                is_escaped = any(map(text.__contains__, _HIDING))
            else:
                is_escaped = False
                for hits in self._hits(text):
                    is_escaped |= self._apply_rules(text, hits, shown, near, len(maps))
            found += [_map_back(secret, maps) for secret in shown]
        return found

    def _hits(self, text: str) -> Iterable[list[AnchorHit]]:
        """Returns the anchors in the text, block by block."""
        if len(text) > _BLOCK:
            return self._hits_in_blocks(text)
        hits = self._find_anchors(text)
        return (hits,) if hits else ()

    def _hits_in_blocks(self, text: str) -> Iterator[list[AnchorHit]]:
        for begin in range(0, len(text), _BLOCK):
            hits = self._find_anchors(text[begin : begin + _BLOCK + self._overlap])
            yield [(which, begin + start, begin + end) for which, start, end in hits if start < _BLOCK]


def _keep_near(hits: list[AnchorHit], places: list[int]) -> list[AnchorHit]:
    """Returns the hits whose rules may see one of the places, which are in order."""
    kept = []
    for hit in hits:
        first = bisect_left(places, hit[1] - _SEEN_BACK)
        if first < len(places) and places[first] <= hit[2] + _SEEN_AHEAD:
            kept.append(hit)
    return kept


def _find_in_crowd(text: str, start: int, end: int) -> Iterator[Secret]:
    return (Secret(*run.span(), "crowded") for run in _RUN.finditer(text, start, end))


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
    return RedactionRule((replace_surrogates(form[:48]),), find)


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


# Texts without their escapes, and the way back from a place in one.


class _Unescaped(NamedTuple):
    """A text with one level of its escapes undone."""

    text: str
    places: list[int]
    """The place in `text` of each character that was escaped."""
    ends: list[int]
    """The end of its escape in the text that it was undone from."""
    lengths: list[int]
    """The number of characters that its escape takes there."""

    def start_of(self, place: int) -> int:
        """Returns where the character at this place begins in the escaped text."""
        before = bisect_right(self.places, place) - 1
        if before < 0:
            return place
        beyond = place - self.places[before]
        return self.ends[before] + beyond - 1 if beyond else self.ends[before] - self.lengths[before]

    def end_of(self, place: int) -> int:
        """Returns where the character before this place ends in the escaped text."""
        before = bisect_left(self.places, place) - 1
        return place if before < 0 else self.ends[before] + place - self.places[before] - 1

    def locate(self, place: int) -> int:
        """Returns where the character that stood at this place of the escaped text stands now."""
        before = bisect_right(self.ends, place) - 1
        return place if before < 0 else self.places[before] + 1 + place - self.ends[before]


def _undo_escapes(text: str) -> _Unescaped | None:
    """Returns the text with one level of escapes undone; None if it has none."""
    parts = _ESCAPE.split(
        text
    )  # plain text, the digits of an escape or None, its letter or None, plain text, and so on
    if len(parts) == 1:
        return None
    codes = parts[1::3]
    undone = [
        chr(int(code, 16)) if code else _PLAIN_FORM.get(letter, letter)
        for code, letter in zip(codes, parts[2::3], strict=True)
    ]
    lengths = [6 if code else 2 for code in codes]
    plain = list(accumulate(map(len, parts[:-1:3])))
    places = [before + number for number, before in enumerate(plain)]
    ends = [before + escaped for before, escaped in zip(plain, accumulate(lengths), strict=True)]
    pieces = [piece for pair in zip(parts[:-1:3], undone, strict=True) for piece in pair]
    return _Unescaped("".join((*pieces, parts[-1])), places, ends, lengths)


def _map_back(secret: Secret, maps: list[_Unescaped], shift: int = 0) -> Secret:
    start, end = secret.start, secret.end
    for undone in reversed(maps):
        start, end = undone.start_of(start), undone.end_of(end)
    return Secret(start + shift, end + shift, secret.kind)


# Places of secrets in a text: sorting them, blanking them, and finding the way back from the blanked text.


def _join_overlapping(found: list[Secret]) -> list[Secret]:
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


def _locate_marks(secrets: list[Secret]) -> list[int]:
    """Returns where the mark of each secret begins in the text that `_blank` makes."""
    marks: list[int] = []
    shift = 0
    for secret in secrets:
        marks.append(secret.start + shift)
        shift += len(REDACTED) - (secret.end - secret.start)
    return marks


def _unblank(secrets: list[Secret], marks: list[int], found: list[Secret]) -> list[Secret]:
    """Maps findings in the text that `_blank` made back to places in the text that it was made from.

    A place inside a mark stands for the secret under it.
    """

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
