"""Stored conversations as one history: searched together, and read by handles that name the conversation, too.

`3f9a2c41/m12` is message m12 of the conversation whose id begins with 3f9a2c41. If one conversation is chosen, `m12` is enough.
Everything that leaves is redacted: who asks may not have seen it before.
"""

from __future__ import annotations

from itertools import islice
from pathlib import PurePath
from typing import TYPE_CHECKING

import msgspec

from penstock.accounts.conversations import find_conversation, iterate_conversations, make_title
from penstock.accounts.talk import read_talk, write_markdown
from penstock.config import redactor_of_process
from penstock.errors import UnknownHandle, UnknownSession
from penstock.integrations.client_history import CLIENT_NOTE, FOLDER_NOTE
from penstock.measure.tokens import tokenizer_for
from penstock.recall.semantic import embedder_for
from penstock.recall.tools import Budget, answer
from penstock.sessions.history import SessionHistory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.recall.history import Finding, HistoryPlace
    from penstock.recall.ranking import Wish
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow
    from penstock.writing.entities import EntityState

__all__ = ["Library", "LibraryScope", "ShelvedConversation"]

_ID_CHARS = 8
_WIDER = 6  # times as many findings are asked of all conversations where only some are meant
_SEARCHED_ALONE = 12  # conversations that are searched one by one where that was not enough
_MOST_ENTITIES_OF = 8  # conversations, the newest, whose entities are told
_MOST_LISTED = 200


class LibraryScope(msgspec.Struct, frozen=True, kw_only=True):
    """The conversations that are meant: one, or those of a folder, of a program, or of both; all if nothing is named."""

    session: str = ""
    folder: str = ""
    client: str = ""

    def holds_folder(self, folder: str) -> bool:
        """Returns True if the folder is the one of the scope, or inside it."""
        return not self.folder or (bool(folder) and PurePath(folder).is_relative_to(self.folder))


class ShelvedConversation(msgspec.Struct, frozen=True):
    """A conversation of the library, for a list: its id, its title and the number of its messages."""

    id: str
    title: str
    messages: int


