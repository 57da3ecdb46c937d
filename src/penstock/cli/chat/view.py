"""Shows a turn on a terminal: final text is printed, and progress is redrawn below it."""

from __future__ import annotations

import time
from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType, Segment
from rich.text import Text
from rich.theme import Theme

from penstock.cli.chat.lines import compaction_lines, strip_controls, tool_line, turn_end_line
from penstock.cli.chat.resize import count_added_rows
from penstock.cli.screen import clip, printable, width_of, wrap
from penstock.config import wants_colour, wraps_on_resize
from penstock.loop.events import (
    Asked,
    Compacted,
    Compacting,
    Noticed,
    Recovering,
    Said,
    Thought,
    ToolEnded,
    ToolLine,
    ToolStarted,
    TurnEnded,
)
from penstock.planning.pressure import Level

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from rich.console import ConsoleOptions, RenderableType, RenderResult

    from penstock.cli.chat.lines import StatusFragment
    from penstock.cli.chat.markdown import AnswerMarkdown
    from penstock.loop.events import AgentEvent

__all__ = ["LOOKS", "TurnView", "draw_markdown", "make_console"]

LOOKS = {
    "dim": "dim",
    "bar": "cyan",
    "warn": "yellow",
    "bad": "red",
    "good": "green",
    "plain": "",
    "strong": "bold",
}
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPINNER_ASCII = "|/-\\"
_TICKS_PER_SECOND = 10
_LINES_OF_A_TOOL = 3  # while it runs
_LINES_OF_A_FAILURE = 5
_LINES_KEPT, _TOOLS_KEPT = 1_000, 20  # for Ctrl-O
_LINES_TYPED = 3
_THOUGHT_CHARS = 400
_LEAST_ROWS = 3


def make_console(stream: TextIO, *, unicode: bool) -> Console:
    """Returns a console for a terminal. Without colour it still moves the cursor, except on a dumb terminal."""
    theme = Theme(
        {"markdown.code": "cyan", "markdown.h1": "bold", "markdown.h2": "bold", "markdown.h3": "bold"}
    )
    return Console(
        file=stream,
        theme=theme,
        color_system="auto" if wants_colour() else None,
        highlight=False,
        emoji=False,
        markup=False,
        safe_box=not unicode,
        legacy_windows=False,
    )


class _ShownTool(msgspec.Struct):
    """A tool that runs or has run, and the lines of its output."""

    name: str
    about: str
    started: float
    lines: deque[str]


