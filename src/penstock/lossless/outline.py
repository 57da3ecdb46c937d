"""The outline of a handoff: what became of the conversation, segment by segment, oldest first.

    ## Outline
    [n5 m3-61]
    [m14 read_file]
    DATABASE_PORT = 5433
    [n6 m62-80]
    - m71 the port was wrong

A header names the node and the messages below it; nodes without a text share one. What stands below a header is
written once: the next handoff takes it over letter for letter, until the node gives way to its parent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.conversation.handles import Runs, join_runs, read_runs, write_runs
from penstock.lossless.segments import collapsed
from penstock.writing.handoff import NODE_HEADER, OUTLINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from penstock.writing.handoff import HandoffEntry

__all__ = ["Node", "NodeTexts", "header_of_node", "parse_outline", "render_outline"]

_TITLE = f"## {OUTLINE}"


class Node(msgspec.Struct, frozen=True):
    """A node as an outline shows it: the messages below it, by number, and its text, already escaped.

    It has more than one handle where it stands for several nodes without a text. `key` is what its text is known by,
    empty where that was read from a handoff. `fresh` says that the text was made now.
    """

    handles: tuple[int, ...]
    runs: Runs
    text: str = ""
    key: str = ""
    fresh: bool = False


class NodeTexts(msgspec.Struct, frozen=True, eq=False):
    """What is known of nodes before an outline is written.

    `known` gives the text that was made for a key, or None. `notes` are what a model wrote, checked, by key; those of
    one node take at most `notes_tokens`.
    """

    known: Callable[[str], str | None]
    notes: Mapping[str, Sequence[HandoffEntry]] = {}
    notes_tokens: int = 0


def header_of_node(node: Node) -> str:
    """The line above the text of a node."""
    return f"[{' '.join(f'n{handle}' for handle in node.handles)} m{write_runs(node.runs)}]"


def render_outline(nodes: Iterable[Node]) -> str:
    """The nodes as text; neighbours without a text share a header. Nothing where there are none."""
    lines: list[str] = []
    for node in _bundled(nodes):
        lines.append(header_of_node(node))
        if node.text:
            lines.append(node.text)
    return "\n".join([_TITLE, *lines]) if lines else ""


def parse_outline(text: str) -> tuple[Node, ...]:
    """The nodes of the outline in a handoff's text."""
    nodes: list[Node] = []
    inside = False
    held: list[str] = []
    for line in text.split("\n"):
        if line.startswith("## "):
            inside = line == _TITLE
            continue
        if not inside:
            continue
        header = NODE_HEADER.match(line)
        if header is not None:
            held = []
            handles = tuple(int(handle[1:]) for handle in header[1].split())
            nodes.append(Node(handles, read_runs(header[2])))
        elif nodes:
            held.append(line)
            nodes[-1] = msgspec.structs.replace(nodes[-1], text="\n".join(held))
    return tuple(node for node in nodes if node.runs and all(node.handles))


def _bundled(nodes: Iterable[Node]) -> list[Node]:
    """The nodes, with neighbours that have no text as one."""
    found: list[Node] = []
    for node in nodes:
        if found and not node.text and not found[-1].text:
            before = found.pop()
            handles = collapsed((*before.handles, *node.handles))
            found.append(Node(handles, join_runs((before.runs, node.runs))))
        else:
            found.append(node)
    return found
