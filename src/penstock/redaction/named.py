"""Values beside a telling name: `password=…`, `"apiKey": "…"`, `export TOKEN=…`, `--secret …`, `密码：…`.

A quoted value is a literal. A bare one may be code, unless it stands where no code does: in a `.env` file, on
a line of YAML, behind a flag, in a query. How much it must look like a secret depends on what its name tells.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import TYPE_CHECKING

import msgspec

from penstock.redaction.secret import Find, RedactionRule, Secret, is_literal, looks_chosen, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["OTHER_WORD", "RULES", "Tells", "means_otherwise"]


# Names that tell: what follows them may be a secret.


class Tells(Enum):
    """Levels of how much a name tells about its value."""

    PASSWORD = auto()  # a person may have chosen the value: any literal will do
    SECRET = auto()  # drawn by a machine as a rule, sometimes a person's phrase
    TOKEN = auto()  # drawn by a machine, or no secret at all: such names are used for much else


_NAMES = {
    Tells.PASSWORD: (
        "password passwd passphrase passwort kennwort pwd pswd contraseña contrasena senha wachtwoord hasło lösenord parola lozinka heslo jelszó mật~khẩu şifre salasana adgangskode passord "
        "пароль 密码 密碼 口令 パスワード 비밀번호 mot~de~passe _pass -pass requirepass masterauth"
    ),
    Tells.SECRET: (
        "secret api_key apikey access_key accesskey private_key privatekey account_key accountkey encryption_key "
        "signing_key setup_key master_key shared_key subscription_key auth_key authkey secret_key storage_key jwt_key webhook_key "
        "dockerconfigjson dockercfg"
    ),
    Tells.TOKEN: "token auth credential credentials bearer _KEY _SALT _salt",
}
_SUFFIX = re.compile(
    r"(?:[_-]?(?:[0-9]{1,3}|prod|production|dev|test|staging|live|sandbox|value|plain|plaintext|string|text|raw|key"
    r"|base|key_base|hex|base64|b64|data|pem|primary|secondary|main|admin|root|user|db|old|new|current))?",
    re.IGNORECASE,
)
# What makes another word of the name, as in `tokens` and `author`: small letters that begin none of these endings, nor one
# of those in `tables`.
OTHER_WORD = re.compile(
    r"(?!prod|dev|test|staging|live|sandbox|value|plain|string|text|raw|key|base|hex|b64|data|pem|primary|secondary|main"
    r"|admin|root|user|db|old|new|current|id|hash)[a-z]"
)
_OTHERWISE_MEANT = frozenset(
    [
        "max",
        "min",
        "num",
        "next",
        "page",
        "paging",
        "pagination",
        "continuation",
        "continue",
        "cancel",
        "cancelation",
        "cancellation",
        "eos",
        "bos",
        "pad",
        "unk",
        "cls",
        "sep",
        "mask",
        "special",
        "stop",
        "start",
        "end",
        "first",
        "last",
        "sync",
        "cursor",
        "resume",
        "skip",
        "per",
        "total",
        "count",
        "image",
        "prompt",
        "completion",
        "lock",
        "fencing",
        "parse",
        "lexer",
        "syntax",
        "ast",
        "public",
        "publickey",
        "publishable",
        "design",
        "color",
        "has",
        "is",
        "use",
        "with",
        "forgot",
        "cache",
        "primary",
        "foreign",
        "sort",
        "partition",
        "object",
        "idempotency",
        "dedup",
        "index",
        "routing",
        "row",
        "group",
    ]
)
_LAST_WORD = re.compile(r"[_.-]?([A-Za-z]{1,16})")  # of what stands before the name, read backwards
_LEFT_PART = re.compile(r"[\w.$-]*")  # of what stands before the name, read backwards
_NEXT_WORD = re.compile(r"(?<=.)_(\w)")


def _spellings(tells: Tells) -> tuple[str, ...]:
    """Returns the names as people write them: api_key, API_KEY, X-API-Key, api key, apiKey, ApiKey."""
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


def _is_telling(text: str, start: int, suffix: str) -> int | None:
    """Returns where the name begins whose telling part stands at `start`, or None if the name means something else.

    `tokenizer`, `password_field` and `max_tokens` hold a telling word and tell nothing.
    """
    if suffix and not _SUFFIX.fullmatch(suffix):
        return None
    before = text[max(0, start - 1) : start]
    if not (before.isalnum() or before in {"_", ".", "$", "-"}):
        return None if before == "/" and text.endswith("etc/", 0, start) else start
    left = _LEFT_PART.match(text[max(0, start - 48) : start][::-1])
    begin = start - left.end() if left else start
    if (
        text[max(0, begin - 1) : begin] == "\\"
        and text[begin : begin + 1] in {"n", "r", "t"}
        and begin < start
    ):
        begin += 1  # the letter of an escaped line break
    if (begin < start and means_otherwise(text[max(begin, start - 18) : start])) or text.endswith(
        "etc/", 0, begin
    ):
        return None
    return begin


def means_otherwise(left: str) -> bool:
    """Returns True if the last word before the name changes what it means: `max_tokens`, `nextToken`, `public_key`."""
    last = _LAST_WORD.match(left[::-1])
    if last is None:
        return False
    word = last[1][::-1]
    if any(
        (not place or (letter.isupper() and word[place - 1].islower()))
        and word[place:].lower() in _OTHERWISE_MEANT
        for place, letter in enumerate(word)
    ):
        return True
    return left.lower().rstrip("_.-").endswith("public_key")


_TAIL = re.compile(
    r"""
    (?P<suffix>[A-Za-z0-9_-]{0,24}+)
    (?P<close>(?:\\{0,63}["'`]|\])*+)
    (?:
        (?P<typed>(?:\??[ \t]{0,3}:[ \t]{0,3}[&A-Za-z][\w\[\]&'.|<>\ ]{0,40}?|[ \t]string[ \t])
            =[ \t]{0,3}(?=[A-Za-z&@$]{0,2}\\{0,63}["'][^\s}\],)\\]))
      | (?P<below>[ \t]{0,4}:[ \t]{0,4}\r?\n[ \t]{0,8})
      | (?P<assign>(?P<tie>(?:\ (?:for|of|do|für|de|del|para|pour|di|к|от|для)\ [\w.@-]{1,40}(?:\ [\w.@-]{1,24}){0,2})?[ \t]{0,12}(?:=>|:=|\?{1,2}=|\|\|=|\+=|<-|={1,3}|!==?|[:：＝])[ \t\u3000]{0,12})
            (?:\\\r?\n[ \t]{0,40}|[>|][-+]?[ \t]{0,4}\r?\n[ \t]{1,40})?+)
      | (?P<cell>[ \t]{0,40}\|[ \t]{0,40})
      | (?P<pair>(?:\s(?![Vv]alue)[\w-]{1,24}=["'][^"'<>\n]{0,60}["']){0,3}+\s{0,12},?\s{0,12}\\{0,63}["']?[Vv]alue\\{0,63}["']?[ \t]{0,4}[:=][ \t]{0,4})
      | (?P<comma>[ \t]{0,4},[ \t]{0,24}(?=\\{0,63}["']))
      | (?P<says>(?:\ (?:for|of|to|on|at|für|zu|zum|zur|von|vom|de|del|do|da|di|du|pour|para|per|к|от|для)\ [\w .@/-]{1,40}?)?
            (?:\ (?:is|was|to|ist|lautet|es|est|é|è|это)(?=[ :])|是|为|為|は|는|은)[ ]?:?[ ]{0,3})
      | (?P<element>>)
      | (?P<argument>\((?=\\{0,63}["']))
      | (?P<block>[ \t]{0,4}\{[ \t]{0,8}\r?(?:\n|\\{1,63}n)(?:(?:[^{}\n\\]|\\{1,63}["']){0,80}+(?:\n|\\{1,63}n)){0,4}?
            [ \t]{0,8}default[ \t]{0,12}=[ \t]{0,12}(?=\\{0,63}["']))
      | (?P<space>[ \t]{1,4}(?=[^\s=:]))
    )
    """,
    re.VERBOSE,
)
_ENDS_NAME = frozenset(
    "./);}[&%*$@#~^"
)  # with none of these can a tail begin, so its pattern need not be tried
_VALUE = re.compile(
    r"""
    (?P<call>[A-Za-z_][\w.:]{0,40}\((?=["']))? [brfuBRFUN@$&]{0,2}+ (?:""(?="[^"])|''(?='[^']))?+
    (?: \\{1,63}["'`](?P<escaped>[^\\\n"]{1,4000}+)
      | "(?P<double>(?:[^"\\\n]|\\.){1,4000}+)
      | '(?P<single>(?:[^'\\\n]|\\.){1,4000}+)
      | `(?P<tick>[^`\n]{1,4000}+) )
  | (?P<bare>(?:[^\s"'`,;&<>(){}\[\]\\|]{1,64}+|&(?![\w.-]{1,64}+=)|\\(?![nrtu"'\\/])){1,16}+)
    """,
    re.VERBOSE,
)
_REST_OF_RUN = re.compile(r"""[^\s"'`,;&<>(){}\[\]\\|]*+""")
_JUDGED = 64  # characters of a value that are enough to judge it by
_LINE_HEAD = re.compile(
    r"""(?:\A|[\n\r]|\\n|\\t|(?:\A|[:,\[]\ ?)(?:\\{0,63}"){1,4})[ \t>|+-]{0,40}(?:[0-9]{1,6}(?:→|[:|\t])[ \t]{0,40})?(?:(?:export|set|setx|ENV|ARG)\ )?["']?\Z"""
)
_LINE_END = re.compile(r"""[ \t]*(?:\Z|[\n\r#]|\\{1,63}[nr"]|"{1,4}[ \t]*(?:[,}\]\n]|\Z))""")
_CELL_BEFORE = re.compile(r"\|[ \t*`]{0,20}(?:[\w()-]{1,20}[ ]){0,3}[*`]{0,2}\Z")
# Of what stands before the name, read backwards: "with the", "user maple".
_TOLD_BACK = 61
_TOLD_WITH = re.compile(
    r"\ (?:(?:eht|sti)\ )?(?:htiw|gnisu|dna|tim|ceva|noc|moc)\b|\s\S{1,40}\s(?:(?:eman)?resu|nigol)\b",
    re.IGNORECASE,
)
_NETRC = re.compile(r"\blogin\s+\S+\s+\Z")
_ENDING = re.compile(
    "[\u3040-\u30ff\uac00-\ud7af、。，！]"
)  # of a sentence, where no space parts it from the value
_USER_BEFORE = re.compile(
    r"\b(?:user(?:name)?|login|account|e-?mail|benutzer|usuario|utilisateur)\b[^\n]{0,50}\Z", re.IGNORECASE
)
_OPENS, _JOINS = frozenset("([{<"), frozenset("?&;")
_QUOTED_ONLY = frozenset({"comma", "typed", "argument", "block"})
_SETTER = re.compile(
    r"""(?:define|[Ss]et_?[Ee]nv|putenv|setProperty|SetEnvironmentVariable|\.put|\.set)\(\\{0,63}["']\Z"""
)
_ENDS_A_PAIR = frozenset({"", " ", "\n", "\r", "\t", '"', "'", "\\"})
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*")
_NAME_AND_YEAR = re.compile("[A-Z][a-z]{2,15}(?:19|20)[0-9]{2}")
_LONG = 20  # characters of a value that may follow any telling name after a space
_LONG_RUN = re.compile(rf"[A-Za-z0-9+/_.~-]{{{_LONG}}}")
_TOKEN = re.compile(r"[A-Za-z0-9+/_.~-]+={0,2}")


class _Site(msgspec.Struct, frozen=True):
    """The site of a value: the name before it, what ties them together, and what follows."""

    text: str
    tells: Tells
    begin: int  # of the name
    name: str
    how: str  # the alternative of _TAIL
    tie: str
    end: int  # of the value

    @property
    def before(self) -> str:
        return self.text[self.begin - 1] if self.begin else ""

    @property
    def after(self) -> str:
        return self.text[self.end : self.end + 1]

    def is_flag(self) -> bool:
        """Returns True if a space ties the value to its name: `--name value`, `setx NAME value`."""
        return self.name.startswith("-") or self.text.endswith("setx ", 0, self.begin)

    def is_defined(self) -> bool:
        """Returns True for `define('NAME', 'value')`, `os.Setenv("NAME", "value")` and the like."""
        return _SETTER.search(self.text, max(0, self.begin - 32), self.begin) is not None

    def is_setting(self) -> bool:
        """True for `NAME=value`, `--name=value`, `?name=value`, `;Name=value`, `a.b.name=value`."""
        if self.tie == "=":
            return self.name.isupper() or self.is_flag() or self.before in _JOINS or "." in self.name
        return self.is_flag() and self.tie.isspace()

    def is_line(self) -> bool:
        """Returns True if name and value have a line to themselves, as in YAML."""
        head = self.text[max(0, self.begin - 60) : self.begin]
        return _LINE_END.match(self.text, self.end) is not None and _LINE_HEAD.search(head) is not None


def _rule(tells: Tells) -> RedactionRule:
    return RedactionRule(_spellings(tells), _finder(tells), ends_word=True)


def _whole_word_rule() -> RedactionRule:
    """Returns the rule of names that are too short, or too common inside other words, to tell anything but alone."""
    find_value = _finder(Tells.PASSWORD)

    def find(text: str, start: int, end: int) -> Iterable[Secret]:
        if text[max(0, start - 1) : start].isalnum() or text[end : end + 1].isalnum():
            return ()
        return find_value(text, start, end)

    return RedactionRule(("pw", "PW", "Pw", "psk", "PSK", "clave", "Clave", "CLAVE"), find)


def _pass_rule() -> RedactionRule:
    """Returns the rule of `pass:` and `pass=` behind a user's name: alone the word means too much else."""
    find_value = _finder(Tells.PASSWORD)

    def find(text: str, start: int, end: int) -> Iterable[Secret]:
        if text[max(0, start - 1) : start].isalnum() or not _USER_BEFORE.search(
            text, max(0, start - 60), start
        ):
            return ()
        return find_value(text, start, end - 1)

    return RedactionRule(("pass:", "Pass:", "pass=", "Pass="), find)


def _finder(tells: Tells) -> Find:
    def find(text: str, start: int, end: int) -> tuple[Secret, ...]:
        if text[end : end + 1] in _ENDS_NAME:
            return ()
        tail = _TAIL.match(text, end)
        if tail is None or (tail["space"] and not _may_follow_a_space(text, start, tail.end(), tells)):
            return ()
        value = _VALUE.match(text, tail.end())
        if value is None or value.lastgroup is None:
            return ()
        begin = _is_telling(text, start, tail["suffix"])
        if begin is None:
            return ()
        how = tail.lastgroup or ""
        first, last = value.span(value.lastgroup)
        bare = value.lastgroup == "bare"
        if (
            how == "space"
            and bare
            and begin == start
            and last - first < _LONG
            and not _is_led_to(text, start)
        ):
            return ()
        last = _end_of_bare(text, first, last) if bare else last
        site = _Site(
            text, tells, begin, text[begin : tail.end("suffix")], how, tail["tie"] or tail[how], last
        )
        judged = text[first : min(last, first + _JUDGED)]
        accepts = _accepts_bare if bare else _accepts_call if value["call"] else _accepts_quoted
        if not accepts(site, judged):
            return ()
        rest = _REST_OF_RUN.match(text, last) if last - first >= _JUDGED else None
        return (Secret(first, rest.end() if rest else last, tells.name.lower()),)

    return find


def _may_follow_a_space(text: str, start: int, end: int, tells: Tells) -> bool:
    if tells is Tells.PASSWORD:
        return True
    before = text[max(0, start - 24) : start]
    return "--" in before or "setx " in before or _LONG_RUN.match(text, end) is not None


def _is_led_to(text: str, begin: int) -> bool:
    """Returns True if a short value may follow the name after a space: in "log in with password …", `setx`, `-pass`."""
    before = text[max(0, begin - 80) : begin]
    return (
        _TOLD_WITH.match(before[: -_TOLD_BACK - 1 : -1]) is not None
        or _NETRC.search(before) is not None
        or before.endswith("setx ")
        or text[begin] == "-"
    )


def _is_row(text: str, begin: int) -> bool:
    """Returns True if the name is the cell of a Markdown table, the value the next one."""
    return _CELL_BEFORE.search(text, max(0, begin - 60), begin) is not None


def _end_of_bare(text: str, first: int, last: int) -> int:
    """Returns the end of a bare value, before a full stop, comma or colon that is not part of it."""
    while last > first and text[last - 1] in ".:,":
        last -= 1
    if text[first].isascii() and (ending := _ENDING.search(text, first, last)):
        return ending.start()
    return last


def _accepts_call(site: _Site, value: str) -> bool:
    """Returns True if the argument of a call is a secret: `Secret("…")` may hold one, `getenv("…")` does not."""
    return site.how != "element" and is_literal(value) and looks_random(value)


def _accepts_quoted(site: _Site, value: str) -> bool:
    if not is_literal(value) or site.how == "element":
        return False
    if site.after in {"", "\n"} and not _TOKEN.fullmatch(value):
        return False  # the quote that we took for the first was the last of something else
    if "phrase" in site.name.lower() and (value.count(" ") >= 2 or value.count("-") >= 2):
        return True
    in_a_list = (
        site.how == "comma" and not site.is_defined() and (site.tells is Tells.SECRET or not value.isalnum())
    )
    if " " in value or in_a_list or site.tells is Tells.TOKEN:
        return looks_random(value)
    if site.how == "cell":
        return _is_row(site.text, site.begin) and (looks_random(value) or looks_chosen(value))
    if site.how in {"comma", "space", "says", "argument"} or site.tells is Tells.SECRET:
        return _is_phrase_or_drawn(site, value)
    return True


def _is_phrase_or_drawn(site: _Site, value: str) -> bool:
    capitals = site.name.isupper() and site.how != "comma"
    if site.tells is Tells.PASSWORD:
        return looks_chosen(value) or capitals
    if looks_random(value):
        return True
    apart = any(mark in value for mark in "-_./: ")
    return len(value) >= 8 and not apart and (looks_chosen(value) or len(value) >= 16 or capitals)


def _accepts_bare(site: _Site, value: str) -> bool:
    if (
        site.how in _QUOTED_ONLY
        or (site.tells is Tells.TOKEN and not looks_random(value))
        or not is_literal(value)
    ):
        return False
    if site.how == "element" and (site.before, site.after) != ("<", "<"):
        return False
    if site.how in {"below", "cell"}:
        return _accepts_apart(site, value)
    if site.how == "space" and _is_told_with(site, value):
        return True
    if site.how == "space" and not (site.is_flag() and value[0] != "-") and not _is_netrc(site):
        return len(value) >= _LONG and _TOKEN.fullmatch(value) is not None and looks_random(value)
    if looks_random(value):
        return True
    if site.after in _OPENS and site.how != "element":
        return False
    return _accepts_word(site, value)


def _accepts_apart(site: _Site, value: str) -> bool:
    """Returns True for a value on the line below its name, and for one in the cell beside it."""
    chosen = site.tells is Tells.PASSWORD and len(value) >= 6 and looks_chosen(value) and not value.isdigit()
    if site.how == "cell":
        return (chosen or looks_random(value)) and _is_row(site.text, site.begin)
    return (chosen or looks_random(value)) and _LINE_END.match(site.text, site.end) is not None


def _is_told_with(site: _Site, value: str) -> bool:
    """Returns True for "log in with password X", where X can be nothing else."""
    return (
        site.tells is Tells.PASSWORD
        and len(value) >= 8
        and any(map(str.isdigit, value))
        and looks_chosen(value)
        and _TOLD_WITH.match(site.text[max(0, site.begin - _TOLD_BACK) : site.begin][::-1]) is not None
    )


def _is_netrc(site: _Site) -> bool:
    return _NETRC.search(site.text[max(0, site.begin - 80) : site.begin]) is not None


def _accepts_word(site: _Site, value: str) -> bool:
    """Returns True if a bare value that does not look random is a secret: yes, where no code can stand."""
    chosen = looks_chosen(value) and len(value) >= 6
    if site.tells is Tells.SECRET:
        return (
            (chosen or len(value) >= 8)
            if site.is_setting() and site.name.isupper()
            else chosen and site.is_line()
        )
    if site.how == "space":
        return chosen or _is_netrc(site) or _is_passphrase(site, value)
    if site.how == "element" or site.is_setting():
        return True
    if site.how == "pair" and _LINE_END.match(site.text, site.end):
        return chosen
    if site.how == "says" or (chosen and site.tie == "=" and site.after in _ENDS_A_PAIR):
        return chosen or _is_passphrase(site, value)
    if not site.is_line():
        if _is_passphrase(site, value):
            return True
        return chosen and (not _IDENTIFIER.fullmatch(value) or _NAME_AND_YEAR.fullmatch(value) is not None)
    spaced = site.tie.strip() not in {":", "："} and site.tie != site.tie.strip()
    return chosen or (
        not spaced and (not _IDENTIFIER.fullmatch(value) or (_is_lower_word(value) and len(value) >= 6))
    )


def _is_passphrase(site: _Site, value: str) -> bool:
    return "phrase" in site.name.lower() and value.count("-") >= 2


def _is_lower_word(value: str) -> bool:
    return value.isalpha() and value.islower()


RULES = (*(_rule(tells) for tells in Tells), _whole_word_rule(), _pass_rule())
