"""Types are read by msgspec at import: two threads that read one at the same moment would end the process."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from functools import lru_cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src/penstock"
ONE_THREAD = {"cli", "local", "replay", "trajectories"}  # and children that read one line of stdin
CHILDREN = {"agent/tools/search_child.py"}
CALLS = re.compile(r"\b(?:Decoder|decode|read_early|convert|read_shape|read_arguments|body)\(")
CONVERTERS = {"convert": 1, "read_shape": 1, "read_arguments": 1, "body": 0}  # the place of the type


@lru_cache
def list_modules():
    """Returns the modules in which threads may meet and something is decoded, by path, each with its tree."""
    texts = {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    return {
        name: ast.parse(text)
        for name, text in texts.items()
        if name.partition("/")[0] not in ONE_THREAD and name not in CHILDREN and CALLS.search(text)
    }


def name_called(call):
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def names_in(node):
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def find_calls(node):
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]


def list_parameters(tree):
    return {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}


def find_early_calls(tree):
    outside = [line for line in tree.body if not isinstance(line, ast.FunctionDef | ast.ClassDef)]
    return [call for line in outside for call in find_calls(line)]


def test_what_threads_decode_is_decoded_by_a_decoder_made_at_import():
    late = [
        f"{name}:{call.lineno}"
        for name, tree in list_modules().items()
        for early in [find_early_calls(tree)]
        for call in find_calls(tree)
        if (name_called(call) == "Decoder" and call.args and call not in early)
        or (name_called(call) == "decode" and any(word.arg == "type" for word in call.keywords))
    ]
    # The types of bodies are given by their name, and read early; see below.
    assert [place.partition(":")[0] for place in late] == ["_structs.py", "gateway/hosted.py"]


def test_what_threads_convert_was_read_at_import():
    trees = list_modules().values()
    early = {
        one
        for tree in trees
        for call in find_early_calls(tree)
        if name_called(call) in {"read_early", "Decoder"}
        for one in names_in(call)
    }
    used = {
        one
        for tree in trees
        for parameters in [list_parameters(tree)]
        for call in find_calls(tree)
        if (place := CONVERTERS.get(name_called(call))) is not None and len(call.args) > place
        for one in names_in(call.args[place]) - parameters
        if one.lstrip("_")[:1].isupper()
    }
    assert {"Receipt", "Settings", "_Body", "NewHostedSession"} <= used  # the search finds them
    assert used - early - {"CHAT"} == set()


@pytest.mark.outside
def test_the_first_use_may_come_from_many_threads_at_once():
    """Threads change as often as they can while sessions are begun, compacted, billed and searched for the first time."""
    program = """
        import sys, threading
        from penstock import Session, Usage, compress, open_store

        sys.setswitchinterval(1e-6)
        start, done = threading.Event(), []

        def work(number):
            start.wait()
            talk = [
                {"role": ("user", "assistant")[turn % 2], "content": f"{number}.{turn}: see src/main.py " + "word " * 90}
                for turn in range(30)
            ]
            session = Session.create(open_store("memory:"), model="gpt-4.1")
            session.append(talk[:16])
            session.compact(target_tokens=1_500)
            session.append(talk[16:])
            for _ in range(4):
                session.record_usage(Usage(input_tokens=5_000))
            session.handle_tool_call("history_search", {"query": "main.py"})
            compress(talk, target_tokens=1_000)
            done.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        start.set()
        for thread in threads:
            thread.join()
        print(len(done))
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "8"), ran.stderr[-2_000:]
