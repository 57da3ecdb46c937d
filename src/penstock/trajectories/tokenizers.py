"""Tokenizers by the names that a command takes: public encodings, or a `tokenizer.json` beside a model."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import SettingsError
from penstock.measure.tokens import tokenizer_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.measure.tokens import Tokenizer

__all__ = ["FileTokenizer", "located", "tokenizer_of"]

_NAMES = {"o200k": "o200k_base", "cl100k": "cl100k_base"}


@lru_cache(maxsize=8)
def tokenizer_of(name: str) -> Tokenizer:
    """The tokenizer of that name or file. Raises SettingsError for a name or a file that is none."""
    if _is_path(name):
        return FileTokenizer(_file(name))
    try:
        return tokenizer_named(_NAMES.get(name, name))
    except SettingsError:
        raise SettingsError(
            f"tokenizer {name!r} is not known; use o200k, cl100k or the path of a tokenizer.json"
        ) from None


def located(name: str) -> str:
    """The same tokenizer, for a process that works in another folder."""
    return str(Path(name).absolute()) if _is_path(name) else name


class FileTokenizer:
    """A `tokenizer.json`, read by the library that defines the format. Special tokens in a text count as text does."""

    exact = True

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer as Loaded  # noqa: PLC0415 - an extra, and slow to load
        except ImportError:
            raise SettingsError(
                "a tokenizer.json needs the package tokenizers: pip install 'penstock[trajectories]'"
            ) from None
        self.name = str(file)
        try:
            self._loaded: Any = Loaded.from_file(str(file))
        except Exception as error:  # noqa: BLE001 - the library raises nothing more special for a bad file
            raise SettingsError(f"{file} is no tokenizer that can be read: {error}") from None
        self._loaded.no_truncation()
        self._loaded.no_padding()

    def count(self, text: str) -> int:
        """Tokens in `text`, without those that mark its start and end."""
        return self.count_many([text])[0]

    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Tokens in each of `texts`, in their order."""
        clean = [text if text.isascii() else _without_lone_surrogates(text) for text in texts]
        return [len(one.ids) for one in self._loaded.encode_batch_fast(clean, add_special_tokens=False)]


def _is_path(name: str) -> bool:
    return name.endswith(".json") or "/" in name or "\\" in name or Path(name).is_dir()


def _file(name: str) -> Path:
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise SettingsError(f"there is no tokenizer file {name}; give the path of a tokenizer.json")
    return file.resolve()


def _without_lone_surrogates(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
