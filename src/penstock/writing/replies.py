"""Understands short replies: what a "yes" of a person agrees to, and which sentences only keep a conversation polite.

    find_offer("yes", "Shelf 7 is free. Shall I use it?")  →  "Shelf 7 is free. Shall I use it?"
    is_courtesy("Thank you for waiting.")                  →  True

"Yes, do 2" says nothing without the offer that it answers. The offer is the last question of the agent's text before, or the
last sentence that offers something; where that only points ("Shall I do it?"), the sentence before it as well. A number or
an ordinal in the answer brings its option.
"""

from __future__ import annotations

import re
from functools import lru_cache

from penstock.writing.constraints import sentences, without_code

__all__ = ["find_offer", "is_courtesy", "is_praise", "only_points"]

_LONGEST_ANSWER = 25  # words of the first sentence of an answer that may be no more than one
_LONGEST_PICK = 8
_LONGEST_POINTER = 100  # characters of a request that only points
_LONGEST_OFFER = 320  # characters
_LONGEST_SENTENCE = 240
_SHORT_QUESTION = 12  # words: anywhere in it a word may point to what was said before
_FIRST_WORDS = 6  # of a longer question
_ANSWER = re.compile(
    r"\W*(?:yes|yeah|yep|yup|sure|ok(?:ay)?|alright|all right|please do|go ahead|go for it|sounds (?:good|great|fine)|do "
    r"(?:it|that|this|so|both|all|the|\d)|agreed|correct|exactly|right|perfect|great|good idea|that works|works for me|"
    r"let[’']s (?:do|go|try|take|use|pick)|(?:try|take|pick|choose|use|go with) (?:option |number |#)?(?:\d{1,2}\b|[a-f]\b|the (?:first|"
    r"second|third|fourth|fifth|last|former|latter|other)\b)|option|the (?:first|second|third|fourth|fifth|last|former|latter|other|cheap|new|old)\w*|both|neither|"
    r"no|nope|not (?:yet|now|that)|never mind|ja|nein|genau|gerne|oui|non|d[’']accord|sí|si|claro|vale|sim|não|sì|да|нет|"
    r"давай|хорошо)\b|\W*(?:是|好|不|对|可以|はい|いいえ|お願い|네|예|아니)|\W*\d{1,2}\W*$",
    re.IGNORECASE,
)
_ENDS_WITH_YES = re.compile(  # "that was the idea, yes"
    r"\W*\w+(?:\W+\w+){0,5}, (?:yes|yeah|yep|no|ja|nein|oui|non|sí|sim|sì|да|нет)\W*$", re.IGNORECASE
)
_DO_IT = re.compile(  # "fix it up", "then do that": what, it does not say
    r"\W*(?:(?:ok(?:ay)?|please|now|then|and|so|just|also|can you|could you|would you)\W+){0,4}[a-z]{2,12}(?: (?:up|on|in|out))? "
    r"(?:it|that|this|them|those|these|both|all)\b(?:\W+\w+){0,3}\W*$",
    re.IGNORECASE,
)
_AGAIN = re.compile(
    r"(?:\W*+\w++){0,6}?\W*+\b(?:(?:do|try|make|repeat|run)(?: (?:it|that|this|them|so|the same))? (?:again|once more)|redo(?: (?:it|that|this))?|"
    r"noch ?mal|encore une fois|otra vez|ещё раз)\b(?:\W+\w+){0,3}\W*$|\W*(?:再来一次|もう一度|다시)",
    re.IGNORECASE,
)
_OFFER = re.compile(
    r"\b(?:would you like|do you want|shall i|should i|should we|shall we|may i|can i|let me know|please (?:confirm|tell|"
    r"choose|reply)|i (?:can|could) (?:also |now )?|if you(?:[’']d)? (?:want|like|agree|confirm)|say the word|happy to|"
    r"soll ich|möchten sie|möchtest du|voulez-vous|veux-tu|quieres|desea|хотите|要不要|しますか|할까요)",
    re.IGNORECASE,
)
_POINTS = re.compile(
    r"\b(?:this|that|these|those|it|them|so|proceed|continue|go ahead|go on|confirm|which|either|one)\b",
    re.IGNORECASE,
)
_PICKED = re.compile(
    r"(?<![\w.])#?(\d{1,2}|[a-f])(?![\w.:-])|\b(first|second|third|fourth|fifth)\b", re.IGNORECASE
)
_ORDINALS = ("first", "second", "third", "fourth", "fifth")
_OPTION = re.compile(
    r"^[ \t]*+(?:[-*•][ \t]++)?(?:\*\*)?\(?(?:option )?(\d{1,2}|[A-Fa-f])[.):]\**+\s++(\S(?:.*\S)?)",
    re.MULTILINE | re.IGNORECASE,
)
_TAG = re.compile(r"</?[a-z]+(?:_[a-z]+)+>")  # in which an agent writes a call into its text


