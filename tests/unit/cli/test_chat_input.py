"""Completion at the prompt of a chat."""

from __future__ import annotations

import asyncio
import threading

from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from penstock.cli.chat.input import SlashCompleter


def complete(completer, text):
    async def collect():
        return [one async for one in completer.get_completions_async(Document(text), CompleteEvent())]

    return asyncio.run(collect())


def test_paths_are_looked_for_outside_of_the_event_loop():
    threads = []

    def find_paths(begun):
        threads.append(threading.current_thread())
        return [f"{begun}in.py"]

    (found,) = complete(SlashCompleter(list, find_paths), "see @ma")
    assert (found.text, found.start_position) == ("@main.py", -3)
    assert threads
    assert threading.main_thread() not in threads


def test_commands_and_conversations_are_completed_as_ever():
    completer = SlashCompleter(lambda: [("8f3a", "the first"), ("99bc", "another")])
    assert "/compress" in [one.text for one in complete(completer, "/com")]
    assert [one.text for one in complete(completer, "/resume 9")] == ["99bc"]
