"""The one call of the engine.

Commands import this once their input is read: loading it takes longer than refusing a bad file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.cli.source import target_tokens
from penstock.engine.compress import CompressRequest, compress_document, run_sync, summarise_document
from penstock.engine.summariser import Summariser
from penstock.errors import SettingsError
from penstock.providers.connect import connect

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from penstock.cli.source import Given
    from penstock.engine.compressed import Compressed

__all__ = ["compress_given", "compressed_bytes", "summarise_given"]


def compress_given(given: Given, args: argparse.Namespace) -> Compressed:
    """Compress the conversation as the options say, without a model. Raises what `compress_document` raises."""
    return compress_document(given.document, _request(given, args))


def summarise_given(given: Given, args: argparse.Namespace, on_step: Callable[[str], None]) -> Compressed:
    """Compress the conversation, with the model that the options or the settings name.

    Raises what `compress_document` raises, and SettingsError for a model that cannot be asked.
    """
    summariser = _summariser(given, args)
    if summariser is None:
        return compress_given(given, args)
    return run_sync(summarise_document(given.document, _request(given, args), summariser, on_step))


def _summariser(given: Given, args: argparse.Namespace) -> Summariser | None:
    from penstock.engine.auxiliary import provider_of, summariser_for  # noqa: PLC0415 - only for those who ask a model

    if args.model is None:
        if args.base_url or args.provider or args.api_key_env:
            raise SettingsError("no model was named for the handoff; add --model NAME")
        return summariser_for(given.settings, None)
    provider = args.provider or ("openai" if args.base_url else provider_of(args.model))
    auxiliary = given.settings.auxiliary.compression
    model = connect(
        provider,
        args.model,
        base_url=args.base_url,
        api_key_env=args.api_key_env,
        timeout_seconds=auxiliary.timeout,
    )
    return Summariser(model, window_tokens=auxiliary.context_length, timeout_seconds=auxiliary.timeout)


def _request(given: Given, args: argparse.Namespace) -> CompressRequest:
    return CompressRequest(
        target_tokens=target_tokens(args.target_tokens, given),
        context_length=args.context_length,
        model=given.model,
        tools=given.tools,
        system=given.system,
        focus=args.focus,
        settings=given.settings,
    )


def compressed_bytes(given: Given, result: Compressed) -> bytes:
    """The result in the shape of the input; the input itself, byte for byte, where no message changed."""
    encoded = [item if isinstance(item, dict) else bytes(item) for item in result.messages]
    if encoded == given.document.raws:
        return given.data
    data = given.document.with_messages(encoded)
    return data + b"\n" if given.data.endswith(b"\n") and not data.endswith(b"\n") else data
