"""The parser of `penstock`'s arguments: it takes options anywhere, and answers a mistake with the next step."""

from __future__ import annotations

import argparse
import re
import shlex
from itertools import groupby
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.cli.screen import complain, printable, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["CommandParser", "HelpFormatter"]


class HelpFormatter(argparse.HelpFormatter):
    """Fills prose to the width of the terminal; lines that are indented or have columns stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines: list[str] = []
        for is_prose, run in groupby(text.splitlines(), lambda line: bool(line) and "  " not in line):
            same = list(run)
            lines += [" ".join(same)] if is_prose else same
        filled = (wrap(line, max(20, width - len(indent))) if "  " not in line else [line] for line in lines)
        return "\n".join(f"{indent}{line}".rstrip() for part in filled for line in part)


class CommandParser(argparse.ArgumentParser):
    """Answers a mistake with one line that ends in the next step. Options may stand anywhere, also between arguments."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Returns the values, and the words that no option or argument takes."""
        behind: list[str] = []
        if self._wraps and args is not None and "--" in args:
            place = args.index("--")
            args, behind = args[:place], args[place + 1 :]
        if args is not None:
            args = self._put_action_first(args)
        found, rest = super().parse_known_args(args, namespace)
        if self._wraps:
            found.arguments = behind
        for action in self._get_positional_actions():
            # argparse leaves out an optional argument that comes after an option.
            if action.nargs == argparse.OPTIONAL and getattr(found, action.dest, None) == action.default:
                word = next((word for word in rest if not word.startswith("-")), None)
                if word is not None:
                    rest.remove(word)
                    setattr(found, action.dest, word)
        return found, rest

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Returns the values. Exits if a word is left over."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self._parser_of(found).refuse(rest[0])
        return found

    def refuse(self, word: str) -> NoReturn:
        """Exits with an error that this command does not take the word, and suggests the one that was meant."""
        option = word.partition("=")[0]
        if self._wraps and not _suggest(option, self._option_string_actions):
            self.error(f"arguments of the client belong behind --: {self.prog} … -- {shlex.quote(word)}")
        if not word.startswith("-"):
            hint = (
                f"; a prompt is given with -p: {self.prog} -p {shlex.quote(word)}" if self.takes("-p") else ""
            )
            self.error(f"unexpected argument {word!r}{hint}")
        self.error(f"there is no option {option}{_suggest(option, self._option_string_actions)}")

    def _put_action_first(self, args: list[str]) -> list[str]:
        """Returns the words with the action before its options, as argparse wants it; without one, the usual action.

        Exits for an option that no action has.
        """
        actions = self._actions_behind()
        if not actions or (args and (not args[0].startswith("-") or self.takes(args[0]))):
            return args
        place = next((place for place, word in enumerate(args) if word in actions), None)
        if place is not None:
            return [args[place], *args[:place], *args[place + 1 :]]
        if self._usual_action:
            return [self._usual_action, *args]
        if args:
            self.refuse(args[0])
        return args

    @property
    def _usual_action(self) -> str:
        """The action that is meant if none is named; empty if one must be."""
        return str(self.get_default("usual_action") or "")

    def _actions_behind(self) -> Mapping[str, CommandParser]:
        """Returns the parsers of this command's actions, by name; none if it has no actions."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no other name for it
                return action.choices
        return {}

    def _list_actions(self) -> str:
        """Returns the choice of actions, for an error; empty if the command has none."""
        actions = self._actions_behind()
        return f" (choose from {', '.join(actions)})" if actions else ""

    @property
    def _wraps(self) -> bool:
        """True if everything behind `--` belongs to another program."""
        return self.get_default("arguments") is not None

    def takes(self, option: str) -> bool:
        """Returns True if the command has that option."""
        return option in self._option_string_actions

    def _parser_of(self, found: argparse.Namespace) -> CommandParser:
        """Returns the parser of the command that was typed."""
        parser = self
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 - argparse has no other name for it
                name = getattr(found, action.dest, None)
                if name is not None:
                    parser = action.choices[name]._parser_of(found)  # noqa: SLF001 - its own class
        return parser

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if choices is None or value in choices:
            return
        what = f"{str(action.metavar).lower()} " if isinstance(action, argparse._SubParsersAction) else ""  # noqa: SLF001
        said = f"unknown {what}{value!r}"
        said += _suggest(str(value), choices) or f" (choose from {', '.join(choices)})"
        if what:
            self.error(said)
        raise argparse.ArgumentError(action, said)

    def error(self, message: str) -> NoReturn:
        """Exits with code 2 and one line that ends in the next step."""
        text = message.removeprefix("argument ").replace(
            "not allowed with argument", "cannot be combined with"
        )
        missing = re.fullmatch(r"the following arguments are required: (.+)", text)
        if missing:
            text = f"{missing[1]} is missing{self._list_actions()}"
        end = " See" if text.endswith("?") else "; see"
        complain(f"{printable(text)}{end} {self.prog} --help")
        self.exit(2)


def _suggest(given: str, known: Iterable[str]) -> str:
    """Returns a question with the name that was probably meant; empty if none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - only a mistake needs it

    names = list(known)
    longer = sorted((name for name in names if len(given) > 2 and name.startswith(given)), key=len)
    near = longer[:1] or get_close_matches(given, names, 1, 0.7)
    return f": did you mean {near[0]}?" if near else ""
