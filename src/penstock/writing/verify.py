"""Verifying that a handoff says only what the conversation says.

Every value in the text must be a value of the conversation. One that is not is struck and counted. What was
extracted holds none; the check stands in its way all the same. A model's text is held to more: to every
number, quote and message that it names, and to the secrets that the conversation holds. A constraint in it stands only
where a person's message holds its words, a ban under another heading where somebody's does, and nothing is open in it that
the conversation shows to be done.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from penstock.redaction import REDACTED
from penstock.writing.constraints import is_constraint, sentences
from penstock.writing.handoff import HandoffSection
from penstock.writing.state import State, contradicts
from penstock.writing.stubs import shorten
from penstock.writing.values import PHRASE, SEPARATORS, tokens_of, values_in_phrase, values_in_token

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from penstock.redaction import Redactor
    from penstock.writing.handoff import HandoffEntry
    from penstock.writing.prose import Prose

__all__ = ["STRUCK", "Checked", "KnownSource", "Verified", "check_prose", "strike_unknown"]

STRUCK = "[struck]"
_MOST_STRUCK, _STRUCK_CHARS = 40, 160  # of what was struck, for people
_HANDLE = re.compile(r"m\d+")
_CUT = re.compile(r"(?<!\S)[^\s…]*+…\S*")  # what we cut short says so itself
_QUOTED = re.compile(
    r"[“„«]([^“”„«»\n]{3,70})[”“»]|‘([^‘’\n]{3,70})’|『([^』\n]{2,70})』|「([^」\n]{2,70})」|`([^`\n]{2,70})`"
)
_CALLED = re.compile(r"(?<!\w)([^\W\d]\w++)\(\)")
_TOKEN = re.compile("[^" + re.escape(SEPARATORS) + "]+")
_GROUPED = re.compile(r"(?<![\w.,])\d{1,3}(?:[,_\u00a0\u202f]\d{3})+(?![\w,])")
_EDGES = ".,;:!?()[]{}<>*=|&^%+~$/\\-#@\"'`"
_SHORTEST_SECRET = 6
# Compounds of plain language: by how they begin or end. Any other word with a hyphen may be a name.
_COMPOUND = re.compile(
    r"(?:re|non|pre|post|un|co|sub|self|multi|well|ill|follow|end|half|full|high|low|long|short|left|right|"
    r"read|"
    r"real|hard|soft|built|side|cross|inter|mid|ex|all|one|two|three|first|second|third|old|new|"
    r"so|up|by|in|on|out|over|under)(?:-[a-z]+)+"
    r"|(?:[a-z]+-)+(?:up|in|out|off|on|based|related|specific|only|like|free|side|wide|level|time|end|by|"
    r"step|"
    r"case|friendly|safe|ready|facing|driven|aware|style|sensitive|insensitive|fix|line|to|do|run|check)"
)


class Verified(msgspec.Struct, frozen=True):
    """The text without unknown values, and which they were."""

    text: str
    struck: tuple[str, ...] = ()


class Checked(msgspec.Struct, frozen=True):
    """Entries that say only what the source says, and how many values had to be struck for that.

    `open_turns` are the messages that the model named as requests not fulfilled yet. `struck_texts` is what was struck,
    for people: values, and entries that went as a whole, each cut short, not more than a few.
    """

    entries: tuple[HandoffEntry, ...]
    struck: int
    open_turns: tuple[int, ...] = ()
    struck_texts: tuple[str, ...] = ()


class KnownSource(msgspec.Struct, frozen=True, eq=False):
    """The standard for a model's text: the values, texts, messages and secrets of the conversation.

    `texts` are looked through only for what is not among the values. `demands` are people's own texts, and what older
    handoffs took from such; None where they are not known, and then constraints are not held to them. `state` is how the
    work stands without a model's word.
    """

    known: Container[str]
    texts: Sequence[str]
    numbers: Container[int]
    secrets: frozenset[str] = frozenset()
    demands: Sequence[str] | None = None
    state: State = State()

    def find_missing(self, claims: Iterable[str]) -> set[str]:
        """Returns the claims that stand nowhere in the source."""
        left = {claim for claim in claims if claim not in self.known}
        for text in self.texts:
            if not left:
                break
            left = {claim for claim in left if not _stands_in(claim, text)}
        words = {claim for claim in left if claim.isalpha()}  # API or api: the same word
        for text in self.texts if words else ():
            lowered = text.lower()
            words = {word for word in words if not _stands_in(word.lower(), lowered)}
        left = {claim for claim in left if not claim.isalpha()} | words
        if any(" " in claim for claim in left):  # a quote may run over a line break
            for text in self.texts:
                flat = " ".join(text.split())
                left = {claim for claim in left if " ".join(claim.split()) not in flat}
        return left


def strike_unknown(text: str, known: Container[str], *, phrases: bool = True) -> Verified:
    """Returns the text with every value that is not known replaced; handles are ours and stay.

    Longer values go first, so that none is cut. Without `phrases`, what stands between quotes is not looked
    at: where a text was cut, its quotes no longer pair as they did.
    """
    claimed = _claimed_values(text, phrases)
    return _strike(text, {value for value in claimed if value not in known and not _HANDLE.fullmatch(value)})


@lru_cache(maxsize=256)
def _claimed_values(text: str, phrases: bool) -> frozenset[str]:
    """Returns the values of a text. A handoff repeats most entries of the one before."""
    whole = _CUT.sub(" ", text)
    found = {value for token in {*tokens_of(whole)} for value in values_in_token(token)}
    if phrases:
        found |= {value for phrase in PHRASE.findall(whole) for value in values_in_phrase(phrase)}
    return frozenset(found)


def check_prose(prose: Prose, source: KnownSource, redactor: Redactor) -> Checked:
    """Returns what a model wrote, without what it invented and without secrets.

    A value that the source does not hold is struck. An entry that loses half of what it claims, or more, goes
    as a whole: what is left of it would say something else. So does a constraint that nobody stated, and what is said to
    be open and is not; each counts as one that was struck.
    """
    clean = [_without_secrets(entry, source.secrets, redactor) for entry in prose.entries]
    clean, texts = _without_contradicted(clean, source)
    invented = len(texts)
    claims = [_claims(entry.text) for entry in clean]
    missing = source.find_missing(
        {claim for some in claims for claim in some if not _HANDLE.fullmatch(claim)}
    )
    missing |= {
        claim
        for some in claims
        for claim in some
        if _HANDLE.fullmatch(claim) and int(claim[1:]) not in source.numbers
    }
    kept: list[HandoffEntry] = []
    struck = invented
    for entry, some in zip(clean, claims, strict=True):
        lost = some & missing
        struck += len(lost)
        if not lost:
            kept.append(entry)
        elif 2 * len(lost) < len(some):
            kept.append(msgspec.structs.replace(entry, text=_strike(entry.text, lost).text))
            texts += sorted(lost)
        else:
            texts.append(entry.text)
    return Checked(
        tuple(_without_false_number(entry, source.numbers) for entry in kept),
        struck,
        prose.open_turns,
        tuple(shorten(" ".join(text.split()), _STRUCK_CHARS) for text in texts[:_MOST_STRUCK]),
    )


def _without_contradicted(
    entries: Iterable[HandoffEntry], source: KnownSource
) -> tuple[list[HandoffEntry], list[str]]:
    """Returns the entries without what the work or what people said contradicts, and the texts of that."""
    held: list[HandoffEntry] = []
    gone: list[str] = []
    for entry in entries:
        if contradicts(source.state, entry) or not _is_demanded(entry, source):
            gone.append(entry.text)
            continue
        allowed, bans = _without_bans(entry, source)
        gone += bans
        if allowed.text:
            held.append(allowed)
    return held, gone


# Words of a report on what somebody demanded, which are not part of the demand.
_REPORTING = frozenset(
    [
        "the",
        "user",
        "users",
        "wants",
        "want",
        "wanted",
        "asked",
        "asks",
        "asking",
        "said",
        "says",
        "demanded",
        "demands",
        "stated",
        "requires",
        "required",
        "requested",
        "prefers",
        "prefer",
        "preference",
        "constraint",
        "explicitly",
        "should",
        "must",
        "that",
        "this",
        "with",
        "for",
        "and",
        "all",
        "any",
        "are",
        "was",
        "has",
        "have",
        "been",
        "not",
        "when",
        "from",
        "into",
        "only",
        "before",
        "after",
        "while",
        "its",
        "their",
        "them",
        "they",
        "assistant",
        "agent",
        "model",
        "please",
        "also",
    ]
)
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|without|avoid|don[’']?t|doesn[’']?t|mustn[’']?t|shouldn[’']?t|cannot|"
    r"can[’']?t|nor|forbid\w*|refrain|stop|"
    r"nicht|nie\w*|kein\w*|ohne|ne|pas|jamais|sans|nunca|sin|não|nem|sem|non|mai|senza|niet|nooit|geen|не|"
    r"нет|никогда|нельзя|без|"
    r"nie|nigdy|bez)\b|不|勿|禁|别|別|ない|ません|いけ|지 ?마|말",
    re.IGNORECASE,
)
# It tells the reader what not to do, or what a person wants: "the value must not be null" is a fact.
_FORBIDS = re.compile(
    rf"(?:^|[:;,.]\s)\W*(?:please\s+)?(?:do\s+)?(?:{_NEGATION.pattern})|"
    rf"\b(?:user|customer|human|person)s?\b.*(?:{_NEGATION.pattern})",
    re.IGNORECASE,
)
_JOINT = re.compile(r";|\s(?:and|but|und|aber|sondern|et|mais|y|pero|sino|e|ma|mas|и|но)\s", re.IGNORECASE)
_CONTENT = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def _is_demanded(entry: HandoffEntry, source: KnownSource) -> bool:
    """Returns whether an entry is no constraint, or one whose words stand in one sentence of a person.

    Endings may differ, and the words of the report ("the user wants …") need no source.
    """
    if entry.section is not HandoffSection.CONSTRAINTS or source.demands is None:
        return True
    return _is_stated(entry.text, source.demands)


def _without_bans(entry: HandoffEntry, source: KnownSource) -> tuple[HandoffEntry, list[str]]:
    """Returns an entry of another section without the bans in it that nobody stated, and those.

    A goal or a decision may well hold one: then its words stand in what a person or the agent said.
    """
    if entry.section is HandoffSection.CONSTRAINTS or source.demands is None:
        return entry, []
    bans = [
        said
        for said in sentences(entry.text)
        if _FORBIDS.search(said)
        and is_constraint(said)
        and not _is_stated(said, (*source.demands, *source.texts))
    ]
    text = entry.text
    for ban in bans:
        text = text.replace(ban, "", 1)
    return (msgspec.structs.replace(entry, text=text.strip()) if bans else entry), bans


def _is_stated(text: str, sources: Iterable[str]) -> bool:
    """Returns whether the words of an instruction stand in one sentence, and as many of them are denied there.

    What forbids must come from words that forbid, what demands from words that do not: "push without asking" has
    all of its words from "never push without asking".
    """
    wanted, denials = _stems(text, _REPORTING), len(_NEGATION.findall(text))
    for source in sources:
        lowered = source.lower()
        if not all(stem in lowered for stem in wanted):
            continue
        for said in (one for line in source.split("\n") for one in sentences(line)):
            if wanted <= _stems(said) and _denies_alike(said, wanted, denials):
                return bool(wanted)
    return False


def _denies_alike(said: str, wanted: frozenset[str], denials: int) -> bool:
    """Returns whether so many denials can stand for those of what was said that deny one of the words."""
    if not denials:
        clauses = [clause for clause in _JOINT.split(said) if not wanted.isdisjoint(_stems(clause))]
        return not any(map(_NEGATION.search, clauses))
    found = list(_NEGATION.finditer(said))
    return bool(found) and denials >= sum(not wanted.isdisjoint(_denied_by(one, said)) for one in found)


def _denied_by(denial: re.Match[str], said: str) -> frozenset[str]:
    """Returns the word that a denial denies: the next one, or the one before it at the end of a sentence."""
    after = _CONTENT.findall(_NEGATION.sub(" ", said[denial.end() :]))
    before = _CONTENT.findall(_NEGATION.sub(" ", said[: denial.start()]))
    return next(
        (stems for word in (*after, *reversed(before)) if (stems := _stems(word, _REPORTING))), frozenset()
    )


def _stems(text: str, without: Container[str] = ()) -> frozenset[str]:
    """Returns the words of a text without their endings; of scripts without spaces, its pairs of characters."""
    stems: set[str] = set()
    for word in _CONTENT.findall(text.lower()):
        if _UNSPACED.search(word):
            stems.update(word[at : at + 2] for at in range(max(1, len(word) - 1)))
        elif word not in without and len(word) > 2:
            stems.add(word[: max(4, len(word) - 3)])
    return frozenset(stems)


def _without_secrets(entry: HandoffEntry, secrets: frozenset[str], redactor: Redactor) -> HandoffEntry:
    text = redactor.redact(entry.text)
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORTEST_SECRET:
            text = text.replace(secret, REDACTED)
    return msgspec.structs.replace(entry, text=text)


def _claims(text: str) -> set[str]:
    """Everything in the text that must stand in the source to be true."""
    plain = _GROUPED.sub(_ungroup, text.replace(REDACTED, " ").replace("…", " "))
    claims = {claim for token in tokens_of(plain) for claim in _claims_of(token)}
    claims.update(value for phrase in PHRASE.findall(plain) for value in values_in_phrase(phrase))
    claims.update(next(filter(None, groups)).strip() for groups in _QUOTED.findall(plain))
    claims.update(_CALLED.findall(plain))
    return claims - {""}


def _claims_of(token: str) -> set[str]:
    """Returns the claims of one token: its values, and any number in it."""
    bare = token.strip(_EDGES)
    if _COMPOUND.fullmatch(bare.lower()):
        return set()
    claims = set(values_in_token(bare) or values_in_token(token))
    return claims or ({bare} if any(map(str.isdigit, bare)) else set())


def _ungroup(found: re.Match[str]) -> str:
    return re.sub(r"\D", "", found[0])


def _stands_in(claim: str, text: str) -> bool:
    """Returns True if the claim stands in the text, not as a part of a longer word."""
    at = text.find(claim)
    while at >= 0:
        end = at + len(claim)
        before, after = text[at - 1 : at], text[end : end + 1]
        if not (claim[0].isalnum() and before.isalnum()) and not (claim[-1].isalnum() and after.isalnum()):
            return True
        at = text.find(claim, at + 1)
    return False


def _strike(text: str, unknown: set[str]) -> Verified:
    """Returns the text without these values; a token that holds one goes whole, and no other is touched."""
    if not unknown:
        return Verified(text)
    struck: set[str] = set()

    def number(found: re.Match[str]) -> str:
        value = _ungroup(found)
        struck.update({value} & unknown)
        return STRUCK if value in unknown else found[0]

    def token(found: re.Match[str]) -> str:
        lost = _claims_of(found[0].replace("…", "")) & unknown
        struck.update(lost)
        return _without(found[0], lost)

    text = _GROUPED.sub(number, text)
    for value in sorted(unknown, key=lambda value: (-len(value), value)):
        if not _TOKEN.fullmatch(value) and value in text:  # a phrase
            text = text.replace(value, STRUCK)
            struck.add(value)
    text = _TOKEN.sub(token, text)
    for value in sorted(
        unknown - struck, key=lambda value: (-len(value), value)
    ):  # plain words marked as code
        text, count = re.subn(rf"(?<!\w){re.escape(value)}(?!\w)", STRUCK, text)
        struck.update({value} if count else ())
    return Verified(text, tuple(sorted(struck)))


def _without(token: str, lost: set[str]) -> str:
    """Returns the token without the values that it may not hold: all of it between its marks, where it is ASCII."""
    if lost and token.isascii():
        bare = token.strip(_EDGES)
        return token.replace(bare, STRUCK) if bare else token
    for value in sorted(lost, key=len, reverse=True):  # letters of other scripts may stand right beside it
        token = token.replace(value, STRUCK)
    return token


def _without_false_number(entry: HandoffEntry, numbers: Container[int]) -> HandoffEntry:
    """Returns the entry without a number that names no message."""
    return entry if entry.number in numbers else msgspec.structs.replace(entry, number=0)
