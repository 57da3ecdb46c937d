"""Dialects of installed packages: an entry point in the group `penstock.dialects` names one.

The room of dialects does no I/O, so this module gives it a function to ask for a name that is not its own. Engines and
stores import it; a package is looked for when such a name first comes up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock._installed import list_points
from penstock.conversation.dialects import DIALECTS, ask_for_others
from penstock.conversation.dialects.base import Dialect
from penstock.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DIALECT_GROUP", "explain_dialect_fault", "find_installed_dialect"]

DIALECT_GROUP = "penstock.dialects"
_TAKEN = (*DIALECTS, "auto")


def find_installed_dialect(name: str) -> Dialect | None:
    """Returns the dialect of an installed package; None if no package has one of that name. Raises SettingsError."""
    point = next((point for point in list_points(DIALECT_GROUP) if point.name == name), None)
    if point is None:
        return None
    try:
        found: Any = point.load()
    except (ImportError, AttributeError) as error:
        raise SettingsError(f"the dialect {name!r} cannot be loaded from {point.value}: {error}") from error
    if fault := explain_dialect_fault(found, name):
        raise SettingsError(f"{point.value} is not the dialect {name!r}: {fault}")
    return found  # type: ignore[no-any-return]  # it has all members


def explain_dialect_fault(dialect: Any, name: str) -> str:
    """Returns why this cannot be the dialect of that name; empty if it can."""
    if isinstance(dialect, type):
        return "it is a class; name an instance of it"
    lacking = [member for member in _list_members() if not hasattr(dialect, member)]
    if lacking:
        return f"it has no {lacking[0]}"
    if dialect.name != name:
        return f"it calls itself {dialect.name!r}"  # conversations are stored under the name
    return "the name is taken" if name in _TAKEN else ""


def _list_members() -> Iterator[str]:
    return (member for member in vars(Dialect) if not member.startswith("_"))


ask_for_others(find_installed_dialect)
