"""What `.gitignore` files leave out. Pure.

The rules of git, but for three things: no file above the working folder, no `.git/info/exclude` and no user's own list
is read; files that git tracks all the same are left out too; and `.git` itself always is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.agent.globs import glob_regex

if TYPE_CHECKING:
    import re

__all__ = ["IgnoreRule", "IgnoreScope", "is_ignored", "read_rules"]


class IgnoreRule(msgspec.Struct, frozen=True):
    """One line of a file: what it matches, from the file's folder on."""

    matches: re.Pattern[str]
    negated: bool
    folders_only: bool


class IgnoreScope(msgspec.Struct, frozen=True):
    """The rules of one file; `base` is its folder from the root on, "" or with a `/` at its end."""

    base: str
    rules: tuple[IgnoreRule, ...]


def read_rules(text: str) -> tuple[IgnoreRule, ...]:
    """The rules in a file."""
    found = (_rule(line) for line in text.splitlines())
    return tuple(rule for rule in found if rule is not None)


def is_ignored(path: str, *, is_folder: bool, scopes: tuple[IgnoreScope, ...]) -> bool:
    """Whether the last rule that matches says so; `path` is from the root on, scopes come outermost first."""
    if path == ".git" or path.endswith("/.git"):
        return True
    verdict = False
    for scope in scopes:
        inside = path.removeprefix(scope.base)
        for rule in scope.rules:
            if (is_folder or not rule.folders_only) and rule.matches.fullmatch(inside):
                verdict = not rule.negated
    return verdict


def _rule(line: str) -> IgnoreRule | None:
    pattern = line if line.endswith("\\ ") else line.rstrip()
    if not pattern or pattern.startswith("#"):
        return None
    negated = pattern.startswith("!")
    pattern = pattern.removeprefix("!").removeprefix("\\")
    folders_only = pattern.endswith("/")
    pattern = pattern.rstrip("/")
    if not pattern:
        return None
    anchored = pattern.removeprefix("/") if "/" in pattern else f"**/{pattern}"
    return IgnoreRule(glob_regex(anchored), negated, folders_only)