class Library:
    """The history of all conversations in scope. A `History`, for the recall tools."""

    def __init__(self, store: Store, settings: Settings, scope: LibraryScope) -> None:
        self._store = store
        self._scope = scope
        self._redact = redactor_of_process(settings.redaction.detector).redact
        self._count = tokenizer_for(None).count
        self._embedder = embedder_for(settings)

    def answer(self, tool: str, arguments: object, tokens: int) -> str:
        """Returns the answer of a recall tool, as JSON of at most `tokens` tokens."""
        return answer(self, tool, arguments, Budget(self._count, tokens), redact=self._redact)

    def list_conversations(self, limit: int = _MOST_LISTED) -> list[ShelvedConversation]:
        """Returns the conversations in scope, the most recently used first."""
        return [
            ShelvedConversation(
                row.conversation, make_title(self._store, row, row.title), self._store.log_tip(row.id).length
            )
            for row in islice(self._rows(), limit)
        ]

    def write(self, conversation: str) -> str:
        """Returns a whole conversation as Markdown, with the handle of each message. Raises UnknownSession."""
        row = self._find(conversation)
        title = make_title(self._store, row, row.title)
        return write_markdown(title, read_talk(self._store, row.id)).decode()

    # The history.

    def search(self, query: str, wish: Wish) -> Sequence[Finding]:
        """Returns the best findings in the conversations in scope."""
        if self._scope.session:
            row = self._find(self._scope.session)
            return self._search_one(row, query, wish)
        narrow = bool(self._scope.folder or self._scope.client)
        wide = msgspec.structs.replace(wish, hits=wish.hits * _WIDER) if narrow else wish
        everywhere = self._store.search(query, wide, redact=self._redact, embedder=self._embedder)
        found = [one for one in everywhere if self._holds(one.session)][: wish.hits]
        known = {one.session for one in found}
        if narrow and len(found) < wish.hits:
            for row in islice(self._rows(), _SEARCHED_ALONE):
                if row.conversation not in known:
                    found += self._search_one(row, query, wish)
            found.sort(key=lambda one: -one.score)
        return [self._name(one) for one in found[: wish.hits]]

    def count_unsearched(self) -> int:
        """Returns how many messages of the store a search misses so far, because they are still to be indexed."""
        return self._store.count_unindexed()

    def describe(self, handle: str) -> HistoryPlace:
        """Returns what the handle stands for. Raises UnknownHandle."""
        row, inner = self._part(handle)
        place = self._history(row).describe(inner)
        inside = tuple(self._name_handle(row, one) for one in place.inside)
        return msgspec.structs.replace(place, handle=handle, inside=inside, in_view=False)

    def text(self, handle: str) -> str:
        """Returns all of it, redacted. Raises UnknownHandle."""
        row, inner = self._part(handle)
        return self._redact(self._history(row).text(inner))

    def entities(self) -> Sequence[EntityState]:
        """Returns what is known of each file, command, record and person, of the newest conversation first."""
        found: list[EntityState] = []
        for row in islice(self._rows(), _MOST_ENTITIES_OF):
            for state in self._history(row).entities():
                changes = tuple(
                    msgspec.structs.replace(one, handle=self._name_handle(row, one.handle))
                    for one in state.changes
                )
                tried = state.tried and msgspec.structs.replace(
                    state.tried, handle=self._name_handle(row, state.tried.handle)
                )
                found.append(
                    msgspec.structs.replace(
                        state, handle=self._name_handle(row, state.handle), changes=changes, tried=tried
                    )
                )
        return found

    # The conversations.

    def _rows(self) -> Iterator[SessionRow]:
        if self._scope.session:
            yield self._find(self._scope.session)
            return
        for one in iterate_conversations(self._store):
            if one.messages and self._holds(one.id):
                yield one.tip

    def _holds(self, conversation: str) -> bool:
        scope = self._scope
        if scope.client and self._read_note(CLIENT_NOTE, conversation) != scope.client:
            return False
        return not scope.folder or scope.holds_folder(self._read_note(FOLDER_NOTE, conversation))

    def _read_note(self, name: str, conversation: str) -> str:
        noted = self._store.note(name, conversation)
        return "" if noted is None else noted.decode()

    def _find(self, conversation: str) -> SessionRow:
        row = find_conversation(self._store, conversation)
        if not self._scope.session and not self._holds(row.conversation):
            raise UnknownSession(f"conversation {conversation!r} is not among those that are offered here")
        return row

    def _part(self, handle: str) -> tuple[SessionRow, str]:
        """Returns the conversation and the handle inside it."""
        conversation, slash, inner = handle.rpartition("/")
        try:
            if slash:
                return self._find(conversation), inner
            row = next(self._rows(), None)
        except UnknownSession as error:
            raise UnknownHandle(str(error)) from None
        if row is None or not self._scope.session:
            raise UnknownHandle(
                f"{handle!r} does not name its conversation; handles here are like 3f9a2c41/m12"
            )
        return row, inner

    def _search_one(self, row: SessionRow, query: str, wish: Wish) -> list[Finding]:
        found = self._store.search(
            query, wish, session_id=row.id, redact=self._redact, embedder=self._embedder
        )
        return [
            msgspec.structs.replace(
                one, session=row.conversation, title=make_title(self._store, row, row.title)
            )
            for one in found
        ]

    def _history(self, row: SessionRow) -> SessionHistory:
        return SessionHistory(self._store, row.id, self._count, self._redact, self._embedder)

    def _name(self, finding: Finding) -> Finding:
        row = self._store.tip(finding.session)
        handles = tuple(self._name_handle(row, one) for one in finding.handles)
        title = finding.title or make_title(self._store, row, row.title)
        return msgspec.structs.replace(
            finding, handles=handles, session=row.conversation[:_ID_CHARS], title=title
        )

    def _name_handle(self, row: SessionRow, handle: str) -> str:
        return handle if self._scope.session else f"{row.conversation[:_ID_CHARS]}/{handle}"
