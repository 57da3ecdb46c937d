"""Bodies of requests and answers: writing the one, reading the other without trusting it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from penstock.conversation.wire import encode_wire, parse_json
from penstock.errors import ProviderError
from penstock.providers.classify import classify_error
from penstock.providers.failures import malformed_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.errors import ErrorClass

__all__ = ["encode_body", "find_reported_error", "parse_body", "parse_event", "provider_error", "read_shape"]

_T = TypeVar("_T")


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Returns the JSON of a request. A message that is bytes is its own JSON already and goes in as it stands.

    Raises InputError for what JSON cannot say.
    """
    return b"{" + b",".join(encode_wire(name) + b":" + _encode(value) for name, value in body.items()) + b"}"


def _encode(value: Any) -> bytes:
    if isinstance(value, bytes | msgspec.Raw):
        return bytes(value)
    if isinstance(value, list | tuple) and any(isinstance(item, bytes | msgspec.Raw) for item in value):
        return b"[" + b",".join(map(_encode, value)) + b"]"
    return encode_wire(value)


def parse_body(data: bytes, status: int = 200) -> dict[str, Any]:
    """Returns the object in a body. Raises ProviderError if it is not a JSON object, or reports an error."""
    try:
        body = parse_json(data)
    except ValueError:
        looks = "a web page" if data.lstrip()[:1] == b"<" else "no JSON" if data.strip() else "empty"
        raise malformed_answer(f"it is {looks}; does the base URL lead to the API?", status=status) from None
    if not isinstance(body, dict):
        raise malformed_answer("it is JSON, but not an object", status=status)
    if (error := find_reported_error(body)) is not None:
        raise error
    return body


def parse_event(data: str) -> dict[str, Any]:
    """Returns the object that an event of a stream holds. Raises ProviderError as `parse_body` does."""
    try:
        body = parse_json(data)
    except ValueError:
        raise malformed_answer("an event of the stream is not JSON") from None
    if not isinstance(body, dict):
        raise malformed_answer("an event of the stream is JSON, but not an object")
    if (error := find_reported_error(body)) is not None:
        raise error
    return body


def read_shape(value: Any, shape: type[_T]) -> _T:
    """Returns the value as a Struct. Raises ProviderError that names the field that is missing or of the wrong type."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise malformed_answer(str(error)) from None
    except UnicodeEncodeError:
        raise malformed_answer("a field holds half of a surrogate pair") from None


def find_reported_error(body: Mapping[str, Any]) -> ProviderError | None:
    """Returns the error that a body reports under a status that says all is well, as relays and streams do."""
    if not body.get("error") and body.get("type") != "error":
        return None
    return provider_error(classify_error(None, body))


def provider_error(failure: ErrorClass, host: str = "the provider") -> ProviderError:
    """Returns the exception for a provider's error that has been classified."""
    status = f" {failure.status}" if failure.status else ""
    words = f": {failure.message}" if failure.message else ""
    return ProviderError(f"{host} answered{status} ({failure.kind}){words}", failure=failure)
