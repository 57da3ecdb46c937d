"""Points clients at a gateway for one run, by their own variables and options, and finds out which API they usually ask.

    client = read_client("claude", Invocation("/usr/bin/claude", ("-p", "hello"), environ, folder))
    client.upstreams                # where its requests go behind the gateway
    client.point_at(address)        # the variables and the arguments that lead it to the gateway

Reads the client's own settings, if they name the API that it asks, and never writes them. Does not open files that hold
credentials.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from penstock.conversation.wire import json_text, parse_json
from penstock.errors import InputError, SettingsError
from penstock.gateway.upstreams import Upstream
from penstock.providers.address import read_address
from penstock.providers.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["CLIENTS", "ClientStart", "Invocation", "WrappedClient", "read_client"]

_OPENAI_DIALECTS: Final = ("chat", "responses")
_ANTHROPIC_VARIABLE: Final = "ANTHROPIC_BASE_URL"


class Invocation(NamedTuple):
    """A client as the user starts it."""

    program: str
    """The path of its program."""
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    folder: Path
    """The folder that it is started in."""
    provider: str | None = None
    """The provider among the client's own that goes through the gateway; None for its usual one."""

    @property
    def home(self) -> Path:
        """The user's home folder."""
        return Path(self.environ.get("HOME") or self.environ.get("USERPROFILE") or self.folder)

    def find_option(self, *names: str) -> str | None:
        """Returns the last value that the arguments give to an option, by any of its names."""
        found = None
        for place, word in enumerate(self.arguments):
            if word in names and place + 1 < len(self.arguments):
                found = self.arguments[place + 1]
            elif (name := word.partition("=")[0]) in names and name != word:
                found = word.partition("=")[2]
        return found


class ClientStart(NamedTuple):
    """The changes that lead a client to a gateway: variables for its process, and arguments before the user's own."""

    variables: dict[str, str]
    arguments: tuple[str, ...] = ()


class WrappedClient(NamedTuple):
    """A client that can be led to a gateway."""

    upstreams: tuple[Upstream, ...]
    """The APIs that it asks without the gateway, by their dialects."""
    point_at: Callable[[str], ClientStart]
    """Returns how it is started for a gateway at this address, which has no path."""

    @property
    def dialects(self) -> frozenset[str]:
        """The dialects that it may speak."""
        return frozenset(dialect for upstream in self.upstreams for dialect in upstream.dialects)


class _Reader(Protocol):
    def __call__(self, invocation: Invocation, upstream: str | None) -> WrappedClient: ...


def read_client(name: str, invocation: Invocation, upstream: str | None = None) -> WrappedClient:
    """Returns the client of that name, one of CLIENTS. `upstream` is the address of the API where it is not its usual one.

    Raises SettingsError where the client's provider cannot be told, or cannot be led elsewhere.
    """
    return CLIENTS[name](invocation, upstream)


def _single(name: str, url: str, dialects: tuple[str, ...]) -> tuple[Upstream, ...]:
    return (Upstream(name=name, address=read_address(url), dialects=dialects),)


# Claude Code: a variable. One that its settings files set wins over that of the process, and an option over both.

_CLOUDS: Final = ("CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY")
_OFF: Final = ("", "0", "false")


def _read_claude(invocation: Invocation, upstream: str | None) -> WrappedClient:
    environ = {**invocation.environ, **_read_claude_variables(invocation)}
    cloud = next((name for name in _CLOUDS if environ.get(name, "").lower() not in _OFF), None)
    if cloud is not None:
        raise SettingsError(
            f"{cloud} is set: Claude Code then asks a cloud that the gateway does not speak to; unset it to wrap claude"
        )
    usual = environ.get(_ANTHROPIC_VARIABLE) or PRESETS["anthropic"].base_url
    overridden = _ANTHROPIC_VARIABLE in _read_claude_variables(invocation)

    def point_at(address: str) -> ClientStart:
        variables = {_ANTHROPIC_VARIABLE: address}
        if not overridden:
            return ClientStart(variables)
        return ClientStart(variables, ("--settings", json_text({"env": variables})))

    return WrappedClient(_single("anthropic", upstream or usual, ("anthropic",)), point_at)


