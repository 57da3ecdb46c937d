"""One trajectory: which turns give way, what the summary says, and what becomes of the fields of turns."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import pytest
from benchmarks.trajectory_rows import chat_row, sharegpt_row

import penstock
from penstock.conversation import mark
from penstock.errors import InputError, SettingsError
from penstock.trajectories.metrics import TrajectoryOutcome

SMALL = {"target_tokens": 2_000, "summary_tokens": 300}


def human(text, **fields):
    return {"from": "human", "value": text, **fields}


def gpt(text, **fields):
    return {"from": "gpt", "value": text, **fields}


def call(name, **arguments):
    body = json.dumps({"name": name, "arguments": arguments})
    return gpt(f"<tool_call>\n{body}\n</tool_call>")


def tool(text):
    return {"from": "tool", "value": f"<tool_response>\n{json.dumps({'content': text})}\n</tool_response>"}


def words(number, seed=0):
    return " ".join(f"word{seed}x{at}" for at in range(number))


def agent_run(steps, filler=60):
    turns = [{"from": "system", "value": "You are careful."}, human("Rename the module, please.")]
    for step in range(steps):
        turns += [call("read_file", path=f"src/part_{step}.py"), tool(words(filler, step))]
    return [*turns, gpt("All done.")]


def summary_of(turns):
    found = [turn for turn in turns if mark.OPENING in str(turn.get("value", turn.get("content")))]
    assert len(found) == 1
    return found[0]


def test_a_small_trajectory_is_returned_as_it_is():
    turns = agent_run(3, filler=5)
    after, metrics = penstock.compress_trajectory(turns)
    assert all(one is two for one, two in zip(after, turns, strict=True))
    assert metrics.outcome is TrajectoryOutcome.UNDER_TARGET
    assert metrics.tokens_before == metrics.tokens_after > 0


def test_turns_from_the_start_of_the_middle_give_way_and_no_more_than_needed():
    turns = agent_run(30)
    after, metrics = penstock.compress_trajectory(turns, **SMALL)
    assert metrics.outcome is TrajectoryOutcome.COMPRESSED
    assert metrics.tokens_after <= 2_000
    assert after[:4] == turns[:4]  # system, human, the first call and its result
    assert after[4]["from"] == "human"
    gone = metrics.turns_summarised
    assert after[5:] == turns[4 + gone :]
    pair = metrics.tokens_before - penstock.compress_trajectory(turns[:-3] + turns[-1:])[1].tokens_before
    assert (
        metrics.tokens_after + 300 - metrics.summary_tokens + pair > 2_000
    )  # one pair fewer would not have done


def test_the_summary_has_what_later_turns_use_and_nobody_tells_again():
    turns = agent_run(30)
    turns[21] = tool(f"{words(30, 9)}\nThe release token name is RELEASE-7731-KX.\n{words(30, 8)}")
    turns[-1] = gpt("I used RELEASE-7731-KX as the name.")
    after, _ = penstock.compress_trajectory(turns, **SMALL)
    assert "RELEASE-7731-KX" in summary_of(after)["value"]
    told_again = [*turns[:-3], call("read_file", path="x"), tool("it is RELEASE-7731-KX"), turns[-1]]
    after, _ = penstock.compress_trajectory(told_again, **SMALL)
    assert len(summary_of(after)["value"]) > 100


def test_what_was_done_is_told_with_its_values_though_nothing_later_needs_them():
    turns = [human("Split the module, please.")]
    for step in range(20):
        turns += [call("terminal", command=f"make part_{step}_of_ledger"), tool(words(60, step))]
    after, metrics = penstock.compress_trajectory([*turns, gpt("All done.")], **SMALL)
    said = summary_of(after)["value"]
    newest = (metrics.turns_summarised - 2) // 2 + 1
    assert f"ran make part_{newest}_of_ledger → done" in said
    assert "[struck]" not in said


def test_a_request_that_gives_way_is_quoted():
    turns = agent_run(10)
    turns[12:12] = [human("Now only touch the file named ledger_totals.py, nothing else.")]
    after, metrics = penstock.compress_trajectory(turns, **SMALL)
    assert metrics.turns_summarised > 9
    assert "only touch the file named ledger_totals.py" in summary_of(after)["value"]


def test_secrets_are_not_written_into_a_summary():
    turns = agent_run(30)
    turns[13] = tool("password=hunter2hunter2 for db.internal.example")
    turns[-1] = gpt("Connected to db.internal.example with hunter2hunter2.")
    after, _ = penstock.compress_trajectory(turns, **SMALL)
    assert "hunter2hunter2" not in summary_of(after)["value"]
    assert after[-1] is turns[-1]


def test_a_first_tool_turn_in_the_middle_stays_behind_the_summary():
    talk = [turn for n in range(12) for turn in (human(words(60, n)), gpt(words(60, n + 50)))]
    turns = [human("Hello."), gpt("Hello!"), *talk, call("ls", path="."), tool("a b c"), *talk, gpt("Done.")]
    after, metrics = penstock.compress_trajectory(turns, target_tokens=2_000, summary_tokens=300)
    assert metrics.tokens_after <= 2_000
    place = after.index(summary_of(after))
    assert after[:2] == turns[:2]
    assert place == 2
    assert after[3:5] == [turns[26], turns[27]]
    assert [turn["from"] for turn in after[5:7]] != ["human", "human"]


def test_roles_alternate_around_the_summary_of_a_plain_chat():
    turns = [human("Hi."), gpt("Hi!")]
    turns += [turn for n in range(30) for turn in (human(words(40, n)), gpt(words(40, n + 50)))]
    after, metrics = penstock.compress_trajectory(turns, **SMALL)
    assert metrics.tokens_after <= 2_000
    roles = [turn["from"] for turn in after]
    assert all(one != two for one, two in pairwise(roles))


def test_what_must_stay_may_be_too_much_and_is_marked():
    turns = agent_run(30)
    turns[-1] = gpt(words(3_000))
    after, metrics = penstock.compress_trajectory(turns, **SMALL)
    assert metrics.still_over_limit
    assert after[-1] is turns[-1]
    assert metrics.tokens_after < metrics.tokens_before
    alone, left = penstock.compress_trajectory([human(words(3_000)), gpt("Yes.")], **SMALL)
    assert left.outcome is TrajectoryOutcome.NOT_COMPRESSIBLE
    assert left.still_over_limit
    assert len(alone) == 2


@pytest.mark.parametrize("place", [0, -1])
def test_a_turn_that_must_stay_and_is_too_large_loses_its_middle_where_that_is_wished(place):
    turns = agent_run(30)
    turns[place] = {**turns[place], "value": f"the beginning {words(3_000)} the end", "weight": 0.5}
    after, metrics = penstock.compress_trajectory(turns, **SMALL, shorten_protected=True)
    assert metrics.tokens_after <= SMALL["target_tokens"]
    assert not metrics.still_over_limit
    short = after[place]
    assert {name: value for name, value in short.items() if name != "value"} == {
        name: value for name, value in turns[place].items() if name != "value"
    }
    assert short["value"].startswith("the beginning")
    assert short["value"].endswith("the end")
    assert "[… shortened: the middle is left out …]" in short["value"]
    assert sum(turn is not old for turn, old in zip(after[-4:-1], turns[-4:-1], strict=True)) == 0


def test_two_turns_that_are_all_of_it_are_shortened_too():
    after, metrics = penstock.compress_trajectory(
        [human(words(3_000)), gpt(words(3_000))], **SMALL, shorten_protected=True
    )
    assert metrics.outcome is TrajectoryOutcome.COMPRESSED
    assert metrics.tokens_after <= SMALL["target_tokens"] < metrics.tokens_before
    assert len(after) == 2


def test_a_further_pass_keeps_fewer_turns_at_the_end():
    turns = [*agent_run(30)[:-1], human(words(1_200)), gpt(words(300)), human("And?"), gpt("Done.")]
    _, one = penstock.compress_trajectory(turns, **SMALL)
    after, two = penstock.compress_trajectory(turns, **SMALL, passes=2)
    assert one.still_over_limit
    assert not two.still_over_limit
    assert (one.passes, two.passes) == (1, 2)
    assert after[-2:] == turns[-2:]


def test_calls_of_chat_messages_stay_calls():
    turns = chat_row(3, 12_000)["messages"]
    after, metrics = penstock.compress_trajectory(turns, target_tokens=6_000)
    assert metrics.outcome is TrajectoryOutcome.COMPRESSED
    assert metrics.tokens_after <= 6_000
    asked = [call["id"] for turn in after for call in turn.get("tool_calls") or ()]
    answered = [turn["tool_call_id"] for turn in after if turn["role"] == "tool"]
    assert asked == answered != []
    assert summary_of(after)["role"] == "user"


def test_fields_for_training_survive_and_the_summary_is_not_learned():
    turns = [
        {**turn, "weight": int(turn["from"] == "gpt"), "loss": turn["from"] == "gpt", "split": 3, "at": n}
        for n, turn in enumerate(agent_run(30))
    ]
    turns[-1]["reasoning"] = "It works."
    after, _ = penstock.compress_trajectory(turns, **SMALL)
    summary = summary_of(after)
    assert {name: summary[name] for name in ("weight", "loss", "split")} == {
        "weight": 0,
        "loss": False,
        "split": 3,
    }
    assert after[-1]["reasoning"] == "It works."
    assert all(turn in turns for turn in after if turn is not summary)


def test_a_note_goes_into_the_system_turn_only_if_asked_and_counts():
    turns = agent_run(30)
    after, metrics = penstock.compress_trajectory(turns, **SMALL, system_note=True)
    assert after[0]["value"].startswith("You are careful.\n\n")
    assert len(after[0]["value"]) > 30
    assert metrics.tokens_after <= 2_000
    assert turns[0]["value"] == "You are careful."
    untouched, _ = penstock.compress_trajectory(turns, system_note=True)
    assert untouched[0] is turns[0]


def test_the_note_may_have_other_words():
    turns = agent_run(30)
    after, metrics = penstock.compress_trajectory(turns, **SMALL, system_note='Früheres ist "gekürzt".')
    assert after[0]["value"] == 'You are careful.\n\nFrüheres ist "gekürzt".'
    assert metrics.tokens_after <= 2_000
    longer = [*after, *agent_run(40)[2:]]
    again, _ = penstock.compress_trajectory(longer, **SMALL, system_note='Früheres ist "gekürzt".')
    assert again[0] == after[0]
    with pytest.raises(SettingsError, match="system_note is an empty text"):
        penstock.compress_trajectory(turns, system_note=" ")


def test_the_metrics_name_the_region_that_gave_way():
    turns = agent_run(30)
    after, metrics = penstock.compress_trajectory(turns, **SMALL)
    region = range(metrics.region_start, metrics.region_end)
    gone = [place for place, turn in enumerate(turns) if not any(turn is one for one in after)]
    assert gone
    assert (gone[0], gone[-1] + 1) == (region.start, region.stop)
    assert after.index(summary_of(after)) == region.start
    assert metrics.to_dict()["region_end"] == region.stop
    _, untouched = penstock.compress_trajectory(agent_run(3, filler=5))
    assert (untouched.region_start, untouched.region_end) == (0, 0)


def test_a_compressed_trajectory_can_be_compressed_further():
    first, _ = penstock.compress_trajectory(agent_run(60), target_tokens=3_000, summary_tokens=400)
    kept = summary_of(first)["value"]
    longer = [*first, *agent_run(40)[2:]]
    second, metrics = penstock.compress_trajectory(longer, target_tokens=3_000, summary_tokens=400)
    assert metrics.tokens_after <= 3_000
    assert summary_of(second)["value"] != kept


@pytest.mark.parametrize(
    "turns",
    [
        None,
        "text",
        {"from": "human", "value": "x"},
        ["text"],
        [{"speaker": "x"}],
        [{"from": "human"}],
        [human("a"), 7],
    ],
)
def test_what_is_no_trajectory_is_refused(turns):
    with pytest.raises(InputError):
        penstock.compress_trajectory(turns)


def test_an_unknown_role_is_told_by_its_turn():
    turns = [human(words(2_000)), {"from": "narrator", "value": words(2_000)}]
    with pytest.raises(InputError, match="message 2"):
        penstock.compress_trajectory(turns, **SMALL)


@pytest.mark.parametrize(
    "options",
    [
        {"target_tokens": 0},
        {"summary_tokens": 20},
        {"target_tokens": 500, "summary_tokens": 500},
        {"keep_last": 0},
        {"passes": 9},
        {"tokenizer": "gpt-2"},
        {"tokenizer": "no/such/tokenizer.json"},
    ],
)
def test_options_that_cannot_be_meant_are_refused(options):
    with pytest.raises(SettingsError):
        penstock.compress_trajectory(agent_run(2), **options)


def test_another_tokenizer_counts_otherwise():
    turns = [human("größere Übersetzungen – für alle 日本語"), gpt("Ja.")]
    counts = {
        name: penstock.compress_trajectory(turns, tokenizer=name)[1].tokens_before
        for name in ("o200k", "cl100k")
    }
    assert counts["o200k"] < counts["cl100k"]


def test_a_tokenizer_file_is_read(tmp_path):
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    file = tmp_path / "tokenizer.json"
    made.save(str(file))
    _, metrics = penstock.compress_trajectory([human("one two three"), gpt("one")], tokenizer=str(file))
    assert metrics.tokens_before == 3 + 1 + 2 * 4
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(SettingsError, match="cannot be read as a tokenizer"):
        penstock.compress_trajectory([human("one")], tokenizer=str(tmp_path / "other.json"))


def test_the_function_of_an_event_loop_does_the_same():
    turns = agent_run(30)
    one = asyncio.run(penstock.acompress_trajectory(turns, **SMALL))[0]
    assert one == penstock.compress_trajectory(turns, **SMALL)[0]


def test_rows_of_a_pipeline_keep_their_columns_and_get_metrics():
    rows = [
        {"id": 1, "conversations": agent_run(30), "loss_mask": [0] * 63},
        {"id": 2, "text": "no turns"},
        {"id": 3, "messages": json.dumps(chat_row(1, 4_000)["messages"])},
    ]
    new = list(penstock.compress_trajectories(iter(rows), **SMALL))
    assert [row["id"] for row in new] == [1, 2, 3]
    assert len(new[0]["loss_mask"]) == len(new[0]["conversations"]) < 63
    assert new[0]["penstock"]["outcome"] == "compressed"
    assert new[1]["penstock"]["outcome"] == "bad"
    assert new[1]["text"] == "no turns"
    assert len(json.loads(new[2]["messages"])) < len(json.loads(rows[2]["messages"]))
    assert "penstock" not in rows[0]


def test_generated_trajectories_come_within_the_target():
    for number in range(1, 4):
        turns = sharegpt_row(number, 20_000)["conversations"]
        after, metrics = penstock.compress_trajectory(turns, target_tokens=9_000)
        assert metrics.tokens_after <= 9_000
        assert after[-4:] == turns[-4:]
