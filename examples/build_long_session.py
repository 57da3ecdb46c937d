"""Build `long_session.json`: `python -m examples.build_long_session`.

A coding agent looks for the reason why paid orders stay pending in a fictional book shop, fixes it, and deploys
to staging. `README.md` lists the traps that are laid in it. Every secret is made of documented example values
and filler: none opens anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from examples.story import tell
from examples.workspace import Workspace, agent_tools

__all__ = ["Scribe", "build", "fake_secrets", "main"]

TARGET = Path(__file__).with_name("long_session.json")
MODEL = "gpt-4.1"


class Scribe:
    """Writes down a conversation in the Chat Completions form."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._calls = 0

    def system(self, text: str) -> None:
        """The system prompt."""
        self.messages.append({"role": "system", "content": text})

    def user(self, text: str, image: bytes | None = None) -> None:
        """What the user says, with a PNG where one is given."""
        content: Any = text
        if image is not None:
            url = "data:image/png;base64," + base64.b64encode(image).decode()
            content = [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": url}}]
        self.messages.append({"role": "user", "content": content})

    def agent(self, text: str | None, *calls: tuple[str, dict[str, Any], str]) -> None:
        """What the agent says and calls; each call is its tool, its arguments and what came back."""
        message: dict[str, Any] = {"role": "assistant", "content": text}
        ids = [self._next_id() for _ in calls]
        if calls:
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
                }
                for call_id, (name, arguments, _) in zip(ids, calls, strict=True)
            ]
        self.messages.append(message)
        for call_id, (_, _, result) in zip(ids, calls, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})

    def _next_id(self) -> str:
        self._calls += 1
        return "call_" + hashlib.sha256(f"call {self._calls}".encode()).hexdigest()[:24]


def fake_secrets() -> dict[str, str]:
    """Secrets that have the shape of real ones. Put together here so that no source file holds one."""

    def segment(value: dict[str, str]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    filler = "FAKE" + "example"
    token = [segment({"alg": "HS256", "typ": "JWT"}), segment({"sub": "example", "aud": "paylane.test"})]
    body = "\n".join(
        ["MIIE" + filler * 5 + "A7b9", *("Zk3" + filler * 5 + f"q{n}R" for n in range(6)), filler + "=="]
    )
    label = "RSA PRIVATE" + " KEY"
    return {
        "aws_id": "AKIA" + "IOSFODNN7" + "EXAMPLE",
        "aws_secret": "wJalrXUtnFEMI/K7MDENG/" + "bPxRfiCY" + "EXAMPLEKEY",
        "bearer": ".".join([*token, "Rk" + filler * 3 + "0wX4"]),
        "database_url": "postgresql://shop:" + "Fake7Example" + "Pw92@localhost:5432/shop",
        "paylane_key": "sk_" + "test_" + "51" + filler * 2 + "00Qz",
        "private_key": f"-----BEGIN {label}-----\n{body}\n-----END {label}-----",
        "webhook_secret": "whsec_" + filler * 2 + "9d4T",
    }


def build() -> dict[str, Any]:
    """The whole session as one object: `model`, `tools` and `messages`."""
    secrets = fake_secrets()
    scribe = Scribe()
    tell(scribe, Workspace(secrets), secrets)
    return {"model": MODEL, "tools": agent_tools(), "messages": scribe.messages}


def main() -> None:
    """Write the file beside this script."""
    TARGET.write_text(json.dumps(build(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