def _read_claude_variables(invocation: Invocation) -> dict[str, str]:
    """Returns the variables that its settings files set, those of the project over those of the user."""
    own = Path(invocation.environ.get("CLAUDE_CONFIG_DIR") or invocation.home / ".claude")
    project = invocation.folder / ".claude"
    files = (own / "settings.json", project / "settings.json", project / "settings.local.json")
    found: dict[str, str] = {}
    for file in files:
        variables = _read_json(file).get("env")
        if isinstance(variables, dict):
            found |= {name: value for name, value in variables.items() if isinstance(value, str)}
    return found


# Codex: the base URL of the provider that its settings choose, by `-c`.

_CHATGPT: Final = "https://chatgpt.com/backend-api/codex/responses"
_STATUS_SECONDS: Final = 10.0


def _read_codex(invocation: Invocation, upstream: str | None) -> WrappedClient:
    settings = _read_codex_settings(invocation)
    provider = invocation.provider or _choose_codex_provider(invocation, settings)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", provider):
        raise SettingsError(
            f"unknown Codex provider {provider!r}: a name has letters, digits, hyphens and underscores"
        )
    if provider == "openai":
        usual = settings.get("openai_base_url") or PRESETS["responses"].base_url
        key = "openai_base_url"
        if upstream is None and "openai_base_url" not in settings and _uses_chatgpt(invocation):
            usual = _CHATGPT
    else:
        entry = settings.get("model_providers")
        entry = entry.get(provider) if isinstance(entry, dict) else None
        usual = entry.get("base_url") if isinstance(entry, dict) else None
        key = f"model_providers.{provider}.base_url"
        if not isinstance(usual, str) and upstream is None:
            raise SettingsError(
                f"Codex' settings have no base_url for its provider {provider}: give the address with --upstream URL, or "
                "another provider with --provider NAME"
            )

    def point_at(address: str) -> ClientStart:
        return ClientStart({}, ("-c", f"{key}={json_text(address + '/v1')}"))

    return WrappedClient(_single(provider, upstream or str(usual), ("responses",)), point_at)


def _uses_chatgpt(invocation: Invocation) -> bool:
    """Asks Codex whether it is signed in with an account of ChatGPT: such a login is for another address than a key."""
    if invocation.environ.get("CODEX_API_KEY") or not Path(invocation.program).is_file():
        return False
    asked = (invocation.program, "login", "status")
    try:
        said = subprocess.run(  # noqa: S603 - the program that the user asked for
            asked,
            env=dict(invocation.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_STATUS_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"using ChatGPT" in said.stdout + said.stderr


def _read_codex_settings(invocation: Invocation) -> dict[str, Any]:
    file = Path(invocation.environ.get("CODEX_HOME") or invocation.home / ".codex") / "config.toml"
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError):  # Codex says itself what is wrong with it
        return {}


def _choose_codex_provider(invocation: Invocation, settings: Mapping[str, Any]) -> str:
    """Returns the provider of a `-c`, else of the profile, else of the settings, else Codex' own default."""
    pairs = [word.partition("=") for word in invocation.arguments]
    typed = [value.strip("\"' ") for name, _, value in pairs if name.strip() == "model_provider"]
    profile = invocation.find_option("--profile", "-p") or settings.get("profile")
    profiles = settings.get("profiles")
    chosen = profiles.get(profile) if isinstance(profiles, dict) else None
    of_profile = chosen.get("model_provider") if isinstance(chosen, dict) else None
    return str((typed and typed[-1]) or of_profile or settings.get("model_provider") or "openai")


# opencode: the options of a provider, in a document that it lays over its settings files.

_CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
_KEYS_OF_OPENCODE: Final = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}


def _read_opencode(invocation: Invocation, upstream: str | None) -> WrappedClient:
    layers = list(_read_opencode_settings(invocation))
    names = _choose_opencode_providers(invocation, layers)
    found = [_read_opencode_provider(name, layers, upstream) for name in names]
    content = _parse_jsonc(invocation.environ.get(_CONTENT, ""))

    def point_at(address: str) -> ClientStart:
        options = {name: {"options": {"baseURL": f"{address}/v1"}} for name in names}
        return ClientStart({_CONTENT: json_text(_merge(content, {"provider": options}))})

    return WrappedClient(tuple(found), point_at)


