"""What holds for every compressed trajectory, whatever its turns, its format and its target."""

from __future__ import annotations

import copy
import json
from itertools import pairwise

import pytest
from compaction_claims import claim
from hypothesis import given
from hypothesis import strategies as st
from tests.strategies.conversations import broken_conversations, conversations
from tests.strategies.long_sessions import long_conversations

from penstock.conversation import mark
from penstock.conversation.dialects import decode_all, dialect_named
from penstock.conversation.message import Role
from penstock.conversation.rules import Pairs, legal_cuts
from penstock.errors import InputError
from penstock.measure.tokens import tokenizer_named
from penstock.trajectories.compress import Compressor, compress_trajectory
from penstock.trajectories.metrics import TrajectoryOutcome
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.rows import read_line
from penstock.trajectories.shards import cut_lines
from penstock.trajectories.turns import turn_tokens

O200K = tokenizer_named("o200k_base")
each_format = pytest.mark.parametrize("name", ["sharegpt", "chat"])
each_kind = pytest.mark.parametrize("kind", [conversations, broken_conversations, long_conversations])


@st.composite
def cases(draw, name, kind):
    turns = [dict(turn) for turn in draw(kind(name))]  # no object twice, so that each can be found again
    about = len(json.dumps(turns, ensure_ascii=False)) // 4
    target = max(130, about * draw(st.integers(10, 105)) // 100)
    options = {
        "target_tokens": target,
        "summary_tokens": draw(st.integers(100, min(750, target - 1))),
        "keep_last": draw(st.integers(1, 6)),
        "passes": draw(st.integers(1, 3)),
    }
    return turns, options


def tokens_of(name, turns):
    dialect = dialect_named(name)
    return sum(turn_tokens(turn, dialect, O200K) for turn in turns)


def is_summary(turn):
    return mark.OPENING in str(turn.get("value", turn.get("content")))


def compressed(turns, options):
    """The result, or None where the input is no trajectory."""
    before = copy.deepcopy(turns)
    try:
        result = compress_trajectory(turns, **options)
    except InputError:
        result = None
    assert turns == before  # the input is never changed
    return result


@each_kind
@each_format
@claim(20)
@given(data=st.data())
def test_turns_that_stay_are_the_objects_given_in_their_order_with_one_summary_among_them(name, kind, data):
    turns, options = data.draw(cases(name, kind))
    result = compressed(turns, options)
    if result is None:
        return
    after, metrics = result
    place_of = {id(turn): at for at, turn in enumerate(turns)}
    own = [turn for turn in after if id(turn) not in place_of]
    places = [place_of[id(turn)] for turn in after if id(turn) in place_of]
    assert places == sorted(set(places))
    changed = metrics.outcome is TrajectoryOutcome.COMPRESSED
    assert len(own) == int(changed)
    assert all(is_summary(turn) for turn in own)
    assert metrics.turns_before == len(turns)
    assert metrics.turns_after == len(after)
    gone = sorted(set(range(len(turns))) - set(places))
    assert metrics.turns_summarised == len(gone)
    assert (metrics.region_start, metrics.region_end) == ((gone[0], gone[-1] + 1) if gone else (0, 0))


@each_kind
@each_format
@claim(20)
@given(data=st.data())
def test_no_human_turn_follows_another_unless_the_trajectory_came_so(name, kind, data):
    turns, options = data.draw(cases(name, kind))
    result = compressed(turns, options)
    if result is None:
        return
    assert not humans_in_a_row(name, result[0]) or humans_in_a_row(name, turns)


def humans_in_a_row(name, turns):
    roles = [message.role for message in decode_all(dialect_named(name), turns)]
    return any(one is two is Role.USER for one, two in pairwise(roles))


@each_kind
@each_format
@claim(20)
@given(data=st.data())
def test_shortened_turns_keep_their_role_and_their_calls_and_the_row_is_no_larger(name, kind, data):
    turns, options = data.draw(cases(name, kind))
    plain = compressed(turns, options)
    if plain is None:
        return
    after, metrics = compressed(turns, {**options, "shorten_protected": True})
    assert metrics.tokens_after == tokens_of(name, after) <= plain[1].tokens_after + options["summary_tokens"]
    assert metrics.tokens_before == tokens_of(name, turns)
    assert metrics.still_over_limit == (metrics.tokens_after > options["target_tokens"])
    if not plain[1].still_over_limit:
        assert after == plain[0]
    dialect = dialect_named(name)
    broken = len(Pairs(dialect.pairing).violations(decode_all(dialect, turns)))
    assert len(Pairs(dialect.pairing).violations(decode_all(dialect, after))) <= broken
    assert not humans_in_a_row(name, after) or humans_in_a_row(name, turns)


@each_kind
@each_format
@claim(20)
@given(data=st.data())
def test_the_first_turn_of_each_role_and_the_last_turns_stay(name, kind, data):
    turns, options = data.draw(cases(name, kind))
    result = compressed(turns, {**options, "passes": 1})
    if result is None:
        return
    after, _ = result
    messages = decode_all(dialect_named(name), turns) if result else []
    firsts = {message.role: at for at, message in reversed(list(enumerate(messages)))}
    protected = {*firsts.values(), *range(len(turns))[-options["keep_last"] :]}
    kept = {id(turn) for turn in after}
    assert all(id(turns[at]) in kept for at in protected)


@each_kind
@each_format
@claim(20)
@given(data=st.data())
def test_a_result_is_within_its_target_unless_what_must_stay_is_not(name, kind, data):
    turns, options = data.draw(cases(name, kind))
    result = compressed(turns, options)
    if result is None:
        return
    after, metrics = result
    assert metrics.tokens_after == tokens_of(name, after)
    assert metrics.tokens_before == tokens_of(name, turns)
    assert metrics.still_over_limit == (metrics.tokens_after > options["target_tokens"])
    assert metrics.summary_tokens <= options["summary_tokens"]
    assert metrics.tokens_after <= metrics.tokens_before
    if metrics.tokens_before <= options["target_tokens"]:
        assert metrics.outcome is TrajectoryOutcome.UNDER_TARGET
        assert after == turns
    if metrics.still_over_limit:
        # Nothing more could have given way: what is left beside the summary is protected, each with its segment.
        assert_only_protected_left(
            name, turns, after, max(1, options["keep_last"] >> (options["passes"] - 1))
        )


def assert_only_protected_left(name, turns, after, keep_last):
    dialect = dialect_named(name)
    messages = decode_all(dialect, turns)
    firsts = {message.role: at for at, message in reversed(list(enumerate(messages)))}
    protected = {*firsts.values(), *range(len(turns))[-keep_last:]}
    kept = {id(turn) for turn in after}
    summarised = len(after) < len(turns) or any(is_summary(turn) for turn in after if turn not in turns)
    free = [
        (start, end)
        for start, end in pairwise(legal_cuts(messages, dialect.rules))
        if protected.isdisjoint(range(start, end))
    ]
    left = [part for part in free if any(id(turns[at]) in kept for at in range(*part))]
    doubled = any(one.role is other.role is Role.USER for one, other in pairwise(messages))
    if doubled and not summarised:  # what could give way is too little to be worth a summary
        assert sum(tokens_of(name, turns[start:end]) for start, end in left) < 2 * 64
    elif doubled:
        assert not left
    elif summarised:  # a summary is a human turn: a part between it and another one parts the two
        around = [{turn.role for turn in messages[max(0, start - 1) : end + 1]} for start, end in left]
        assert all(Role.USER in roles for roles in around)


@each_kind
@each_format
@claim(20)
@given(data=st.data())
def test_no_call_is_parted_from_its_result(name, kind, data):
    turns, options = data.draw(cases(name, kind))
    result = compressed(turns, options)
    if result is None:
        return
    dialect = dialect_named(name)
    rule = Pairs(dialect.pairing)
    before = rule.violations(decode_all(dialect, turns))
    after = rule.violations(decode_all(dialect, result[0]))
    assert len(after) <= len(before)


@each_format
@claim(10)
@given(data=st.data())
def test_the_same_turns_give_the_same_bytes_and_a_second_run_changes_nothing(name, data):
    turns, options = data.draw(cases(name, long_conversations))
    result = compressed(turns, options)
    assert result is not None
    again = compress_trajectory(json.loads(json.dumps(turns)), **options)
    assert again[0] == result[0]
    if not result[1].still_over_limit:
        assert compress_trajectory(result[0], **options)[0] == result[0]


@each_format
@claim(15)
@given(data=st.data())
def test_a_line_keeps_every_byte_of_what_stays_and_of_other_columns(name, data):
    turns, options = data.draw(cases(name, long_conversations))
    column = "conversations" if name == "sharegpt" else "messages"
    extra = data.draw(st.dictionaries(st.text(min_size=1, max_size=8).map(lambda key: f"x{key}"), st.text()))
    row = {"id": 7, column: turns, **extra, "rewards": list(range(len(turns)))}
    spaced, ascii_only = data.draw(st.booleans()), data.draw(st.booleans())
    separators = (", ", ": ") if spaced else (",", ":")
    line = json.dumps(row, ensure_ascii=ascii_only, separators=separators).encode() + b"\n"
    read = read_line(line)
    done = Compressor(TrajectoryOptions(**options)).compress(read.turns)
    written = read.with_result(done)
    if done.summary is None:
        assert written == line
        return
    new = json.loads(written)
    assert list(new) == list(row)
    assert new[column] == done.turns(turns)
    assert {key: new[key] for key in new if key not in {column, "rewards"}} == {"id": 7, **extra}
    assert len(new["rewards"]) == len(new[column])
    for turn in new[column]:
        if not is_summary(turn):
            assert json.dumps(turn, ensure_ascii=ascii_only, separators=separators).encode() in written
    assert written.isascii() or not ascii_only


@claim(40)
@given(lines=st.lists(st.binary(max_size=60)), size=st.integers(1, 80), steps=st.integers(1, 50))
def test_shards_are_cut_alike_however_the_file_is_read(lines, size, steps):
    import io

    class Slow(io.BytesIO):
        def read(self, wished=-1, /):
            return super().read(min(steps, wished) if wished >= 0 else steps)

    data = b"\n".join(lines)
    whole = list(cut_lines(io.BytesIO(data), size))
    assert list(cut_lines(Slow(data), size)) == whole
    assert b"".join(whole) == data
    assert all(piece.endswith(b"\n") and len(piece) >= size for piece in whole[:-1])
