"""`python -m benchmarks.walk`: how far a reader walks who follows one call from end to end.

For one `compress`, one stored conversation, one search in it and one turn of the agent: the distinct files and functions
of `penstock` that run, and the most of its frames that stand on one another. Each is the first call of its
kind in the process, so that what is made once is walked through too; the bodies of modules that it imports
are not counted, and comprehensions and lambdas are part of the function they stand in.
"""

import asyncio
import json
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import penstock

ROOT = str(Path(penstock.__file__).parent) + "/"
EXAMPLE = Path(__file__).parent.parent / "examples" / "long_session.json"
TARGET_TOKENS = 6_000


class Walk:
    """Every function of the package that runs while this is the profiler, in any new thread too, in the order of first calls."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], None] = {}
        self.deepest: list[str] = []

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.functions}

    def note(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not _is_ours(frame):
            return
        self.functions.setdefault((_file(frame), frame.f_code.co_qualname))
        stack: list[str] = []
        above: FrameType | None = frame
        while above is not None:
            if _is_ours(above):
                stack.append(f"{_file(above)} {above.f_code.co_qualname}")
            above = above.f_back
        if len(stack) > len(self.deepest):
            self.deepest = stack

    def run(self, call: Callable[[], object]) -> None:
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            call()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(ROOT) and not frame.f_code.co_name.startswith("<")


def _file(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(ROOT)


def _messages() -> list[Any]:
    conversation = json.loads(EXAMPLE.read_text())
    return conversation["messages"] if isinstance(conversation, dict) else conversation


def walk_compress() -> Walk:
    """Walks through one `compress`."""
    messages = _messages()
    compress = penstock.compress  # imports what it needs
    walk = Walk()
    walk.run(lambda: compress(messages, target_tokens=TARGET_TOKENS))
    return walk


def walk_session(folder: Path) -> tuple[Walk, Walk]:
    """Walks through a stored conversation, from its messages to its compacted view, and then through a search in it."""
    from penstock.sessions.session import Session  # noqa: PLC0415 - a walk imports what it walks through
    from penstock.stores.store import open_store  # noqa: PLC0415

    with closing(open_store(f"sqlite:///{folder}/walk.db")) as store:
        session = Session.create(store, dialect="chat")
        stored, search = Walk(), Walk()
        stored.run(lambda: session.append(_messages()))
        stored.run(lambda: session.compact(target_tokens=TARGET_TOKENS))
        stored.run(session.view_bytes)
        search.run(lambda: session.search("port of the database"))
    return stored, search


def walk_turn(folder: Path) -> Walk:
    """Walks through one turn of an agent that calls a tool."""
    from penstock.agent.assembly import AgentPlace, make_agent  # noqa: PLC0415
    from penstock.settings import Settings  # noqa: PLC0415
    from penstock.stores.store import open_store  # noqa: PLC0415
    from penstock.testing import Reply, ScriptedModel  # noqa: PLC0415

    replies = [Reply.calling("list_files"), Reply(text="There is nothing here.")]
    with closing(open_store(f"sqlite:///{folder}/walk.db")) as store:
        place = AgentPlace(folder=folder, store=store, tell=[].append, yes=True)
        agent = make_agent(place, ScriptedModel(replies), Settings())
        walk = Walk()
        walk.run(lambda: asyncio.run(agent.turn("What is in this folder?")))
    return walk


def main() -> int:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        compress, (stored, search) = walk_compress(), walk_session(Path(one))
        walks = {
            "compress": compress,
            "a stored conversation": stored,
            "search in a stored session": search,
            "an agent's turn": walk_turn(Path(other)),
        }
    for name, walk in walks.items():
        print(f"{name}: {len(walk.files)} files, {len(walk.functions)} functions, {len(walk.deepest)} frames")
        if "--files" in sys.argv:
            print(*sorted(walk.files), sep="\n")
        if "--deepest" in sys.argv:
            print(*reversed(walk.deepest), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
