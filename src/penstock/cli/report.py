"""The report of a compaction: the receipt as lines for people, and what a reader can do next."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any

from penstock.cli.layout import plural, printable, wrapped
from penstock.cli.source import beside_tokens
from penstock.errors import PenstockError
from penstock.measure.tokens import tokenizer_for
from penstock.planning.plan import Fate
from penstock.planning.receipt import NOTHING_TO_DO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.cli.screen import Screen
    from penstock.cli.source import Given
    from penstock.engine.compressed import Compressed

__all__ = ["receipt_json", "report_lines"]

_LABEL = 11  # columns of a label in the text of a receipt, after two blanks
_SHARES = (0.2, 0.5)  # of the tokens, as targets to propose
_WORTH = 0.9


def receipt_json(given: Given, result: Compressed) -> dict[str, Any]:
    """The receipt, with the tokens that the request has beside the list."""
    return {**result.receipt.to_dict(), "beside_tokens": _beside(given)}


def report_lines(given: Given, args: argparse.Namespace, result: Compressed, screen: Screen) -> Iterator[str]:
    """The lines of the report: the receipt, what it does not count, how to go on."""
    first, *rest = str(result.receipt).splitlines()
    yield from (screen.paint(line, "bold") for line in wrapped(first, screen.columns, 2))
    for line in rest:
        label, text = line[2 : 2 + _LABEL].strip(), line[2 + _LABEL :]
        if label == "repaired":
            faults = plural(result.receipt.repaired, "fault")
            text = f"{faults} in the input, such as a call without a result"
        yield from _labelled(label, text, screen)
    if result.receipt.summarised and not result.receipt.handoff_tokens:
        yield from _labelled("note", "no room for a handoff: nothing tells what was summarised", screen)
    beside = _beside(given)
    if beside:
        what = " and ".join(
            name for name, has in (("tool schemas", given.tools), ("system prompt", given.system)) if has
        )
        yield from _labelled("beside", f"{plural(beside, 'token')} of {what}, not counted here", screen)
    yield from _labelled_command("originals", *_way_back(args, result), screen)
    if result.receipt.outcome == NOTHING_TO_DO and args.target_tokens is None and args.context_length is None:
        yield from _labelled_command("hint", *_proposal(given, args, result), screen)


def _labelled(label: str, text: str, screen: Screen) -> Iterator[str]:
    """The text after its label, broken between words where the screen is narrow."""
    first, *more = wrapped(text, screen.columns - _LABEL - 2 if screen.columns else 0)
    yield f"  {screen.paint(label, 'dim')}{' ' * (_LABEL - len(label))}{first}"
    yield from (f"{' ' * (_LABEL + 2)}{line}" for line in more)


def _labelled_command(label: str, text: str, command: str, screen: Screen) -> Iterator[str]:
    """A text and a command to copy: on one line where both fit, else the command whole on its own."""
    if not text:
        return
    if not command:
        yield from _labelled(label, text, screen)
        return
    whole = f"{text}: {command}"
    if not screen.columns or _LABEL + 2 + len(whole) <= screen.columns:
        yield f"  {screen.paint(label, 'dim')}{' ' * (_LABEL - len(label))}{whole}"
        return
    yield from _labelled(label, f"{text}:", screen)
    yield f"    {command}"


def _beside(given: Given) -> int:
    return sum(beside_tokens(given, tokenizer_for(given.model)))


def _way_back(args: argparse.Namespace, result: Compressed) -> tuple[str, str]:
    """How to read a message that does not stand in the result as it came."""
    gone = next((one for one in result.verdicts if one.fate is not Fate.KEPT and one.number), None)
    if gone is None:
        return "", ""
    if _replaced(args):
        return "the result took their place in the file; only a copy of it can show them", ""
    if args.file == "-":
        return "to read one, with the same input", _command("explain", "-", f"--handle m{gone.number}")
    return "to read one", _command("explain", args.file, f"--handle m{gone.number}")


def _replaced(args: argparse.Namespace) -> bool:
    output = getattr(args, "output", None)
    if args.file == "-" or output in (None, "-"):
        return False
    try:
        return os.path.samefile(args.file, output)  # noqa: PTH121 - as short as Path's, and of two texts
    except OSError:
        return False


def _proposal(given: Given, args: argparse.Namespace, result: Compressed) -> tuple[str, str]:
    """A command with a target that was tried and works, for somebody who named none."""
    total = result.receipt.tokens_before
    for share in _SHARES:
        tokens = _rounded_up(int(total * share))
        after = _tried(given, args, tokens)
        if after is not None:
            return f"for {after:,} tokens instead of {total:,}", _again(args, f"--target-tokens {tokens}")
    return "this conversation is too short to be made smaller", ""


def _again(args: argparse.Namespace, option: str) -> str:
    """The command with one option more; only that option where so much was typed that it is better edited."""
    more = (args.model, getattr(args, "for_model", None), args.focus, args.config, args.settings)
    if any(more) or args.dialect != "auto":
        return f"add {option}"
    output = getattr(args, "output", None)
    return _command(args.command, args.file, option + (f" -o {shlex.quote(output)}" if output else ""))


def _tried(given: Given, args: argparse.Namespace, tokens: int) -> int | None:
    """The tokens that the conversation would have with that target; None for a target that nobody would want."""
    from penstock.cli.engine import compress_given  # noqa: PLC0415 - see there

    if tokens < 1:
        return None
    trial = type(args)(**{**vars(args), "target_tokens": tokens})
    try:
        receipt = compress_given(given, trial).receipt
    except PenstockError:
        return None
    told = receipt.handoff_tokens > 0 or not receipt.summarised  # else it would only forget
    return receipt.tokens_after if told and receipt.ratio <= _WORTH else None


def _rounded_up(tokens: int) -> int:
    """To two figures, as a person would type it."""
    unit: int = 10 ** max(0, len(str(tokens)) - 2)
    return -(-tokens // unit) * unit


def _command(command: str, file: str, options: str) -> str:
    return printable(f"penstock {command} {shlex.quote(file)} {options}")
