"""Approvals that a person has given for a project: kept in the user's own folder, never in the project.

A repository must not bring approvals of its own. So there is one file for each project, named by the project's real path,
in a folder outside of it; where the user's folder is inside the project, nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.loop.approvals import ApprovalRule
from penstock.loop.text_files import lock_folder, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["ProjectApprovals"]


class _KeptApproval(msgspec.Struct, frozen=True):
    tool: str
    subject: str
    at: float


class _ProjectFile(msgspec.Struct, frozen=True):
    project: str
    allowed: tuple[_KeptApproval, ...] = ()


_READ_FILE = msgspec.json.Decoder(_ProjectFile).decode


class ProjectApprovals(msgspec.Struct, frozen=True):
    """The approvals of the project at `root`, a real path. Several chats may share them: each sees a change at once."""

    folder: Path
    root: Path

    @classmethod
    def of(cls, folder: Path, root: Path) -> ProjectApprovals | None:
        """Returns the approvals in the user's folder; None if that folder is inside the project."""
        if folder.resolve().is_relative_to(root):
            return None
        return cls(folder / "approvals", root)

    @property
    def path(self) -> Path:
        """The file of this project."""
        name = hashlib.blake2b(str(self.root).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        return self.folder / f"{name}.json"

    def rules(self) -> tuple[ApprovalRule, ...]:
        """Returns what is allowed: each exactly the same call again. A file that cannot be read allows nothing."""
        return tuple(ApprovalRule(one.tool, one.subject, exact=True) for one in self._read())

    def add(self, rule: ApprovalRule) -> None:
        """Allows the subject of the rule from now on. Raises OSError if it cannot be written."""
        new = _KeptApproval(rule.tool, rule.pattern or "", time.time())
        self._change(lambda kept: kept if _find(kept, rule) else (*kept, new))

    def remove(self, rule: ApprovalRule) -> bool:
        """Revokes it; returns whether it was there. Raises OSError if it cannot be written."""
        if not _find(self._read(), rule):
            return False
        self._change(lambda kept: tuple(one for one in kept if not _find((one,), rule)))
        return True

    def _read(self) -> tuple[_KeptApproval, ...]:
        try:
            found = _READ_FILE(self.path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return ()
        return found.allowed if found.project == _name(self.root) else ()

    def _change(self, how: Callable[[tuple[_KeptApproval, ...]], tuple[_KeptApproval, ...]]) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with lock_folder(self.folder):
            kept = _ProjectFile(_name(self.root), how(self._read()))
            replace_file(self.path, msgspec.json.encode(kept).decode(), mode=0o600)


def _find(kept: tuple[_KeptApproval, ...], rule: ApprovalRule) -> bool:
    return any((one.tool, one.subject) == (rule.tool, rule.pattern) for one in kept)


def _name(root: Path) -> str:
    """Returns the path as text that JSON can hold, even if it is not UTF-8."""
    return os.fsencode(root).decode("utf-8", "backslashreplace")
