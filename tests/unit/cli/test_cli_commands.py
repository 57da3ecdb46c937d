"""The commands, in this process: what they write, and what their options change."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.e2e.cli_process import assert_one_clear_error, assistant, call, encoded, result, user, work

from penstock.conversation.document import read_document

EXAMPLE = Path(__file__).parents[3] / "examples" / "long_session.json"


class TestCompress:
    def test_output_dash_is_stdout(self, penstock, session):
        ran = penstock("compress", session, "--target-tokens", "600", "-o", "-")
        assert json.loads(ran.out)
        assert ran.err.startswith("compressed")

    def test_the_receipt_as_json_stands_where_the_report_stands(self, penstock, session, tmp_path):
        to_file = penstock("compress", session, "--target-tokens", "600", "-o", tmp_path / "o", "--json")
        to_pipe = penstock("compress", session, "--target-tokens", "600", "--json")
        for receipt in (json.loads(to_file.text), json.loads(to_pipe.err)):
            assert receipt["outcome"] == "compacted"
            assert receipt["tokens_after"] <= 600 == receipt["target_tokens"]
            assert receipt["messages_before"] == 63
        assert json.loads(to_pipe.out)

    def test_nothing_to_do_gives_the_same_bytes_and_a_hint(self, penstock, tmp_path):
        file = tmp_path / "pretty.json"
        file.write_text(json.dumps({"messages": work(2), "model": "gpt-4.1"}, indent=4) + "\n")
        ran = penstock("compress", file)
        assert ran.code == 0
        assert ran.out == file.read_bytes()
        assert ran.err.startswith("nothing to compress: ")
        assert "hint" in ran.err

    def test_no_hint_for_somebody_who_named_a_target(self, penstock, session):
        for aim in ("--target-tokens", "--context-length"):
            ran = penstock("compress", session, aim, "90k")
            assert ran.err.startswith("nothing to compress: ")
            assert "hint" not in ran.err

    def test_a_window_instead_of_a_target(self, penstock, tmp_path):
        file = tmp_path / "long.json"
        file.write_bytes(encoded(work(400)))
        ran = penstock("compress", file, "--context-length", "16k", "--json")
        receipt = json.loads(ran.err)
        assert receipt["outcome"] == "compacted"
        assert receipt["tokens_after"] <= receipt["target_tokens"] < 16_000

    def test_the_model_decides_the_tokenizer(self, penstock, session):
        def tokenizer(*more: str) -> str:
            ran = penstock("compress", session, "--target-tokens", "600", "--json", *more)
            return str(json.loads(ran.err)["tokenizer"])

        assert tokenizer() == "o200k_base"
        assert tokenizer("--model", "gpt-4") == "cl100k_base"

    def test_a_model_alone_says_once_what_it_means(self, penstock, session, tmp_path):
        out = ("-o", tmp_path / "out.json")
        ran = penstock("compress", session, "--target-tokens", "600", "--model", "gpt-4", *out)
        assert ran.code == 0
        assert ran.err.count("\n") == 1
        assert "--summary-model" in ran.err
        assert "nothing is known" not in ran.text

    def test_a_model_that_nobody_knows_is_told_once_with_what_it_is_counted_by(
        self, penstock, session, tmp_path
    ):
        out = ("-o", tmp_path / "out.json")
        ran = penstock("compress", session, "--target-tokens", "600", "--model", "unheard-of", *out)
        assert ran.text.count("unheard-of") == 1
        assert "unknown model 'unheard-of': counted with o200k_base" in ran.text
        windowed = penstock("compress", session, "--model", "unheard-of", *out).text
        assert "a window of 128,000 tokens: --context-length sets it" in windowed

    def test_what_stands_beside_the_messages_counts_against_the_window(self, penstock, tmp_path):
        body = {"messages": work(120), "system": "be brief " * 3_000, "tools": [{"name": "search " * 500}]}
        bare, full = tmp_path / "bare.json", tmp_path / "full.json"
        bare.write_bytes(encoded({"messages": body["messages"]}))
        full.write_bytes(encoded(body))
        targets = [
            json.loads(penstock("compress", file, "--context-length", "9k", "--json").err)["target_tokens"]
            for file in (bare, full)
        ]
        assert targets[1] < targets[0]

    def test_focus_and_settings_reach_the_engine(self, penstock, session):
        plain = penstock("compress", session, "--target-tokens", "600")
        focused = penstock("compress", session, "--target-tokens", "600", "--focus", "part_3.py 23757")
        assert b"23757" in focused.out
        assert focused.out != plain.out
        more = penstock(
            "compress", session, "--context-length", "2k", "--set", "compression.target_ratio=0.1"
        )
        assert more.out != penstock("compress", session, "--context-length", "2k").out


BODY = {
    "messages": work(),
    "system": "be brief " * 100,
    "tools": [{"type": "function", "function": {"name": "search", "description": "Find. " * 30}}],
}


class TestReport:
    """What the report says beside the receipt."""

    def test_a_share_is_one_of_what_the_receipt_counts(self, penstock, session):
        for share, part in (("20%", 0.2), ("12.5%", 0.125), ("50 %", 0.5)):
            for command, stream in (("compress", "err"), ("explain", "text")):
                ran = penstock(command, session, "--target-tokens", share, "--json")
                told = json.loads(getattr(ran, stream))
                receipt = told.get("receipt", told)
                assert receipt["target_tokens"] == int(receipt["tokens_before"] * part)
                assert receipt["tokens_after"] <= receipt["target_tokens"]

    def test_a_share_too_small_is_the_same_error_as_a_number_too_small(self, penstock, session):
        ran = penstock("compress", session, "--target-tokens", "0.1%")
        assert_one_clear_error(ran, "target of 1 token", "raise the target", code=3)

    def test_tokens_and_compress_name_the_same_figures(self, penstock):
        data = encoded(BODY)
        measured = json.loads(penstock("tokens", "-", "--json", stdin=data).text)
        receipt = json.loads(penstock("compress", "-", "--target-tokens", "600", "--json", stdin=data).err)
        assert measured["beside_tokens"] == receipt["beside_tokens"] > 200
        assert measured["tokens"] == receipt["tokens_before"] + receipt["beside_tokens"]
        beside, listed = receipt["beside_tokens"], receipt["tokens_before"]
        report = penstock("compress", "-", "--target-tokens", "600", stdin=data).err
        assert (
            f"  beside     {beside:,} tokens of tool schemas and system prompt, not counted here\n" in report
        )
        shown = penstock("tokens", "-", stdin=data).text
        assert (
            f"{listed:,} in the list of messages, which compress counts, and {beside:,} beside it\n" in shown
        )

    def test_what_is_beside_the_list_is_named_by_what_it_is(self, penstock):
        for left_out, name in (("tools", "system prompt"), ("system", "tool schemas")):
            body = {key: value for key, value in BODY.items() if key != left_out}
            report = penstock("compress", "-", "--target-tokens", "600", stdin=encoded(body)).err
            assert f"tokens of {name}, not counted here" in report
        for command in ("compress", "tokens"):
            ran = penstock(command, "-", stdin=encoded(work()))
            assert "beside" not in ran.text + ran.err

    def test_it_says_how_to_read_an_original_and_that_works(self, penstock, session):
        ran = penstock("compress", session, "--target-tokens", "600")
        line = next(line for line in ran.err.splitlines() if line.startswith("  originals"))
        command = shlex.split(line.partition(": penstock ")[2])
        read = penstock(*command)
        assert (read.code, read.err) == (0, "")
        assert read.text.startswith(f"{command[-1]} · ")

    def test_a_name_with_blanks_is_quoted(self, penstock, tmp_path):
        file = tmp_path / "my session's.json"
        file.write_bytes(encoded(work()))
        ran = penstock("explain", file, "--target-tokens", "600")
        command = shlex.split(ran.text.partition("to read one: penstock ")[2])
        assert penstock(*command).code == 0

    def test_originals_that_the_result_replaced_are_not_promised(self, penstock, session):
        ran = penstock("compress", session, "--target-tokens", "600", "-o", session)
        assert "only a copy of it can show them" in ran.text
        assert "--handle" not in ran.text

    def test_a_target_without_room_for_a_handoff_is_told(self, penstock, session):
        told = "  note       no room for a handoff: nothing tells the agent what was summarised\n"
        assert told in penstock("compress", session, "--target-tokens", "20").err
        for aim in ("600", "90%", "90k"):
            assert told not in penstock("compress", session, "--target-tokens", aim).err

    def test_nothing_is_said_of_originals_where_all_stay(self, penstock, session):
        assert "originals" not in penstock("compress", session, "--target-tokens", "90k").err

    @pytest.mark.sampled(4)
    @pytest.mark.parametrize("turns", [2, 5, 30, 200])
    @pytest.mark.parametrize("command", ["compress", "explain"])
    def test_the_hint_is_a_command_that_works(self, penstock, tmp_path, turns, command):
        file = tmp_path / "session.json"
        file.write_bytes(encoded(work(turns)))
        ran = penstock(command, file)
        report = ran.err if command == "compress" else ran.text
        line = next(line for line in report.splitlines() if line.startswith("  hint"))
        if "too short" in line:
            assert turns == 2
            return
        again = penstock(*shlex.split(line.partition(": penstock ")[2]), "--json")
        told = json.loads(again.err if command == "compress" else again.text)
        receipt = told.get("receipt", told)
        assert receipt["outcome"] == "compacted"
        assert f"for {receipt['tokens_after']:,} tokens instead of {receipt['tokens_before']:,}" in line
        assert receipt["handoff_tokens"] > 0

    def test_the_hint_leaves_other_options_to_the_reader(self, penstock, session):
        ran = penstock("compress", session, "--focus", "part_3.py")
        assert ": add --target-tokens " in ran.err

    @pytest.mark.parametrize("orphans", [1, 2])
    def test_one_is_not_told_in_the_plural(self, penstock, orphans):
        messages = [*work(3), *(result(f"nobody{n}", "stray") for n in range(orphans)), user("x")]
        ran = penstock("compress", "-", "--target-tokens", "20k", stdin=encoded(messages))
        word = "1 fault" if orphans == 1 else "2 faults"
        assert f"  repaired   {word} in the input, such as a call without a result\n" in ran.err


class TestShapes:
    def kept_slices(self, before: bytes, after: bytes) -> list[bytes]:
        raws = set(read_document(before).raws)
        return [raw for raw in read_document(after).raws if raw in raws]

    def test_an_array_with_odd_blanks_keeps_the_bytes_of_what_is_kept(self, penstock, tmp_path):
        data = json.dumps(work(), indent=3, ensure_ascii=False).encode() + b"\n"
        ran = penstock("compress", "-", "--target-tokens", "600", stdin=data)
        assert ran.out.startswith(b"[")
        assert ran.out.endswith(b"]\n")
        kept = self.kept_slices(data, ran.out)
        assert len(kept) >= 2
        assert all(raw in ran.out for raw in kept)

    def test_a_request_body_keeps_its_other_fields(self, penstock):
        body = {"model": "gpt-4.1", "messages": work(), "temperature": 0.20, "metadata": {"a": [1, 2]}}
        ran = penstock("compress", "-", "--target-tokens", "600", stdin=encoded(body))
        after = json.loads(ran.out)
        assert list(after) == list(body)
        assert {**after, "messages": 0} == {**body, "messages": 0}
        assert len(after["messages"]) < len(body["messages"])

    def test_lines_stay_lines(self, penstock):
        data = b"".join(encoded(message) + b"\n" for message in work())
        ran = penstock("compress", "-", "--target-tokens", "600", stdin=data)
        lines = ran.out.splitlines()
        assert ran.out.endswith(b"}\n")
        assert 2 <= len(lines) < 63
        assert lines[-1] + b"\n" == encoded(work()[-1]) + b"\n"

    @pytest.mark.parametrize("dialect", ["anthropic", "responses", "sharegpt"])
    def test_other_dialects(self, penstock, dialect):
        turns = [
            (f"Please look at file_{n}.py, line {n * 37}.", f"Line {n * 37} is fine.") for n in range(60)
        ]
        messages = [message for pair in turns for message in _pair(dialect, *pair)] + [
            _pair(dialect, "And now sum up.", "")[0]
        ]
        key = "input" if dialect == "responses" else "messages"
        body = messages if dialect == "sharegpt" else {key: messages, "system": "Be exact."}
        ran = penstock("compress", "-", "--target-tokens", "700", "--json", stdin=encoded(body))
        assert json.loads(ran.err)["dialect"] == dialect
        after = json.loads(ran.out)
        shown = after if dialect == "sharegpt" else after[key]
        assert shown[-1] == messages[-1]
        assert len(shown) < len(messages)


def _pair(dialect: str, asked: str, answered: str) -> list[dict]:
    if dialect == "sharegpt":
        return [{"from": "human", "value": asked}, {"from": "gpt", "value": answered}]
    return [user(asked), assistant(answered)]


class TestExplain:
    def test_every_message_has_its_line_on_request(self, penstock, session):
        ran = penstock("explain", session, "--target-tokens", "600", "--all")
        assert ran.code == 0
        lines = ran.text.splitlines()
        assert [line.split()[0] for line in lines[1:64]] == [f"m{n}" for n in range(1, 64)]
        assert "read_file" in lines[2]
        assert "the user's last request" in lines[63]

    @pytest.mark.outside  # takes long
    def test_neighbours_share_a_line(self, penstock, tmp_path):
        file = tmp_path / "long.json"
        file.write_bytes(encoded(work(200)))
        for aim in ("20%", "60%", "95%", "90k"):
            table, _, _ = penstock("explain", file, "--target-tokens", aim).text.partition("\n\n")
            assert 2 <= len(table.splitlines()) <= 21
            assert "403" in table
        assert "--all shows each message" in penstock("explain", file).text

    def test_a_conversation_that_had_to_be_mended(self, penstock):
        """A call without a result gets a stub, a result without a call goes; both are told where they stood."""
        messages = [*work(3)[:3], call("lost"), *work(3)[3:5], result("nobody", "stray " * 80), *work(3)[5:]]
        for aim in ("20k", "150"):
            ran = penstock("explain", "-", "--target-tokens", aim, "--all", stdin=encoded(messages))
            assert ran.code == 0, ran.err
            lines = ran.text.splitlines()
            handles = [line.split()[0] for line in lines[1:12]]
            assert handles == [*(f"m{n}" for n in range(1, 8)), "-", "m8", "m9", "m10"]
            assert "put in" in lines[5]
            assert "left out" in lines[8]
        told = json.loads(penstock("explain", "-", "--json", stdin=encoded(messages)).text)
        assert [(one["handle"], one["role"]) for one in told["repaired"]] == [("m5", "tool"), ("", "tool")]

    def test_as_json(self, penstock, session):
        told = json.loads(penstock("explain", session, "--target-tokens", "600", "--json").text)
        fates = [message["fate"] for message in told["messages"]]
        receipt = told["receipt"]
        assert fates.count("kept") == receipt["kept"]
        assert fates.count("summarised") == receipt["summarised"]
        assert told["messages"][2]["tools"] == ["read_file"]
        assert told["messages"][-1]["handle"] == "m63"
        assert sum(message["tokens_before"] for message in told["messages"]) == receipt["tokens_before"]

    def test_it_speaks_of_what_compress_does(self, penstock, session):
        told = json.loads(penstock("explain", session, "--target-tokens", "600", "--json").text)["receipt"]
        done = json.loads(penstock("compress", session, "--target-tokens", "600", "--json").err)
        assert {**told, "seconds": 0} == {**done, "seconds": 0}

    def test_a_mended_conversation_keeps_roles_and_verdicts_together(self, penstock):
        """One result without a call is dropped before planning; the lines after it must not shift."""
        messages = [*work(3)[:3], result("nobody", "stray " * 80), *work(3)[3:]]
        told = json.loads(penstock("explain", "-", "--json", stdin=encoded(messages)).text)
        assert [message["role"] for message in told["messages"]] == [m["role"] for m in work(3)]

    def test_a_compressed_conversation_shows_its_handoff_and_old_numbers(self, penstock, session):
        once = penstock("compress", session, "--target-tokens", "600").out
        told = json.loads(penstock("explain", "-", "--json", stdin=once).text)["messages"]
        assert "handoff" in [message["role"] for message in told]
        assert told[-1]["handle"] == "m63"


class TestTokens:
    def test_the_kinds_add_up_to_the_messages_and_what_stands_beside_them(self, penstock):
        told = json.loads(penstock("tokens", EXAMPLE, "--json").text)
        messages = sum(message["tokens"] for message in told["messages"])
        assert told["tokens"] == sum(told["kinds"].values()) == messages + told["kinds"]["tool schemas"]
        assert max(told["kinds"], key=told["kinds"].get) == "tool results"
        assert {"system prompt", "user", "assistant text", "tool calls", "images"} < set(told["kinds"])

    def test_the_window_is_that_of_the_model_or_the_one_given(self, penstock):
        assert "window: bundled table" in penstock("tokens", EXAMPLE).text
        assert penstock("tokens", EXAMPLE, "--context-length", "40k").text.startswith(
            "32,871 of 40,000 tokens"
        )
        other = json.loads(penstock("tokens", EXAMPLE, "--model", "gpt-4", "--json").text)
        assert (other["window_tokens"], other["tokenizer"]) == (8_192, "cl100k_base")

    @pytest.mark.parametrize("name", ["system", "instructions"])
    @pytest.mark.parametrize("prompt", ["Be exact. " * 50, [{"type": "text", "text": "Be exact. " * 50}]])
    def test_a_system_prompt_beside_the_messages_counts(self, penstock, name, prompt):
        body = {"messages": [user("hi")], name: prompt}
        told = json.loads(penstock("tokens", "-", "--json", stdin=encoded(body)).text)
        assert 150 <= told["kinds"]["system prompt"] < 200

    def test_the_setting_counts_where_no_flag_does(self, penstock):
        ran = penstock("tokens", EXAMPLE, "--set", "model.context_length=50000")
        assert "of 50,000 tokens" in ran.text


class TestConfig:
    def test_values_and_where_they_come_from(self, penstock, tmp_path):
        file = tmp_path / "c.yaml"
        file.write_text("compression:\n  threshold: 0.6\n  protect_last_n: 7\n")
        args = ("config", "--config", file, "--set", "compression.protect_last_n=9", "--json")
        told = json.loads(penstock(*args, PENSTOCK_TOOLS_RESULT_CHARS="5000").text)
        assert told["file"] == str(file)
        settings = told["settings"]
        assert settings["compression.threshold"] == {"value": 0.6, "source": str(file)}
        assert settings["compression.protect_last_n"] == {"value": 9, "source": "command line"}
        assert settings["tools.result_chars"] == {"value": 5_000, "source": "PENSTOCK_TOOLS_RESULT_CHARS"}
        assert settings["pressure.warn"] == {"value": 0.85, "source": "default"}

    def test_private_values_are_not_shown(self, penstock):
        secret = "postgresql://penstock:" + "hunter2" + "@db.example/x"
        for more in ((), ("--json",)):
            ran = penstock("config", *more, PENSTOCK_STORE_URL=secret)
            assert ran.code == 0
            assert "hunter2" not in ran.text
            assert "not shown" in ran.text

    def test_a_secret_in_a_plain_setting_is_redacted(self, penstock):
        token = "sk-" + "proj-" + "A1b2C3d4E5f6G7h8" * 3
        ran = penstock("config", "--set", f"compression.summary_model={token}")
        assert token not in ran.text
        assert "[REDACTED]" in ran.text

    def test_wrong_settings_are_one_line(self, penstock):
        wrong = penstock("config", "--set", "compression.treshold=1")
        assert_one_clear_error(wrong, "compression.treshold", "compression.threshold")
        assert_one_clear_error(penstock("config", "--config", "/nowhere.yaml"), "/nowhere.yaml")
        assert_one_clear_error(penstock("config", PENSTOCK_TOOLS_RESULT_CHARS="3"), "tools.result_chars")


@pytest.mark.parametrize("model", [5, None, [], {"a": 1}, "", "no-such-model"])
def test_a_model_that_is_none(penstock, model):
    assert penstock("tokens", "-", stdin=encoded({"model": model, "messages": [user("hi")]})).code == 0


def test_lone_surrogates_beside_the_messages(penstock):
    body = {"messages": [user("hi")], "system": [{"type": "text", "text": "\ud800"}], "model": "m\ud800"}
    for command in ("compress", "explain", "tokens"):
        ran = penstock(command, "-", stdin=encoded(body))
        assert ran.code == 0, ran.err


def test_an_empty_conversation_is_nothing_to_do(penstock):
    for data in (b"[]", b'{"messages": []}'):
        ran = penstock("compress", "-", stdin=data)
        assert (ran.code, ran.out) == (0, data)
        assert penstock("explain", "-", stdin=data).code == penstock("tokens", "-", stdin=data).code == 0