class TurnView:
    """Shows the events of turns. `status` returns the status line for a number of columns, `typed` what waits to be sent."""

    def __init__(
        self,
        console: Console,
        status: Callable[[int], list[StatusFragment]],
        typed: Callable[[], str] = str,
        *,
        unicode: bool = True,
    ) -> None:
        self._console = console
        self._status = status
        self._typed = typed
        self._unicode = unicode
        self._live: Live | None = None
        self._answering = False
        self._notices: list[str] = []  # wait for the end of the answer
        self._running: dict[str, _ShownTool] = {}
        self._ended: deque[_ShownTool] = deque(maxlen=_TOOLS_KEPT)  # those that have printed something
        self._unfolded = 0  # how many of them, from the last one on
        self._doing = ""
        self._since = 0.0
        self._thought = ""
        self._last = ""  # what was printed last: text or lines
        self._waited = False  # a compaction was waited for
        self._paused = 0.0  # when the screen was left to others
        self._drawn = _Measured()

    def __call__(self, event: AgentEvent) -> None:
        """Shows an event."""
        match event:
            case Said(text=text):
                self._thought = ""
                self._do("writing")
                self._answer.add(text)
                self._answering = True
            case Thought(text=text):
                self._do("thinking")
                self._thought = (self._thought + strip_controls(text))[-_THOUGHT_CHARS:]
            case ToolStarted() | ToolLine() | ToolEnded():
                self._tool(event)
            case TurnEnded():
                self._end_turn(event)
            case _:
                self._around(event)

    def _tool(self, event: ToolStarted | ToolLine | ToolEnded) -> None:
        match event:
            case ToolStarted(call_id=call, name=name, about=about):
                self._close_answer()
                self._running[call] = _ShownTool(name, about, time.monotonic(), deque(maxlen=_LINES_KEPT))
            case ToolLine(call_id=call, text=text):
                if call in self._running:
                    self._running[call].lines.append(printable(strip_controls(text)))
            case ToolEnded(call_id=call):
                self._end_tool(event, self._running.pop(call, None))

    def _around(self, event: AgentEvent) -> None:
        """Shows other events than answers and tools."""
        if not isinstance(event, Noticed):
            self._close_answer()
        match event:
            case Asked():
                self._do("waiting for the model")
            case Compacting(reason=reason):
                self._waited = True
                self._do(f"compacting: {reason}")
            case Compacted():
                self._note(compaction_lines(event, waited=self._waited), "dim")
                self._waited = False
            case Recovering(what=what, step=step):
                self._note([f"{what}: {step}"], "warn")
            case Noticed(level=level, text=text) if level != Level.LOG:
                self._notices.append(text)
                if not self._answering:
                    self._print_notices()

    def start(self, doing: str = "") -> None:
        """Starts drawing progress; without `doing`, continues after a pause."""
        if self._live is None:
            if doing:
                self._do(doing)
                self._last, self._waited = "", False
            elif self._paused:  # the time a person takes to answer is not the tool's
                for one in self._running.values():
                    one.started += time.monotonic() - self._paused
            self._paused = 0.0
            self._live = Live(
                get_renderable=self._draw,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
                vertical_overflow="crop",
            )
            self._live.start()
            self.tick()

    def stop(self) -> None:
        """Stops drawing progress; printed text stays."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    def pause(self) -> None:
        """Leaves the screen to others, after a blank line, until `start`."""
        self.stop()
        self._paused = time.monotonic()
        if self._last:
            self._console.print()
        self._last = "lines"

    @cached_property
    def _answer(self) -> AnswerMarkdown:
        """The answer as it arrives. The first turn loads what reads Markdown, so that the prompt need not wait for it."""
        from penstock.cli.chat.markdown import AnswerMarkdown  # noqa: PLC0415

        return AnswerMarkdown()

    def tick(self) -> None:
        """Redraws. Call it about ten times a second."""
        if self._live is None:
            return
        self._leave_no_ghost()
        self._print_blocks(self._answer.take_final())
        self._live.refresh()

    def unfold(self) -> list[str]:
        """Returns everything that the last command printed; called again, the command before it."""
        if not self._ended:
            return ["no command has run yet"]
        if self._unfolded == len(self._ended):
            self._unfolded = 0
            return ["no earlier command; Ctrl-O starts again with the last one"]
        self._unfolded += 1
        ran = self._ended[-self._unfolded]
        return [f"{ran.name} {printable(ran.about)}".rstrip(), *(f"  {line}" for line in ran.lines)]

    def _do(self, what: str) -> None:
        if what != self._doing:
            self._doing, self._since = what, time.monotonic()

    # Final text.

    def _close_answer(self) -> None:
        self._print_blocks(self._answer.take_all())
        self._thought = ""
        self._answering = False
        self._print_notices()

    def _print_notices(self) -> None:
        for text in self._notices:
            self._note([text], "warn")
        self._notices.clear()

    def _print_blocks(self, blocks: list[str]) -> None:
        if blocks and self._live is not None:
            # What is printed pushes up what is drawn below it, which still has these blocks in it: as many rows would
            # leave the screen, and be blank in the end.
            self._live.refresh()
        for block in blocks:
            if self._last:
                self._console.print()
            self._console.print(draw_markdown(block))
            self._last = "text"

    def _note(self, lines: list[str], look: str) -> None:
        if self._last == "text":
            self._console.print()
        for line in lines:
            for part in wrap(line, self._console.width, 4 if line.startswith(" ") else 2):
                self._console.print(Text(part, style=LOOKS[look]))
        self._last = "lines"

    def _end_tool(self, event: ToolEnded, ran: _ShownTool | None) -> None:
        if self._last == "text":
            self._console.print()
        about = ran.about if ran else ""
        line = tool_line(event, about, self._console.width, unicode=self._unicode)
        self._console.print(self._text(line), soft_wrap=False, no_wrap=True, overflow="crop")
        self._last = "lines"
        self._do("waiting for the model")
        if ran is None or not ran.lines:
            return
        self._ended.append(ran)
        self._unfolded = 0
        for shown in list(ran.lines)[-_LINES_OF_A_FAILURE:] if event.is_error else ():
            self._console.print(self._output(shown))

    def _end_turn(self, event: TurnEnded) -> None:
        for ran in self._running.values():
            stopped = ToolEnded(
                "", ran.name, "stopped", is_error=True, seconds=time.monotonic() - ran.started
            )
            self._end_tool(stopped, ran)
        self._running.clear()
        self._close_answer()
        if line := turn_end_line(event):
            self._note([line], "bad" if event.reason == "failed" else "warn")
        self.stop()
        self._last = ""

    # What is going on, redrawn at each tick.

    def _leave_no_ghost(self) -> None:
        """Erases what a narrower terminal has wrapped, and returns the cursor to where drawing began."""
        columns, (before, widths) = self._console.width, self._drawn.taken
        if columns < before and (added := count_added_rows(widths, columns)) and wraps_on_resize():
            rows = len(widths) - 1
            self._console.control(
                Control(
                    ControlType.CARRIAGE_RETURN,
                    (ControlType.CURSOR_UP, rows + added),
                    *((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_DOWN, 1)) * (rows + added),
                    (ControlType.ERASE_IN_LINE, 2),
                    (ControlType.CURSOR_UP, added),
                )
            )
            self._drawn.taken = (columns, ())

    def _draw(self) -> RenderableType:
        self._drawn.what = self._arrange()
        return self._drawn

    def _arrange(self) -> RenderableType:
        columns, rows = self._console.size
        below = [
            *self._tools(columns),
            self._activity(columns),
            *self._show_typed_ahead(columns),
            Text(""),
            self._status_text(columns),
        ]
        room = max(_LEAST_ROWS, rows - len(below) - 2)
        above: list[RenderableType] = []
        if (waiting := self._answer.show_waiting(room)).strip():
            above = [draw_markdown(waiting, room)]
            if self._last:
                above.insert(0, Text(""))
        elif self._last == "text":
            above = [Text("")]
        return Group(*above, *below)

    def _tools(self, columns: int) -> list[Text]:
        lines = []
        for one in self._running.values():
            seconds = time.monotonic() - one.started
            about = clip(printable(one.about), max(8, columns - len(one.name) - 14), self._unicode)
            lines.append(
                Text.assemble(
                    (f"{self._frame()} ", LOOKS["bar"]),
                    (one.name, "bold"),
                    f" {about}" if about else "",
                    (f"  {seconds:.0f} s", LOOKS["dim"]),
                    no_wrap=True,
                )
            )
            lines += [self._output(line) for line in list(one.lines)[-_LINES_OF_A_TOOL:]]
        return lines

    def _output(self, line: str) -> Text:
        """Returns a line that a command printed, in one row."""
        shown = clip(line, self._console.width - 3, self._unicode)
        return Text(f"  {shown}", style=LOOKS["dim"], no_wrap=True)

    def _activity(self, columns: int) -> Text:
        if self._running:
            return Text("  Ctrl-C stops", style=LOOKS["dim"])
        said = self._doing
        if self._thought:
            said += f": {self._thought.strip().splitlines()[-1] if self._thought.strip() else ''}"
        room = max(8, columns - 26)
        seconds = time.monotonic() - self._since
        return Text.assemble(
            (f"{self._frame()} ", LOOKS["bar"]),
            (f"{clip(printable(said), room, self._unicode)}  {seconds:.0f} s, Ctrl-C stops", LOOKS["dim"]),
            no_wrap=True,
        )

    def _show_typed_ahead(self, columns: int) -> list[Text]:
        """Returns the last lines typed for the next prompt; of a long line, its end."""
        mark = "› " if self._unicode else "> "
        lines = []
        for line in self._typed().splitlines()[-_LINES_TYPED:]:
            shown = printable(line)
            while width_of(shown) > columns - 3:
                shown = shown[1:]
            lines.append(Text(f"{mark}{shown}", style=LOOKS["dim"], no_wrap=True))
        return lines

    def _status_text(self, columns: int) -> Text:
        return self._text(self._status(columns - 1))

    @staticmethod
    def _text(fragments: list[StatusFragment]) -> Text:
        return Text.assemble(*((one.text, LOOKS[one.look]) for one in fragments), no_wrap=True)

    def _frame(self) -> str:
        frames = _SPINNER if self._unicode else _SPINNER_ASCII
        return frames[int(time.monotonic() * _TICKS_PER_SECOND) % len(frames)]


class _Measured:
    """Shows something, and remembers its size: the columns of the console, and of each line."""

    def __init__(self) -> None:
        self.what: RenderableType = ""
        self.taken: tuple[int, tuple[int, ...]] = (0, ())

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self.what, options, pad=False)
        self.taken = (console.width, tuple(map(Segment.get_line_length, lines)))
        for line in lines:
            yield from line
            yield Segment.line()


class _Trimmed:
    """Shows something without blank lines around it; with `rows`, only its last rows."""

    def __init__(self, what: RenderableType, rows: int | None = None) -> None:
        self._what = what
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._what, options, pad=False)
        while lines and _is_blank(lines[0]):
            lines.pop(0)
        while lines and _is_blank(lines[-1]):
            lines.pop()
        for line in lines[-self._rows :] if self._rows else lines:
            yield from _strip_end(line)
            yield Segment.line()


def _strip_end(line: list[Segment]) -> list[Segment]:
    """Returns the line without trailing blanks, which a narrower console would wrap."""
    while line and not line[-1].text.strip():
        line = line[:-1]
    return [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style)] if line else []


def draw_markdown(text: str, rows: int | None = None) -> RenderableType:
    """Returns a text for a console to print, without blank lines around it; with `rows`, only its last rows."""
    from penstock.cli.chat.markdown import markdown  # noqa: PLC0415 - the prompt need not wait for it

    return _Trimmed(markdown(text), rows)


def _is_blank(line: list[Segment]) -> bool:
    return not any(segment.text.strip() for segment in line)
