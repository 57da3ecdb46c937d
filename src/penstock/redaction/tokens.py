"""Tokens that their issuer made recognisable, mostly by a prefix.

A row says the kind, the literal anchors, and the pattern, which must match at an anchor or so many
characters before it; a group `v` is the secret where the pattern also holds what leads to it. Patterns ask
for a little less than the issuers promise, since issuers have changed lengths before.
"""

from __future__ import annotations

import re
import string
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from penstock.redaction.secret import RedactionRule, Secret, ends_escape, is_masked, looks_random

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["RULES"]


class _Shape(msgspec.Struct, frozen=True):
    kind: str
    anchors: str  # apart by spaces
    pattern: str
    before: tuple[int, ...] = (0,)
    vague: bool = False  # the prefix alone is not proof: the rest must look drawn


_A = "[A-Za-z0-9]"
_W = "[A-Za-z0-9_-]"
_H = "[0-9a-f]"
_UUID = f"{_H}{{8}}-{_H}{{4}}-{_H}{{4}}-{_H}{{4}}-{_H}{{12}}"
_HEX_STARTS = "0123456789abcdef"
# Every path has a `pat` in it: the letters behind it are part of the anchor, so that most of them are passed over.
_PAT_STARTS = " ".join(
    [f"pat{char}" for char in string.ascii_letters + string.digits if char != "h"]
    + [f"path{char}" for char in string.ascii_letters + string.digits]
)
# How the base64 of a number begins, by its first two digits: the first part of a Discord token is one of 17 to 19 digits.
_NUMBER_STARTS = " ".join(
    first + second
    for first in ("MT", "Mj", "Mz", "ND", "NT", "Nj", "Nz", "OD", "OT")
    for second in "AEIMQUYcgk"
)