def _choose_opencode_providers(invocation: Invocation, layers: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the provider of the model that was typed or is set, else all of which the environment holds the key.

    A provider that the user does not have must not be named: opencode would offer it, and may take it.
    """
    if invocation.provider:
        return [invocation.provider]
    models = [invocation.find_option("--model", "-m"), *(layer.get("model") for layer in reversed(layers))]
    for model in models:
        if isinstance(model, str) and "/" in model:
            return [model.partition("/")[0]]
    names = [name for name, key in _KEYS_OF_OPENCODE.items() if invocation.environ.get(key)]
    if not names:
        raise SettingsError(
            "opencode's settings name no model: say which of its providers goes through the gateway with --provider "
            "NAME, such as anthropic, or choose a model behind --: -m PROVIDER/MODEL"
        )
    return names


def _read_opencode_provider(name: str, layers: Sequence[Mapping[str, Any]], upstream: str | None) -> Upstream:
    entry: Any = {}
    for layer in layers:
        entry = _merge(entry, _descend(layer, "provider", name))
    preset = PRESETS.get(name)
    url = upstream or _descend(entry, "options").get("baseURL") or (preset.base_url if preset else "")
    if not isinstance(url, str) or not url:
        raise SettingsError(
            f"the address of opencode's provider {name} is not known: give it with --upstream URL"
        )
    dialects = ("anthropic",) if name == "anthropic" else _OPENAI_DIALECTS
    if str(entry.get("npm", "")).endswith("/anthropic"):
        dialects = ("anthropic",)
    return Upstream(name=name, address=read_address(url), dialects=dialects)


def _read_opencode_settings(invocation: Invocation) -> Iterator[dict[str, Any]]:
    """Yields the documents that it merges, the strongest last."""
    environ = invocation.environ
    own = Path(environ.get("XDG_CONFIG_HOME") or invocation.home / ".config") / "opencode"
    names = ("opencode.json", "opencode.jsonc")
    yield from (_read_json(own / name) for name in ("config.json", *names))
    if given := environ.get("OPENCODE_CONFIG"):
        yield _read_json(Path(given))
    for folder in (*reversed(invocation.folder.parents), invocation.folder):
        yield from (_read_json(folder / name) for name in names)
    yield _parse_jsonc(environ.get(_CONTENT, ""))


# aider: variables of its own and of the library that it asks models with. Its `.env` files may set the latter again.


def _read_aider(invocation: Invocation, upstream: str | None) -> WrappedClient:
    environ = invocation.environ
    openai = environ.get("AIDER_OPENAI_API_BASE") or environ.get("OPENAI_API_BASE")
    openai = openai or environ.get("OPENAI_BASE_URL") or PRESETS["openai"].base_url
    anthropic = environ.get("ANTHROPIC_API_BASE") or environ.get(_ANTHROPIC_VARIABLE)
    anthropic = anthropic or PRESETS["anthropic"].base_url
    upstreams = (
        *_single("openai", upstream or openai, _OPENAI_DIALECTS),
        *_single("anthropic", upstream or anthropic, ("anthropic",)),
    )

    def point_at(address: str) -> ClientStart:
        return ClientStart(
            {
                "AIDER_OPENAI_API_BASE": f"{address}/v1",
                "OPENAI_API_BASE": f"{address}/v1",
                "OPENAI_BASE_URL": f"{address}/v1",
                "ANTHROPIC_API_BASE": address,
                _ANTHROPIC_VARIABLE: address,
            }
        )

    return WrappedClient(upstreams, point_at)


CLIENTS: Final[dict[str, _Reader]] = {
    "claude": _read_claude,
    "codex": _read_codex,
    "opencode": _read_opencode,
    "aider": _read_aider,
}


# Settings files of clients. What cannot be read is left to the client, which says so itself.

_JSONC: Final = re.compile(
    r"""("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])""", re.DOTALL
)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return _parse_jsonc(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _parse_jsonc(text: str) -> dict[str, Any]:
    """Returns the object in a JSON text that may have comments and trailing commas; an empty one where there is none."""
    try:
        found = parse_json(_JSONC.sub(lambda match: match[1] or "", text).encode())
    except (InputError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _descend(value: Any, *names: str) -> dict[str, Any]:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Returns both objects as one; where both have a value, that of `above` holds."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
