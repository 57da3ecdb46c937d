"""Looking up what a small view leaves out."""

from __future__ import annotations

from penstock.conversation.dialects import dialect_named
from penstock.replay.needles import PLACES, Lookups, look_up

FILLER = "The harbour master counts the ships that come in and writes each of them down. " * 12


def decoded(*wires):
    return [dialect_named("chat").decode(wire) for wire in wires]


def talk(*, told_again=False, used=True):
    """A value that is said once early, and used late."""
    early = [
        {"role": "user", "content": "Please have the crane ready."},
        {"role": "assistant", "content": "I look it up."},
        {"role": "user", "content": "Thanks."},
        {"role": "user", "content": f"The crane's registration is KR-48213-X, as the plate says. {FILLER}"},
    ]
    middle = [{"role": ("assistant", "user")[n % 2], "content": f"{FILLER} Note {n}."} for n in range(20)]
    late = [
        {
            "role": "user",
            "content": f"{'KR-48213-X again. ' if told_again else ''}Order the crane now. {FILLER}",
        }
    ]
    late += [{"role": ("assistant", "user")[n % 2], "content": f"{FILLER} Note {n}."} for n in range(14)]
    word = "KR-48213-X" if used else "nothing"
    late.append(
        {"role": "assistant", "content": f"Ordering the crane by its registration from the plate: {word}"}
    )
    return decoded(*early, *middle, *late)


def test_a_value_that_is_used_again_is_looked_up_and_found():
    assert look_up(talk()) == Lookups(1, 1, (1,) * len(PLACES))


def test_what_was_told_again_or_is_not_used_is_not_asked_for():
    assert look_up(talk(told_again=True)) == Lookups()
    assert look_up(talk(used=False)) == Lookups()


def test_a_short_conversation_is_not_asked_about():
    assert (
        look_up(
            decoded({"role": "user", "content": "see a/b_c.py"}, {"role": "assistant", "content": "a/b_c.py"})
        )
        == Lookups()
    )
    assert look_up([]) == Lookups()


def test_results_add_up():
    both = Lookups(1, 4, (1, 2, 3, 4)) + Lookups(2, 6, (0, 1, 2, 3))
    assert both == Lookups(3, 10, (1, 3, 5, 7))
    assert both.shares() == (0.1, 0.3, 0.5, 0.7)
    assert Lookups().shares() == ()
