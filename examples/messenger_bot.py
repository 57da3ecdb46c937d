"""A bot for a messenger with long polling (`getUpdates`, `sendMessage`), over the API of hosted conversations.

    MESSENGER_URL=https://api.telegram.org/botTOKEN PENSTOCK_URL=http://127.0.0.1:8787 python -m examples.messenger_bot

It keeps nothing: a chat is a session by its idempotency key, and an update that comes again is answered as before.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

import aiohttp

TRIES = 20


class Bot:
    """Answers every chat of a messenger. Ends with `getUpdates` where that fails for good."""

    def __init__(
        self, http: aiohttp.ClientSession, messenger: str, penstock: str, model: str, key: str = ""
    ) -> None:
        self.http, self.messenger, self.penstock, self.model = http, messenger, penstock, model
        self.headers = {"x-penstock-key": key} if key else {}

    async def run(self) -> None:
        """Asks for updates and answers them, each chat in its own order."""
        offset = 0
        while True:
            updates = await self.post(f"{self.messenger}/getUpdates", {"offset": offset, "timeout": 30})
            chats: dict[Any, list[Any]] = {}
            for update in updates["result"]:
                offset = max(offset, update["update_id"] + 1)
                if "text" in update.get("message", ()):  # not a picture, nor a message that was edited
                    chats.setdefault(update["message"]["chat"]["id"], []).append(update)
            await asyncio.gather(*(self.answer(chat, some) for chat, some in chats.items()))

    async def answer(self, chat: int, updates: list[Any]) -> None:
        """Answers the updates of one chat, commands such as /compress and /new among them."""
        opened = await self.post(
            f"{self.penstock}/sessions", {"model": self.model, "user": str(chat)}, f"chat-{chat}"
        )
        for update in updates:
            said, name = {"text": update["message"]["text"]}, f"update-{update['update_id']}"
            reply = await self.post(f"{self.penstock}/sessions/{opened['id']}/messages", said, name)
            for text in filter(None, [*reply["notices"], reply["text"]]):
                await self.post(f"{self.messenger}/sendMessage", {"chat_id": chat, "text": text})

    async def post(self, url: str, body: Any, key: str = "") -> Any:
        """Returns the answer to a request; one that says when to come again (Retry-After) is sent again then."""
        headers = {**self.headers, "idempotency-key": key} if key else {}
        tries_left = TRIES
        while True:
            tries_left -= 1
            async with self.http.post(url, json=body, headers=headers) as answer:
                pause = answer.headers.get("retry-after", "")
                if not (pause.isdigit() and tries_left):
                    answer.raise_for_status()
                    return await answer.json()
            await asyncio.sleep(min(int(pause), 60))


async def main() -> None:
    """Runs the bot that the environment describes."""
    async with aiohttp.ClientSession() as http:
        given = os.environ
        where = given["MESSENGER_URL"], given["PENSTOCK_URL"], given.get("MODEL", "gpt-5-mini")
        await Bot(http, *where, given.get("PENSTOCK_KEY", "")).run()


if __name__ == "__main__":
    asyncio.run(main())