_CLOUD = (
    _Shape("aws", "AKIA ASIA ABIA ACCA", r"(?<![+/])A(?:KI|SI|BI|CC)A[A-Z0-9]{16}(?![A-Za-z0-9+/])"),
    _Shape("aws", "ABSK", r"ABSK[A-Za-z0-9+/]{100,}={0,2}"),
    _Shape("google", "AIza", f"AIza{_W}{{35}}"),
    _Shape("google", "ya29.", r"ya29\.[A-Za-z0-9_.-]{20,}"),
    _Shape("google", "GOCSPX-", f"GOCSPX-{_W}{{20,}}"),
    _Shape("google", "1//0", f"1//0{_W}{{40,}}"),
    _Shape("azure", "7Q~ 8Q~ 9Q~", r"[A-Za-z0-9_~.-]{3}[789]Q~[A-Za-z0-9_.~-]{30,}", (3,)),
    _Shape("azure", "JQQJ9", f"{_A}{{52}}JQQJ9{_A}{{20,30}}", (52,)),
    _Shape("azure", "AZDO", f"{_A}{{76}}AZDO{_A}{{4}}", (76,)),
    _Shape("digitalocean", "dop_v1_ doo_v1_ dor_v1_", f"do[por]_v1_{_H}{{64}}"),
    _Shape("alibaba", "LTAI", f"LTAI{_A}{{17,21}}(?!{_A})"),
    _Shape("tencent", "AKID", f"AKID{_A}{{29,33}}(?!{_A})"),
    _Shape("yandex", "y0_ AQVN", f"(?:y0_{_W}{{50,}}|AQVN{_W}{{35,38}})(?!{_A})"),
    _Shape("cloudflare", "v1.0-", rf"v1\.0-{_H}{{24}}-{_H}{{100,}}"),
    _Shape("fly", "fo1_ fm2_", f"(?:fo1_{_W}{{40,}}|fm2_[A-Za-z0-9+/]{{80,}}=*)"),
    _Shape("netlify", "nfp_ nfc_", f"nf[pc]_{_A}{{36,}}"),
    _Shape("supabase", "sbp_ sb_secret_", f"(?:sbp_{_H}{{40}}|sb_secret_{_W}{{30,}})"),
    _Shape("planetscale", "pscale_", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}"),
    _Shape("heroku", "HRKU-", f"HRKU-{_W}{{36,}}"),
    _Shape("scaleway", "SCW", f"SCW{_A}{{17}}(?!{_A})(?<=[0-9A-Z]{{17}})"),
    _Shape("databricks", "dapi", f"dapi{_H}{{32}}(?:-[0-9])?(?!{_A})"),
    _Shape("vault", "hvs. hvb. hvr.", rf"hv[sbr]\.{_W}{{20,}}"),
    _Shape("terraform", ".atlasv1.", rf"{_A}{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{60,}}", (14,)),
    _Shape("pulumi", "pul-", f"pul-{_H}{{40}}"),
    _Shape(
        "doppler", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"dp\.[a-z]{2,5}\.[A-Za-z0-9_.-]{30,}"
    ),
    _Shape("tailscale", "tskey-", f"tskey-[a-z]{{2,9}}-{_W}{{20,}}"),
)
_CODE = (
    _Shape("github", "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_", r"(?:gh[pousr]|github_pat)_[A-Za-z0-9_.-]{30,}"),
    _Shape(
        "gitlab",
        "glpat- gldt- glft- glrt- glcbt- glimt- glptt- glsoat- glagent- gloas- glffct- glwt- GR1348941",
        r"(?:gl[a-z]{2,5}-|GR1348941)[A-Za-z0-9_.-]{20,}",
    ),
    _Shape("atlassian", "ATATT3 ATCTT3 ATSTT3", r"AT[ACS]TT3[A-Za-z0-9_=.-]{40,}"),
    _Shape("bitbucket", "ATBB", f"ATBB{_A}{{24,}}"),
    _Shape("npm", "npm_", f"npm_{_A}{{36,}}"),
    _Shape("pypi", "pypi-AgE", f"pypi-AgE{_W}{{50,}}"),
    _Shape("rubygems", "rubygems_", f"rubygems_{_H}{{48}}"),
    _Shape("clojars", "CLOJARS_", f"CLOJARS_{_A}{{60}}"),
    _Shape("nuget", "oy2", f"oy2[a-z0-9]{{43}}(?!{_A})"),
    _Shape("artifactory", "AKCp cmVmdGtu", f"(?:AKCp{_A}{{60,}}|cmVmdGtu{_A}{{56}})"),
    _Shape("docker", "dckr_pat_ dckr_oat_", f"dckr_[op]at_{_W}{{20,}}"),
    _Shape("linear", "lin_api_ lin_oauth_", f"lin_(?:api|oauth)_{_A}{{32,}}"),
    _Shape("figma", "figd_ figo_ figu_ figoh_ figor_ figuh_", f"fig[dou][hr]?_{_W}{{36,}}"),
    _Shape("postman", "PMAK- PMAT-", f"PMA[KT]-{_A}{{24,}}(?:-{_A}{{30,}})?"),
    _Shape("notion", "ntn_ secret_", f"(?:ntn_{_A}{{40,}}|secret_{_A}{{43}}(?!{_A}))"),
    _Shape("contentful", "CFPAT-", f"CFPAT-{_W}{{40,}}"),
    _Shape("sonar", "sqp_ squ_ sqa_", f"sq[pua]_{_H}{{40}}"),
    _Shape("launchdarkly", "sdk- api- mob-", f"(?:sdk|api|mob)-{_UUID}"),
    _Shape("typeform", "tfp_", r"tfp_[A-Za-z0-9_.=-]{50,}"),
    _Shape("readme", "rdme_", f"rdme_{_A}{{60,}}"),
    _Shape("prefect", "pnu_ pnb_", f"pn[ub]_{_A}{{36}}"),
    _Shape("1password", "ops_eyJ", r"ops_eyJ[A-Za-z0-9+/_-]{200,}=*"),
    _Shape("1password", "A3-", r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{5,11}-){3,5}[A-Z0-9]{5,11}"),
    _Shape("grafana", "glsa_ glc_", f"(?:glsa_{_A}{{32}}_[A-Fa-f0-9]{{8}}|glc_[A-Za-z0-9+/]{{32,}}=*)"),
    _Shape("new-relic", "NRAK- NRJS- NRII- NRAL- NRAA-", f"NR(?:AK|JS|II|AL|AA)-{_W}{{19,}}"),
    _Shape("dynatrace", "dt0", r"dt0[a-z][0-9]{2}\.[A-Za-z0-9]{8,24}\.[A-Za-z0-9]{64}"),
    _Shape("sentry", "sntrys_ sntryu_", r"sntry[su]_[A-Za-z0-9+/=_-]{40,}"),
    _Shape("posthog", "phx_ phs_", f"ph[xs]_{_A}{{40,}}"),
)
_MODELS = (
    _Shape("model-provider", "sk-", f"sk-{_W}{{20,}}", vague=True),
    _Shape(
        "model-provider",
        "gsk_ xai- pplx- r8_ fw_ nvapi- csk- tgp_v1_ jina_ tvly- e2b_ lsv2_pt_ lsv2_sk_ pcsk_ fc- wandb_v1_",
        f"{_W}{{26,}}",
        vague=True,
    ),
    _Shape("penstock", "pk-", f"pk-[a-z0-9]{{12}}-{_W}{{43}}"),  # keys of our gateway
    _Shape("hugging-face", "hf_ api_org_", f"(?:hf|api_org)_{_A}{{30,}}"),
)
_MESSAGING = (
    _Shape(
        "slack",
        "xoxa- xoxb- xoxc- xoxd- xoxe- xoxe. xoxo- xoxp- xoxr- xoxs- xapp-",
        r"(?:xox[a-eoprs][.-]|xapp-)[A-Za-z0-9.%+/_-]{12,}",
    ),
    _Shape("slack", "hooks.slack.com/", rf"hooks\.slack\.com/[a-z]+/(?P<v>{_W}+/{_W}+/{_W}+(?:/{_W}+)?)"),
    _Shape("discord", "/webhooks/", f"/webhooks/[0-9]{{15,20}}/(?P<v>{_W}{{50,}})"),
    _Shape(
        "discord",
        "Bot .run( .login(",
        rf"(?:Bot\ |\.(?:run|login)\(\\{{0,63}}['\"`])(?P<v>[MNO]{_W}{{22,27}}\.{_W}{{6}}\.{_W}{{27,}})",
    ),
    _Shape("discord", _NUMBER_STARTS, rf"{_A}{{22,27}}\.{_W}{{6}}\.{_W}{{27,}}"),
    _Shape(
        "twilio",
        "'AC \"AC",
        rf"['\"]AC{_H}{{32}}\\{{0,63}}['\"]\s{{0,8}},\s{{0,8}}\\{{0,63}}['\"](?P<v>{_H}{{32}})(?!{_A})",
    ),
    _Shape(
        "teams", "webhook.office.com/webhookb2/", r"webhook\.office\.com/webhookb2/(?P<v>[A-Za-z0-9@/-]{40,})"
    ),
    _Shape("telegram", "/bot", f"/bot(?P<v>[0-9]{{8,10}}:AA{_W}{{32,34}})(?!{_W})"),
    _Shape("telegram", ":AA", f"[0-9]{{8,10}}:AA{_W}{{32,34}}(?!{_W})", (8, 9, 10)),
    _Shape("twilio", " ".join(f"SK{digit}" for digit in _HEX_STARTS), f"SK{_H}{{32}}(?!{_A})"),
    _Shape("sendgrid", "SG.", r"SG\.[A-Za-z0-9_=.-]{50,}"),
    _Shape("mailgun", "key-", f"key-{_H}{{32}}(?!{_A})"),
    _Shape("mailchimp", "-us", f"{_H}{{32}}-us[0-9]{{1,2}}(?!{_A})", (32,)),
    _Shape("brevo", "xkeysib- xsmtpsib-", f"x(?:key|smtp)sib-{_H}{{60,}}-{_A}{{16}}"),
    _Shape("resend", "re_", f"re_{_A}{{6,10}}_{_A}{{20,}}"),
    _Shape("hubspot", "pat-na1- pat-eu1- pat-na2-", f"pat-[a-z]{{2}}[0-9]-{_UUID}"),
)
_PAYMENTS = (
    _Shape(
        "stripe",
        "sk_live_ sk_test_ rk_live_ rk_test_ sk_prod_ rk_prod_ whsec_",
        r"(?:[sr]k_(?:live|test|prod)|whsec)_[A-Za-z0-9+/]{16,}=*",
    ),
    _Shape("shopify", "shpat_ shpca_ shppa_ shpss_ shpua_", r"shp(?:at|ca|pa|ss|ua)_[0-9a-fA-F]{32,}"),
    _Shape("square", "sq0", f"sq0[a-z]{{3}}-{_W}{{22,}}"),
    _Shape("square", "EAAA", f"EAAA{_W}{{56,}}"),
    _Shape("meta", "EAAB EAAC EAAF EAAG", f"EAA[BCFG]{_A}{{60,}}"),
    _Shape("flutterwave", "FLWSECK", f"FLWSECK(?:_TEST)?-{_A}{{12,}}(?:-X)?"),
    _Shape("easypost", "EZAK EZTK", f"EZ[AT]K{_A}{{54}}"),
    _Shape("shippo", "shippo_", f"shippo_(?:live|test)_{_H}{{40}}"),
    _Shape("razorpay", "rzp_", f"rzp_(?:live|test)_{_A}{{14,}}"),
    _Shape("braintree", "access_token$", rf"access_token\$[a-z]{{4,12}}\$[a-z0-9]{{16}}\${_H}{{32}}"),
    _Shape("plaid", "access-sandbox- access-production- access-development-", f"access-[a-z]+-{_UUID}"),
    _Shape("dropbox", "sl.", rf"sl\.(?:u\.)?{_W}{{100,}}"),
    _Shape("airtable", _PAT_STARTS, rf"pat{_A}{{14}}\.{_H}{{64}}"),
)
_CRYPTO = (
    _Shape("wallet", "xprv yprv zprv tprv", "[xyzt]prv[1-9A-HJ-NP-Za-km-z]{90,}"),
    _Shape("grafana", "eyJrIjoi", f"eyJrIjoi{_A}{{40,}}={{0,2}}"),
    _Shape("cloudflare", "v1.0-", f"v1\\.0-{_H}{{24}}-{_H}{{64,}}"),
    _Shape("age", "AGE-SECRET-KEY-1", "AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _Shape(
        "jwt",
        "eyJ",
        rf"(?<![+/.])eyJ{_W}{{8,}}\.(?:{_W}{{8,}}(?:\.{_W}{{8,}}){{1,3}}|eyJ{_W}{{8,}})",
    ),
    _Shape("password-hash", "$2a$ $2b$ $2y$", r"\$2[aby]\$[0-9]{2}\$[./A-Za-z0-9]{53}"),
    _Shape(
        "password-hash",
        "$5$ $6$ $y$",
        r"\$[56y]\$[^\s:\"'$]{1,40}\$(?:[^\s:\"'$]{1,40}\$)?[./A-Za-z0-9]{40,}",
    ),
    _Shape("password-hash", "$apr1$", r"\$apr1\$[^\s:\"'$]{1,16}\$[./A-Za-z0-9]{22}"),
    _Shape("password-hash", "$argon2", r"\$argon2(?:id|i|d)\$[A-Za-z0-9+/=,$]{40,}"),
)
_OTHER_ISSUERS = (
    # Prefixes that no one else uses: behind them any drawn run will do.
    "AIK_CI_ AIK_SECRET_ apify_api_ p8e- $aact_prod_ BBDC- BSAA bkpt_ bkua_ CCIPAT_ CCIPRJ_ cfut_ cfat_ csa_ CCDB1_ "
    "configcat-sdk-1/ AstraCS: ddp_ ddo_ dvc_server_ apk_user_ cog_ SWMTKN-1- SWMKEY-1- duffel_live_ duffel_test_ essu_ "
    "fio-u- ico- ion_ lip_ llx- mlsn. mercury_production_ mergify_application_key_ napi_ nyk_ API- os_v2_ api_live. "
    "api_live_us. api_live_ca. api_sandbox. sha256~ pdl_live_apikey_ pdl_sdbx_apikey_ persona_production_ pina_ polar_at_ "
    "polar_oat_ polar_pat_ rpa_ rnd_ rootly_ samsara_api_ tk-us- tk-eu- sgp_ sm_aat_ sm_pat_ sm_sat_ tss_ unkey_ ucat_ vtwn_ "
    "vck_ vca_ vcr_ vci_ vcp_ waka_ xnd_production_ zpka_ packagist_ort_ packagist_out_ packagist_acs_ sk_car_ AQ.Ab pa- "
    "bedrock-api-key- endr+ sk-lf- STS. wandb_v1_ atlas_ mdb_sa_sk_ key_live_ scp_ gitea_ lsk_ ATATT AGE-PLUGIN- sb_secret_"
)
_ISSUED = (_Shape("issued-token", _OTHER_ISSUERS, r"[A-Za-z0-9$][A-Za-z0-9$_:~+/.-]{19,}={0,2}", vague=True),)


