"""The process that `benchmarks.memory` watches: it reads a conversation, compresses it, and says what it took.

Linux tells the peak of this process alone in /proc. The peak that `getrusage` tells may be that of the process
which started this one, so it is used only elsewhere.
"""

import argparse
import gc
import json
import resource
import sys
import tracemalloc
from pathlib import Path

from benchmarks.speed import WINDOW_TOKENS, warm
from penstock import ContextCompressor

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def resident(field: str) -> int:
    """Bytes resident now (`VmRSS`) or at the peak (`VmHWM`)."""
    if STATUS.exists():
        line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak() -> None:
    """Start the peak anew, where the system lets us; else it also covers the reading of the file."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args()
    warm()
    gc.collect()
    ready = resident("VmRSS")
    if options.trace:
        tracemalloc.start()
    messages = json.loads(options.file.read_bytes())
    gc.collect()
    loaded = tracemalloc.get_traced_memory()[0] if options.trace else resident("VmRSS")
    forget_peak()
    tracemalloc.reset_peak()
    engine = ContextCompressor(WINDOW_TOKENS)
    engine.compress(messages)
    peak = tracemalloc.get_traced_memory()[1] if options.trace else resident("VmHWM")
    told = {"ready": ready, "loaded": loaded, "peak": peak, "after": resident("VmRSS")}
    print(json.dumps(told | {"source": "/proc" if STATUS.exists() else "getrusage"}))


if __name__ == "__main__":
    main()
