"""What the redaction tests plant: secrets assembled at run time, so that none stands in a file."""

from __future__ import annotations

import base64
import json
import random
import string
from typing import NamedTuple

ALNUM = string.ascii_letters + string.digits
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
HEX = "0123456789abcdef"
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
BASE32 = string.ascii_uppercase + "234567"


class Planted(NamedTuple):
    """A text with secrets in it: which must go, and what beside them must stay."""

    name: str
    text: str
    secrets: tuple[str, ...]
    stays: tuple[str, ...] = ()


def filler(alphabet: str, length: int, seed: str) -> str:
    """Random-looking characters, the same on every run, with an upper, a lower and a digit where there are any."""
    chance = random.Random(seed)
    while True:
        text = "".join(chance.choice(alphabet) for _ in range(length))
        wanted = [group for group in (string.digits, "abcdef") if set(group) <= set(alphabet) and length > 8]
        if all(set(group) & set(text) for group in wanted):
            return text


def alnum(length: int, seed: str) -> str:
    return filler(ALNUM, length, seed)


def hexa(length: int, seed: str) -> str:
    return filler(HEX, length, seed)


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def b64url(value: object) -> str:
    data = json.dumps(value, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def jwt(seed: str) -> str:
    head = b64url({"alg": "HS256", "typ": "JWT"})
    return f"{head}.{b64url({'sub': '4711', 'name': seed, 'iat': 1700000000})}.{filler(URLSAFE, 43, seed)}"


def uuid(seed: str) -> str:
    h = hexa(32, seed)
    return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"


def pem_body(seed: str, lines: int = 6) -> list[str]:
    return [filler(BASE64, 64, f"{seed}{n}") for n in range(lines)] + [filler(BASE64, 40, seed) + "=="]


def pem(kind: str, seed: str, *, newline: str = "\n") -> str:
    """A key block of no key: the armour is real, what is in it is noise."""
    begin, end = "-----BEGIN " + f"{kind}-----", "-----END " + f"{kind}-----"
    return newline.join([begin, *pem_body(seed), end])
