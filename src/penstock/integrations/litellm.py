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

from typing import TYPE_CHECKING, Any, Unpack

from litellm.integrations.custom_logger import CustomLogger

from penstock.integrations.bridge import Bridge, BridgeOptions, split_system
from penstock.integrations.translators import WireTranslator

if TYPE_CHECKING:
    from penstock.integrations.bridge import BridgedConversation

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
    """Compacts the messages of requests where that is due. A request that it does not understand passes as it is."""

    def __init__(self, **options: Unpack[BridgeOptions]) -> None:
        super().__init__()
        self._bridges: dict[str, Bridge[Any]] = {
            dialect: Bridge(WireTranslator(dialect), "litellm", options)
            for dialect in set(_DIALECTS.values())
        }

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Returns the request, with fewer messages where they were compacted."""
        del cache
        found = self._find(user_api_key_dict, data, str(call_type))
        if found is None:
            return data
        conversation, field, system, messages = found
        conversation.name_model(_name_model(data))
        beside = system or data.get("system") or data.get("instructions")
        conversation.surround(beside, data.get("tools") or ())
        fitted = await conversation.afit(messages)
        if fitted.changed:
            data[field] = [*system, *fitted.messages]
        if fitted.receipt is not None:
            data["metadata"] = {**(data.get("metadata") or {}), "penstock": fitted.receipt.to_dict()}
        return data

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: Any, response: Any
    ) -> Any:
        """Takes note of what the provider counted."""
        usage = getattr(response, "usage", None)
        for call_type in ("acompletion", "anthropic_messages", "aresponses") if usage else ():
            if (found := self._find(user_api_key_dict, data, call_type, known=True)) is not None:
                found[0].use(usage)
                break
        return response

    def _find(
        self, caller: Any, data: dict[str, Any], call_type: str, *, known: bool = False
    ) -> tuple[BridgedConversation[Any], str, list[Any], list[Any]] | None:
        """Returns the conversation, the field of its messages, its system messages and the others."""
        dialect = _DIALECTS.get(call_type)
        field = "input" if dialect == "responses" else "messages"
        given = data.get(field)
        if dialect is None or not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
            return None
        # Clients may change the system prompt with every request.
        system, messages = split_system(given, lambda one: one.get("role") in _SYSTEM_ROLES)
        key, bridge = _name_conversation(caller, data), self._bridges[dialect]
        if known and not bridge.holds(key, messages):
            return None
        return bridge.open(key, messages), field, system, messages


def _name_conversation(caller: Any, data: dict[str, Any]) -> str | None:
    """Returns the name of the conversation; two callers of the proxy never share one."""
    metadata = data.get("metadata") or data.get("litellm_metadata") or {}
    session = data.get("litellm_session_id") or (
        metadata.get("session_id") if isinstance(metadata, dict) else None
    )
    owner = getattr(caller, "api_key", None) or getattr(caller, "user_id", None) or ""
    return f"{owner} {session}" if session else None


def _name_model(data: dict[str, Any]) -> str:
    return str(data.get("model") or "").rpartition("/")[2]
