"""LlamaIndex's messages, in the Chat Completions dialect: blocks of text, pictures and calls, and a message for each result."""

from __future__ import annotations

from typing import Any

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock, ToolCallBlock

from penstock.integrations.translators import ChatMessageParts, ChatTranslator, read_text, rewrite_parts

__all__ = ["ChatMessageTranslator"]

_ROLES = {"developer": "system", "function": "tool", "chatbot": "assistant", "model": "assistant"}


class ChatMessageTranslator(ChatTranslator[ChatMessage]):
    """Translates the messages of LlamaIndex."""

    def read_message(self, message: ChatMessage) -> ChatMessageParts:
        """Returns what the message says; older clients of models list its calls beside the blocks."""
        role, more = _ROLES.get(message.role.value, message.role.value), message.additional_kwargs
        inside = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        calls: list[Any] = [(one.tool_call_id or "", one.tool_name, one.tool_kwargs) for one in inside]
        for call in () if calls else more.get("tool_calls") or ():
            told = call if isinstance(call, dict) else call.model_dump()
            calls.append((told["id"], told["function"]["name"], told["function"]["arguments"]))
        content = [written for block in message.blocks for written in _write_block(block)]
        return ChatMessageParts(
            role, content or "", calls, more.get("tool_call_id") if role == "tool" else None
        )

    def make_message(self, told: ChatMessageParts) -> ChatMessage:
        """Returns a message of text, pictures and calls."""
        blocks = rewrite_parts((), told.content, _write_block, _make_block)
        for call, tool, arguments in told.calls:
            blocks.append(ToolCallBlock(tool_call_id=call, tool_name=tool, tool_kwargs=arguments))
        more = {} if told.answers is None else {"tool_call_id": told.answers}
        return ChatMessage(role=told.role, blocks=blocks, additional_kwargs=more)

    def rewrite_message(self, original: ChatMessage, content: Any, arguments: dict[str, Any]) -> ChatMessage:
        """Returns a copy; blocks that say what they said are those of the original."""
        blocks = rewrite_parts(original.blocks, content, _write_block, _make_block)
        for place, block in enumerate(blocks):
            now = arguments.get(block.tool_call_id or "") if isinstance(block, ToolCallBlock) else None
            if now is not None and isinstance(block.tool_kwargs, dict) and now != block.tool_kwargs:
                blocks[place] = block.model_copy(update={"tool_kwargs": now})
        return original.model_copy(update={"blocks": blocks})


def _write_block(block: Any) -> list[dict[str, Any]]:
    """Returns what a block says in the content: calls stand beside it, and an empty text says nothing."""
    match block:
        case ToolCallBlock() | TextBlock(text=""):
            return []
        case TextBlock(text=text):
            return [{"type": "text", "text": text}]
        case ImageBlock():
            data = f"data:{block.image_mimetype};base64,{bytes(block.image or b'').decode()}"
            return [{"type": "image_url", "image_url": {"url": str(block.url or data)}}]
    return [{"type": block.block_type, "value": repr(block)}]  # kept with its message, and never read


def _make_block(block: dict[str, Any]) -> Any:
    image = block.get("image_url")
    return ImageBlock(url=image["url"]) if image else TextBlock(text=read_text(block))
