"""LiteLLM: a callback of its proxy that keeps every request inside the window of its model.

    # penstock_callback.py, beside the config.yaml of the proxy
    from penstock.integrations.litellm import PenstockCallback

    callback = PenstockCallback(store="postgresql://…")

    # config.yaml
    litellm_settings:
      callbacks: penstock_callback.callback

Chat Completions, Anthropic's Messages and Responses, each in its own dialect. A conversation is the one of
`metadata.session_id` or `litellm_session_id`, else it is known by what was said. With a store that all processes of the proxy
share, each goes on where another has compacted. The receipt stands in the metadata of the request, as `penstock`.
"""

from __future__ import annotations

from typing import Any, TypeGuard, Unpack

from litellm.integrations.custom_logger import CustomLogger

from penstock.integrations.bridge import Bridge, BridgeOptions
from penstock.integrations.translators import WireTranslator

__all__ = ["PenstockCallback"]

_DIALECTS = {
    "completion": "chat",
    "acompletion": "chat",
    "anthropic_messages": "anthropic",
    "aanthropic_messages": "anthropic",
    "responses": "responses",
    "aresponses": "responses",
}
_SYSTEM_ROLES = ("system", "developer")


class PenstockCallback(CustomLogger):
    """Compacts the messages of requests if that is due. A request that it does not understand passes as it is."""

    def __init__(self, **options: Unpack[BridgeOptions]) -> None:
        super().__init__()
        self._bridges: dict[str, Bridge[Any]] = {
            dialect: Bridge(WireTranslator(dialect, _SYSTEM_ROLES), "litellm", options)
            for dialect in dict.fromkeys(_DIALECTS.values())
        }

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Returns the request, with fewer messages if they were compacted."""
        del cache
        if (dialect := _read_dialect(data, call_type)) is None:
            return data
        field = _name_field(dialect)
        conversation = self._bridges[dialect].open(
            _name_conversation(user_api_key_dict, data),
            data[field],
            model=str(data.get("model") or "").rpartition("/")[2],
            system=data.get("system") or data.get("instructions"),
            tools=data.get("tools") or (),
        )
        fitted = await conversation.afit(data[field])
        if fitted.changed:
            data[field] = fitted.messages
        if fitted.receipt is not None:
            data["metadata"] = {**(data.get("metadata") or {}), "penstock": fitted.receipt.to_dict()}
        return data

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Records what the provider counted."""
        usage, key = getattr(response, "usage", None), _name_conversation(user_api_key_dict, data)
        for dialect, bridge in self._bridges.items() if usage else ():
            messages = data.get(_name_field(dialect))
            if _are_wires(messages) and bridge.holds(key, messages):
                bridge.open(key, messages).use(usage)
                break
        return response


def _read_dialect(data: dict[str, Any], call_type: str) -> str | None:
    """Returns the dialect of a request; None for one that is not understood."""
    dialect = _DIALECTS.get(str(call_type))
    return dialect if dialect and _are_wires(data.get(_name_field(dialect))) else None


def _name_field(dialect: str) -> str:
    return "input" if dialect == "responses" else "messages"


def _are_wires(messages: Any) -> TypeGuard[list[Any]]:
    return isinstance(messages, list) and all(isinstance(one, dict) for one in messages)


def _name_conversation(caller: Any, data: dict[str, Any]) -> str | None:
    """Returns the name of the conversation; two callers of the proxy never share one."""
    metadata = data.get("metadata") or data.get("litellm_metadata") or {}
    session = data.get("litellm_session_id") or (
        metadata.get("session_id") if isinstance(metadata, dict) else None
    )
    owner = getattr(caller, "api_key", None) or getattr(caller, "user_id", None) or ""
    return f"{owner} {session}" if session else None
