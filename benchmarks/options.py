"""What the person at the terminal asked for."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["Endpoint", "Options"]


@dataclass(frozen=True)
class Endpoint:
    """A model to ask. The key is in the environment, in the variable that is named; it is nowhere else."""

    model: str
    provider: str = "openai"
    base_url: str | None = None
    api_key_env: str | None = None


@dataclass(frozen=True)
class Options:
    """`corpora` is None where no folder of recorded sessions is named, `endpoint` where no model is."""

    repeat: int = 5
    quick: bool = False
    corpora: Path | None = None
    needles: str = "both"
    baselines: bool = False
    limit: int = 40
    jobs: int = 1
    messages: int = 100_000
    requests: int = 10_000
    trajectory_mb: int = 200
    endpoint: Endpoint | None = None
    keep: tuple[float, ...] = ()
    """What forced compactions leave, as shares of the tokens; empty where nothing was asked for."""
    engine: str = "compressor"
    summaries: bool = False
    only: str = ""
    """A part of the names of the tasks to run."""
