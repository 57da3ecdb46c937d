"""The options of a compression: for one trajectory, for its tokenizer, and for the model that may write its summary."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.errors import SettingsError, name_install
from penstock.measure.tokens import replace_lone_surrogates, tokenizer_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.measure.tokens import Tokenizer

__all__ = [
    "MODEL_TIMEOUT_SECONDS",
    "SYSTEM_NOTE",
    "FileTokenizer",
    "ModelOptions",
    "TrajectoryOptions",
    "locate_tokenizer",
    "tokenizer_of",
]


MODEL_TIMEOUT_SECONDS = 120.0
SYSTEM_NOTE = "Some earlier turns of this conversation may be replaced by a summary of them."
_LEAST_SUMMARY = 100
_MOST_PASSES = 8
_NAMES = {"o200k": "o200k_base", "cl100k": "cl100k_base"}


class TrajectoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options for one trajectory. Raises SettingsError for a value that makes no sense.

    `target_tokens` bounds all turns together, `summary_tokens` the turn that takes the place of others. The first
    system, human, gpt and tool turn and the last `keep_last` turns stay. If that alone is too much, each further
    pass of `passes` keeps half as many turns at the end. `system_note` adds a sentence to the system turn: True ours, a
    text that one. `tokenizer` is "o200k", "cl100k" or the path of a `tokenizer.json`. With `shorten_protected`, turns
    that must stay and are too large by themselves lose their middle.
    """

    target_tokens: int = 15_250
    summary_tokens: int = 750
    keep_last: int = 4
    passes: int = 1
    system_note: bool | str = False
    tokenizer: str = "o200k"
    shorten_protected: bool = False

    def __post_init__(self) -> None:
        """Raises SettingsError."""
        _require_number("target_tokens", self.target_tokens, 1)
        _require_number("summary_tokens", self.summary_tokens, _LEAST_SUMMARY)
        _require_number("keep_last", self.keep_last, 1)
        _require_number("passes", self.passes, 1, _MOST_PASSES)
        if self.summary_tokens >= self.target_tokens:
            raise SettingsError(
                f"summary_tokens is {self.summary_tokens:,} and target_tokens {self.target_tokens:,}; "
                "a summary must be smaller than the target"
            )
        if isinstance(self.system_note, str) and not self.system_note.strip():
            raise SettingsError(
                "system_note is an empty text; give the sentence, or true for the built-in one"
            )

    @property
    def note(self) -> str:
        """The sentence that the system turn gets; empty if it gets none."""
        if isinstance(self.system_note, str):
            return self.system_note.strip()
        return SYSTEM_NOTE if self.system_note else ""


class ModelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The model that writes summaries. The key itself is read from its variable where it is used.

    `timeout_seconds` is what one row may take in all, repeats included. `concurrency` is how many rows wait for the
    model at once, over all workers.
    """

    name: str
    provider: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    window_tokens: int | None = None
    timeout_seconds: float = MODEL_TIMEOUT_SECONDS
    concurrency: int = 16

    def __post_init__(self) -> None:
        """Raises SettingsError."""
        if not self.name.strip():
            raise SettingsError("no model was named; give the name by which its provider knows it")
        if not self.timeout_seconds > 0:
            raise SettingsError(f"timeout_seconds is {self.timeout_seconds:g}; it must be above 0")
        _require_number("concurrency", self.concurrency, 1, 1_024)


def _require_number(name: str, value: Any, least: int, most: int | None = None) -> None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number or value < least or (most is not None and value > most):
        limit = f"from {least:,} to {most:,}" if most is not None else f"of at least {least:,}"
        raise SettingsError(f"{name} is {value!r}; give a whole number {limit}")


@lru_cache(maxsize=8)
def tokenizer_of(name: str) -> Tokenizer:
    """Returns the tokenizer of that name or file. Raises SettingsError if there is none."""
    if _is_path(name):
        return FileTokenizer(_file(name))
    try:
        return tokenizer_named(_NAMES.get(name, name))
    except SettingsError:
        raise SettingsError(
            f"unknown tokenizer {name!r}; use o200k, cl100k or the path of a tokenizer.json"
        ) from None


def locate_tokenizer(name: str) -> str:
    """Returns the name of the same tokenizer for a process that works in another folder."""
    return str(Path(name).absolute()) if _is_path(name) else name


class FileTokenizer:
    """A `tokenizer.json`, read by the library that defines the format. Special tokens in a text count as text does."""

    exact = True

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer as Loaded  # noqa: PLC0415 - an extra, and slow to load
        except ImportError:
            raise SettingsError(
                f"a tokenizer.json needs the package tokenizers: {name_install('trajectories')}"
            ) from None
        self.name = str(file)
        try:
            self._loaded: Any = Loaded.from_file(str(file))
        except Exception as error:  # noqa: BLE001 - the library raises nothing more special for a bad file
            raise SettingsError(f"{file} cannot be read as a tokenizer: {error}") from None
        self._loaded.no_truncation()
        self._loaded.no_padding()

    def count(self, text: str) -> int:
        """Returns the tokens in `text`, without those that mark its start and end."""
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Returns the tokens in each of `texts`, in their order."""
        clean = [replace_lone_surrogates(text) for text in texts]
        return [len(one.ids) for one in self._loaded.encode_batch_fast(clean, add_special_tokens=False)]


def _is_path(name: str) -> bool:
    return name.endswith(".json") or "/" in name or "\\" in name or Path(name).is_dir()


def _file(name: str) -> Path:
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise SettingsError(f"there is no tokenizer file {name}; give the path of a tokenizer.json")
    return file.resolve()
