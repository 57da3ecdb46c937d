"""Every way in which JSON may write a text, by itself or inside JSON again."""

import json
import random
import re
from collections.abc import Callable, Iterable

__all__ = ["ESCAPINGS", "decode_all", "escape", "escape_at_random"]


def _escape_characters(text: str, which: Callable[[str], bool]) -> str:
    """Returns a JSON string in which the chosen characters are written as `\\uXXXX`."""
    written = []
    for char in text:
        if which(char):
            units = char.encode("utf-16-be", "surrogatepass")
            written += [f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2)]
        else:
            written.append(json.dumps(char, ensure_ascii=False)[1:-1])
    return '"' + "".join(written) + '"'


_HEXADECIMAL = re.compile(r"(?<!\\)\\u([0-9a-f]{4})")

ESCAPINGS: dict[str, Callable[[str], str]] = {
    "ascii": json.dumps,
    "plain": lambda text: json.dumps(text, ensure_ascii=False),
    "slashes": lambda text: json.dumps(text, ensure_ascii=False).replace("/", "\\/"),
    "html": lambda text: _escape_characters(text, "<>&='".__contains__),
    "signs": lambda text: _escape_characters(text, lambda char: not char.isalnum()),
    "capitals": lambda text: _escape_characters(text, str.isupper),
    "letters": lambda text: _escape_characters(text, str.isalpha),
    "every character": lambda text: _escape_characters(text, lambda char: True),
}
"""How each writer writes a JSON string: Python, Go (`<>&`), PHP (`/`), and those who escape more than they must."""


def escape(text: str, *names: str) -> str:
    """Returns `{"output": text}` as JSON, and that again inside JSON for each further way."""
    for name in names:
        text = '{"output":' + ESCAPINGS[name](text) + "}"
    return text


_AROUND = (
    '{"output":%s}',
    "[%s]",
    '{"a":{"b":[1,%s,null]}}',
    "%s",
    '{"content":[{"type":"text","text":%s}]}',
    '{"note":"x", "cmd" : %s , "n":1}',
)


def escape_at_random(text: str, rng: random.Random, depth: int) -> str:
    """Returns JSON that holds the text, `depth` levels deep; what must not be escaped is escaped here and there."""
    for _ in range(depth):
        share = rng.choice([0, 0, 0.05, 0.2, 0.5, 1])
        written = _escape_characters(text, lambda _, share=share: rng.random() < share)
        if rng.random() < 0.5:
            written = written.replace("/", "\\/")
        if rng.random() < 0.5:
            written = _HEXADECIMAL.sub(lambda code: "\\u" + code[1].upper(), written)
        text = rng.choice(_AROUND).replace("%s", written)
    return text


def decode_all(text: str) -> Iterable[str]:
    """Yields the text and all strings in it that decoding shows, however deep; what is no JSON is left."""
    yield text
    try:
        waiting = [json.loads(text, strict=False)]
    except ValueError:
        return
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            waiting += [*node.values(), *node]
        elif isinstance(node, list):
            waiting += node
        elif isinstance(node, str):
            yield from decode_all(node)
