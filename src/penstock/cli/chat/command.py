"""Starts a chat: opens the store, chooses the model, then talks at the terminal or answers once."""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.cli.chat import begin_collecting, echo_typing, is_interactive
from penstock.cli.chat.model import ModelChooser, ModelWish, NoModel, read_route
from penstock.cli.chat.setup import ChatSetup
from penstock.cli.failure import BAD_INPUT
from penstock.cli.options import carry_store
from penstock.cli.screen import DECLINED, confirm, printable
from penstock.cli.source import settings_of
from penstock.cli.stored import open_store_of
from penstock.errors import SettingsError, UnknownSession, name_install

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from penstock.cli.chat.model import ModelChoice, ModelRoute
    from penstock.settings import Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = ["run"]

_NEEDED = ("prompt_toolkit", "rich")


def run(args: argparse.Namespace) -> int:
    """Talks with a person, or answers once; returns the exit code. Raises SettingsError, UnknownSession, InputError."""
    person = is_interactive(args.prompt)
    if person:
        _check_installed()
        if args.json:
            raise SettingsError("--json reports on one answer: give the prompt with -p, or in a pipe")
    prompt = "" if person else _read_prompt(args.prompt)
    with ExitStack() as stack:
        if args.log is not None:
            stack.enter_context(_log_to(Path(args.log)))
        settings = settings_of(args)
        store = stack.enter_context(open_store_of(args))
        resumed = _find_resumed(store, args.resume)
        wish = ModelWish.of(args, settings.model)
        chooser = ModelChooser(stack, wish, _confirm_host if person else None)
        route = read_route(store, resumed) if resumed else None
        try:
            choice = chooser.choose_first(resumed, route)
        except NoModel as error:
            print(f"penstock: {error}", file=sys.stderr)
            return BAD_INPUT
        if args.context_length is not None:
            choice = msgspec.structs.replace(choice, context_length=args.context_length)
        settings = choice.settle_window(settings)
        if resumed and person and not args.yes:
            question = _would_be_compacted(settings, store, resumed, choice, route)
            if question and not _confirm(question):
                print("penstock: nothing was changed", file=sys.stderr)
                return DECLINED
        setup = ChatSetup(
            settings=settings,
            store=store,
            chooser=chooser,
            folder=Path.cwd(),
            carry=partial(carry_store, args=args),
        )
        session_id = resumed.id if resumed else None
        return asyncio.run(_talk(args, setup, choice, prompt, session_id))


async def _talk(
    args: argparse.Namespace, setup: ChatSetup, choice: ModelChoice, prompt: str, session_id: str | None
) -> int:
    try:
        if prompt:
            from penstock.cli.chat.script import ScriptChat  # noqa: PLC0415 - a terminal does without

            begin_collecting()
            chat = ScriptChat(setup, choice, yes=args.yes, as_json=args.json)
            return await chat.run(prompt, session_id, args.prompt or "")
        from penstock.cli.chat.terminal import TerminalChat  # noqa: PLC0415 - needs what scripts do without

        return await TerminalChat(setup, choice, yes=args.yes).run(session_id)
    finally:
        await setup.chooser.aclose()


def _read_prompt(given: str | None) -> str:
    from penstock.cli.chat.script import read_prompt  # noqa: PLC0415 - as above

    return read_prompt(given)


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    """Writes the package's log to a file until the end of the block. Raises SettingsError if it cannot be written."""
    log = logging.getLogger("penstock")
    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"--log {path} cannot be written: {error.strerror}; name another file") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        handler.close()


def _confirm_host(host: str) -> bool:
    """Asks the person before anything is sent. Only an explicit yes counts."""
    print(
        f"This conversation was with {printable(host)}, which no setting names, only the store. Whoever runs that host "
        "would see the conversation and everything the tools read."
    )
    try:
        with echo_typing(on=True):
            return input("Continue there? [y/N] ").strip().lower() in {"y", "yes"}
    except EOFError:
        return False


def _confirm(question: str) -> bool:
    with echo_typing(on=True):
        return confirm(question)


def _check_installed() -> None:
    lacking = [name for name in _NEEDED if find_spec(name) is None]
    if lacking:
        raise SettingsError(
            f"chat at a terminal needs {' and '.join(lacking)}: {name_install('chat')}; "
            "-p TEXT works without it"
        )


def _find_resumed(store: Store, given: str | None) -> SessionRow | None:
    """Returns the conversation to resume: None for a new one, the most recent for an empty id."""
    if given is None:
        return None
    # A new conversation gets its prompt without this.
    from penstock.accounts.conversations import find_conversation, iterate_conversations  # noqa: PLC0415

    if given:
        return find_conversation(store, given)
    for row in iterate_conversations(store):
        if row.messages:
            return row.tip
    raise UnknownSession("there is no conversation to resume yet; start one with penstock chat")


def _would_be_compacted(
    settings: Settings, store: Store, row: SessionRow, choice: ModelChoice, route: ModelRoute | None
) -> str:
    """Returns the question to ask before a conversation continues in a smaller window than before; empty if all of it fits."""
    # As above.
    from penstock.context.hygiene import find_prompt_tokens  # noqa: PLC0415
    from penstock.planning.policy import Policy  # noqa: PLC0415
    from penstock.sessions.session import Session  # noqa: PLC0415

    session = Session(store, msgspec.structs.replace(row, model=choice.model.name), settings)
    session.endpoint, session.workings.listed_window = choice.model.base_url, choice.window_tokens
    window, tokens = session.window.tokens, find_prompt_tokens(session)
    if route is None or window >= route.window_tokens:
        return ""
    if tokens < Policy.of(settings.compression, window).budgets.threshold_tokens:
        return ""
    return (
        f"this conversation takes {tokens:,} tokens and had a window of {route.window_tokens:,}; for the "
        f"{window:,} of {printable(choice.model.name)} it is compacted first (/undo reverts that). Continue?"
    )
