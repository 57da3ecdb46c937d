"""Secrets recognised by the place where they stand: an address, a sentence, a command, a header, an armoured key.

Passwords inside addresses and connection strings, and signatures that make an address a key; seed phrases and codes in
a sentence; arguments of commands and statements without a telling name; values of HTTP headers; private keys.
"""

from __future__ import annotations

import binascii
import re
from typing import TYPE_CHECKING

from penstock.redaction.secret import (
    Find,
    RedactionRule,
    Secret,
    is_literal,
    is_masked,
    looks_chosen,
    looks_random,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RULES"]


# Addresses and connection strings.

# The password may hold an unescaped @, never a slash: the last @ before the path ends it.
_USERINFO = re.compile(r"""[^\s:/@?#"'`<>\\,;(){}|]{0,256}+:(?P<v>[^\s/"'`<>\\]{1,256})@(?=[\w\[.$%{-])""")
# Nor may it, but some do: then a host with a port, a path or nothing must follow the @, and no port stand before it.
_WITH_SLASH = re.compile(
    r"""[^\s:/@?#"'`<>\\,;(){}|]{0,256}+:(?![0-9]*+/)(?P<v>[^\s/@"'`<>\\]{1,128}+/[^\s@"'`<>\\]{1,128}+)"""
    r"""@(?=[\w-]+(?:\.[\w-]+)*(?::[0-9]+)?(?:[/\s"'`]|\Z))"""
)
_SLASHED = re.compile(r"""[\w$#.-]{1,64}/(?P<v>[^\s/@"'`<>\\]{3,128}+)@""")
_VARIABLE = re.compile(r"\$[A-Z_][A-Z0-9_]*|\$[a-z_]+[0-9]?")
_PERCENT = re.compile("%[0-9A-Fa-f]{2}")
_ONLY_USER = re.compile(r"(?P<v>[A-Za-z0-9_-]{20,256}+)@(?=\w)")
_DRAWN_USER = re.compile(r"[A-Za-z0-9_-]{20,256}")
_USER_AND_PASSWORD = re.compile(r"""[\w.-]{1,64}:(?P<v>[^\s"'`/]{1,80})\Z""")
_SIGNATURE = re.compile(r"(?P<v>[A-Za-z0-9%+/_-]{20,}+={0,2})")


def _userinfo(text: str, _start: int, end: int) -> Iterator[Secret]:
    if match := _USERINFO.match(text, end) or _WITH_SLASH.match(text, end):
        if not _is_template(match["v"]):
            yield Secret(match.start("v"), match.end("v"), "url-password")
        user = text[end : match.start("v") - 1]  # a token as often as a name: https://TOKEN:x-oauth-basic@…
        if _DRAWN_USER.fullmatch(user) and looks_random(user):
            yield Secret(end, match.start("v") - 1, "url-password")
    elif (match := _ONLY_USER.match(text, end)) and looks_random(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "url-password")


def _is_template(value: str) -> bool:
    """Returns True for a variable or a mask: `$DB_PASSWORD`, `%s`, `${…}`. `$` and `%24` may begin a password, too."""
    if value[0] == "$":
        return value[1:].isalpha() or _VARIABLE.fullmatch(value) is not None or not value[1:2].isalnum()
    if value[0] == "%" and _PERCENT.match(value):
        return False
    return value[0] in "%{[" or is_masked(value)


def _oracle(text: str, _start: int, end: int) -> Iterator[Secret]:
    if (match := _SLASHED.match(text, end)) and not _is_template(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "url-password")


def _go_address(text: str, start: int, _end: int) -> Iterator[Secret]:
    """`user:password@tcp(host:3306)/name`: what stands before the anchor."""
    if (match := _USER_AND_PASSWORD.search(text, max(0, start - 160), start)) and not is_masked(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "url-password")


def _signature(text: str, _start: int, end: int) -> Iterator[Secret]:
    if (match := _SIGNATURE.match(text, end)) and not is_masked(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "url-signature")


_ADDRESS_RULES = (
    RedactionRule(("://",), _userinfo),
    RedactionRule(("@tcp(", "@unix("), _go_address),
    RedactionRule((":thin:", "sqlplus ", "sqlldr "), _oracle),
    RedactionRule(
        ("?sig=", "&sig=", "-Signature=", "&Signature=", "?Signature=", "SharedAccessSignature=", "&hmac="),
        _signature,
    ),
)


# Seed phrases, and the keys of one-time passwords.

_OTP = re.compile(r"[^\s\"'<>]{0,256}?[?&]secret=(?P<v>[A-Za-z2-7]{16,}+)")
_SEED_PHRASE = re.compile(
    r"""\w{0,12}+\\{0,63}+["']?+(?:[ ]is\b)?+[ \t]{0,4}+[:=]{0,2}+[ \t]{0,4}+\\{0,63}+["']?+(?P<v>[a-z]{3,8}+(?:[ ]{1,2}[a-z]{3,8}+){11,23}+)(?![ ][a-z])"""
)


def _otp(text: str, _start: int, end: int) -> Iterator[Secret]:
    if match := _OTP.match(text, end):
        yield Secret(match.start("v"), match.end("v"), "one-time-passwords")


def _seed_phrase(text: str, _start: int, end: int) -> Iterator[Secret]:
    if match := _SEED_PHRASE.match(text, end):
        yield Secret(match.start("v"), match.end("v"), "seed-phrase")


_PHRASE_RULES = (
    RedactionRule(("otpauth://",), _otp),
    RedactionRule(
        (
            "mnemonic",
            "MNEMONIC",
            "Mnemonic",
            "seed phrase",
            "Seed phrase",
            "seed_phrase",
            "SEED_PHRASE",
            "recovery phrase",
        ),
        _seed_phrase,
    ),
)


# Codes of digits that prove an identity. A number alone tells nothing, and most codes are of other kinds, so the words around
# them decide.

_SAYS = (
    r"""(?:[ ](?:for|of|to|from|für|der|des|de|do|da)[ ][\w .'-]{1,30}?)?[*_`"']{0,3}"""
    r"""(?:[ ](?:is|was|ist|lautet|est|es|é)|[ ]?[:：=]|是|为|為|は|는)[*_`"']{0,3}[ \t]{0,4}[*_`"']{0,3}"""
)
_CODE_DIGITS = r"(?:[A-Z]-)?(?P<v>[0-9]{3}[ -][0-9]{3}|[0-9]{4,8})(?![\w-]|[.,:][0-9]|[ ](?:lines|characters|bytes|errors|files))"
_TOLD_CODE = re.compile(_SAYS + _CODE_DIGITS)
_TOLD_NUMBER = re.compile(
    rf"(?:[- ]?(?:[Cc]ode|[Nn]umber|[Nn]ummer))?{_SAYS}{_CODE_DIGITS}|[ ](?P<w>[0-9]{{6,8}})(?![\w.-])"
)
_IS_YOUR = re.compile(r"(?<![\w.-])(?:[A-Z]-)?(?P<v>[0-9]{3}[ -][0-9]{3}|[0-9]{4,8})\Z")
_YOUR_CODE = re.compile(
    r"(?!(?:order|tracking|booking|customer|reference|zip|postal|discount|promo|area)\b)(?:[\w-]{1,20}[ ]){0,3}"
    r"(?:code|OTP|PIN|TAN|passcode|password)\b"
)
_BREAK = r"(?:\n|\\{1,63}n)"  # of a line, as it stands in text or in JSON
_CODE_LIST = re.compile(
    rf"""[^\n\\]{{0,80}}+{_BREAK}(?:[ \t]*+{_BREAK})?+(?P<list>(?:[ \t>*•0-9.)-]{{0,8}}?[A-Za-z0-9]{{4,10}}(?:[- ][A-Za-z0-9]{{4,10}}){{0,4}}[ \t]*+"""
    rf"""(?:{_BREAK}|\Z|(?=\\{{0,63}}["'`]))){{2,24}}+)"""
)
_LISTED_CODE = re.compile(
    r"(?:(?<![\w-])|(?<=\\n))(?:[A-Za-z0-9]{4,10}(?:-[A-Za-z0-9]{4,10})++|(?=[a-z]{0,9}[0-9])[a-z0-9]{6,10})(?![\w-])"
)


def _told_code(text: str, _start: int, end: int) -> Iterator[Secret]:
    if match := _TOLD_CODE.match(text, end):
        yield Secret(match.start("v"), match.end("v"), "one-time-code")


def _told_number(text: str, start: int, end: int) -> Iterator[Secret]:
    """`PIN: 4711`, `TAN 123456`, `smsTAN`; not `SHIPPING: 4711`."""
    before = text[max(0, start - 1) : start]
    if (before.islower() or not before.isalnum()) and (match := _TOLD_NUMBER.match(text, end)):
        yield Secret(*match.span(match.lastgroup or 0), "one-time-code")


def _number_is_yours(text: str, start: int, end: int) -> Iterator[Secret]:
    """Finds the code of "123456 is your login code", before the anchor."""
    if text[max(0, start - 1) : start].isdigit() and _YOUR_CODE.match(text, end):
        match = _IS_YOUR.search(text, max(0, start - 12), start)
        if match:
            yield Secret(match.start("v"), match.end("v"), "one-time-code")


def _listed_codes(text: str, _start: int, end: int) -> Iterator[Secret]:
    if match := _CODE_LIST.match(text, end):
        for code in _LISTED_CODE.finditer(text, match.start("list"), match.end("list")):
            yield Secret(*code.span(), "one-time-code")


_CODES = """
    verification security confirmation login sign-in access one-time authentication authenticator backup recovery unlock
    2FA MFA SMS OTP
"""
_CODE_RULES = (
    RedactionRule(
        (
            *(f"{form} code" for word in _CODES.split() for form in {word, word[0].upper() + word[1:]}),
            *(
                "passcode",
                "Passcode",
                "your code",
                "Your code",
                "Bestätigungscode",
                "Sicherheitscode",
                "Ihr Code",
            ),
            *(
                "código de verificación",
                "código de seguridad",
                "código de verificação",
                "code de vérification",
            ),
            *("code de sécurité", "验证码", "驗證碼", "認証コード", "確認コード", "인증번호", "인증 코드"),
            *("код подтверждения", "Код подтверждения"),
        ),
        _told_code,
    ),
    RedactionRule(("OTP", "TAN", "PIN", "PUK"), _told_number),
    RedactionRule((" as your ",), _number_is_yours),
    RedactionRule((" is your ",), _number_is_yours),
    RedactionRule(
        ("ecovery codes", "ecovery Codes", "ackup codes", "ackup Codes", "iederherstellungscodes"),
        _listed_codes,
    ),
)


# Passwords that commands and statements take without a telling name.

_WORD = (
    r"""(?:\\{0,63}"(?P<d>[^"\\\n]{1,256})|\\{0,63}'(?P<s>[^'\\\n]{1,256})|(?P<b>[^\s"'\\|;<>()]{1,256}))"""
)
_ATTACHED = re.compile(_WORD)
_NEXT = re.compile(r"[ \t=]+" + _WORD)
_QUOTED = re.compile(r"""[ \t]+(?:\\{0,63}"(?P<d>[^"\\\n]{1,256})|\\{0,63}'(?P<s>[^'\\\n]{1,256}))""")
_OPTION_USER_AND_PASSWORD = re.compile(
    r"""[ \t=]+\\{0,63}(?:"[^":\s]{1,128}:(?P<d>[^"\\\n]{1,256})|'[^':\s]{1,128}:(?P<s>[^'\\\n]{1,256})"""
    r"""|[^\s:"'\\]{1,128}:(?P<b>[^\s"'\\|;<>()]{1,256}))"""
)
_AFTER_USER = re.compile(r"\S{1,128}[ \t]+" + _WORD)
_USER_THEN_PASSWORD = re.compile(
    r"""\s{0,8}\\{0,63}["'][^"'\\\n]{1,128}\\{0,63}["']\s{0,8},\s{0,8}"""
    r"""\\{0,63}(?:"(?P<d>[^"\\\n]{4,256})(?=\\{0,63}")|'(?P<s>[^'\\\n]{4,256})(?=\\{0,63}'))"""
)
_PGPASS = re.compile(r"""[\w*.-]+:[\w*.@-]+:(?P<b>[^\s:"'\\]{4,256}+)(?=["'\\\s]|$)""")


_PERCENT_PASSWORD = re.compile(r"""[ \t=]+["']?[^\s%"']{1,64}%(?P<b>[^\s"'|;<>()]{3,256})""")
_SECURE_STRING = re.compile(r"(?:[ \t]+-String)?" + _QUOTED.pattern)
_IDENTIFIED_WITH = re.compile(r"[ \t]+[\w\"'`]{1,40}[ \t]+(?:BY|by|AS|as)" + _QUOTED.pattern)
_ECHO = re.compile(r"""\b(?:echo|printf)[ \t]+(?:-[a-z]+[ \t]+)?["']?(?P<v>[^\s"'|$]{4,128})["']?[ \t]*\Z""")
_USE = re.compile(
    r"""\b(?:use|using|with|and|set|enter|try|choose|took?)[ ]+["'`]?(?P<v>[^\s"'`]{6,64})["'`]?[ ]+\Z""",
    re.IGNORECASE,
)
_USER_SLASH_PASSWORD = re.compile(
    r"""[^\n/:]{0,24}?(?:\ (?:are|is|were)|:)[ ]{1,3}["'`]?[\w.@-]{2,40}["'`]?[ ]?[/:|][ ]?["'`]?(?P<v>[^\s"'`,;()]{6,64})"""
)
_HTPASSWD = re.compile(r"c?[ \t]+(?:(?=[./\w-]*[./])\S{1,128}[ \t]+)?[\w.@-]{1,128}[ \t]+(?!-)" + _WORD)
_CHOSEN_LAST = re.compile(
    r"""(?:[\w.@-]{1,64}[ ])?(?P<b>(?=[^\s]{0,40}[0-9])[^\s\"'`,;()\\]{6,64})(?=["'`\\\s]|\Z)"""
)
_KEY_WORD = re.compile(r"""(?<![^ ])(?P<v>[A-Za-z0-9+/_-]{16,128})(?=["'`\\\s]|\Z)""")
_SASL = re.compile(
    r"(?P<b>[A-Za-z0-9+/]{8,512}+={0,2})"
)  # what mail servers are told: base64 of user and password
_LINE_BELOW = re.compile(rf"""[ \t]*{_BREAK}(?P<b>[^\s"\\]{{6,256}})(?=["\\\s]|\Z)""")
_GO_STRING = re.compile(r"""\\{0,63}["`](?P<v>[^"`\\\n]{16,256})""")
_KEY_NAME = re.compile(
    r"(?:[Kk]ey|[Ss]ecret|[Ss]alt|[Tt]oken|[Pp]ass\w{0,8}|[Ss]igning|KEY|SECRET)\w{0,12}[ \t]{0,4}(?::=|=)[ \t]{0,4}\Z"
)


_SAY_THEMSELVES = frozenset({"password", "PASSWORD", "passwd", "pass", "PASS"})  # as manuals write them


def _after(pattern: re.Pattern[str], *commands: str) -> Find:
    """Finds the match of the pattern, if one of the commands stands before it on the same line."""

    def find(text: str, start: int, end: int) -> Iterator[Secret]:
        match = pattern.match(text, end)
        if match is None or match.lastgroup is None:
            return
        value = match[match.lastgroup]
        line = text[max(0, start - 240) : start].rpartition("\n")[2]
        if is_masked(value) or value in _SAY_THEMSELVES or value[0] in "$-":
            return
        if commands and not any(map(line.__contains__, commands)):
            return
        yield Secret(*match.span(match.lastgroup), "command-password")

    return find


def _second_argument(text: str, _start: int, end: int) -> Iterator[Secret]:
    """`server.login("user", "password")`, `auth=("user", "password")`."""
    match = _USER_THEN_PASSWORD.match(text, end)
    if (
        match
        and match.lastgroup
        and is_literal(match[match.lastgroup])
        and looks_chosen(match[match.lastgroup])
    ):
        yield Secret(*match.span(match.lastgroup), "command-password")


def _find_echoed(text: str, start: int, _end: int) -> Iterator[Secret]:
    """`echo 'password' | sudo -S`: what stands before the anchor."""
    if (match := _ECHO.search(text, max(0, start - 160), start)) and not is_masked(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "command-password")


def _find_login_keys(text: str, _start: int, end: int) -> Iterator[Secret]:
    """Finds the keys that a command takes without a name, up to the end of its line."""
    for word in _KEY_WORD.finditer(text, end, min(len(text), end + 240)):
        if looks_random(word["v"]):
            yield Secret(*word.span("v"), "command-password")


def _find_login_key(text: str, _start: int, end: int) -> Iterator[Secret]:
    """Finds the key in `cargo login KEY`: one random word, not a hash, right after the command."""
    word = _KEY_WORD.match(text, end)
    if word and len(word["v"]) >= 20 and not word["v"].islower() and looks_random(word["v"]):
        yield Secret(*word.span("v"), "command-password")


def _find_used_as(text: str, start: int, _end: int) -> Iterator[Secret]:
    """Finds the password of "use X as the password", before the anchor."""
    match = _USE.search(text, max(0, start - 100), start)
    if match and is_literal(match["v"]) and looks_chosen(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "phrase-password")


def _user_and_password(text: str, _start: int, end: int) -> Iterator[Secret]:
    """Finds the password of "creds are admin / X"."""
    match = _USER_SLASH_PASSWORD.match(text, end)
    if match and any(map(str.isdigit, match["v"])) and is_literal(match["v"]) and looks_chosen(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "phrase-password")


def _key_bytes(text: str, start: int, end: int) -> Iterator[Secret]:
    """`key := []byte("…")`, in Go."""
    match = _GO_STRING.match(text, end)
    if match and _KEY_NAME.search(text, max(0, start - 48), start) and looks_random(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "key")


def _option_cookies(text: str, start: int, end: int) -> Iterator[Secret]:
    match = _NEXT.match(text, end)
    line = text[max(0, start - 240) : start].rpartition("\n")[2]
    if match and match.lastgroup and "curl" in line:
        yield from _session_pairs(match[match.lastgroup], match.start(match.lastgroup))


_COMMAND_RULES = (
    RedactionRule((" -u", " --user"), _after(_OPTION_USER_AND_PASSWORD, "curl", "http ", "wget")),
    RedactionRule((" -p",), _after(_ATTACHED, "mysql", "mariadb")),
    RedactionRule(
        (" -p",), _after(_NEXT, "sshpass", "docker login", "az login", "podman login", "helm registry")
    ),
    RedactionRule((" -P",), _after(_NEXT, "sqlcmd", "bcp ", "tsql")),
    RedactionRule((" -a",), _after(_NEXT, "redis-cli")),
    RedactionRule((" -w",), _after(_NEXT, "ldapsearch", "ldapmodify", "ldapadd", "ldapdelete", "ldapwhoami")),
    RedactionRule((" -U",), _after(_PERCENT_PASSWORD, "smbclient", "rpcclient", "mount.cifs", "net rpc")),
    RedactionRule(("htpasswd -b", "htpasswd -nb", "htpasswd -bc"), _after(_HTPASSWD)),
    RedactionRule(("net user ", "NET USER "), _after(_AFTER_USER)),
    RedactionRule((" IDENTIFY ", " LOGIN "), _after(_CHOSEN_LAST)),
    RedactionRule(
        ("requirepass", "masterauth", "bindpw", "rootpw", "-server key", "-server community"), _after(_NEXT)
    ),
    RedactionRule(("{SHA}", "{SSHA}", "{SSHA256}", "{SSHA512}"), _after(_ATTACHED)),
    RedactionRule((" -p",), _after(_ATTACHED, "7z ", "7za ", "unrar ", "rar ")),
    RedactionRule(("/pass:", "/Pass:", "/password:", "::add-mask::"), _after(_ATTACHED)),
    RedactionRule(("vault login ", "wandb login ", "mc alias set ", "mc config host add "), _find_login_keys),
    RedactionRule((" login ",), _find_login_key),
    RedactionRule(("AUTH PLAIN ", "AUTHENTICATE PLAIN ", "AUTH LOGIN "), _after(_SASL)),
    RedactionRule(("-passin pass:", "-passout pass:", "-pass pass:"), _after(_ATTACHED)),
    RedactionRule(("ConvertTo-SecureString",), _after(_SECURE_STRING)),
    RedactionRule(("IDENTIFIED WITH", "identified with"), _after(_IDENTIFIED_WITH)),
    RedactionRule(("| sudo -S", "|sudo -S"), _find_echoed),
    RedactionRule(("as the password", "as password", "as a password", "as the pw"), _find_used_as),
    RedactionRule(("creds", "Creds", "redentials"), _user_and_password),
    RedactionRule(("[]byte(",), _key_bytes),
    RedactionRule(("IDENTIFIED BY", "identified by"), _after(_QUOTED)),
    RedactionRule(("base64 -d", "base64 --decode"), _after(_LINE_BELOW, "secret", "passw", "token")),
    RedactionRule((":5432:",), _after(_PGPASS)),
    RedactionRule((" /user:", " /USER:"), _after(_AFTER_USER, "net use", "NET USE", "runas", "psexec")),
    RedactionRule((" -b", " --cookie"), _option_cookies),
    RedactionRule(
        (".login(", "auth=(", "BasicAuth(", "auth_basic(", "WiFi.begin(", "NetworkCredential("),
        _second_argument,
    ),
)


# What HTTP headers carry: authorisation of any scheme, and cookies.

_BETWEEN = r"""[\\"'`\])]{0,8}[ \t]{0,8}(?:=>|[:=,])[ \t]{0,8}(?:[fbr]?\\{0,63}["'`])?"""
_AUTHORIZATION = re.compile(
    rf"""{_BETWEEN}(?:(?P<scheme>[A-Za-z][A-Za-z0-9_-]{{1,24}})[ ]+)?(?P<v>[^\s"'`\\,;<>(){{}}]{{6,}}+)"""
)
_SCHEME = re.compile(r"""[ ]{1,4}(?P<v>[A-Za-z0-9._~+/|:%-]{12,}+={0,2})""")
_PARAMETER = re.compile(r"[A-Za-z]+=")
_COOKIES = re.compile(rf"""{_BETWEEN}(?P<pairs>[^\n\r"'`\\]{{3,}}+)""")
_TELLING_COOKIE = re.compile(
    r"sess|sid\b|auth|token|jwt|csrf|xsrf|remember|login|secret|\bid\b|access|credential", re.IGNORECASE
)
_LONGEST_HEADER = 8192
_ATTRIBUTES = frozenset(
    {"path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority"}
)


def _authorization(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _AUTHORIZATION.match(text, end)
    if match is None or text[match.end() : match.end() + 1] in {"(", "{"}:
        return
    value = match["v"]
    if match["scheme"] and not _PARAMETER.match(value):
        if not is_masked(value) and not value.startswith(("$", "%")) and any(map(str.isdigit, value)):
            yield Secret(match.start("v"), match.end("v"), "authorization")
    elif looks_random(value) and is_literal(value):
        yield Secret(match.start("v"), match.end("v"), "authorization")


def _bearer(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _SCHEME.match(text, end)
    if match and looks_random(match["v"]) and is_literal(match["v"]):
        yield Secret(match.start("v"), match.end("v"), "authorization")


def _basic(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _SCHEME.match(text, end)
    if match is None:
        return
    try:
        decoded = binascii.a2b_base64(match["v"], strict_mode=True)
    except binascii.Error:
        return
    if b":" in decoded and decoded.isascii():
        yield Secret(match.start("v"), match.end("v"), "authorization")


def _cookies(text: str, _start: int, end: int) -> Iterator[Secret]:
    # Up to the next cookie header at most: so no stretch of text is read twice.
    following = text.find("ookie", end, end + _LONGEST_HEADER)
    header = _COOKIES.match(text, end, following if following >= 0 else end + _LONGEST_HEADER)
    if header is None:
        return
    yield from _session_pairs(header["pairs"], header.start("pairs"))


def _session_pairs(pairs: str, begin: int) -> Iterator[Secret]:
    for pair in pairs.split(";"):
        name, _, value = pair.partition("=")
        start = begin + len(name) + 1
        begin += len(pair) + 1
        value = value.rstrip()
        if name.strip().lower() not in _ATTRIBUTES and len(value) >= 8 and _is_session(name, value[:256]):
            yield Secret(start, start + len(value), "cookie")


def _is_session(name: str, value: str) -> bool:
    if not is_literal(value):
        return False
    return looks_random(value) or (_TELLING_COOKIE.search(name) is not None and any(map(str.isdigit, value)))


_HEADER_RULES = (
    RedactionRule(("Authorization", "authorization", "AUTHORIZATION"), _authorization),
    RedactionRule(("Bearer", "bearer", "BEARER"), _bearer),
    RedactionRule(("Basic", "basic"), _basic),
    RedactionRule(("Cookie", "cookie", "COOKIE"), _cookies),
)


# Private keys: armoured blocks, whole or cut off, on many lines or on one, and the same in base64.

_ARMOUR = re.compile(
    r"-BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-{1,5}|- BEGIN SSH2 [A-Z ]{0,20}PRIVATE KEY -{2,5}"
)
# What stands between the lines of a key: breaks, real or escaped, quotes, line numbers, quote marks.
_BETWEEN_LINES = r"""(?:[\s"'`,>|#*]|\\{1,4}[nrt]|\\{1,4}(?=["'\s])|[0-9]{1,6}(?:→|[:|\t]|\ (?=[|│])))"""
_FIELDS = r"(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset|MessageID|Subject)\ ?:\ [^\n\\]{0,200})"
_BODY = re.compile(
    rf"""
    (?:{_BETWEEN_LINES}{{0,40}}+ {_FIELDS}){{0,8}}+
    {_BETWEEN_LINES}{{0,80}}+
    (?P<key> [A-Za-z0-9+/]{{16,}}+={{0,2}}
        (?: {_BETWEEN_LINES}{{1,80}}+ [A-Za-z0-9+/]{{16,}}+={{0,2}} )*+
        (?: {_BETWEEN_LINES}{{1,80}}+                     # the last line is short, and PGP adds a checksum
            (?: [A-Za-z0-9+/]{{8,15}}+={{0,2}} | [A-Za-z0-9+/]{{1,7}}={{1,2}} | =?[A-Za-z0-9+/]{{1,7}}={{0,2}}(?={_BETWEEN_LINES}{{0,80}}+-) )
        ){{0,2}}+
    )
    """,
    re.VERBOSE,
)
_LONGEST_KEY = 16_000
_KEY_END = re.compile(r" (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-{1,5}")
# Read from the end backwards, so that no stretch of text is read twice.
_BETWEEN_REVERSED = r"""(?:[\s"'`,>|#*\\]|[nrt]\\{1,63}|[:|→][0-9]{1,6})"""
_LINES_ABOVE_REVERSED = re.compile(
    rf"-{{0,5}}+{_BETWEEN_REVERSED}{{0,80}}+(?P<key>={{0,2}}[A-Za-z0-9+/]{{4,}}+"
    rf"(?:{_BETWEEN_REVERSED}{{1,80}}+[A-Za-z0-9+/]{{16,}}+)*+)"
)
_LINES_BELOW = re.compile(
    r"""[^\n\\"]{0,80}+(?:\n|\\{1,63}n)(?P<key>[A-Za-z0-9+/]{60,80}(?:(?:\n|\\{1,63}n)[A-Za-z0-9+/]{60,80}(?![A-Za-z0-9+/])){1,400}+
        (?:(?:\n|\\{1,63}n)[A-Za-z0-9+/]{1,79}={1,2})?)""",
    re.VERBOSE,
)
_DRAWN_BELOW = re.compile(
    rf"""{_BREAK}(?P<key>[0-9A-Fa-f]{{32,128}}|[A-Za-z0-9+/]{{40,128}}={{0,2}})(?=["\\\s]|\Z)"""
)
_PRINTS = re.compile(r"\b(?:cat|type|less|head|more|bat|Get-Content)[ ][^\n|;&]{0,110}\Z")
_PUBLIC_END = re.compile(r"(?:\s|\\{1,63}n){0,4}-----END (?:CERTIFICATE|PUBLIC|RSA PUBLIC|X509|PKCS7)")
_PUTTY = re.compile(
    r"Private-Lines: \d+(?:\s|\\{1,4}[nr])++(?P<key>[A-Za-z0-9+/=]{16,}(?:(?:\s|\\{1,4}[nr])+[A-Za-z0-9+/=]{16,})*)"
)
_ENCODED_HEAD = re.compile(r"[A-Za-z0-9+/]{72}")
_ENCODED = re.compile(r"[A-Za-z0-9+/]*+={0,2}")


def _find_armoured(text: str, _start: int, end: int) -> Iterator[Secret]:
    armour = _ARMOUR.match(text, end - len("-BEGIN")) or _ARMOUR.match(text, end - len("- BEGIN"))
    if armour and (body := _BODY.match(text, armour.end())):
        yield Secret(body.start("key"), body.end("key"), "private-key")


def _find_tail(text: str, start: int, end: int) -> Iterator[Secret]:
    """Finds the lines of a key above its last line, if its first line is missing."""
    if _KEY_END.match(text, end):
        body = _LINES_ABOVE_REVERSED.match(text[max(0, start - _LONGEST_KEY) : start][::-1])
        if body and len(body["key"]) >= 40:
            yield Secret(start - body.end("key"), start - body.start("key"), "private-key")


def _find_lines(text: str, start: int, end: int) -> Iterator[Secret]:
    """Finds lines of base64 below a command that reads a file of keys, the middle of a key, or all of a drawn one."""
    match = _LINES_BELOW.match(text, end)
    if match is None and (drawn := _DRAWN_BELOW.match(text, end)):
        if _PRINTS.search(text, max(0, start - 120), start):
            yield Secret(*drawn.span("key"), "private-key")
    elif match and not _PUBLIC_END.match(text, match.end()) and looks_random(match["key"][:64]):
        yield Secret(match.start("key"), match.end("key"), "private-key")


def _find_bare(text: str, start: int, _end: int) -> Iterator[Secret]:
    """Finds a key without armour by how its structure begins."""
    if (body := _BODY.match(text, start)) and body.start("key") == start and len(body["key"]) >= 60:
        yield Secret(body.start("key"), body.end("key"), "private-key")


def _putty(text: str, start: int, _end: int) -> Iterator[Secret]:
    if match := _PUTTY.match(text, start):
        yield Secret(match.start("key"), match.end("key"), "private-key")


def _find_encoded(text: str, start: int, _end: int) -> Iterator[Secret]:
    match = _ENCODED_HEAD.match(text, start)
    if (
        match
        and b"PRIVATE KEY" in binascii.a2b_base64(match[0])
        and (rest := _ENCODED.match(text, match.end()))
    ):
        yield Secret(start, rest.end(), "private-key")


_KEY_RULES = (
    RedactionRule(("--END",), _find_tail),
    RedactionRule(("id_rsa", "id_ed25519", "id_ecdsa", "id_dsa", ".key", ".pem", ".p8"), _find_lines),
    RedactionRule(
        # PKCS#1 and PKCS#8 of the usual sizes, EC, Ed25519, OpenSSH.
        (
            *(
                f"MII{size}IBAAKC"
                for size in (
                    "CXQ",
                    "CXA",
                    "CWw",
                    "CXg",
                    "EpA",
                    "Eow",
                    "Eog",
                    "EpQ",
                    "Jow",
                    "JKA",
                    "JKQ",
                    "JKg",
                    "JJw",
                )
            ),
            *(
                f"MII{size}IBADANBgkqhkiG9w0BAQEFAASC"
                for size in (
                    "Evg",
                    "Evw",
                    "EvQ",
                    "EvA",
                    "Euw",
                    "JQg",
                    "JQw",
                    "JRA",
                    "JQQ",
                    "CdQ",
                    "Cdw",
                    "Cdg",
                    "CeA",
                )
            ),
            "MHcCAQEE",
            "MIGHAgEAMBMGByqGSM49",
            "MIGkAgEBBD",
            "MC4CAQAwBQYDK2Vw",
            "b3BlbnNzaC1rZXktdjE",
        ),
        _find_bare,
    ),
    RedactionRule(("--BEGIN", "-- BEGIN"), _find_armoured),
    RedactionRule(("Private-Lines: ",), _putty),
    RedactionRule(("LS0tLS1CRUdJTi",), _find_encoded),
)

RULES = (*_KEY_RULES, *_HEADER_RULES, *_ADDRESS_RULES, *_COMMAND_RULES, *_PHRASE_RULES, *_CODE_RULES)
