"""An engine of a third party, as a file and as an installed package."""

from __future__ import annotations

LAST_TURNS = '''
import json

import penstock


class LastTurns(penstock.ContextEngine):
    """Keeps the beginning and the newest exchanges, and says how much it left out."""

    def __init__(self, keep=2):
        self.keep = keep
        self.sessions = []

    @property
    def name(self):
        return "last-turns"

    def update_from_response(self, usage):
        reported = penstock.normalise_usage(usage)
        self.last_prompt_tokens = reported.prompt_tokens
        self.last_completion_tokens = reported.output_tokens
        self.last_total_tokens = reported.total_tokens

    def should_compress(self, prompt_tokens=None):
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return 0 < self.threshold_tokens <= tokens

    def compress(self, messages, current_tokens=None, focus_topic=None):
        asked = [place for place, message in enumerate(messages) if message["role"] == "user"]
        if len(asked) <= self.keep:
            return list(messages)
        start = asked[-self.keep]
        head = [message for message in messages[:1] if message["role"] == "system"]
        note = {"role": "user", "content": f"[{start - len(head)} earlier messages left out]"}
        self.compression_count += 1
        return [*head, note, *messages[start:]]

    def on_session_start(self, session_id, **context):
        self.sessions.append(("start", session_id, context))

    def on_session_end(self, session_id, messages):
        self.sessions.append(("end", session_id, len(messages)))

    def get_tool_schemas(self):
        parameters = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
        about = "How often a word stands in what you see."
        return [{"type": "function", "function": {"name": "count_word", "description": about, "parameters": parameters}}]

    def handle_tool_call(self, name, args, **context):
        if name != "count_word":
            return super().handle_tool_call(name, args, **context)
        word = args.get("word")
        if not isinstance(word, str) or not word:
            return json.dumps({"error": "word is missing"})
        return json.dumps({"count": json.dumps(context.get("messages", [])).count(word)})
'''


def write_plugin(folder, name="last_turns.py", text=LAST_TURNS):
    """A file in a plugin folder that only its owner may write."""
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder.chmod(0o755)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def install(folder, points, text=LAST_TURNS, package="acme_engines", distribution="acme-engines"):
    """A package as an installer leaves it: its module, and a dist-info folder that declares the entry points."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{package}.py").write_text(text, encoding="utf-8")
    info = folder / f"{package}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    lines = [f"{name} = {target}" for name, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(["[penstock.engines]", *lines, ""]))
    (info / "RECORD").write_text(f"{package}.py,,\n{info.name}/METADATA,,\n{info.name}/entry_points.txt,,\n")
    (info / "INSTALLER").write_text("test\n")
    return folder