_LONGEST = 4000
_JUDGED = 256  # characters of a token that are enough to judge it by
_OPEN_END = re.compile(r"(?<=[\]\w)]\{)([0-9]+),\}")
_REST_OF_RUN = re.compile(r"[A-Za-z0-9_-]*+")
_YOURS = re.compile(r"(?i:your)[-_](?i:own|slack|bot|app|api|secret|access|personal|token|key)")


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    """Compiled when an anchor is first seen: most texts hold none.

    No part of it takes more than so many characters, and gives none back, so that what a hostile text can
    make it read is bounded.
    """
    return re.compile(_OPEN_END.sub(rf"\1,{_LONGEST}}}+", pattern))


def _stands_free(text: str, start: int) -> bool:
    """Returns True if the token is not the rest of a word or of base64. The letter of an escape is no word."""
    if ends_escape(text, start):
        return True
    before = text[start - 1] if start else " "
    if before in "+/" and text[start : start + 4].isalnum():
        return False
    return not (before.isalnum() or before in "_-")


def _is_filled(token: str) -> bool:
    """Returns True if the token is not a filler such as xxxx, 0000 or your-token-here."""
    return len(set(token)) >= 9 and not is_masked(token) and _YOURS.search(token) is None


def _rule(shape: _Shape) -> RedactionRule:
    is_secret = looks_random if shape.vague else _is_filled
    led_to = "(?P<v>" in shape.pattern

    def find(text: str, start: int, _end: int) -> Iterator[Secret]:
        for before in shape.before:
            begin = start - before
            if begin < 0 or not (led_to or _stands_free(text, begin)):
                continue
            match = _compile(shape.pattern).match(text, begin)
            if match and is_secret(match["v" if led_to else 0][:_JUDGED]):
                rest = _REST_OF_RUN.match(text, match.end())
                yield Secret(
                    match.start("v" if led_to else 0), rest.end() if rest else match.end(), shape.kind
                )

    return RedactionRule(tuple(shape.anchors.split()), find, not led_to and shape.before == (0,))


RULES = tuple(
    _rule(shape) for shape in (*_CLOUD, *_CODE, *_MODELS, *_MESSAGING, *_PAYMENTS, *_CRYPTO, *_ISSUED)
)
