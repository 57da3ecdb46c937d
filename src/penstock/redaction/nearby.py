"""Values that could hardly be anything but a secret, near a word that speaks of one.

The rules of `named` know how a name and its value are tied together. Here nothing ties them but a few words, a call or a
flag: "root pw on the box: …", `page.fill('#password', '…')`, `jwt.sign(claims, '…')`, `zip -P …`. So the value must carry
the proof itself: how people make passwords up, or how machines draw keys.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from penstock.redaction.named import means_otherwise
from penstock.redaction.secret import (
    REDACTED,
    Find,
    RedactionRule,
    Secret,
    ends_escape,
    is_literal,
    is_made_up,
    looks_chosen,
    looks_random,
)
from penstock.redaction.tables import find_head

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["RULES"]

_AFTER, _BEFORE = 72, 56  # characters that a value may be away from its word
_CALL = 140
# A run that stands by itself: it ends where prose, code and addresses have their marks.
_RUN = re.compile(r"""[^\s"'`<>\\,;(){}\[\]|=:/“”„«»：。，、是为為は는은]{7,128}+""")
_QUOTED = re.compile(r"""(["'`])(?P<v>[^"'`\s\\<>(){}]{7,128})\\{0,63}\1""")
# Some short words, none of which can be a key, then a long one.
_DRAWN = re.compile(
    r"""(?:[A-Za-z0-9_+/.~-]{0,19}+\\{0,63}+[^A-Za-z0-9_+/.~,;{}()\n-]){1,10}+(?P<v>[A-Za-z0-9_+/.~-]{20,256}+={0,2})(?![\w/@(\[])"""
)
_REST = re.compile(r"(?:[+/=][A-Za-z0-9+/=]{4,4000}+)?")  # of base64, or of a key with slashes in it
# A run behind one of these is the rest of something: of an id, of base64, of an escape.
_JOINED = frozenset(string.ascii_letters + string.digits + "_-+~.\\")
_USER_SLASH = re.compile(r"""(?<![^\s"'`(=:])[A-Za-z][\w.-]{1,20}[ ]?/\Z""")
_DIGIT = re.compile("[0-9]")
_JOINT = re.compile("[-._/]")
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F-]+")
_OTHER_KINDS = (
    "hash",
    "digest",
    "checksum",
    "md5",
    "public",
    "fingerprint",
    "example",
    "e.g.",
    "version",
    "commit",
    "://",
)
_OTHER_WORDS = re.compile(r"\b(?:sha|[a-z_]*id\b)")


def _tells_another_kind(text: str, start: int, end: int) -> bool:
    """Returns True if the words say that the value is not a secret: a hash, an id, a version, an example."""
    words = text[start:end].lower()
    if any(map(words.__contains__, _OTHER_KINDS)):
        return True
    return ("id" in words or "sha" in words) and _OTHER_WORDS.search(words) is not None


def _line_end(text: str, end: int, most: int, line_break: str = "\n") -> int:
    """Returns where the line ends, `most` characters away at most, or before what is blanked already.

    A blank is shorter than what it hides: to look beyond it would bring new values within reach, one after the other.
    """
    stop = text.find(line_break, end, end + most)
    stop = stop if stop >= 0 else min(len(text), end + most)
    blank = text.find(REDACTED, end, stop + len(REDACTED))
    return blank if blank >= 0 else stop


def _is_key(value: str) -> bool:
    """Returns True for a run of capitals, small letters and digits that a machine drew; not for hashes and ids in hex."""
    return (
        len(value) >= 20
        and not value.islower()
        and not value.isupper()
        and is_literal(value)
        and any(
            len(part) >= 12 and _HEX.fullmatch(part) is None and looks_random(part)
            for part in _JOINT.split(value)
        )
    )


def _is_password(value: str) -> bool:
    return is_made_up(value) and is_literal(value)


