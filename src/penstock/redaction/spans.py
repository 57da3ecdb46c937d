"""Places of secrets in a text: sorting them, blanking them, and finding the way back from the blanked text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from penstock.redaction.secret import REDACTED, Secret

__all__ = ["apart", "blank", "unblank"]


def apart(found: list[Secret]) -> list[Secret]:
    """In order, with overlapping ones joined under the kind of the first."""
    joined: list[Secret] = []
    for secret in sorted(found):
        if joined and secret.start < joined[-1].end:
            last = joined[-1]
            joined[-1] = Secret(last.start, max(last.end, secret.end), last.kind)
        else:
            joined.append(secret)
    return joined


def blank(text: str, secrets: list[Secret]) -> str:
    """The text with `[REDACTED]` in the place of each secret; they are in order and apart."""
    pieces: list[str] = []
    done = 0
    for secret in secrets:
        pieces += (text[done : secret.start], REDACTED)
        done = secret.end
    return "".join((*pieces, text[done:]))


def unblank(secrets: list[Secret], found: list[Secret]) -> list[Secret]:
    """What was found in the text that `blank` made, as places in the text that it was made from.

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
