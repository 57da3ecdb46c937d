"""The embedding model of the extra `semantic`: WordLlama, from the files that its package carries.

A vector for each piece of a word, trained so that the sum over a text says what the text means. Its package
is not imported: that would set up logging for the whole process, and its own loader looks for the tokenizer
on the network. Nothing is downloaded here.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.errors import SettingsError, name_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from penstock.recall.embedding import Embedder
    from penstock.settings import Settings

__all__ = ["WordLlama", "embedder_for", "wordllama"]

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_MISSING = f'recall.semantic needs the extra "semantic": {name_install("semantic")}'
_DIMENSIONS = 256
# Words, and the words that names are made of; marks too, since prose has others than code. Numbers mean
# nothing here.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+|[^\w\s\ud800-\udfff]")
_LONGEST = 64  # letters of a word that count: what is longer is data
_REMEMBERED = 1 << 14  # words whose vectors are kept at hand: 16 MB
_MOST_WORDS = 4_096  # of a text


def embedder_for(settings: Settings) -> Embedder | None:
    """Returns the embedder that the settings ask for. Raises SettingsError if it is not installed."""
    return wordllama() if settings.recall.semantic else None


@cache
def wordllama() -> Embedder:
    """Returns the model, loaded once. Raises SettingsError if its package is not installed."""
    from importlib.metadata import version  # noqa: PLC0415 - takes longer to import than all of this module

    found = find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise SettingsError(_MISSING)
    folder = found.submodule_search_locations[0]
    try:
        weights = import_module("safetensors.numpy").load_file(f"{folder}/{_WEIGHTS}")["embedding.weight"]
        tokenizer = import_module("tokenizers").Tokenizer.from_file(f"{folder}/{_TOKENIZER}")
    except ImportError as error:
        raise SettingsError(_MISSING) from error
    return WordLlama(weights, tokenizer, f"wordllama-{version('wordllama')}-{_DIMENSIONS}")


class WordLlama:
    """An embedder over a table of vectors, one for each token of a tokenizer.

    It can be shared between threads.
    """

    dimensions = _DIMENSIONS

    def __init__(self, weights: NDArray[np.float16], tokenizer: Any, name: str) -> None:
        self.name = name
        self._weights = weights
        self._tokenizer = tokenizer
        self._lock = Lock()
        self._rows: dict[str, int] = {}  # of the words that are at hand, in `_vectors`
        self._vectors = np.zeros((_REMEMBERED, _DIMENSIONS), np.float32)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns a row of length 1 for each text; of zeros for a text without words."""
        sums = np.zeros((len(texts), _DIMENSIONS), np.float32)
        with self._lock:
            for place, text in enumerate(texts):
                sums[place] = self._vectors[self._find_rows(_WORD.findall(text)[:_MOST_WORDS])].sum(axis=0)
        lengths: NDArray[np.float32] = np.linalg.norm(sums, axis=1, keepdims=True)
        lengths[lengths == 0.0] = 1.0
        return sums / lengths

    def _find_rows(self, words: Sequence[str]) -> list[int]:
        try:
            return list(map(self._rows.__getitem__, words))
        except KeyError:
            self._learn(set(words))
            return list(map(self._rows.__getitem__, words))

    def _learn(self, words: set[str]) -> None:
        """Loads the vectors of these words; the others are forgotten if there is no room for both."""
        if len(self._rows.keys() | words) > _REMEMBERED:
            self._rows.clear()
        for word in words - self._rows.keys():
            tokens = self._tokenizer.encode(word[:_LONGEST], add_special_tokens=False).ids
            self._vectors[len(self._rows)] = self._weights[tokens].sum(axis=0, dtype=np.float32)
            self._rows[word] = len(self._rows)
