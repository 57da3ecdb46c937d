"""Words by their stems: `cooking`, `cooked` and `cook` are one word where people talk.

An index keeps the stems of what people said beside the words themselves. Stems are light: endings are cut off, by a list for
each language, and forms of English verbs that no ending explains are listed. Which language a text is in is told by the
words that stand in every sentence; a text without any counts as English.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from penstock.recall.terms import STOP_WORDS, find_terms, fold_word, index_terms, is_unspaced, split_tokens
from penstock.writing.reading import Speaker

if TYPE_CHECKING:
    from penstock.recall.passages import Passage

__all__ = ["PEOPLE", "find_empty_words", "find_forms", "find_language", "find_stem", "index_passage"]

PEOPLE = (Speaker.USER, Speaker.ASSISTANT)
"""Those whose words are indexed by their stems as well: calls and results are names and values."""

_WORD = re.compile(r"[^\W\d_]+")
_SHORTEST = 3  # letters of a stem
_LONGEST = 24  # letters of a word
_REMEMBERED = 1 << 16
_VOWEL = re.compile(r"[aeiouy]").search
_ENGLISH = "en"

_IRREGULAR_FORMS = """
be been being|begin began begun|bite bit bitten|bleed bled|blow blew blown|break broke broken|bring brought|build built|buy bought
catch caught|choose chose chosen|child children|come came|deal dealt|dig dug|draw drew drawn|dream dreamt|drink drank drunk
drive drove driven|eat ate eaten|fall fell fallen|feed fed|feel felt|fight fought|find found|fly flew flown|foot feet
forget forgot forgotten|forgive forgave forgiven|freeze froze frozen|get got gotten|give gave given|go went gone|grow grew grown
hang hung|hear heard|hide hid hidden|hold held|keep kept|know knew known|lead led|learn learnt|leave left|lend lent|lose lost
make made|man men|mean meant|meet met|mouse mice|pay paid|person people|ride rode ridden|ring rang rung|rise rose risen|run ran
say said|see saw seen|seek sought|sell sold|send sent|shake shook shaken|shine shone|shoot shot|show shown|sing sang sung
sink sank sunk|sit sat|sleep slept|speak spoke spoken|spend spent|stand stood|steal stole stolen|stick stuck|strike struck
swear swore sworn|swim swam swum|take took taken|teach taught|tear tore torn|tell told|think thought|throw threw thrown
tooth teeth|understand understood|wake woke woken|wear wore worn|win won|wife wives|woman women|write wrote written
"""
_IRREGULAR = {
    form: forms[0]
    for group in _IRREGULAR_FORMS.replace("\n", "|").split("|")
    if (forms := group.split())
    for form in forms[1:]
}


class _Endings(msgspec.Struct, frozen=True):
    """A language: words that tell it, and endings that are cut off, one of each step, the longest first."""

    telling: frozenset[str]
    steps: tuple[tuple[str, ...], ...]
    prefix: str = ""
    """What a participle begins with, which is cut off where an ending was."""


def _read(telling: str, *steps: str, prefix: str = "") -> _Endings:
    cut = tuple(tuple(sorted(step.split(), key=lambda ending: (-len(ending), ending))) for step in steps)
    return _Endings(frozenset(telling.split()), cut, prefix)


_LANGUAGES = {
    "de": _read(
        "aber als auch auf aus bei beim bin bist das dass dein deine dem den der des die doch du durch ein eine einem einen einer "
        "er es fur haben habe hast hat ich ihr im ist ja kann kein mein meine mich mir mit nach nicht noch nur oder schon sein sich "
        "sie sind uber um und uns von vom vor war warum was weil welche welcher wenn wer wie wir wo wurde zu zum zur",
        "en er em es e n s",
        "st t",
        prefix="ge",
    ),
    "es": _read(
        "al algo como con cual cuando cuanto cuantas cuantos de del desde donde el ella ellos en era es esa ese esta este esto fue ha "
        "hace hasta hay la las le lo los mas me mi muy ni nos para pero por porque que quien se ser si sin sobre soy son su sus "
        "tambien te tengo tiene tu un una uno y ya yo",
        "s es",
        "ando iendo aba abas amos emos imos aron ieron aste iste ado ada ido ida ar er ir are ere ia ian an en o a e",
    ),
    "fr": _read(
        "ai au aux avec avait avez bien c ce ces cet cette chez combien comme d dans de des deux du elle en est et etait eu fait il ils "
        "j je jusque l la le les leur lui m ma mais me mes moi mon n ne nos notre nous on ont ou par pas plus pour qu quand que quel "
        "quelle qui s sa se ses son sont sur ta te tes ton tu un une vos votre vous y",
        "s x",
        "ement ion ions iez aient ait ais ant erent eront era erai er ez ee ons ent ir it i e a",
    ),
    "it": _read(
        "a ai al alla anche che chi ci come con cosa cui da dal dei del della delle di dove e era gli ha hai hanno ho i il in io la le "
        "lei lo loro lui ma mi mia mio ne nel nella noi non o per perche piu quale quando quanto quella quello questa questo se sei si "
        "sono su sua sul suo ti tra tu tuo un una uno vi voi",
        "ando endo avo avi ava avano ato ata ati ate ito ita uto uta are ere ire iamo ono i e o a",
    ),
    "nl": _read(
        "aan als bij dan dat de deze die dit door een en er geen haar had heb hebben heeft het hij hoe hun ik in is ja je kan maar me "
        "met mijn na naar niet nog nu of om omdat ook op over te toen tot uit van veel voor waar wanneer waren wat we wel welke wie wij "
        "ze zich zij zijn zo",
        "en e s n",
        "d t",
        prefix="ge",
    ),
    "pt": _read(
        "ao aos as com como da das de dela dele do dos e ela ele em era essa esse esta estou eu foi ha isso isto ja la mais mas me meu "
        "minha muito na nas nem no nos nossa nosso nao o onde os ou para pela pelo por porque qual quando quantas quantos que quem se "
        "sem ser seu sua tambem te tem tenho um uma voce",
        "s es",
        "ando endo indo ava aram eram iram amos emos imos ado ada ido ida ar er ir ou eu iu o a e",
    ),
}
_TELLING_ENGLISH = STOP_WORDS | {"did", "does", "really", "so", "that", "very"}


def index_passage(passage: Passage) -> set[str]:
    """Returns every term of a passage, once each: its words and, where people talk, their stems."""
    if passage.speaker not in PEOPLE:
        return index_terms(passage.text)
    language = find_language(passage.text)
    return {term for token in set(split_tokens(passage.text)) for term in find_forms(token, language)}


@lru_cache(maxsize=_REMEMBERED)
def find_forms(token: str, language: str) -> tuple[str, ...]:
    """Returns the terms of one token, and the stems of its words, each once."""
    stems = (find_stem(word, language) for word in _WORD.findall(token) if not is_unspaced(word))
    return tuple(dict.fromkeys([*find_terms(token), *filter(None, stems)]))


def find_language(text: str) -> str:
    """Returns the code of the language that a text is most likely in, by the words that stand in every sentence."""
    counts = dict.fromkeys((_ENGLISH, *_LANGUAGES), 0)
    for word in set(_WORD.findall(text)):
        for language in _find_tellers(word):
            counts[language] += 1
    return max(counts, key=counts.__getitem__)  # of equals the first: English


def find_empty_words(text: str) -> frozenset[str]:
    """Returns the words of a text that stand in every sentence of its language, in lower case and without accents."""
    language = find_language(text)
    if language == _ENGLISH:
        return frozenset()  # these are no terms anyway
    return frozenset(map(fold_word, _WORD.findall(text))) & _LANGUAGES[language].telling


@lru_cache(maxsize=_REMEMBERED)
def _find_tellers(word: str) -> tuple[str, ...]:
    known = fold_word(word)
    found = [code for code, language in _LANGUAGES.items() if known in language.telling]
    return (*([_ENGLISH] if known in _TELLING_ENGLISH else []), *found)


@lru_cache(maxsize=_REMEMBERED)
def find_stem(word: str, language: str = _ENGLISH) -> str:
    """Returns the stem of a word, without capitals and accents; nothing for a word that says nothing."""
    term = fold_word(word)[:_LONGEST]
    if language == _ENGLISH:
        return "" if len(term) < 2 or term in STOP_WORDS else _stem_english(term)
    endings = _LANGUAGES[language]
    if len(term) < 2 or term in endings.telling:
        return ""
    stem = term
    for step in endings.steps:
        stem = _cut_ending(stem, step)
    if endings.prefix and len(stem) < len(term) and len(stem) - len(endings.prefix) >= _SHORTEST:
        stem = stem.removeprefix(endings.prefix)
    return stem


def _cut_ending(word: str, endings: tuple[str, ...]) -> str:
    for ending in endings:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word


def _stem_english(word: str) -> str:
    """Returns the stem of an English word: of a verb or noun without its ending, `y` and `e` at the end alike."""
    word = _IRREGULAR.get(word, word)
    if word.endswith(("ies", "ied")):
        word = word[:-3] + "y" if len(word) > 4 else word[:-1]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        word = word[:-1]
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= 2 and _VOWEL(rest):
            is_doubled = len(rest) > 3 and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            word = rest[:-1] if is_doubled else rest
            break
    word = _cut_ending(word, ("ness", "ment", "ful", "ly"))
    if len(word) > _SHORTEST and word.endswith("e"):
        word = word[:-1]
    return _IRREGULAR.get(word, word)
