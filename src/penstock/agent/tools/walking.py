"""Walks the files below a folder, in a fixed order, without ignored ones. Links are named and not followed."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from penstock.loop.globs import Glob, compile_glob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = [
    "FolderEntry",
    "IgnoreRule",
    "IgnoreScope",
    "files_below",
    "is_ignored",
    "levels_below",
    "looks_secret",
    "read_rules",
]


_MOST_IGNORE_BYTES = 1 << 18


class FolderEntry(msgspec.Struct, frozen=True):
    """Something in a folder; `path` is from the root on, with `/`."""

    path: str
    is_folder: bool = False
    is_link: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def files_below(root: Path, start: str) -> Iterator[FolderEntry]:
    """Yields the regular files below a folder, folder by folder, names in order of their characters."""
    stack: list[tuple[FolderEntry, tuple[IgnoreScope, ...]]] = [
        (FolderEntry(start, is_folder=True), _scopes_above(root, start))
    ]
    while stack:
        entry, scopes = stack.pop()
        if entry.is_folder:
            inside, scopes = _entries(root, entry.path, scopes)
            stack.extend((one, scopes) for one in reversed(inside))
        elif not entry.is_link:
            yield entry


def levels_below(root: Path, start: str, depth: int, *, until: float = math.inf) -> Iterator[FolderEntry]:
    """Yields everything below a folder, the nearest first, to a limited depth.

    Stops at `until` on the monotonic clock: a repository can hold any number of patterns and names.
    """
    queue = deque([(start, _scopes_above(root, start), 1)])
    while queue and time.monotonic() < until:
        folder, scopes, level = queue.popleft()
        inside, scopes = _entries(root, folder, scopes, until)
        for entry in inside:
            yield entry
            if entry.is_folder and level < depth:
                queue.append((entry.path, scopes, level + 1))


def _entries(
    root: Path, folder: str, scopes: tuple[IgnoreScope, ...], until: float = math.inf
) -> tuple[list[FolderEntry], tuple[IgnoreScope, ...]]:
    """Returns the entries of a folder that are not ignored, by name, and the scopes in it; none if it cannot be read."""
    scopes = (*scopes, *_scope_of(root, folder))
    prefix = f"{folder}/" if folder else ""
    found = []
    try:
        with os.scandir(root / folder) as listing:
            for item in listing:
                if time.monotonic() > until:
                    break
                is_link = item.is_symlink()
                is_folder = not is_link and item.is_dir()
                if not (is_folder or is_link or item.is_file()):
                    continue  # a socket, a pipe, a device
                path = prefix + item.name
                if not is_ignored(path, is_folder=is_folder, scopes=scopes):
                    found.append(FolderEntry(path, is_folder, is_link))
    except OSError:
        return [], scopes
    return sorted(found, key=lambda entry: entry.name), scopes


def _scopes_above(root: Path, start: str) -> tuple[IgnoreScope, ...]:
    """Returns the scopes of the folders above `start`, its own left out, outermost first."""
    parts = start.split("/") if start else []
    folders = ["/".join(parts[:count]) for count in range(len(parts))]
    return tuple(scope for folder in folders for scope in _scope_of(root, folder))


def _scope_of(root: Path, folder: str) -> tuple[IgnoreScope, ...]:
    file = root / folder / ".gitignore"
    try:
        if file.is_symlink() or not file.is_file() or file.stat().st_size > _MOST_IGNORE_BYTES:
            return ()
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    return (IgnoreScope(f"{folder}/" if folder else "", read_rules(text)),)


# Files that hold secrets by their name. Pure.

_SECRET_NAMES = tuple(
    compile_glob(name)
    for name in (
        ".env", ".env.*", "*.env", ".envrc", "*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.ppk",
        "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", ".netrc", "_netrc", ".pgpass", ".my.cnf", ".npmrc", ".pypirc",
        ".git-credentials", ".htpasswd", ".dockerconfigjson", ".dockercfg", "credentials", "credentials.*", "*.credentials",
        "secrets.*", "secret.*", "*.tfstate", "*.tfvars", "kubeconfig", ".vault-token", "service-account*.json",
        "service_account*.json", ".*_history", "master.key", "shadow",
    )
)  # fmt: skip
_HARMLESS_NAMES = tuple(
    compile_glob(name)
    for name in (
        "*.example",
        "*.sample",
        "*.template",
        "*.dist",
        "*.pub",
        "*.md",
        "*.py",
        "*.pyi",
        "*.ts",
        "*.go",
        "*.rs",
        "*.java",
    )
)


def looks_secret(path: str) -> bool:
    """Returns True for a file whose name suggests secrets, such as `.env` or a private key."""
    name = path.rpartition("/")[2].lower()
    if any(glob.matches(name) for glob in _HARMLESS_NAMES):
        return False
    return any(glob.matches(name) for glob in _SECRET_NAMES)


# What `.gitignore` files leave out. Pure.
#
# The rules of git, but for three things: no file above the working folder, no `.git/info/exclude` and no user's own list
# is read; files that git tracks all the same are left out too; and `.git` itself always is.


class IgnoreRule(msgspec.Struct, frozen=True):
    """One line of a file: what it matches, from the file's folder on."""

    glob: Glob
    negated: bool
    folders_only: bool


class IgnoreScope(msgspec.Struct, frozen=True):
    """The rules of one file; `base` is its folder from the root on, "" or with a `/` at its end."""

    base: str
    rules: tuple[IgnoreRule, ...]


def read_rules(text: str) -> tuple[IgnoreRule, ...]:
    """Returns the rules in a file."""
    found = (_rule(line) for line in text.splitlines())
    return tuple(rule for rule in found if rule is not None)


def is_ignored(path: str, *, is_folder: bool, scopes: tuple[IgnoreScope, ...]) -> bool:
    """Returns True if the last matching rule says so; `path` is relative to the root, scopes come outermost first."""
    if path == ".git" or path.endswith("/.git"):
        return True
    verdict = False
    for scope in scopes:
        inside = path.removeprefix(scope.base)
        for rule in scope.rules:
            if (is_folder or not rule.folders_only) and rule.glob.matches(inside):
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
    return IgnoreRule(compile_glob(anchored), negated, folders_only)
