"""The one table of what providers say and what it means. Read from the top; the first row that fits decides.

A row is a text as a provider writes it, in lower case, with the numbers as names in angle brackets:

    <window>   the limit of prompt and answer together (or of the prompt: no provider tells it apart)
    <prompt>   what was sent          <asked>  what was asked for as an answer (`max_tokens`)
    <total>    prompt and answer      <cap>    the most that may be asked for     <below>  one more than that
    <other>    a number to step over, which is none of these
    <gap>      words in between

Rows that name nothing but words come after those with numbers, so that the numbers are found. The order between
the groups matters: what is about size comes before what is about time, and money before rates, because providers
put the one into the words of the other. What no row knows is decided by the status, in the last table.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache
from typing import Final

import msgspec

from penstock.errors import ErrorKind
from penstock.providers.error_text import NUMBER

__all__ = ["BY_STATUS", "Figures", "Row", "read_rows"]


class Figures(Enum):
    """Rows whose kind depends on their numbers."""

    STATED = "does the prompt fit the window alone?"
    LOWER_BOUND = "the prompt is only known to be at least so large"


class Row(msgspec.Struct, frozen=True):
    """One thing that providers say: what it means, the text, and who says so."""

    kind: ErrorKind | Figures
    pattern: re.Pattern[str]
    said_by: str


_TOO_LONG = ErrorKind.PROMPT_TOO_LONG
_CAP = ErrorKind.OUTPUT_CAP_TOO_LARGE
_PAYLOAD = ErrorKind.PAYLOAD_TOO_LARGE
_RATE = ErrorKind.RATE_LIMIT
_OVERLOAD = ErrorKind.OVERLOAD
_AUTH = ErrorKind.AUTH
_QUOTA = ErrorKind.QUOTA
_BAD = ErrorKind.BAD_REQUEST
_TIMEOUT = ErrorKind.TIMEOUT

_MAX_TOKENS = r"max_(?:completion_|output_|new_)?tokens"

_TABLE: Final[tuple[tuple[ErrorKind | Figures, str, str], ...]] = (
    # -- Money, in words about tokens. Fewer tokens would pass, but only until the money is gone.
    (_QUOTA, r"requires more credits, or fewer max_tokens<gap>can only afford <cap>", "OpenRouter"),
    (_QUOTA, r"prompt tokens limit exceeded: <prompt> > <other>", "OpenRouter"),
    # -- More than the account may send in a minute, or at all. Waiting never helps, a smaller request does;
    #    and the limit is the account's, not the model's window.
    (_PAYLOAD, r"request too large for<gap>limit <other>, requested <other>", "OpenAI, Groq"),
    (_PAYLOAD, r"extra usage is required for long context", "Anthropic"),
    # -- Prompt and answer together. The numbers tell which of them is too large.
    (
        Figures.LOWER_BOUND,
        (
            r"maximum context length is <window> tokens<gap>requested <asked> output tokens and your prompt contains"
            r" at least <prompt> input tokens"
        ),
        "vLLM",
    ),
    (
        Figures.STATED,
        (
            r"is too large: <asked>\. this model's maximum context length is <window> tokens and your request has"
            r" <prompt> input tokens"
        ),
        "vLLM",
    ),
    (
        Figures.STATED,
        r"passed <prompt> input tokens and requested <asked> output tokens<gap>context length is only <window>",
        "vLLM",
    ),
    (
        Figures.STATED,
        (
            r"maximum context length is <window> tokens<gap>requested (?:about )?<total> ?tokens"
            r" \([^()]{0,160}?<asked> (?:in|for) the (?:completion|output)\)"
        ),
        "OpenAI, Azure, DeepSeek, OpenRouter, vLLM",
    ),
    (
        Figures.STATED,
        (
            r"maximum context length of <window> tokens<gap>total of <total> tokens: <prompt> tokens from the input"
            r" messages and <asked> tokens for the completion"
        ),
        "SGLang",
    ),
    (Figures.STATED, r"exceed context limit: <prompt> \+ <asked> > <window>", "Anthropic, Bedrock"),
    (
        Figures.STATED,
        r"must be <= <window>\. given: <prompt> `inputs` tokens and <asked> `max_new_tokens`",
        "Together, TGI",
    ),
    # -- The answer alone.
    (_CAP, r"max_tokens: <asked> > <cap>, which is the maximum allowed number of output tokens", "Anthropic"),
    (
        _CAP,
        r"is too large: <asked>\. this model supports at most <cap> (?:completion|output) tokens",
        "OpenAI, Azure",
    ),
    (_CAP, _MAX_TOKENS + r"<gap>expected a value <= <cap>", "OpenAI, Volcano Engine"),
    (_CAP, _MAX_TOKENS + r"`? must be (?:less than or equal to|<=) `?<cap>", "Groq, TGI"),
    (_CAP, r"range of max_tokens (?:should be|is) \[\d+, ?<cap>\]", "DashScope, DeepSeek"),
    (_CAP, r"maximum tokens you requested exceeds? the model limit of <cap>", "Bedrock"),
    (_CAP, r"#/max_tokens: <asked> is not less or equal to <cap>", "Bedrock"),
    (
        _CAP,
        r"max_?output_?tokens value of <asked> but the supported range is from \d+ \(inclusive\) to <below> \(exclusive\)",
        "Gemini",
    ),
    (_CAP, _MAX_TOKENS + r"['`\"]? (?:value )?is too (?:large|high|big)", "in general"),
    # -- The prompt alone, with its numbers.
    (_TOO_LONG, r"prompt is too long: <prompt> tokens > <window> maximum", "Anthropic, Bedrock"),
    (_TOO_LONG, r"prompt is too long: <prompt>, model maximum context length: <window>", "Fireworks"),
    (
        # In some versions this "maximum" is the window less the answer asked for: it must not be learned.
        _TOO_LONG,
        r"maximum context length is <other> tokens<gap>your request has <prompt> input tokens<gap>parameter=input_tokens",
        "vLLM",
    ),
    (
        _TOO_LONG,
        r"maximum context length is <window> tokens<gap>(?:messages resulted in|your request has) <prompt>",
        "OpenAI, Azure, vLLM",
    ),
    (
        _TOO_LONG,
        r"input token count (?:\(<prompt>\) )?exceeds the maximum number of tokens allowed \(?<window>",
        "Gemini",
    ),
    (_TOO_LONG, r"cannot truncate to <window>, required <prompt>:", "Gemini"),
    (_TOO_LONG, r"`inputs` must have less than <window> tokens\. given: <prompt>", "TGI"),
    (_TOO_LONG, r"prompt contains <prompt> tokens<gap>too large for model with <window> maximum", "Mistral"),
    (_TOO_LONG, r"range of input length should be \[\d+, ?<window>\]", "DashScope"),
    (
        _TOO_LONG,
        r"input length <prompt> exceeds (?:the )?(?:maximum|context) length (?:of )?<window>",
        "Volcano Engine",
    ),
    (
        _TOO_LONG,
        (
            r"prompt \((?:total )?length <prompt>\) is (?:longer than|too long to fit into) the"
            r" (?:maximum model length of|model \(context length) <window>"
        ),
        "vLLM",
    ),
    (_TOO_LONG, r"request \(<prompt> tokens\) exceeds the available context size \(<window>", "llama.cpp"),
    (_TOO_LONG, r"requested tokens \(<prompt>\) exceed context window of <window>", "llama-cpp-python"),
    (_TOO_LONG, r"keep the first <prompt> tokens<gap>context length of only <window> tokens", "LM Studio"),
    (_TOO_LONG, r"n_keep:? ?\(?<prompt>\)? ?>= ?n_ctx:? ?\(?<window>", "LM Studio"),
    (_TOO_LONG, r"reached context length of <window> tokens", "LM Studio"),
    (
        _TOO_LONG,
        r"input \(<prompt> tokens\) is longer than the model'?s context length \(<window>",
        "Together, SGLang",
    ),
    (_TOO_LONG, r"maximum prompt length is <window> but the request contains <prompt>", "xAI"),
    (_TOO_LONG, r"current length is <prompt> while limit is <window>", "Cerebras"),
    (_TOO_LONG, r"exceeded model token limit: <window> \(requested: <prompt>\)", "Moonshot"),
    (_TOO_LONG, r"prompt token count of <prompt> exceeds the limit of <window>", "GitHub Copilot"),
    (_TOO_LONG, r"prompt_tokens \(<prompt>\) must be less than max_seq_len \(<window>\)", "SiliconFlow"),
    (_TOO_LONG, r"maximum (?:context|model|prompt|input) length (?:is|of) <window> tokens", "in general"),
    # -- The prompt alone, in words only.
    (
        _TOO_LONG,
        r"max_tokens must be at least 1, got -\d",
        "vLLM: what is left of the window is less than nothing",
    ),
    (
        _TOO_LONG,
        r"exceeds the available context size|exceed_context_size|context shift is disabled",
        "llama.cpp",
    ),
    (
        _TOO_LONG,
        r"context size has been exceeded|tokens to keep from the initial prompt is greater",
        "LM Studio",
    ),
    (
        _TOO_LONG,
        r"input length exceeds (?:the |maximum )?context length|exceeded max context length",
        "Ollama",
    ),
    (
        _TOO_LONG,
        r"input is too long for requested model|input tokens? exceeded|too many input tokens",
        "Bedrock",
    ),
    (
        _TOO_LONG,
        r"context_length_exceeded|context_window_exceeded|max_prompt_tokens_exceeded",
        "OpenAI, Groq",
    ),
    (_TOO_LONG, r"exceeds? the (?:model's )?(?:context window|(?:maximum )?context length)", "OpenAI"),
    (_TOO_LONG, r"context window exceeds limit|prompt (?:is too long|exceeds max)", "MiniMax, Z.ai"),
    (_TOO_LONG, r"reduce the length of the (?:messages|prompt|input)", "in general"),
    (
        _TOO_LONG,
        (
            r"(?:prompt|input|context|conversation|messages)[^\n]{0,60}(?:too long|exceed)[^\n]{0,60}"
            r"(?:token limit|tokens allowed|context (?:length|window|size|limit)|max(?:imum)? tokens)"
        ),
        "in general",
    ),
    # -- Bytes, characters, messages: a smaller request passes, and no window is stated.
    (
        _PAYLOAD,
        r"request_too_large|(?:request entity|request body|payload|content) too large",
        "Anthropic, proxies",
    ),
    (_PAYLOAD, r"request (?:is )?too large|request exceeds the maximum size", "Anthropic, Groq"),
    (
        _PAYLOAD,
        r"expected maxlength: \d+, actual: \d+|member must have length less than or equal to",
        "Bedrock",
    ),
    (_PAYLOAD, r"string too long|string_above_max|'(?:messages|input)[^']{0,40}': array too long", "OpenAI"),
    (_PAYLOAD, r"string value length \(\d+\) exceeds the maximum allowed", "DashScope"),
    (_PAYLOAD, r"too many tokens in batch|max_tokens_per_request", "Mistral, OpenAI"),
    # -- An allowance with a wait, in texts that also speak of days and billing; then a day's that is used up.
    (_RATE, r"(?:rate limit reached|per day)<gap>try again in \d", "Groq, OpenAI"),
    (_QUOTA, r"per[ -]day|perday|free allocated quota exceeded", "Gemini, Bedrock, OpenRouter, DashScope"),
    # -- A minute's allowance, in the words of a quota.
    (_RATE, r"#token-limit|allocated quota exceeded|throttling\.", "DashScope"),
    (_RATE, r"resource_exhausted|resource (?:has been )?exhausted", "Gemini"),
    # -- Money.
    (
        _QUOTA,
        r"insufficient[_ ](?:quota|balance|credits?|funds)|exceeded your current quota",
        "OpenAI, DeepSeek",
    ),
    (
        _QUOTA,
        r"credit balance is too low|billing[_ ](?:hard|not|error|details)|payment[_ ]required|more credits",
        "Anthropic, OpenRouter",
    ),
    (_QUOTA, r"arrearage|account is in good standing", "DashScope"),
    (
        _QUOTA,
        r"usage[_ ]limit|spend(?:ing)?[_ ]limit|servicequotaexceeded|quota[_ ]exceeded",
        "Ollama, Bedrock",
    ),
    # -- Too busy, broken, or not ready: before rates, because several send it with 429.
    (
        _OVERLOAD,
        r"overloaded|over capacity|at capacity|capacity exceeded|high demand|peak load",
        "Anthropic, Mistral, Azure",
    ),
    (
        _OVERLOAD,
        r"loading model|model is (?:currently |still )?loading|currently loading|modelnotready",
        "llama.cpp",
    ),
    (
        _OVERLOAD,
        r"(?:server|service) (?:is )?(?:too )?busy|pending requests exceeded|no slots available",
        "Ollama, DeepSeek",
    ),
    (
        _OVERLOAD,
        r"(?:temporarily|service|currently) ?unavailable|unavailable_error|bad gateway",
        "proxies, Bedrock",
    ),
    (_OVERLOAD, r"server_error|internal ?server ?(?:error|exception)|server had an error", "OpenAI, Bedrock"),
    # -- Too often.
    (_RATE, r"rate[ _-]?limit|too many requests|requests_limit|throttl", "everyone"),
    (_RATE, r"too many (?:tokens|connections), please wait|(?:tokens|requests) per min", "Bedrock"),
    # -- The content, not the caller.
    (
        _BAD,
        r"content[_ ](?:filter|management policy|policy)|moderation|flagged|data_?inspection",
        "Azure, OpenRouter, DashScope",
    ),
    (
        _BAD,
        r"(?:model|resource)_not_found|model<gap>(?:not found|does not exist)|no endpoints found",
        "everyone",
    ),
    # -- The caller.
    (
        _AUTH,
        r"(?:invalid|incorrect)[_ ](?:x-)?api[_ -]?key|api[_ ]?key (?:not valid|is invalid|expired)",
        "OpenAI, Gemini",
    ),
    (
        _AUTH,
        r"authentication|unauthorized|unauthenticated|no auth credentials|invalid_?api_?key",
        "Anthropic, DeepSeek",
    ),
    (
        _AUTH,
        r"permission[_ ](?:error|denied)|access ?denied|don't have access to the model",
        "Anthropic, Azure, Bedrock",
    ),
    (
        _AUTH,
        r"security token included|unrecognizedclient|expiredtoken|invalid access token",
        "Bedrock, DashScope",
    ),
    # -- Too slow.
    (
        _TIMEOUT,
        r"timed out|time-out|timeout (?:occurred|error)|timeout_error|request[_ ]?timeout",
        "proxies, Anthropic",
    ),
    (_TIMEOUT, r"deadline[_ ]exceeded|modeltimeoutexception", "Gemini, Bedrock"),
    # -- Not reached, or lost on the way.
    (
        ErrorKind.NETWORK,
        r"connection ?(?:error|reset|refused|aborted)|closed connection|upstream connect error|econn(?:reset|refused)",
        "proxies, relays",
    ),
)

BY_STATUS: Final[tuple[tuple[range, ErrorKind], ...]] = (
    (range(401, 402), _AUTH),
    (range(402, 403), _QUOTA),
    (range(403, 404), _AUTH),
    (range(407, 408), _AUTH),
    (range(408, 409), _TIMEOUT),
    (range(409, 410), _OVERLOAD),  # a conflict with itself: both big SDKs try again
    (range(413, 414), _PAYLOAD),
    (range(425, 426), _OVERLOAD),
    (range(429, 430), _RATE),
    (range(300, 500), _BAD),
    (range(504, 505), _TIMEOUT),
    (
        range(522, 523),
        _TIMEOUT,
    ),  # Cloudflare's own: the provider does not answer, is not there, or not reached
    (range(524, 525), _TIMEOUT),
    (range(529, 530), _OVERLOAD),
    (range(520, 531), ErrorKind.NETWORK),
    (range(598, 600), _TIMEOUT),
    (range(500, 600), _OVERLOAD),
)


def _row(kind: ErrorKind | Figures, text: str, said_by: str) -> Row:
    plain = text.replace("<gap>", r"[^\n]{0,240}?").replace("<other>", f"(?:{NUMBER})")
    pattern = re.sub(r"<([a-z]+)>", lambda name: f"(?P<{name[1]}>{NUMBER})", plain)
    return Row(kind, re.compile(pattern), said_by)


@cache
def read_rows() -> tuple[Row, ...]:
    """Returns the table with its patterns compiled, which takes 30 ms and waits for the first error."""
    return tuple(_row(*row) for row in _TABLE)
