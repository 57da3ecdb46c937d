"""`penstock chat`: an agent at a terminal, or one turn for a script."""

from penstock.cli.chat.command import run

__all__ = ["run"]
