"""Conversations that hold every item and block type of the table in `conversation/dialects/wire_kinds.py`.

`sample_item` and `sample_block` write one legal object of a type; the strategies draw whole conversations of them, with
answered, unanswered and open calls, barriers and references. What a provider would refuse in the result is said by
`legality.py`, which knows nothing of our rules.
"""

from __future__ import annotations

import base64
import json
import random
from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from penstock.conversation.dialects.wire_kinds import (
    ANTHROPIC_BLOCKS,
    CHAT_BLOCKS,
    RESPONSES_BLOCKS,
    RESPONSES_ITEMS,
    Nature,
)

__all__ = ["SECRET", "ItemCase", "build_case", "item_cases", "sample_block", "sample_item"]

Wire = dict[str, Any]

_PICTURE = base64.b64encode(
    b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (1280).to_bytes(4, "big") + (800).to_bytes(4, "big") + bytes(16)
).decode()
_WORDS = [
    "the",
    "importer",
    "fails",
    "on",
    "order",
    "88213-B",
    "in",
    "src/importer/parse.py",
    "because",
    "Tabelle",
    "orders_2024",
    "lacks",
    "a",
    "column;",
    "retry",
    "after",
    "30",
    "s",
    "with",
    "--max-rows",
    "500",
    "und",
    "prüfe",
    "tests/test_retry.py;",
    "次は設定を確認する;",
    "exit",
    "code",
    "1",
]
SECRET = "gAAAAciphertext"  # what no view may quote: every opaque content begins with it


class ItemCase(NamedTuple):
    """A conversation, and the share of it that its compaction may take."""

    dialect: str
    wires: list[Wire]
    share: float

    def __repr__(self) -> str:
        """Short: what fails is built again from its seed, and Hypothesis gives up on long ones."""
        return f"<{len(self.wires)} messages of {self.dialect}, share {self.share}>"


def item_cases(dialect: str) -> st.SearchStrategy[ItemCase]:
    """Conversations of the dialect, each from a seed: building them is far quicker than drawing every word."""
    return st.builds(
        build_case, st.just(dialect), st.integers(0, 2**32), st.sampled_from((0.05, 0.15, 0.4, 0.8))
    )


@cache
def build_case(dialect: str, seed: int, share: float) -> ItemCase:
    """Returns the conversation of a seed, and the share of it that is to be left."""
    return ItemCase(dialect, _Writer(dialect, random.Random(seed)).write(), share)


def sample_item(name: str, chance: random.Random, number: int = 0, call: str = "") -> Wire:
    """Returns a legal item of the Responses API of this type. `call` is the id by which it knows its pair."""
    return _Sampler(chance, number).item(name, call or f"call_{number}")


def sample_block(name: str, chance: random.Random, number: int = 0, call: str = "") -> Wire:
    """Returns a legal block of this type, of any dialect that has blocks."""
    return _Sampler(chance, number).block(name, call or f"toolu_{number}")


class _Sampler:
    """Writes one object after the other; `number` makes ids that are never used twice."""

    def __init__(self, chance: random.Random, number: int = 0) -> None:
        self.chance = chance
        self.number = number

    def text(self, longest: int = 0) -> str:
        size = longest or self.chance.choice((4, 4, 12, 12, 12, 60, 60, 250))
        return " ".join(self.chance.choices(_WORDS, k=self.chance.randint(1, size)))

    def seal(self) -> str:
        return SECRET + "".join(
            self.chance.choices("abcdefghijkmnpqrstuvwxyz0123456789", k=self.chance.choice((20, 400)))
        )

    def pdf(self) -> str:
        return base64.b64encode(
            b"%PDF-1.7\n" + self.chance.randbytes(self.chance.choice((600, 30_000)))
        ).decode()

    def arguments(self) -> Any:
        many = {f"key_{n}": n for n in range(self.chance.choice((2, 2, 150)))}
        return self.chance.choice(
            ({"path": "src/a.py"}, {"text": self.text()}, many, {"rows": [[1, 2]] * 99})
        )

    def item(self, name: str, call: str) -> Wire:
        self.number += 1
        fields = _ITEM_FIELDS[name](self)
        kind = RESPONSES_ITEMS[name]
        if kind.nature in (Nature.CALL, Nature.OUTPUT, Nature.USE, Nature.RESULT):
            fields[kind.key] = call
            if name == "local_shell_call_output":
                fields["id"] = fields.pop("call_id")
        return {"type": name, **({} if "id" in fields else {"id": f"it_{self.number}"}), **fields}

    def block(self, name: str, call: str) -> Wire:
        self.number += 1
        fields = _BLOCK_FIELDS[name](self)
        kind = ANTHROPIC_BLOCKS.get(name)
        if kind is not None and kind.key:
            fields[kind.key] = call
        return {"type": name, **fields}


_TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}
_ITEM_FIELDS: dict[str, Any] = {
    "message": lambda s: {
        "role": "assistant",
        "content": [{"type": "output_text", "text": s.text(), "annotations": []}],
    },
    "reasoning": lambda s: {
        "summary": [{"type": "summary_text", "text": s.text(12)}],
        "encrypted_content": s.seal(),
    },
    "function_call": lambda s: {"name": "look_up", "arguments": _json(s.arguments())},
    "function_call_output": lambda s: {
        "output": s.chance.choice((s.text(), [{"type": "input_text", "text": s.text()}]))
    },
    "custom_tool_call": lambda s: {"name": "patch", "input": s.text()},
    "custom_tool_call_output": lambda s: {"output": s.text()},
    "local_shell_call": lambda s: {
        "action": {"type": "exec", "command": ["sh", "-c", s.text()], "env": {}},
        "status": "completed",
    },
    "local_shell_call_output": lambda s: {"output": s.text()},
    "shell_call": lambda s: {"action": {"commands": [s.text(12)] * s.chance.choice((1, 200))}},
    "shell_call_output": lambda s: {
        "output": [{"stdout": s.text(), "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}]
    },
    "apply_patch_call": lambda s: {
        "operation": {"type": "update_file", "path": "a.py", "diff": s.text()},
        "status": "completed",
    },
    "apply_patch_call_output": lambda s: {"status": "completed", "output": s.text(60)},
    "computer_call": lambda s: {
        "action": {"type": "click", "button": "left", "x": 1, "y": 2},
        "pending_safety_checks": [],
        "status": "completed",
    },
    "computer_call_output": lambda _: {
        "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{_PICTURE}"}
    },
    "tool_search_call": lambda s: {"arguments": s.arguments(), "execution": "client"},
    "tool_search_output": lambda s: {"tools": [_TOOL] * s.chance.choice((1, 60)), "execution": "client"},
    "program": lambda s: {"code": s.text(), "fingerprint": s.seal()},
    "program_output": lambda s: {"result": s.text(), "status": "completed"},
    "mcp_approval_request": lambda s: {
        "name": "pay",
        "arguments": _json(s.arguments()),
        "server_label": "bank",
    },
    "mcp_approval_response": lambda _: {"approve": True},
    "mcp_call": lambda s: {"name": "pay", "arguments": "{}", "server_label": "bank", "output": s.text()},
    "mcp_list_tools": lambda s: {
        "server_label": "bank",
        "tools": [{"name": "pay", "input_schema": {}}] * s.chance.choice((1, 80)),
    },
    "web_search_call": lambda s: {"status": "completed", "action": {"type": "search", "query": s.text(12)}},
    "file_search_call": lambda s: {
        "status": "completed",
        "queries": [s.text(12)],
        "results": [{"text": s.text()}],
    },
    "code_interpreter_call": lambda s: {
        "status": "completed",
        "code": s.text(),
        "container_id": "cntr_1",
        "outputs": [{"type": "logs", "logs": s.text()}],
    },
    "image_generation_call": lambda s: {
        "status": "completed",
        "result": base64.b64encode(s.chance.randbytes(9_000)).decode(),
    },
    "compaction": lambda s: {"encrypted_content": s.seal()},
    "compaction_summary": lambda s: {"encrypted_content": s.seal()},
    "context_compaction": lambda s: {"encrypted_content": s.seal()},
    "compaction_trigger": lambda _: {},
    "item_reference": lambda s: {"id": f"kept_{s.number}"},
    "additional_tools": lambda _: {"role": "developer", "tools": [_TOOL]},
    "configuration_update": lambda _: {"reasoning": {"effort": "low"}},
}
_BLOCK_FIELDS: dict[str, Any] = {
    "text": lambda s: {"text": s.text()},
    "input_text": lambda s: {"text": s.text()},
    "output_text": lambda s: {"text": s.text()},
    "refusal": lambda s: {"refusal": s.text(12)},
    "image": lambda _: {"source": {"type": "base64", "media_type": "image/png", "data": _PICTURE}},
    "image_url": lambda _: {"image_url": {"url": f"data:image/png;base64,{_PICTURE}"}},
    "input_image": lambda _: {"image_url": f"data:image/png;base64,{_PICTURE}"},
    "input_file": lambda s: {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{s.pdf()}"},
    "file": lambda s: {"file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{s.pdf()}"}},
    "input_audio": lambda s: {
        "input_audio": {"format": "wav", "data": base64.b64encode(s.chance.randbytes(20_000)).decode()}
    },
    "document": lambda s: {
        "title": "notes",
        "source": s.chance.choice(
            (
                {"type": "text", "media_type": "text/plain", "data": s.text()},
                {"type": "base64", "media_type": "application/pdf", "data": s.pdf()},
                {"type": "url", "url": "https://example.org/a.pdf"},
            )
        ),
    },
    "search_result": lambda s: {
        "source": "kb",
        "title": "notes",
        "content": [{"type": "text", "text": s.text()}],
    },
    "thinking": lambda s: {"thinking": s.text(60), "signature": s.seal()},
    "redacted_thinking": lambda s: {"data": s.seal()},
    "tool_use": lambda s: {"name": "look_up", "input": s.arguments()},
    "tool_result": lambda s: {"content": s.chance.choice((s.text(), [{"type": "text", "text": s.text()}]))},
    "server_tool_use": lambda s: {"name": "web_search", "input": {"query": s.text(12)}},
    "web_search_tool_result": lambda s: {
        "content": [
            {
                "type": "web_search_result",
                "title": s.text(4),
                "url": "https://example.org",
                "encrypted_content": s.seal(),
            }
        ]
    },
    "web_fetch_tool_result": lambda s: {
        "content": {
            "type": "web_fetch_result",
            "url": "https://example.org",
            "content": {"type": "document", "source": {"type": "text", "data": s.text()}},
        }
    },
    "code_execution_tool_result": lambda s: {
        "content": {
            "type": "code_execution_result",
            "stdout": s.text(),
            "stderr": "",
            "return_code": 0,
            "content": [],
        }
    },
    "bash_code_execution_tool_result": lambda s: {
        "content": {
            "type": "bash_code_execution_result",
            "stdout": s.text(),
            "stderr": "",
            "return_code": 0,
            "content": [],
        }
    },
    "text_editor_code_execution_tool_result": lambda s: {
        "content": {
            "type": "text_editor_code_execution_view_result",
            "file_type": "text",
            "content": s.text(),
        }
    },
    "tool_search_tool_result": lambda _: {
        "content": {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": "look_up"}],
        }
    },
    "advisor_tool_result": lambda s: {"content": {"type": "advisor_result", "text": s.text()}},
    "mcp_tool_use": lambda s: {"name": "pay", "server_name": "bank", "input": s.arguments()},
    "mcp_tool_result": lambda s: {"content": [{"type": "text", "text": s.text()}]},
    "mcp_tool_listing": lambda _: {"mcp_server_name": "bank", "tools": [{"name": "pay", "input_schema": {}}]},
    "fallback": lambda _: {"from": {"model": "a"}, "to": {"model": "b"}},
    "compaction": lambda s: {"content": s.seal() if s.chance.random() < 0.8 else None},
    "container_upload": lambda s: {"file_id": f"file_{s.number}"},
    "tool_addition": lambda _: {"tool": {"type": "tool_reference", "name": "look_up"}},
    "tool_removal": lambda _: {"tool": {"type": "tool_reference", "name": "look_up"}},
}


def _json(value: Any) -> str:
    return json.dumps(value)


class _Writer:
    """Writes one conversation of a dialect."""

    def __init__(self, dialect: str, chance: random.Random) -> None:
        self.dialect = dialect
        self.chance = chance
        self.made = _Sampler(chance)

    def write(self) -> list[Wire]:
        turn = {"responses": self._responses_turn, "anthropic": self._anthropic_turn, "chat": self._chat_turn}
        rounds = self.chance.randint(2, 6)
        return [wire for number in range(rounds) for wire in turn[self.dialect](last=number == rounds - 1)]

    def _some(self, *weights: float) -> int:
        return self.chance.choices(range(len(weights)), weights)[0]

    # OpenAI Responses.

    def _responses_turn(self, *, last: bool) -> list[Wire]:
        blocks = [self.made.block("input_text", "")]
        blocks += [self.made.block(name, "") for name in self._pick(RESPONSES_BLOCKS, Nature.WHOLE, 0.15)]
        blocks += [self.made.block("input_image", "")] * (self.chance.random() < 0.1)
        wires: list[Wire] = [{"type": "message", "role": "user", "content": blocks}]
        for _ in range(self._some(1, 3, 3, 1)):
            wires += self._responses_step(last=last)
        if not last or self.chance.random() < 0.5:
            wires += [self.made.item("reasoning", "")] * (self.chance.random() < 0.3)
            wires.append(self.made.item("message", ""))
        elif self.chance.random() < 0.1:
            wires.append({"type": "compaction_trigger"})
        return wires

    def _pick(self, table: Any, nature: Nature, chance: float) -> list[str]:
        names = [name for name, kind in table.items() if kind.nature is nature]
        return [self.chance.choice(names)] if self.chance.random() < chance else []

    def _responses_step(self, *, last: bool) -> list[Wire]:
        step = self.chance.random()
        if step < 0.65:
            return self._responses_batch(last=last)
        if step < 0.75:
            return self._responses_use()
        wholes = self._pick(RESPONSES_ITEMS, Nature.WHOLE, 0.7)
        others = self._pick(RESPONSES_ITEMS, Nature.STANDING, 0.4) + self._pick(
            RESPONSES_ITEMS, Nature.BARRIER, 0.15
        )
        names = [name for name in (*wholes, *others) if name != "compaction_trigger"]
        items = [self.made.item(name, "") for name in names]
        if self.chance.random() < 0.1:  # a type nobody knows, and one that names it
            self.made.number += 1
            new = {"type": "x_new_call", "id": f"x_{self.made.number}", "payload": self.made.text(60)}
            items += [new, {"type": "x_new_result", "x_call_id": new["id"], "payload": self.made.text(60)}]
        for item in items:
            if item["type"] == "item_reference" and self.chance.random() < 0.5:
                del item["type"]
        return items

    def _responses_batch(self, *, last: bool) -> list[Wire]:
        calls = [name for name, kind in RESPONSES_ITEMS.items() if kind.nature is Nature.CALL]
        made: list[Wire] = []
        outputs: list[Wire] = []
        for _ in range(self.chance.choice((1, 1, 1, 2, 3, 12))):
            name = self.chance.choice(calls)
            call = self.made.item(name, f"call_{self.made.number}")
            made.append(call)
            if self.chance.random() < (0.8 if last else 0.93):
                outputs.append(self.made.item(RESPONSES_ITEMS[name].pair, call["call_id"]))
        self.chance.shuffle(outputs)
        return [self.made.item("reasoning", "")] * (self.chance.random() < 0.4) + made + outputs

    def _responses_use(self) -> list[Wire]:
        number = self.made.number
        if self.chance.random() < 0.5:
            request = self.made.item("mcp_approval_request", f"mcpr_{number}")
            done = {**self.made.item("mcp_call", ""), "approval_request_id": f"mcpr_{number}"}
            answer = self.made.item("mcp_approval_response", f"mcpr_{number}")
            return [request, answer, done][: self.chance.choice((1, 2, 3, 3))]
        call = {
            **self.made.item("function_call", f"call_{number}"),
            "caller": {"type": "program", "caller_id": f"prog_{number}"},
        }
        output = self.made.item("function_call_output", f"call_{number}")
        ended = self.made.item("program_output", f"prog_{number}")
        return [
            self.made.item("program", f"prog_{number}"),
            call,
            output,
            *[ended] * (self.chance.random() < 0.9),
        ]

    # Anthropic.

    def _anthropic_turn(self, *, last: bool) -> list[Wire]:
        blocks = [self.made.block("text", "")]
        for names, chance in (
            (("document", "search_result"), 0.25),
            (("image",), 0.1),
            (("container_upload",), 0.05),
        ):
            blocks += [self.made.block(self.chance.choice(names), "")] * (self.chance.random() < chance)
        wires: list[Wire] = [{"role": "user", "content": blocks}]
        if self.chance.random() < 0.1:
            change = self.chance.choice(("tool_addition", "tool_removal"))
            wires.append({"role": "system", "content": [self.made.block(change, "")]})
        for _ in range(self._some(1, 3, 2)):
            wires += self._anthropic_round(last=last)
        if not last or self.chance.random() < 0.5:
            wires.append(
                {"role": "assistant", "content": [*self._server_blocks(), self.made.block("text", "")]}
            )
        return wires

    def _server_blocks(self) -> list[Wire]:
        blocks: list[Wire] = []
        if self.chance.random() < 0.4:
            results = [name for name, kind in ANTHROPIC_BLOCKS.items() if kind.nature is Nature.RESULT]
            name = self.chance.choice(results)
            use = "mcp_tool_use" if name == "mcp_tool_result" else "server_tool_use"
            number = f"srv_{self.made.number}"
            blocks += [self.made.block(use, number), self.made.block(name, number)]
        for name, chance in (("compaction", 0.05), ("mcp_tool_listing", 0.05), ("fallback", 0.05)):
            if self.chance.random() < chance:
                blocks.insert(0, self.made.block(name, ""))
        return blocks

    def _anthropic_round(self, *, last: bool) -> list[Wire]:
        blocks = [self.made.block(self.chance.choice(("thinking", "redacted_thinking")), "")] * (
            self.chance.random() < 0.3
        )
        if not blocks:
            blocks += self._server_blocks()
        results: list[Wire] = []
        for _ in range(self.chance.choice((1, 1, 2, 3, 12))):
            call = self.made.block("tool_use", f"toolu_{self.made.number}")
            blocks.append(call)
            if self.chance.random() < (0.8 if last else 0.95):
                results.append(self.made.block("tool_result", call["id"]))
        wires: list[Wire] = [{"role": "assistant", "content": blocks}]
        return [*wires, {"role": "user", "content": results}] if results else wires

    # Chat.

    def _chat_turn(self, *, last: bool) -> list[Wire]:
        blocks = [self.made.block("text", "")]
        blocks += [self.made.block(name, "") for name in self._pick(CHAT_BLOCKS, Nature.WHOLE, 0.2)]
        blocks += [self.made.block("image_url", "")] * (self.chance.random() < 0.1)
        plain = len(blocks) == 1 and self.chance.random() < 0.8
        user: Wire = {"role": "user", "content": blocks[0]["text"] if plain else blocks}
        if self.chance.random() < 0.1:
            user["name"] = "alice"
        wires: list[Wire] = [user]
        for _ in range(self._some(1, 3, 2)):
            calls: list[Wire] = []
            results: list[Wire] = []
            for _ in range(self.chance.choice((1, 1, 2, 3, 12))):
                self.made.number += 1
                call_id = f"call_{self.made.number}"
                function = {"name": "look_up", "arguments": _json(self.made.arguments())}
                calls.append({"id": call_id, "type": "function", "function": function})
                if self.chance.random() < (0.8 if last else 0.95):
                    results.append({"role": "tool", "tool_call_id": call_id, "content": self.made.text()})
            wires += [{"role": "assistant", "content": None, "tool_calls": calls}, *results]
        if not last or self.chance.random() < 0.5:
            wires.append({"role": "assistant", "content": self.made.text()})
        return wires
