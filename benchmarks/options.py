"""What the person at the terminal asked for."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Options"]


@dataclass(frozen=True)
class Options:
    """`corpora` is None where no folder of recorded sessions is named."""

    repeat: int = 5
    quick: bool = False
    corpora: Path | None = None
    needles: str = "both"
    baselines: bool = False
    limit: int = 40
    jobs: int = 1
    messages: int = 100_000
    trajectory_mb: int = 200
