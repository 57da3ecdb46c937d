"""From a provider's name and a model's to something that answers."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.config import SecretText, read_secret
from penstock.errors import SettingsError
from penstock.providers.address import read_address
from penstock.providers.caller import Endpoint
from penstock.providers.http import Transport
from penstock.providers.model import ProviderModel
from penstock.providers.presets import PRESETS, find_preset, list_installed_providers
from penstock.providers.retries import DEFAULT_POLICY, Pace, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.providers.address import Address
    from penstock.providers.presets import Preset

__all__ = ["ConnectOptions", "connect"]


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options that few callers need.

    `transport` is shared and left open by the model. `headers` are sent along; a key does not belong there.
    `allow_plain_http` sends a key unencrypted to another machine. `environ` takes the place of the environment.
    `address_is_given` is False for an address that neither the person nor the settings named: no variable is read for it,
    unless it is the provider's own.
    """

    transport: Transport | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    policy: RetryPolicy = DEFAULT_POLICY
    pace: Pace = Pace()
    allow_plain_http: bool = False
    environ: Mapping[str, str] | None = None
    address_is_given: bool = True


_PLAIN_OPTIONS = ConnectOptions()


def connect(  # noqa: PLR0913  # all but the first two by name
    provider: str,
    model: str,
    *,
    base_url: str | None = None,
    api_key: str | SecretText | None = None,
    api_key_env: str | None = None,
    timeout_seconds: float = 120.0,
    options: ConnectOptions = _PLAIN_OPTIONS,
) -> ProviderModel:
    """Returns a model of a provider. Nothing is sent yet.

    `provider` is a name from `presets.PRESETS`, or of an installed package; "openai", "responses" and "anthropic" with a `base_url` mean any
    server of that dialect. `api_key` is the key; no variable is read then. Without it, the provider's own variable is
    read, for its own address only: another address gets a key only from the variable that `api_key_env` names. Raises SettingsError for an unknown provider, an
    address that cannot be used, or a missing key.
    """
    preset = _preset(provider)
    given: Any = model
    if not isinstance(given, str) or not model.strip():
        raise SettingsError(f"no model was named for {provider}; name one, as the provider's list calls it")
    seconds: Any = timeout_seconds
    if not isinstance(seconds, int | float) or seconds <= 0:
        raise SettingsError(f"timeout_seconds is {seconds!r}; it must be a number above 0")
    address = _address(provider, preset, base_url)
    variable, key = "api_key", None if api_key is None else _read_given(api_key)
    if key is None:
        variable, key = _key(provider, preset, address, api_key_env, options)
    if key is not None and not (address.encrypted or address.loopback or options.allow_plain_http):
        raise SettingsError(
            f"{address.hostname} is asked over plain http, where anyone on the way can read the key in "
            f"{variable}; use https, or set allow_plain_http if the network is yours"
        )
    endpoint = Endpoint(
        dialect=preset.dialect,
        address=address,
        key=key,
        key_variable=variable,
        key_header=preset.key_header,
        server=preset.server,
        timeout_seconds=timeout_seconds,
        headers=options.headers,
        policy=options.policy,
        pace=options.pace,
    )
    owned = options.transport is None
    return ProviderModel(model, endpoint, options.transport or Transport(), owns_transport=owned)


def _read_given(api_key: Any) -> SecretText:
    """Returns the key that the caller holds. Raises SettingsError, without it, for what no header can carry."""
    text = api_key.reveal() if isinstance(api_key, SecretText) else api_key
    key = text.strip() if isinstance(text, str) else ""
    if not key or not (key.isascii() and key.isprintable()):
        raise SettingsError("api_key is not a key; give it as a text of printable ASCII, or leave it out")
    return SecretText(key)


def _preset(provider: Any) -> Preset:
    preset = find_preset(provider) if isinstance(provider, str) else None
    if preset is not None:
        return preset
    known = [*PRESETS, *list_installed_providers()]
    near = get_close_matches(str(provider), known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(known))}"
    raise SettingsError(f"unknown provider {provider!r}; {hint}")


def _address(provider: str, preset: Preset, base_url: str | None) -> Address:
    if base_url or preset.base_url:
        return read_address(base_url or preset.base_url)
    raise SettingsError(
        f"{provider} has no address of its own; give the base URL of your resource (base_url)"
    )


def _key(
    provider: str,
    preset: Preset,
    address: Address,
    api_key_env: str | None,
    options: ConnectOptions,
) -> tuple[str, SecretText | None]:
    """Returns the variable and what it holds. A key goes to the provider it is for, or where the caller sends it."""
    environ = options.environ
    if api_key_env:
        key = read_secret(api_key_env, environ)
        if key is None:
            raise SettingsError(f"{api_key_env} is not set; set it to the key for {address.hostname}")
        return api_key_env, key
    if not preset.base_url and not options.address_is_given:
        return "", None  # such a provider's key would be at home anywhere
    home = read_address(preset.base_url) if preset.base_url else address
    if not preset.key_variable or (address.hostname, address.encrypted) != (home.hostname, home.encrypted):
        return "", None
    key = read_secret(preset.key_variable, environ)
    if key is None and not (preset.key_optional or address.loopback):
        raise SettingsError(
            f"no key for {provider}: set {preset.key_variable}, name another variable (api_key_env, --api-key-env), "
            "or pass api_key"
        )
    return preset.key_variable, key
