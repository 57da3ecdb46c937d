"""Which model a person asks for: by options, by the settings, or by going on with a conversation that had one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.engine.auxiliary import provider_of
from penstock.errors import SettingsError
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    import argparse

    from penstock.settings import ModelSettings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = ["LOCAL", "SINGLE", "Reached", "Wanted", "keep_reached", "reached_by"]

LOCAL = "local"

# Providers with models of their own alone, and who answers for such names; elsewhere a name may be anybody's.
SINGLE = {"anthropic": "anthropic", "openai": "openai", "responses": "openai", LOCAL: ""}

_REACHED = "reached"  # the name of the notes that say how the model of a conversation is reached


class Reached(msgspec.Struct, frozen=True):
    """How the model of a conversation was reached. The variable of its key is no part of it.

    A store may be shared: whoever writes to it must not have our keys sent to an address of theirs.
    """

    provider: str
    base_url: str = ""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for; empty where it is left open.

    `model` was named for this chat. `usual` is the one of the settings, which a conversation that goes on does without.
    `here` says that an option tells how the model is reached, whatever a conversation had; `given_key` is the variable of
    the key, where an option names it.
    """

    model: str = ""
    provider: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    usual: str = ""
    here: bool = False
    given_key: str = ""

    @classmethod
    def of(cls, args: argparse.Namespace, settings: ModelSettings) -> Wanted:
        """As the options say, and where they are silent, the settings."""
        given = cls(
            model=args.model or "",
            provider=args.provider or "",
            base_url=args.base_url,
            api_key_env=args.api_key_env,
            here=bool(args.provider or args.base_url),
            given_key=args.api_key_env or "",
        )
        return given if given._goes_elsewhere(settings) else given._completed(settings)

    def _goes_elsewhere(self, settings: ModelSettings) -> bool:
        """Whether the settings speak of another provider: their address, and their key above all, are not for this one."""
        if self.base_url or (self.provider and self.provider != settings.provider):
            return True
        brand = SINGLE.get(settings.provider or "")
        return bool(self.model) and not settings.base_url and brand not in (None, provider_of(self.model))

    def _completed(self, settings: ModelSettings) -> Wanted:
        return msgspec.structs.replace(
            self,
            provider=self.provider or settings.provider or "",
            base_url=settings.base_url,
            api_key_env=self.api_key_env or settings.api_key_env,
            usual=settings.name or "",
        )

    def resuming(self, row: SessionRow, reached: Reached | None) -> Wanted:
        """For a conversation that goes on: its own model, reached as it was, unless options say otherwise.

        Raises SettingsError where an option names a key for an address that only the store has.
        """
        if self.here:
            return self if self.provider == LOCAL else self._named(row)
        if reached is not None and (reached.provider == LOCAL or reached.provider in PRESETS):
            return self._as_reached(row, reached)
        # Nobody noted it. The settings speak of this model, or of a server that may have many; else its dialect tells.
        of_settings = (self.base_url or row.model in ("", self.usual)) and self._speaks(row.dialect)
        return self._named(row) if of_settings else Wanted(model=self.model or row.model)

    def _as_reached(self, row: SessionRow, reached: Reached) -> Wanted:
        known = msgspec.structs.replace(
            self._named(row), provider=reached.provider, base_url=reached.base_url or None
        )
        if self._is_at(reached.base_url):
            return known
        if self.given_key and not read_address(reached.base_url).loopback:
            raise SettingsError(
                f"this conversation was with {read_address(reached.base_url).hostname}: name its address with --base-url, "
                f"too, if it is to get the key in {self.given_key}"
            )
        return msgspec.structs.replace(known, api_key_env=self.given_key or None)

    def _named(self, row: SessionRow) -> Wanted:
        return msgspec.structs.replace(self, model=self.model or row.model or self.usual)

    def _speaks(self, dialect: str) -> bool:
        preset = PRESETS.get(self.provider or provider_of(self.usual))
        return preset is not None and preset.dialect == dialect

    def _is_at(self, base_url: str) -> bool:
        """Whether the address that was noted is that of the settings, or of a provider, which has keys of its own."""
        return not base_url or bool(self.base_url and read_address(self.base_url) == read_address(base_url))


def reached_by(store: Store, row: SessionRow) -> Reached | None:
    """How the model of a conversation was reached last; None where nobody has noted it."""
    note = store.note(_REACHED, row.conversation)
    try:
        return msgspec.json.decode(note, type=Reached) if note else None
    except msgspec.DecodeError:  # of another version
        return None


def keep_reached(store: Store, row: SessionRow, reached: Reached) -> None:
    """Note how the model of a conversation is reached."""
    if reached_by(store, row) != reached:
        store.put_note(_REACHED, row.conversation, msgspec.json.encode(reached))