def _is_either(value: str) -> bool:
    """Returns True for a password, and for text that looks random and is not an identifier, path, hash or version."""
    if is_made_up(value):
        return is_literal(value)
    return (
        len(value) >= 12
        and not value.islower()
        and not value.isupper()
        and value.count("-") + value.count(".") + value.count("_") <= max(2, len(value) // 10)
        and _HEX.fullmatch(value) is None
        and is_literal(value)
        and looks_random(value)
    )


def _spoken_of(accepts: Callable[[str], bool], *, backwards: bool = False, whole_word: bool = False) -> Find:
    """Finds the values that are accepted on the same line as the word, soon after it or right before it.

    With `whole_word` it must not be a part of a longer one.
    """

    def find(text: str, start: int, end: int) -> Iterable[Secret]:
        if whole_word:
            if start and text[start - 1].isalpha() and not ends_escape(text, start):
                return ()
            if text[end - 1].isalpha() and text[end : end + 1].isalpha():
                return ()
        # Every value has a digit, and most words have none near them.
        floor = max(0, start - _BEFORE) if backwards else end
        if _DIGIT.search(text, floor, end + _AFTER) is None:
            return ()
        # What lies beyond the same word is for the look from there: no stretch of text is read twice.
        word = text[start:end]
        found = _find_after(text, end, text.find(word, end, end + _AFTER), accepts)
        if backwards and text.rfind(word, floor, start) < 0:
            found += _find_before(text, floor, start, accepts)
        return found

    return find


def _find_after(text: str, end: int, beyond: int, accepts: Callable[[str], bool]) -> list[Secret]:
    stop = _line_end(text, end, _AFTER if beyond < 0 else beyond - end)
    found: list[Secret] = []
    if _DIGIT.search(text, end, stop) is None:
        return found
    for run in _RUN.finditer(text, end, min(len(text), stop + 64)):
        start = run.start()
        if start >= stop:
            break
        if secret := _judge(text, start, run.end(), accepts):
            if _tells_another_kind(text, end, start):
                break
            found.append(secret)
    return found


def _find_before(text: str, floor: int, start: int, accepts: Callable[[str], bool]) -> Iterator[Secret]:
    floor = max(text.rfind("\n", floor, start) + 1, text.rfind("]", floor, start) + 1, floor)
    if _DIGIT.search(text, floor, start) is None:
        return
    for run in _RUN.finditer(text, floor, start):
        end = run.end()
        secret = _judge(text, run.start(), end, accepts) if end < start else None
        if secret and not _tells_another_kind(text, floor, start):
            yield secret


def _judge(text: str, start: int, end: int, accepts: Callable[[str], bool]) -> Secret | None:
    is_behind_tab = text[start] == "t" and text[start - 1 : start] == "\\"
    start += is_behind_tab  # the letter of the tab is not part of it
    is_joined = text[start - 1 : start] in _JOINED and not is_behind_tab
    if is_joined or text[start] in "-+&@." or _DIGIT.search(text, start, end) is None:
        return None
    if text[end : end + 1] == "=" and text[end + 1 : end + 2].strip(
        "\"'="
    ):  # the run holds the name of the next value
        end = text.rfind("&", start, end)
    while end > start and text[end - 1] in ".,":
        end -= 1
    if end < start + 7 or text[end : end + 1] in {"(", "["}:
        return None
    if start and text[start - 1] == "/":  # `user/password`, or a piece of a path or of base64
        if not _USER_SLASH.search(text, max(0, start - 24), start) or text[end : end + 1] == "/":
            return None
        accepts = _is_password
        if (at := text.find("@", start + 7, end)) >= 0:
            end = at
    value = text[start:end]
    if not accepts(value):
        return None
    rest = _REST.match(text, end) if looks_random(value) else None
    return Secret(start, rest.end() if rest else end, "nearby")


_SECRET_KEYS = ("private ", "Private ", "secret ", "encryption ", "signing ")


def _drawn_after(text: str, start: int, end: int) -> tuple[Secret, ...]:
    """Finds a key soon after a word such as "token", with neither a comma nor a brace between."""
    run = _DRAWN.match(text, end)
    if (
        run is None
        or text[end].isalpha()
        or run.start("v") - text.count("\\", end, run.start("v")) > end + 48
    ):
        return ()
    is_hex = len(run["v"]) >= 32 and _HEX.fullmatch(run["v"]) is not None
    if not (_is_key(run["v"]) or (is_hex and text.endswith(_SECRET_KEYS, 0, start))):
        return ()
    if (
        text[max(0, start - 1) : start].isalpha()
        or _KEY_OTHERWISE.search(text, max(0, start - 16), start)
        or means_otherwise(text[max(0, start - 18) : start])
        or _tells_another_kind(text, end, run.start("v"))
    ):
        return ()
    return (Secret(*run.span("v"), "nearby"),)


def _argument(text: str, _start: int, end: int) -> Iterator[Secret]:
    """Finds secrets among the quoted arguments of a call that signs, encrypts or logs in."""
    stop = _line_end(text, end, _CALL)
    for quoted in _QUOTED.finditer(text, end, stop):
        if _is_either(quoted["v"]):
            yield Secret(*quoted.span("v"), "nearby")


_FLAG_VALUE = re.compile(
    r"""\\{0,63}["']?(?:[A-Za-z][\w.@-]{0,40}[:,%])?(?P<v>[^\s"'`<>\\|;(){}]{7,128})(?=["'`]|\s|\Z|\\)"""
)


def _find_flag_value(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _FLAG_VALUE.match(text, end)
    if match and _is_password(match["v"]):
        yield Secret(*match.span("v"), "nearby")


def _find_password_flag_value(text: str, _start: int, end: int) -> Iterator[Secret]:
    """Finds what follows a flag that is used for nothing but a password."""
    match = _FLAG_VALUE.match(text, end)
    if match and match["v"][0] != "/" and is_literal(match["v"]) and looks_chosen(match["v"]):
        yield Secret(*match.span("v"), "nearby")


_ENDS_IN_PASS = re.compile(r"(?<!\S)--?[\w-]{0,24}\Z")


def _pass_flag(text: str, start: int, end: int) -> Iterator[Secret]:
    """Finds what follows a flag that ends in "pass": `-storepass …`."""
    match = _FLAG_VALUE.match(text, end)
    if match is None or match["v"][0] in "$-" or not is_literal(match["v"]):
        return
    if _ENDS_IN_PASS.search(text, max(0, start - 26), start):
        yield Secret(*match.span("v"), "nearby")


_JWK = re.compile(r"""(?:\\{0,63}":)?[ ]?\\{0,63}"(?P<v>[A-Za-z0-9_-]{22,1400}+)\\{0,63}\"""")


def _jwk(text: str, start: int, end: int) -> Iterator[Secret]:
    """Finds the private part of a key that is written as JSON."""
    match = _JWK.match(text, end)
    if match and (
        text.find('"kty', max(0, start - 800), start) >= 0 or text.find('"kty', end, match.end() + 200) >= 0
    ):
        yield Secret(*match.span("v"), "private-key")


_QUERY_VALUE = re.compile(r"(?P<v>[A-Za-z0-9_.~%-]{20,512}+)(?![(\[{])")


def _in_query(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _QUERY_VALUE.match(text, end)
    if match and looks_random(match["v"]) and is_literal(match["v"]):
        yield Secret(*match.span("v"), "url-key")


_KEY_VALUE = re.compile(
    r"""[ \t]{0,4}(?:[A-Za-z][\w.]{1,24}\()?(?:\\{0,63}["'`])?(?P<v>(?:0x)?[A-Za-z0-9+/_-]{32,512}+={0,2})(?![\w(\[{.:])"""
)
_KEY_OTHERWISE = re.compile(
    r"(?:public|cache|primary|foreign|sort|partition|object|idempotency|dedup|index|routing|row|group|host|pub|s3|map|dict"
    r"|storage|registry|translation|i18n|message|query|hash|lookup|react|unique|composite|config)[_-]?\Z",
    re.IGNORECASE,
)


def _find_key_value(text: str, start: int, end: int) -> Iterator[Secret]:
    """Finds the value of a name that ends in "key", whatever key that is, if it is long and drawn."""
    match = _KEY_VALUE.match(text, end)
    if match is None or means_otherwise(text[max(0, start - 18) : start]):
        return
    if not _KEY_OTHERWISE.search(text, max(0, start - 16), start) and looks_random(match["v"]):
        yield Secret(*match.span("v"), "key")


_GROUPS = re.compile(
    r"""[^\n,;{}]{0,32}?(?<![\w-])(?P<v>(?=[A-Z-]{0,40}[0-9])[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){2,8}+)(?![\w-])"""
)
_BASE32_NEAR = re.compile(
    r"""[^\n,{}]{0,40}?(?<![\w/+-])(?P<v>[A-Z2-7]{4}(?:[ -]?[A-Z2-7]{4}){3,15}+)(?![\w+/-])"""
)
_WORDS_NEAR = re.compile(
    r"""[^\n.]{0,48}?(?:\n[ \t>]{0,8})?(?<![\w,.'’-])(?<![\w,.'’-][ ])(?P<v>[a-z]{3,8}(?:[ ][a-z]{3,8}){11,23}+)(?![\w'’-]|[ ,][ ]?\w)"""
)


def _licence(text: str, _start: int, end: int) -> Iterator[Secret]:
    if match := _GROUPS.match(text, end):
        yield Secret(*match.span("v"), "licence-key")


def _base32(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _BASE32_NEAR.match(text, end)
    if match and (_DIGIT.search(match["v"]) or len(match["v"]) >= 32) and len(set(match["v"])) >= 8:
        yield Secret(*match.span("v"), "one-time-passwords")


def _seed_words(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _WORDS_NEAR.match(text, end)
    if match and match["v"].count(" ") + 1 in {12, 15, 18, 21, 24}:
        yield Secret(*match.span("v"), "seed-phrase")


_PREFIX = re.compile(r"(?<![A-Za-z0-9/_.-])(?!pk|pub)[a-z][a-z0-9]{1,11}\Z")
_ISSUED = re.compile(r"(?P<v>[A-Za-z0-9_-]{20,512}+)(?![\w(\[{.])")


def _find_issued_token(text: str, start: int, end: int) -> Iterator[Secret]:
    """Finds tokens whose issuer we do not know, by what the trade has agreed on: `name_live_…`, `name_pat_…`."""
    match = _ISSUED.match(text, end)
    prefix = match and _PREFIX.search(text, max(0, start - 14), start)
    if match and prefix and looks_random(match["v"]):
        yield Secret(prefix.start(), match.end(), "issued-token")


_DATA_OF_SECRET = re.compile(
    r"""\n[ \t]+[\w.-]{1,64}:[ \t]+["']?(?P<v>[^\s"'#|>{}]{6,4000}+)["']{0,4}[ \t]*(?=[\n,\]}]|\Z)"""
)
_DATA = re.compile(r"\n(?:data|stringData):[ \t]*(?=\n)")
_LONGEST_SECRET = 4_000


def _kubernetes(text: str, _start: int, end: int) -> Iterator[Secret]:
    """Finds every value below `data:` in a manifest of kind Secret."""
    stop = text.find("\n---", end, end + _LONGEST_SECRET)
    stop = stop if stop >= 0 else min(len(text), end + _LONGEST_SECRET)
    data = _DATA.search(text, end, stop)
    at = data.end() if data else stop
    while at < stop and (entry := _DATA_OF_SECRET.match(text, at)):
        if is_literal(entry["v"][:64]):
            yield Secret(*entry.span("v"), "kubernetes")
        at = entry.end()


_SEGMENT = re.compile(r"/(?P<v>[A-Za-z0-9_-]{15,128}+)(?![.\w(])")


def _hook(text: str, _start: int, end: int) -> Iterator[Secret]:
    """Finds what makes the address of a web hook a key: the drawn parts of its path."""
    stop = end
    while stop < min(len(text), end + 200) and text[stop] not in " \t\r\n\"'`<>\\)":
        stop += 1
    for segment in _SEGMENT.finditer(text, end - 1, stop):
        if looks_random(segment["v"]):
            yield Secret(*segment.span("v"), "web-hook")


_SESSION = re.compile(
    r"""\\{0,63}["']?(?:[=:]|\t|\\{1,63}t|[ ]{1,4}|%3D)[ ]?\\{0,63}["']?(?P<v>[A-Za-z0-9%._+/-]{16,256}+)"""
)


def _session(text: str, _start: int, end: int) -> Iterator[Secret]:
    match = _SESSION.match(text, end)
    if match and looks_random(match["v"]):
        yield Secret(*match.span("v"), "cookie")


_MOST_ROWS = 200
_COLUMN_HEAD = re.compile(
    r"[A-Za-z_]{0,12}+(?:[ ]{2,40}+[A-Za-z_][A-Za-z_ ]{1,39}+)?+[ ]{0,200}+(?:\\{1,63}r|\r)?(?P<break>\n|\\{1,63}n)"
)


_BEFORE_HEAD = re.compile(r"""["n\n]|\s(?:[\s"n]|\Z)""")  # read backwards; `n`: of an escaped line break
_ENDS_HEAD = frozenset({"\n", "\r", "_", "S", "\\"})


def _below(text: str, start: int, end: int) -> Iterable[Secret]:
    """Finds the values in a column that spaces align below its head, as commands print them."""
    if text[end : end + 1] not in _ENDS_HEAD and text[end : end + 2] != "  ":
        return ()
    # A head follows two spaces, or one that begins its line, or it begins the line itself, maybe in JSON.
    if start and not _BEFORE_HEAD.match(text[max(0, start - 2) : start][::-1]):
        return ()
    return _find_in_column(text, start, end)


def _find_in_column(text: str, start: int, end: int) -> Iterator[Secret]:
    line = _COLUMN_HEAD.match(text, end)
    if line is None:
        return
    row_break = line["break"]
    head, _ = find_head(text, start, row_break)
    if head < start - 200 or text[max(head, start - 2) : start].strip():
        return
    at, place = line.end(), start - head
    for _ in range(_MOST_ROWS):
        stop = _line_end(text, at, 400, row_break)
        first = at + place
        run = _RUN.match(text, first, stop) if first < stop and text[first - 1] == " " else None
        if run is None:
            return
        if _is_either(run[0]):
            yield Secret(*run.span(), "column")
        at = stop + len(row_break)


def _forms(words: str) -> tuple[str, ...]:
    return tuple(
        form
        for word in words.split()
        for plain in (word.replace("~", " "),)
        for form in sorted({plain, plain.upper(), plain[0].upper() + plain[1:]})
    )


# Words that always mean a password.
_PASSWORDS = _forms(
    "password passwd passphrase passwort kennwort pswd contraseña contrasena senha wachtwoord hasło hasła lösenord parola "
    "lozinka heslo jelszó mật~khẩu пароль пароля şifre salasana adgangskode passord passcode 密码 密碼 口令 パスワード 비밀번호 "
    "mot~de~passe requirepass masterauth पासवर्ड סיסמה parool كلمة~المرور كلمة~السر κωδικός รหัสผ่าน kata~sandi "
    "codice~segreto código~secreto code~secret geheimcode"
)
_SHORT_PASSWORDS = _forms(
    "pw pwd psk pass: pass= pass~is clave secret pin vpn pass~ wifi wi-fi wlan wpa creds credentials zugangsdaten"
)
_LOGINS = _forms(
    "login basicauth basic_auth zugang add_user adduser test~account log~in sign~in logged~in admin root sudo auth anmelden connect~with"
)
_KEYS = _forms("token secret credential key chiave clé llave clave schlüssel chave ключ 密钥 token~de~acceso")
_CALL_NAMES = """
    sign verify jwt.encode HMAC256 HMAC512 getConnection connect createHmac hmac.new HMAC encrypt decrypt authenticate signIn sign_in auth login
    fill send_keys sendKeys createCipheriv SecretKeySpec Fernet Credentials Credential BasicAuth PasswordAuthentication
    PDO mysqli mysqli_connect .type setPassword set_password create_user createUser
"""
_CALLS = tuple(f"{name}(" for name in _CALL_NAMES.split())
_FLAGS = (*(f" -{letter} " for letter in "pPkwWauU"), " /p ", " /d ", "<<< ", "<<<")
_QUERY_NAMES = "key code sid session ticket invite auth signature"
_QUERIES = tuple(f"{mark}{name}=" for mark in "?&" for name in _QUERY_NAMES.split())
_KEY_TIES = tuple(
    f"{word}{tie}" for word in ("Key", "_key", "-key", "_KEY") for tie in ('":', "':", "=", " =", ":", '\\":')
)
_INFIX_WORDS = "live test prod pat api sk secret token key sandbox dev access v1 v2 user bot svc"
_INFIXES = tuple(f"{mark}{word}{mark}" for mark in "_-" for word in _INFIX_WORDS.split())

_WALLETS = tuple(
    f"allet{of}"
    for of in (" backup", " seed", " phrase", " words", " recovery", ":", " key", "_seed", "_phrase")
)
_COLUMNS = (
    "PASSWORD",
    "Password",
    "password",
    "TOKEN",
    "Token",
    "token",
    "SECRET",
    "Secret",
    "API_KEY",
    "API KEY",
)
_LICENCES = (
    *(
        f"{what}{of}"
        for what in ("icense", "icence", "erial", "roduct", "ctivation")
        for of in (" key", "_key", " Key", "Key", " code", " number", ":", "=")
    ),
    "LICENSE_KEY",
    "LICENSE=",
    "PRODUCT_KEY",
    "SERIAL_",
    "SERIAL=",
    "SERIAL:",
    "/ipk ",
)

RULES = (
    RedactionRule(_PASSWORDS, _spoken_of(_is_either, backwards=True)),
    RedactionRule(_SHORT_PASSWORDS, _spoken_of(_is_either, whole_word=True), ends_word=True),
    RedactionRule(_LOGINS, _spoken_of(_is_password, whole_word=True), ends_word=True),
    RedactionRule(_KEYS, _drawn_after, ends_word=True),
    RedactionRule(_CALLS, _argument),
    RedactionRule(_FLAGS, _find_flag_value),
    RedactionRule((" /rp ", " /RP "), _find_password_flag_value),
    RedactionRule(_QUERIES, _in_query),
    RedactionRule(_KEY_TIES, _find_key_value),
    RedactionRule(_LICENCES, _licence),
    RedactionRule(("TOTP", "totp", "OTP", "2FA", "MFA", "uthenticator", "2fa"), _base32),
    RedactionRule(
        ("seed", "Seed", *_WALLETS, "BIP39", "bip39", "BIP-39", "ecovery", "nemonic", "12 words", "24 words"),
        _seed_words,
    ),
    RedactionRule(_INFIXES, _find_issued_token),
    RedactionRule(("kind: Secret",), _kubernetes),
    RedactionRule(("webhook", "/hooks/", "://hooks.", "Webhook"), _hook),
    RedactionRule(
        ("PHPSESSID", "JSESSIONID", "sessionid", "_SessionId", "connect.sid", "_session=", ".login"),
        _session,
    ),
    RedactionRule((" key ",), _spoken_of(_is_password)),
    RedactionRule(_COLUMNS, _below, ends_word=True),
    RedactionRule(("storepass ", "keypass ", "-pass ", "rootpass ", "userpass "), _pass_flag),
    RedactionRule(('"k":', '"d":', '"k\\', '"d\\'), _jwk),
)
