"""Names that tell: what follows them may be a secret."""

from __future__ import annotations

import re
from enum import Enum

from penstock.redaction.secret import REDACTED

__all__ = ["Tells", "is_telling", "spellings"]


class Tells(Enum):
    """How much a name tells about its value."""

    PASSWORD = (
        "password passwd passphrase passwort kennwort pwd pswd contraseña contrasena senha wachtwoord hasło lösenord "
        "пароль 密码 密碼 口令 パスワード 비밀번호 mot~de~passe _pass"
    )
    """A person may have chosen the value: any literal will do."""

    SECRET = (
        "secret api_key apikey access_key accesskey private_key privatekey account_key accountkey encryption_key "
        "signing_key master_key shared_key subscription_key auth_key authkey secret_key storage_key jwt_key webhook_key"
    )
    """Drawn by a machine as a rule; sometimes a person's phrase."""

    TOKEN = "token auth credential credentials bearer"
    """Drawn by a machine, or no secret at all: the names are used for much else."""


_SUFFIX = re.compile(
    r"(?:[_-]?(?:[0-9]{1,3}|prod|production|dev|test|staging|live|sandbox|value|plain|plaintext|string|text|raw|key"
    r"|base|key_base|hex|base64|b64|data|pem|primary|secondary|main|admin|root|user|db|old|new|current))?",
    re.IGNORECASE,
)
_OTHERWISE_MEANT = re.compile(
    r"(?:max|min|num|next|page|paging|pagination|continuation|continue|cancel|cancell?ation|eos|bos|pad|unk|cls|sep|mask"
    r"|special|stop|start|end|first|last|sync|cursor|resume|skip|per|total|count|image|prompt|completion|lock|fencing"
    r"|parse|lexer|syntax|ast|public|publishable|design|color|has|is|use|with|forgot)[_.-]?$",
    re.IGNORECASE,
)
_LEFT_PART = re.compile(r"[\w.$-]*$")
_TWO_WORDS = re.compile(r"_(\w)")


def spellings(names: str) -> tuple[str, ...]:
    """The names as people write them: api_key, API_KEY, Api-Key, api-key, apiKey, ApiKey."""
    forms: set[str] = set()
    for name in names.replace("~", "\0").split():
        for joined in (name, name.replace("_", "-") if not name.startswith("_") else name):
            forms |= {joined, joined.upper(), joined.title(), joined.capitalize()}
        camel = _TWO_WORDS.sub(lambda match: match[1].upper(), name.lstrip("_"))
        if not name.startswith("_"):
            forms |= {camel, camel[:1].upper() + camel[1:]}
    return tuple(sorted(form.replace("\0", " ") for form in forms))


def is_telling(text: str, start: int, suffix: str) -> int | None:
    """Where the whole name begins whose telling part stands at `start`; None if the name means something else.

    `tokenizer`, `password_field` and `max_tokens` hold a telling word and tell nothing.
    """
    if suffix and not _SUFFIX.fullmatch(suffix):
        return None
    left = _LEFT_PART.search(text, max(0, start - 48), start)
    begin = left.start() if left else start
    if _OTHERWISE_MEANT.search(text, begin, start) or text.endswith(REDACTED, 0, begin):
        return None
    return begin
