"""Facts learned about models, kept in a store.

They say how providers count, and how large windows and answers may be, by model and endpoint, across
restarts. If two processes learn at the same time, both build on what is in the store, and the last to write
wins: of two reports at the very same moment one may be lost, and the next one makes up for it. If the
store fails, the log says so, and what this process learns lives as long as the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock._log import log
from penstock.errors import UnknownSession
from penstock.measure.calibration import Calibration
from penstock.stores.shelf import StoreShelf, open_shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.errors import StoreError
    from penstock.stores.shelf import Shelf
    from penstock.stores.store import Store

__all__ = ["Learned", "PartNotes", "notes_for"]

_LEAST_WINDOW, _MOST_WINDOW = 1_024, 10_000_000
_READ_CALIBRATION = msgspec.json.Decoder(Calibration).decode
_LEAST_CAP = 256  # tokens: no model is limited to less, so a smaller number meant something else


class Learned:
    """The facts that a store has about models."""

    def __init__(self, store: Store) -> None:
        self._calibrations = StoreShelf(store, "calibration", on_failure=_warn)
        self._windows = StoreShelf(store, "window", on_failure=_warn)
        self._output_caps = StoreShelf(store, "output cap", on_failure=_warn)

    def calibration(self, model: str, endpoint: str = "") -> Calibration:
        """Returns how the provider counts, in relation to us."""
        note = self._calibrations.get(_key(model, endpoint))
        try:
            return _READ_CALIBRATION(note) if note else Calibration()
        except msgspec.DecodeError:  # of another version
            return Calibration()

    def observe(self, model: str, endpoint: str, counted_tokens: int, reported_tokens: int) -> Calibration:
        """Learns from one more response, and returns the calibration after it."""
        before = self.calibration(model, endpoint)
        after = before.observe(counted_tokens, reported_tokens)
        if after != before:
            self._calibrations.put(_key(model, endpoint), msgspec.json.encode(after))
        return after

    def window(self, model: str, endpoint: str = "") -> int | None:
        """Returns the window that the provider stated in an error, or None."""
        return _read_number(self._windows.get(_key(model, endpoint)))

    def learn_window(self, model: str, endpoint: str, tokens: int) -> None:
        """Keeps a window that the provider stated; a number that cannot be one is ignored.

        Guesses do not belong here.
        """
        if _LEAST_WINDOW <= tokens <= _MOST_WINDOW and tokens != self.window(model, endpoint):
            self._windows.put(_key(model, endpoint), str(tokens).encode())

    def output_cap(self, model: str, endpoint: str = "") -> int | None:
        """Returns the most tokens of an answer that the provider lets the model be asked for, as it stated; or None."""
        return _read_number(self._output_caps.get(_key(model, endpoint)))

    def learn_output_cap(self, model: str, endpoint: str, tokens: int) -> None:
        """Keeps the most tokens of an answer that the provider stated for the model.

        Guesses do not belong here.
        """
        if _LEAST_CAP <= tokens <= _MOST_WINDOW and tokens != self.output_cap(model, endpoint):
            self._output_caps.put(_key(model, endpoint), str(tokens).encode())

    def accept_prompt(self, model: str, endpoint: str, prompt_tokens: int) -> None:
        """Forgets a window that is smaller than a prompt which the provider has just answered."""
        window = self.window(model, endpoint)
        if window is not None and prompt_tokens > window:
            self._windows.put(_key(model, endpoint), b"")


class PartNotes:
    """A model's notes on parts of a conversation, on a shelf, by a digest of each part.

    They go through `redact` before they are kept.
    """

    def __init__(self, shelf: Shelf, redact: Callable[[str], str] = str) -> None:
        self._shelf = shelf
        self._redact = redact

    def get(self, key: str) -> str | None:
        """Returns the notes, or None."""
        found = self._shelf.get(f"notes/{key}")
        return None if found is None else found.decode("utf-8", "replace")

    def put(self, key: str, notes: str) -> None:
        """Keeps the notes."""
        self._shelf.put(f"notes/{key}", self._redact(notes).encode("utf-8", "replace"))


def notes_for(store: Store, session_id: str, redact: Callable[[str], str]) -> PartNotes | None:
    """Returns the notes on a session's conversation, kept beside it.

    Returns None if the store does not know the session.
    """
    try:
        store.session(session_id)
    except UnknownSession:  # the host keeps this one elsewhere
        return None
    return PartNotes(open_shelf(store, session_id, _warn), redact)


def _key(model: str, endpoint: str) -> str:
    """Returns the key of a model.

    No id of a session begins so, or it would take the note with it when it is deleted.
    """
    return f"model:{model}@{endpoint}"


def _read_number(note: bytes | None) -> int | None:
    return int(note) if note and note.isdigit() else None


def _warn(error: StoreError) -> None:
    log.warning("what was learned about a model could not be read or kept: %s", error)
