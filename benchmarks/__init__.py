"""What `make bench` runs: generated conversations, and recorded ones where `PENSTOCK_CORPORA` names them.

`--without-core` measures the inner loops in Python where the compiled ones are installed; it must be known before anything
is imported.
"""

import sys

WITHOUT_CORE = "--without-core"

if WITHOUT_CORE in sys.argv:
    sys.modules["penstock_core"] = None  # type: ignore[assignment]  # an import of it fails
