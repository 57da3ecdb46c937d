"""A list of conversations to pick from: typing narrows it down, Enter takes one, Esc leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput

from penstock.accounts.conversations import filter_conversations
from penstock.accounts.display import format_time, shorten_count
from penstock.cli.chat.resize import redraw_cleanly
from penstock.cli.screen import align, clip, drop_columns, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output.color_depth import ColorDepth
    from prompt_toolkit.styles import BaseStyle

    from penstock.accounts.conversations import ListedConversation

__all__ = ["ConversationList", "pick_conversation"]

_HEADINGS = ["last used", "msgs", "tokens"]
_DROPPED_FIRST = (1, 2)  # columns that go where it is too narrow for all
_LEAST_TITLE_COLUMNS = 20
_ROWS_BESIDE = 4  # the input, the headings, the keys, and one for the line above
_LEAST_ROWS = 3
_ESCAPE_SECONDS = 0.05  # that may pass between the bytes of one key
_KEYS = "Enter resumes · Esc leaves · Up and Down move"
_HERE = "(this one) "


class ConversationList:
    """All conversations, those that match the typed words, and the selected one.

    `here` is the id of the current conversation: it is marked, and the selection starts at another one.
    """

    def __init__(self, found: Sequence[ListedConversation], here: str) -> None:
        self._found = found
        self._here = here
        self._top = 0  # the first row that is shown
        self.left: list[ListedConversation] = []
        self.at = 0
        self.narrow("")

    def narrow(self, query: str) -> None:
        """Keeps the conversations that have all words of the query, and selects the first."""
        self.left = filter_conversations(self._found, query)
        self.at = self._top = 0
        if len(self.left) > 1 and self.left[0].row.id == self._here:
            self.at = 1

    def move(self, rows: int) -> None:
        """Moves the selection down or up by so many rows, but not past the ends of the list."""
        self.at = max(0, min(len(self.left) - 1, self.at + rows))

    @property
    def selected(self) -> ListedConversation | None:
        """The selected one; None if none is left."""
        return self.left[self.at] if self.left else None

    def draw(self, columns: int, rows: int, *, unicode: bool = True) -> list[tuple[str, str]]:
        """Returns the headings and at most so many rows, with the selected one among them, as styled lines."""
        if not self.left:
            return [("class:dim", "no conversation has these words; /search looks into what was said")]
        self._top = min(max(self._top, self.at - rows + 1), self.at, max(0, len(self.left) - rows))
        shown = self.left[self._top : self._top + rows]
        cells = [_HEADINGS, *(self._cells(one) for one in shown)]
        fitting = drop_columns(cells, columns - _LEAST_TITLE_COLUMNS - 4, _DROPPED_FIRST)
        starts = ["  ".join(row) for row in align([[*row, ""] for row in fitting], right={1, 2})]
        mark = "› " if unicode else "> "
        room = columns - len(starts[0]) - 2
        lines = [("class:dim", f"  {starts[0]}title")]
        for number, (start, one) in enumerate(zip(starts[1:], shown, strict=True), self._top):
            here = _HERE if one.row.id == self._here else ""
            line = f"{start}{clip(here + printable(one.title), max(room, 8), unicode)}"
            chosen = number == self.at
            lines.append(("class:strong" if chosen else "", f"{mark if chosen else '  '}{line}"))
        return lines

    @staticmethod
    def _cells(one: ListedConversation) -> list[str]:
        row = one.row
        return [format_time(row.updated), f"{row.messages:,}", shorten_count(row.view_tokens)]


async def pick_conversation(
    choice: ConversationList,
    query: str = "",
    *,
    style: BaseStyle,
    color_depth: ColorDepth | None,
    unicode: bool = True,
) -> str | None:
    """Returns the id of the conversation that a person picks; None if they leave. Erases what was drawn."""
    typed = Buffer(multiline=False, on_text_changed=lambda buffer: choice.narrow(buffer.text))
    typed.insert_text(query)

    def draw_list() -> StyleAndTextTuples:
        size = get_app().output.get_size()
        rows = max(_LEAST_ROWS, size.rows - _ROWS_BESIDE - 1)
        lines = choice.draw(size.columns - 1, rows, unicode=unicode)
        return [
            (style, f"{line}\n" if at < len(lines) else line) for at, (style, line) in enumerate(lines, 1)
        ]

    def draw_keys() -> StyleAndTextTuples:
        columns = get_app().output.get_size().columns - 1
        count = f"{choice.at + 1:,} of {len(choice.left):,} · " if choice.left else ""
        keys = _KEYS if unicode else _KEYS.replace("·", "|")
        return [("class:dim", clip(count + keys, columns, unicode))]

    prompt = BeforeInput("filter: ", style="class:prompt")
    app: Application[str | None] = Application(
        Layout(
            HSplit(
                [
                    Window(BufferControl(typed, input_processors=[prompt]), height=1),
                    Window(FormattedTextControl(draw_list), dont_extend_height=True),
                    Window(FormattedTextControl(draw_keys), height=1),
                ]
            )
        ),
        key_bindings=_bind_keys(choice, lambda: max(_LEAST_ROWS, get_app().output.get_size().rows // 2)),
        style=style,
        color_depth=color_depth,
        erase_when_done=True,
    )
    app.ttimeoutlen = _ESCAPE_SECONDS
    redraw_cleanly(app)
    return await app.run_async(handle_sigint=False)


def _bind_keys(choice: ConversationList, page_rows: Callable[[], int]) -> KeyBindings:
    bindings = KeyBindings()

    def bind(rows: Callable[[], int], *keys: str) -> None:
        for key in keys:

            @bindings.add(key)
            def _(_event: KeyPressEvent) -> None:
                choice.move(rows())

    bind(lambda: 1, "down", "c-n", "tab")
    bind(lambda: -1, "up", "c-p", "s-tab")
    bind(page_rows, "pagedown")
    bind(lambda: -page_rows(), "pageup")

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        """Takes the selected one, if there is one."""
        if choice.selected is not None:
            event.app.exit(result=choice.selected.row.tip.id)

    @bindings.add("escape", eager=True)
    @bindings.add("c-c")
    @bindings.add("c-d")
    def _(event: KeyPressEvent) -> None:
        """Leaves."""
        event.app.exit(result=None)

    return bindings
