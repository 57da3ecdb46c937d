"""The compiled inner loops, if they are installed.

`penstock_core` is a package of its own, in `core/`. Who has a loop there asks `HAS_CORE`, and has a twin of it in Python that
gives the same.
"""

from __future__ import annotations

__all__ = ["HAS_CORE", "HAS_OTHER_CORE", "core"]

_INTERFACE = 5
_installed: int | None
try:
    import penstock_core as core

    _installed = getattr(core, "INTERFACE", 0)
except ImportError:
    core = None  # type: ignore[assignment]  # nobody asks for it then
    _installed = None
HAS_CORE = _installed == _INTERFACE
HAS_OTHER_CORE = _installed is not None and not HAS_CORE
"""Whether a core is installed that is of another version, and left alone."""
