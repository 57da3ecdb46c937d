"""`penstock compress`: writes a smaller conversation and a report, which `penstock explain` shares.

The engine is imported once the input is read: loading it takes longer than refusing a bad file.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from penstock.cli.options import tell_of_model
from penstock.cli.output import write_output
from penstock.cli.progress import ProgressLine
from penstock.cli.screen import printable, screen_of, wrap
from penstock.cli.source import beside_tokens, read_input, target_tokens
from penstock.conversation.handles import name_message
from penstock.errors import PenstockError, SettingsError
from penstock.measure.tokens import tokenizer_for
from penstock.measure.windows import resolve_window
from penstock.measure.wording import pluralise
from penstock.planning.plan import Fate
from penstock.planning.receipt import NOTHING_TO_DO

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from penstock.cli.screen import Screen
    from penstock.cli.source import Given
    from penstock.engine.compress import Compressed, CompressRequest
    from penstock.engine.summariser import Summariser

__all__ = ["compress_given", "encode_result", "receipt_json", "report_lines", "run", "summarise_given"]


def run(args: argparse.Namespace) -> int:
    """Compresses the file. Raises what `read_input` and `summarise_given` raise, and OSError."""
    given = read_input(args)
    if not args.json:  # standard error has the report then
        tell_of_model(args.model, args.summary_model)
    with ProgressLine("compressing") as progress:
        result = summarise_given(given, args, progress.now)
        data = encode_result(given, result)
    to_file = write_output(args.output, data)
    screen = screen_of(sys.stdout if to_file else sys.stderr)
    if args.json:
        screen.say(json.dumps(receipt_json(given, result), indent=2))
        return 0
    for line in report_lines(given, args, result, screen):
        screen.say(line)
    if to_file:
        screen.say(f"  {screen.paint('written', 'dim')}    {printable(args.output)}, {len(data):,} bytes")
    return 0


def compress_given(given: Given, args: argparse.Namespace) -> Compressed:
    """Compresses the conversation as the options say, without a model. Raises what `compress_document` raises."""
    from penstock.engine.compress import compress_document  # noqa: PLC0415 - see above

    return compress_document(given.document, _request(given, args))


def summarise_given(given: Given, args: argparse.Namespace, on_step: Callable[[str], None]) -> Compressed:
    """Compresses the conversation, with the model that the options or the settings name.

    Raises what `compress_document` raises, and SettingsError for a model that cannot be called.
    """
    from penstock.engine.compress import summarise_document  # noqa: PLC0415 - see above
    from penstock.engine.threads import run_sync  # noqa: PLC0415 - see above

    summariser = _summariser(given, args)
    if summariser is None:
        return compress_given(given, args)
    return run_sync(summarise_document(given.document, _request(given, args), summariser, on_step))


def _summariser(given: Given, args: argparse.Namespace) -> Summariser | None:
    from penstock.engine.auxiliary import provider_of, summariser_for  # noqa: PLC0415 - see above
    from penstock.engine.summariser import Summariser  # noqa: PLC0415 - as above
    from penstock.providers.connect import connect  # noqa: PLC0415 - as above

    name, address = args.summary_model, args.summary_base_url
    if name is None:
        if address or args.summary_provider or args.summary_api_key_env:
            raise SettingsError("no model is named for the handoff; add --summary-model NAME")
        return summariser_for(given.settings, None)
    provider = args.summary_provider or ("openai" if address else provider_of(name))
    auxiliary = given.settings.auxiliary.compression
    model = connect(
        provider,
        name,
        base_url=address,
        api_key_env=args.summary_api_key_env,
        timeout_seconds=auxiliary.timeout,
    )
    return Summariser(model, window_tokens=auxiliary.context_length, timeout_seconds=auxiliary.timeout)


def _request(given: Given, args: argparse.Namespace) -> CompressRequest:
    from penstock.engine.compress import CompressRequest  # noqa: PLC0415 - see above

    return CompressRequest(
        target_tokens=target_tokens(args.target_tokens, given),
        context_length=args.context_length,
        model=given.model,
        tools=given.tools,
        system=given.system,
        focus=args.focus,
        settings=given.settings,
    )


def encode_result(given: Given, result: Compressed) -> bytes:
    """Returns the result in the shape of the input, or the input itself if no message changed."""
    encoded = [item if isinstance(item, dict) else bytes(item) for item in result.messages]
    if encoded == given.document.raws:
        return given.data
    data = given.document.with_messages(encoded)
    return data + b"\n" if given.data.endswith(b"\n") and not data.endswith(b"\n") else data


# The report: the receipt as lines for people, and what a reader can do next.

_LABEL_COLUMNS = 11  # columns of a label in the text of a receipt, after two blanks
_SHARES = (0.2, 0.5)  # of the tokens, as targets to propose
_WORTH = 0.9


def receipt_json(given: Given, result: Compressed) -> dict[str, Any]:
    """Returns the receipt, with the tokens of tools and system prompt, which it does not count."""
    return {**result.receipt.to_dict(), "beside_tokens": _beside(given)}


def report_lines(given: Given, args: argparse.Namespace, result: Compressed, screen: Screen) -> Iterator[str]:
    """Yields the report: the receipt, what it does not count, and the next step."""
    first, *rest = str(result.receipt).splitlines()
    yield from (screen.paint(line, "bold") for line in wrap(first, screen.columns, 2))
    for line in rest:
        label, text = line[2 : 2 + _LABEL_COLUMNS].strip(), line[2 + _LABEL_COLUMNS :]
        if label == "repaired":
            faults = pluralise(result.receipt.repaired, "fault")
            text = f"{faults} in the input, such as a call without a result"
        yield from _label(label, text, screen)
    if given.model and resolve_window(given.model).source == "default":
        counted = f"counted with {tokenizer_for(given.model).name}"
        window = resolve_window(given.model, configured=given.settings.model.window_of(given.model))
        if args.target_tokens is None and args.context_length is None and window.source == "default":
            counted += f", for a window of {window.tokens:,} tokens: --context-length sets it"
        yield from _label("model", f"unknown model {printable(given.model)!r}: {counted}", screen)
    if result.receipt.summarised and not result.receipt.handoff_tokens:
        yield from _label(
            "note", "no room for a handoff: nothing tells the agent what was summarised", screen
        )
    beside = _beside(given)
    if beside:
        what = " and ".join(
            name for name, has in (("tool schemas", given.tools), ("system prompt", given.system)) if has
        )
        yield from _label("beside", f"{pluralise(beside, 'token')} of {what}, not counted here", screen)
    yield from _label_command("originals", *_original_hint(args, result), screen)
    if result.receipt.outcome == NOTHING_TO_DO and args.target_tokens is None and args.context_length is None:
        yield from _label_command("hint", *_target_hint(given, args, result), screen)


def _label(label: str, text: str, screen: Screen) -> Iterator[str]:
    """Yields the text after its label, broken between words if the screen is narrow."""
    first, *more = wrap(text, screen.columns - _LABEL_COLUMNS - 2 if screen.columns else 0)
    yield f"  {screen.paint(label, 'dim')}{' ' * (_LABEL_COLUMNS - len(label))}{first}"
    yield from (f"{' ' * (_LABEL_COLUMNS + 2)}{line}" for line in more)


def _label_command(label: str, text: str, command: str, screen: Screen) -> Iterator[str]:
    """Yields a text and a command to copy: on one line if both fit, else the command on a line of its own."""
    if not text:
        return
    if not command:
        yield from _label(label, text, screen)
        return
    whole = f"{text}: {command}"
    if not screen.columns or _LABEL_COLUMNS + 2 + len(whole) <= screen.columns:
        yield f"  {screen.paint(label, 'dim')}{' ' * (_LABEL_COLUMNS - len(label))}{whole}"
        return
    yield from _label(label, f"{text}:", screen)
    yield f"    {command}"


def _beside(given: Given) -> int:
    return sum(beside_tokens(given, tokenizer_for(given.model)))


def _original_hint(args: argparse.Namespace, result: Compressed) -> tuple[str, str]:
    """Returns how to read a message that was changed or left out: a text and a command."""
    gone = next((one for one in result.verdicts if one.fate is not Fate.KEPT and one.number), None)
    if gone is None:
        return "", ""
    if _overwrites_input(args):
        return "the file was overwritten with the result; only a copy of it can show them", ""
    again = ", give the same input again" if args.file == "-" else ""
    return f"to read one{again}", _command("explain", args.file, f"--handle {name_message(gone.number)}")


def _overwrites_input(args: argparse.Namespace) -> bool:
    output = getattr(args, "output", None)
    if args.file == "-" or output in (None, "-"):
        return False
    try:
        return os.path.samefile(args.file, output)  # noqa: PTH121 - as short as Path's, and of two texts
    except OSError:
        return False


def _target_hint(given: Given, args: argparse.Namespace, result: Compressed) -> tuple[str, str]:
    """Returns a command with a target that was tried and works, where none was given."""
    total = result.receipt.tokens_before
    for share in _SHARES:
        tokens = _round_up(int(total * share))
        after = _try_target(given, args, tokens)
        if after is not None:
            return f"for {after:,} tokens instead of {total:,}", _command_with(
                args, f"--target-tokens {tokens}"
            )
    return "this conversation is too short to compress", ""


def _command_with(args: argparse.Namespace, option: str) -> str:
    """Returns the command with one more option; only that option if the command is long."""
    more = (args.model, getattr(args, "summary_model", None), args.focus, args.config, args.settings)
    if any(more) or args.dialect != "auto":
        return f"add {option}"
    output = getattr(args, "output", None)
    return _command(args.command, args.file, option + (f" -o {shlex.quote(output)}" if output else ""))


def _try_target(given: Given, args: argparse.Namespace, tokens: int) -> int | None:
    """Returns the tokens of the result with that target; None if it would save too little."""
    if tokens < 1:
        return None
    trial = type(args)(**{**vars(args), "target_tokens": tokens})
    try:
        receipt = compress_given(given, trial).receipt
    except PenstockError:
        return None
    remembers = receipt.handoff_tokens > 0 or not receipt.summarised
    return receipt.tokens_after if remembers and receipt.ratio <= _WORTH else None


def _round_up(tokens: int) -> int:
    """Rounds to two figures, as a person would type it."""
    unit: int = 10 ** max(0, len(str(tokens)) - 2)
    return -(-tokens // unit) * unit


def _command(command: str, file: str, options: str) -> str:
    return printable(f"penstock {command} {shlex.quote(file)} {options}")
