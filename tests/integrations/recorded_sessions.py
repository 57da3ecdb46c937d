"""Sessions as Claude Code and Codex record them, made up for the tests of `penstock mcp`."""

from __future__ import annotations

import json


def write_claude_session(home, folder, name, turns):
    """`turns` are (question, answer) pairs; returns the file, to which more may be appended."""
    place = home / ".claude" / "projects" / str(folder).replace("/", "-")
    place.mkdir(parents=True, exist_ok=True)
    file = place / f"{name}.jsonl"
    append_claude_turns(file, folder, name, turns)
    return file


def append_claude_turns(file, folder, name, turns):
    known = len(file.read_text().splitlines()) if file.exists() else 0
    with file.open("a") as out:
        for number, (question, answer) in enumerate(turns, start=known // 2):
            asked = {"role": "user", "content": question}
            said = {
                "role": "assistant",
                "id": f"msg_{name}_{number}",
                "model": "claude-sonnet-4-5",
                "stop_reason": "end_turn",
                "content": [{"type": "text", "text": answer}],
                "usage": {"input_tokens": 100, "output_tokens": 10},
            }
            parent = f"a{number - 1}" if number else None
            for kind, uuid, before, message in (
                ("user", "u", parent, asked),
                ("assistant", "a", f"u{number}", said),
            ):
                line = {
                    "type": kind,
                    "uuid": f"{uuid}{number}",
                    "parentUuid": before,
                    "sessionId": name,
                    "cwd": str(folder),
                    "timestamp": f"2026-11-0{1 + number % 9}T10:00:00.000Z",
                    "message": message,
                }
                out.write(json.dumps(line) + "\n")


def write_codex_session(home, folder, name, turns):
    place = home / ".codex" / "sessions" / "2026" / "11" / "02"
    place.mkdir(parents=True, exist_ok=True)
    lines = [
        {"type": "session_meta", "payload": {"id": name, "cwd": str(folder)}},
        {"type": "turn_context", "payload": {"model": "gpt-5-codex"}},
    ]
    for question, answer in turns:
        for role, kind, text in (("user", "input_text", question), ("assistant", "output_text", answer)):
            item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
            lines.append({"type": "response_item", "payload": item})
    file = place / f"rollout-2026-11-02T10-00-00-{name}.jsonl"
    file.write_text("".join(json.dumps({"timestamp": "2026-11-02T10:00:00Z", **one}) + "\n" for one in lines))
    return file
