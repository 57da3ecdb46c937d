"""Which sources the recorded sessions are of, and learned weights that never saw the source of a given session.

The weights in the package are trained on all recorded sessions, so a figure of those sessions made with them would be
flattery. `importance_for` knows a session by a digest of its first messages and gives the weights of its fold: those
trained without any session of its source. The folds lie in `importance_folds/`; they hold numbers and digests, nothing
of what was said. `benchmarks/train_importance.py` writes them.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from penstock.writing.importance import ImportanceByContent, WeightsByContent

__all__ = [
    "FOLDER",
    "KINDS",
    "TABLE",
    "digests_of",
    "fold_for",
    "group_of_file",
    "importance_for",
    "table_of_folds",
]

Chat = list[dict[str, Any]]

FOLDER = Path(__file__).parent / "importance_folds"
TABLE = "sessions.json"
GROUPS = {  # the start of a file's name, and the group that is left out together
    "cc_cli": "cli",
    "natural": "cli",  # all of them are sessions of the same repository
    "cc_context-evaluator": "context",
    "cc_git-sync": "git",
    "codex_git-sync": "git",
    "swe_agent": "swe",
    "tau_airline": "airline",
    "tau_retail": "retail",
    "tau2_gpt-4.1_retail": "retail",
    "tau2_gpt-4.1_telecom": "telecom",
}
KINDS = {"coding": ("cli", "context", "git", "swe"), "service": ("airline", "retail", "telecom")}
LENGTHS = (6, 3, 1)  # messages that a session is known by, the most telling first


def group_of_file(name: str) -> str | None:
    """The group of a file of recorded sessions; None for one that is not trained on."""
    return next((group for start, group in GROUPS.items() if name.startswith(start)), None)


def _kind_of(group: str) -> str:
    """The kind of conversation that a group is of."""
    return next(kind for kind, groups in KINDS.items() if group in groups)


def digests_of(messages: Chat) -> list[str]:
    """What a session is known by: its first six messages, where it has as many, its first three, its first."""
    spoken = [message for message in messages if message["role"] != "system"][: max(LENGTHS)]
    return [_digest(spoken[:length]) for length in LENGTHS if len(spoken) >= length]


def _digest(messages: Chat) -> str:
    written = json.dumps([len(messages), messages], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(written.encode(errors="replace")).hexdigest()[:16]


def table_of_folds(sessions: list[tuple[str, Chat]]) -> dict[str, str]:
    """The fold for each digest of these sessions, given with their groups.

    Where sessions of several groups begin alike, all of the groups must be left out: then it is their whole kind.
    """
    groups: dict[str, set[str]] = {}
    for group, messages in sessions:
        for digest in digests_of(messages):
            groups.setdefault(digest, set()).add(group)
    return {
        digest: next(iter(found)) if len(found) == 1 else _kind_of(min(found))
        for digest, found in sorted(groups.items())
    }


def fold_for(messages: Chat) -> str | None:
    """The fold that never saw the source of this session; None for a session that no weights were trained on."""
    table = _table()
    return next((table[digest] for digest in digests_of(messages) if digest in table), None)


def importance_for(messages: Chat) -> ImportanceByContent | None:
    """Scores by the weights of a session's fold; None where the weights in the package may score it."""
    fold = fold_for(messages)
    return None if fold is None else _importance(fold)


@cache
def _table() -> dict[str, str]:
    path = FOLDER / TABLE
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


@cache
def _importance(fold: str) -> ImportanceByContent:
    return ImportanceByContent(WeightsByContent.read((FOLDER / f"{fold}.json").read_bytes()))
