"""Names that tell: what follows them may be a secret."""

from __future__ import annotations

import re
from enum import Enum, auto

__all__ = ["Tells", "is_telling", "spellings"]


class Tells(Enum):
    """How much a name tells about its value."""

    PASSWORD = auto()  # a person may have chosen the value: any literal will do
    SECRET = auto()  # drawn by a machine as a rule, sometimes a person's phrase
    TOKEN = auto()  # drawn by a machine, or no secret at all: such names are used for much else


_NAMES = {
    Tells.PASSWORD: (
        "password passwd passphrase passwort kennwort pwd pswd contraseña contrasena senha wachtwoord hasło lösenord "
        "пароль 密码 密碼 口令 パスワード 비밀번호 mot~de~passe _pass"
    ),
    Tells.SECRET: (
        "secret api_key apikey access_key accesskey private_key privatekey account_key accountkey encryption_key "
        "signing_key master_key shared_key subscription_key auth_key authkey secret_key storage_key jwt_key webhook_key"
    ),
    Tells.TOKEN: "token auth credential credentials bearer _KEY",
}
_SUFFIX = re.compile(
    r"(?:[_-]?(?:[0-9]{1,3}|prod|production|dev|test|staging|live|sandbox|value|plain|plaintext|string|text|raw|key"
    r"|base|key_base|hex|base64|b64|data|pem|primary|secondary|main|admin|root|user|db|old|new|current))?",
    re.IGNORECASE,
)
_OTHERWISE_MEANT = re.compile(
    r"(?:(?<![A-Za-z])|(?=[A-Z]))(?i:max|min|num|next|page|paging|pagination|continuation|continue|cancel|cancell?ation|eos|bos|pad|unk|cls|sep|mask"
    r"|special|stop|start|end|first|last|sync|cursor|resume|skip|per|total|count|image|prompt|completion|lock|fencing"
    r"|parse|lexer|syntax|ast|public|public_?key|publishable|design|color|has|is|use|with|forgot"
    r"|cache|primary|foreign|sort|partition|object|idempotency|dedup|index|routing|row|group)[_.-]?\Z",
)
_LEFT_PART = re.compile(r"[\w.$-]*\Z")
_NEXT_WORD = re.compile(r"(?<=.)_(\w)")


def spellings(tells: Tells) -> tuple[str, ...]:
    """The names as people write them: api_key, API_KEY, X-API-Key, api key, apiKey, ApiKey."""
    forms: set[str] = set()
    for name in _NAMES[tells].split():
        word = name.replace("~", " ")
        if name.isupper():  # only so
            forms.add(name)
            continue
        camel = _NEXT_WORD.sub(lambda match: match[1].upper(), word)
        for joint in "_- ":
            form = _NEXT_WORD.sub(rf"{joint}\1", word)
            first, _, second = form.partition(joint)
            forms |= {form, form.upper(), form.title(), form.capitalize()}
            forms |= (
                {first.upper() + joint + second, first.upper() + joint + second.title()} if second else set()
            )
        forms |= {camel, camel[:1].upper() + camel[1:]}
    return tuple(sorted(forms))


def is_telling(text: str, start: int, suffix: str) -> int | None:
    """Where the whole name begins whose telling part stands at `start`; None if the name means something else.

    `tokenizer`, `password_field` and `max_tokens` hold a telling word and tell nothing.
    """
    if suffix and not _SUFFIX.fullmatch(suffix):
        return None
    left = _LEFT_PART.search(text, max(0, start - 48), start)
    begin = left.start() if left else start
    if _OTHERWISE_MEANT.search(text, begin, start) or text.endswith("etc/", 0, begin):
        return None
    return begin
