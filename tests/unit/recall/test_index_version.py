"""What an index keeps is part of every store: it changes only together with its version."""

from __future__ import annotations

import hashlib
import json

from penstock.conversation.dialects import dialect_named
from penstock.recall import cut_passages
from penstock.recall.passages import INDEX_VERSION
from penstock.recall.stems import index_passage

DIGESTS = {
    1: "3f670d18bae1f1ca01b10b503edd57c534bf0c3a26a62d1e922c3bc4972d8c73",
    2: "0537b9b6cf73e7e190153b1edf2f0dce196fb845f69561103feecc8f46c1fe52",
}
WIRES = [
    {
        "role": "user",
        "content": "Fix `getUserName` in src/app/main.py, please; the tests of v2.1 fail.\n\n\n  Größe: 12",
    },
    {"role": "user", "content": "请修复登录页面的错误 and デプロイ"},
    {
        "role": "assistant",
        "content": "Looking at it.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {
                    "name": "read_file",
                    "arguments": '{"path": "src/app/main.py", "deep": {"limit": 40}}',
                },
            }
        ],
    },
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "\n".join(f"{n:6}\tvalue_{n} = sha256_{n:04x}" for n in range(90)),
    },
    {
        "role": "tool",
        "tool_call_id": "c1",
        "content": json.dumps({"orders": [{"id": f"#W{n}", "total": n * 1.5} for n in range(40)]}),
    },
    {
        "role": "assistant",
        "content": "a sentence that is long, " * 120 + "http://localhost:8080/path?x=1&y=2 it's done",
    },
]


def test_passages_and_terms_change_only_with_their_version():
    """Where this fails, raise INDEX_VERSION and add its digest: stores then index anew by themselves."""
    digest = hashlib.sha256()
    for wire in WIRES:
        for passage in cut_passages(dialect_named("chat").decode(wire)):
            kept = [passage.voice, int(passage.speaker), passage.text, sorted(index_passage(passage))]
            digest.update(json.dumps(kept).encode())
    assert digest.hexdigest() == DIGESTS[INDEX_VERSION]
    assert len(set(DIGESTS.values())) == len(DIGESTS)