def find_offer(answer: str, said: str) -> str:
    """Returns what the agent said that a person's answer agrees to or declines; empty if the answer speaks for itself."""
    first = next(iter(sentences(answer[:1_000])), "")
    if (
        not (_ANSWER.match(first) or _ENDS_WITH_YES.match(first) or only_points(first))
        or len(first.split()) > _LONGEST_ANSWER
    ):
        return ""
    spoken = [one for one in sentences(_TAG.sub("", without_code(said))) if len(one) <= _LONGEST_SENTENCE]
    asking = [place for place, one in enumerate(spoken) if one.rstrip("*_ )").endswith(("?", "？"))]
    offering = asking or [place for place, one in enumerate(spoken) if _OFFER.search(one)]
    words = [_find_option(answer, said)]
    if offering:
        place = offering[-1]
        asked = spoken[place].split()
        pointing = spoken[place] if len(asked) < _SHORT_QUESTION else " ".join(asked[:_FIRST_WORDS])
        # Before "Which one?" stand the options, and the last of them is not what was offered.
        listed = [one for _, one in _OPTION.findall(said)]
        is_option = place > 0 and any(spoken[place - 1] in one for one in listed)
        if place and not words[0] and not is_option and _POINTS.search(pointing):
            words.append(spoken[place - 1])
        words.append(spoken[place])
    offer = ""
    for word in filter(None, words):
        joined = (
            f"{offer} — {word}" if offer and word is words[-1] and words[0] else f"{offer} {word}".strip()
        )
        if len(joined) > _LONGEST_OFFER:
            break
        offer = joined
    return " ".join(offer.split())


def only_points(request: str) -> bool:
    """Returns True if a request says what to do only by a pronoun, or by "again"."""
    if len(request) > _LONGEST_POINTER:
        return False
    return _DO_IT.match(request) is not None or _AGAIN.match(request) is not None


def _find_option(answer: str, said: str) -> str:
    """Returns the option of a list that a short answer picks by number, letter or ordinal."""
    if len(answer.split()) > _LONGEST_PICK:
        return ""
    options = _OPTION.findall(said)
    for number, ordinal in _PICKED.findall(answer):
        wanted = str(_ORDINALS.index(ordinal.lower()) + 1) if ordinal else number.lower()
        found = next((text for name, text in reversed(options) if name.lower() == wanted), "")
        if found:
            bare = str(found)[:-2] if found.endswith("**") and found.count("**") % 2 else str(found)
            return bare[:_LONGEST_SENTENCE]
    return ""


# What is only polite.

_WORD = re.compile(r"[^\W_]+(?:[’'][^\W_]+)*")
_LONGEST_COURTESY = 160  # characters: a longer text says something
_LONGEST_PRAISE = 30
_POLITE_WORDS = """
apologies apologize appreciate appreciated assist assistance assisting bye contacting glad goodbye happy hello help
helping hesitate hi hold inconvenience patience please sorry thank thanks understanding wait waiting welcome
"""
_POLITE = frozenset(_POLITE_WORDS.split())
_WORDS_BESIDE_POLITE_ONES = """
a absolutely again all always alright an and any anything are as ask at awesome back be bear can certainly come
confirming contact could course day delay details do else enjoy excellent feel fine for forward free from further get
give go good great have hear here hope how i i'd i'll i'm i've if in information inquiry is it it's just know later
let like looking may me moment more much my need nice no now of ok okay on one or our out patient perfect problem
provide provided providing question questions quick reach reaching right safe second see sharing so some something
soon sounds start sure take that that's the there these this time to today understand understood us very want wanted
was we we'll we're well were what when which will with wonderful worries worry would you you'd you'll you're you've
your
"""
_BESIDE = frozenset(_WORDS_BESIDE_POLITE_ONES.split())

_PRAISE = re.compile(
    r"(?:very )?(?:amazing|awesome|brilliant|cool|excellent|fantastic|good|great|lovely|nice|perfect|splendid|super|superb|"
    r"wonderful)(?: (?:work|job))?|well done"
)


def is_praise(text: str) -> bool:
    """Returns True if a text says no more than that something is good. English only."""
    return (
        len(text) <= _LONGEST_PRAISE and _PRAISE.fullmatch(" ".join(_WORD.findall(text.lower()))) is not None
    )


@lru_cache(maxsize=4_096)  # what people said is looked at in every compaction
def is_courtesy(text: str) -> bool:
    """Returns True if a text says no more than is polite, so that nothing is lost without it. English only."""
    if len(text) > _LONGEST_COURTESY:
        return False
    is_polite = False
    for found in _WORD.finditer(text):  # of most texts the first word says that they are none
        word = found[0].lower().replace("’", "'")
        is_polite |= word in _POLITE
        if word not in _POLITE and word not in _BESIDE:
            return False
    return is_polite
