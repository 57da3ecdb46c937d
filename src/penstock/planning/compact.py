"""Makes one compaction: limits, plan, the new list, the last check, the receipt. Pure.

limits_for_target / _limits_for_window   how many tokens each part may take
check_prose                              a model's prose, checked against the conversation
make_plan                                which messages stay, which are elided, and the handoff
encode, _require_legal                   the list as it is sent, checked against the rules of its dialect
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from penstock.conversation.message import Text, count_leading_system
from penstock.conversation.rules import check
from penstock.conversation.view import Handoff, Kept, Rewritten, as_message, encode, is_merged
from penstock.errors import IllegalResult, TargetTooSmall
from penstock.measure.wording import pluralise
from penstock.planning.layout import PlanLimits
from penstock.planning.plan import CompactionOrder, NothingToDo, Plan, count_parts, make_plan
from penstock.planning.policy import budgets, is_worth_it, summary_budget
from penstock.planning.receipt import ALL_STRUCK, COMPACTED, DEGRADED, NOTHING_TO_DO, Receipt, RoomUse
from penstock.redaction import REDACTED
from penstock.settings import CompressionSettings
from penstock.writing.handoff import SYSTEM_NOTE
from penstock.writing.verify import check_prose
from penstock.writing.work import source_of
from penstock.writing.writer import measure_scarcity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.writing.notebook import Opened
    from penstock.writing.prose import Prose
    from penstock.writing.transcript import Transcript
    from penstock.writing.verify import Checked

__all__ = ["CompactionResult", "compact", "limits_for_target"]

_DEFAULTS = CompressionSettings()
_HEAD_SHARE = 0.08
_HEAD_MOST = 0.3  # in a window, if more messages are protected than usual
_FRESH_SHARE = 0.42
_FRESH_FOR_WORDS = (
    0.04  # less than that, if the target is a very small part of the conversation: for words instead
)
_FRESH_SHARE_OF_WINDOW = 0.46  # a little more: half of a window is less room than its target once gave them
_FILLED_SHARE = 0.5  # of what the system prompt leaves below the threshold of a window
_FILLED_LEAST_TOKENS = 1_200  # a view may have that much, though,
_FILLED_MOST = 0.75  # if that is no more of it
_TAIL_LEAST = 0.02
_TAIL_SLOPE = 0.2
_TAIL_MOST = 0.16


class CompactionResult(msgspec.Struct, frozen=True, eq=False):
    """The new list on the wire, the plan that made it (None if there was nothing to do), and the receipt."""

    encoded: list[Any]
    plan: Plan | None
    receipt: Receipt


def compact(opened: Opened, order: CompactionOrder, prose: Prose | None = None) -> CompactionResult:
    """Compacts the conversation. Raises TargetTooSmall, or IllegalResult if the result would break a rule.

    `prose` is a model's part of the handoff; this function checks it against the conversation.
    """
    transcript, goal = opened.transcript, order.goal
    limits = (
        limits_for_target(transcript, goal.target_tokens, order.settings)
        if goal.target_tokens is not None
        else _limits_for_window(
            transcript, goal.window_tokens, order.settings, outside_tokens=goal.outside_tokens
        )
    )
    checked = None
    if prose is not None:
        checked = check_prose(prose, source_of(transcript, order.redactor), order.redactor)
    note = _make_note(transcript, order)
    try:
        planned = make_plan(transcript, limits if note is None else _leave_room(limits, note), order, checked)
    except TargetTooSmall as error:
        least = _find_least_target(transcript, error.target_tokens, order, checked)
        unpin = " or unpin messages" if order.wishes.pins else ""
        needed = pluralise(least + (0 if note is None else note.tokens), "token")
        step = (
            f"raise the target to at least {needed}"
            if goal.target_tokens is not None
            else f"use a larger window than {goal.window_tokens:,} tokens, or a target of at least {needed}"
        )
        raise TargetTooSmall(
            f"{error}; {step}{unpin}",
            target_tokens=limits.target_tokens,
            parts=error.parts,
        ) from None
    if isinstance(planned, NothingToDo):
        return _leave(opened, planned.reason, limits, order)
    if note is not None and planned.handoff.text:
        planned = _add_note(planned, note)
    before, after = transcript.total_tokens, planned.tokens_after
    if not is_worth_it(before, after, forced=goal.forced or limits.explicit):
        reason = f"{before:,} tokens would become {after:,}: less than a tenth saved"
        return _leave(opened, reason, limits, order)
    result = _carry_out(opened, planned, limits, order)
    if checked is None or checked.entries:
        return result
    receipt = msgspec.structs.replace(result.receipt, outcome=DEGRADED, reason=ALL_STRUCK)
    return msgspec.structs.replace(result, receipt=receipt)


def _find_least_target(
    transcript: Transcript, too_small: int, order: CompactionOrder, checked: Checked | None
) -> int:
    """Returns a target that works although the next smaller one does not.

    The size of the whole conversation always works. Targets are tried rather than worked out, since a larger one may
    leave less room: a request that must be cut takes a share of it.
    """

    def fits(target_tokens: int) -> bool:
        try:
            make_plan(
                transcript, limits_for_target(transcript, target_tokens, order.settings), order, checked
            )
        except TargetTooSmall:
            return False
        return True

    fails, works = too_small, transcript.total_tokens
    step = 64
    while fails + step < works:  # usually the answer is near the named target, or near what must stay
        if fits(fails + step):
            works = fails + step
            break
        fails, step = fails + step, step * 2
    while works - fails > 1:
        middle = (works + fails) // 2
        if fits(middle):
            works = middle
        else:
            fails = middle
    return works


def limits_for_target(
    transcript: Transcript, target_tokens: int, settings: CompressionSettings
) -> PlanLimits:
    """Returns the limits for a named target, which bounds the whole list.

    Up to its ceiling, the tail takes a quarter of what the system prompt leaves. It takes less if the target is a
    small share of the conversation: there, tokens keep more when they are spent on excerpts. Unanswered results then
    give up some tokens, too: losing a few of their lines costs less than losing the agent's conclusions.
    """
    system_end = count_leading_system(transcript.messages)
    system = sum(transcript.tokens[:system_end])
    room = max(0, target_tokens - system)
    rest = max(1, transcript.total_tokens - system)
    share = min(_TAIL_MOST, _TAIL_LEAST + _TAIL_SLOPE * room / rest)
    return PlanLimits(
        target_tokens=target_tokens,
        tail_tokens=int(room * share),
        tail_ceiling_tokens=int(room * share * 1.5),
        head_tokens=int(room * _HEAD_SHARE),
        fresh_tokens=int(room * (_FRESH_SHARE - _FRESH_FOR_WORDS * measure_scarcity(room, rest))),
        handoff_tokens=room,
        protect_first_n=settings.protect_first_n,
        protect_last_n=settings.protect_last_n,
        explicit=True,
        spend_tokens=target_tokens,
    )


def _limits_for_window(
    transcript: Transcript, window_tokens: int, settings: CompressionSettings, *, outside_tokens: int
) -> PlanLimits:
    """Returns the limits for a context window: those of a named target of the size that the view is filled to.

    A view may take head + summary ceiling + 1.5 × tail, but no more than `_room_to_fill` allows. The settings for the
    tail and the summary are ceilings.
    `outside_tokens` is the room that the rest of the request takes (tool schemas, a separate system prompt).
    """
    allowed = budgets(settings, window_tokens)
    cuts = transcript.cuts()
    system_end = count_leading_system(transcript.messages)
    system = cuts.tokens(0, system_end)
    length = len(transcript.messages)
    head_end = cuts.head_end(settings.protect_first_n, transcript.total_tokens, system_end, length)
    head = cuts.tokens(0, head_end)
    target = min(allowed.target_tokens(head), max(1, window_tokens - outside_tokens))
    filled = min(target, system + _room_to_fill(allowed.threshold_tokens - system))
    shares = limits_for_target(transcript, filled, settings)
    room = max(0, filled - system)
    fresh = int(room * _FRESH_SHARE_OF_WINDOW)
    # The shares are for the defaults of these settings. A longer head or tail is wished for in proportion to them.
    head_share = min(_HEAD_MOST, _HEAD_SHARE * max(1.0, settings.protect_first_n / _DEFAULTS.protect_first_n))
    ceiling = int(room * (1 - head_share)) - fresh
    tail = int(shares.tail_tokens * settings.target_ratio / _DEFAULTS.target_ratio)
    tail = max(0, min(tail, allowed.tail_tokens, ceiling))
    return msgspec.structs.replace(
        shares,
        target_tokens=target,
        tail_tokens=tail,
        tail_ceiling_tokens=max(tail, min(int(1.5 * tail), ceiling)),
        head_tokens=int(room * head_share),
        fresh_tokens=fresh,
        handoff_tokens=summary_budget(settings, max(0, transcript.total_tokens - head - tail), window_tokens),
        explicit=False,
    )


def _room_to_fill(below_tokens: int) -> int:
    """Returns how much of the room that the system prompt leaves below the threshold a view may fill: half of it.

    A fuller view would soon be compacted again. In a very small window half is too little to go on from.
    """
    below = max(0, below_tokens)
    return max(int(below * _FILLED_SHARE), min(int(below * _FILLED_MOST), _FILLED_LEAST_TOKENS))


class _SystemNote(msgspec.Struct, frozen=True):
    """The system prompt of a list with a note on compaction in it, and the tokens that the note adds."""

    piece: Rewritten
    tokens: int


def _make_note(transcript: Transcript, order: CompactionOrder) -> _SystemNote | None:
    """Returns the note if the settings want it; None if the list has no system prompt, or one that has it already."""
    end = count_leading_system(transcript.messages)
    if not order.settings.system_note or not end:
        return None
    parts = transcript.messages[end - 1].parts
    for at, part in enumerate(parts):
        if isinstance(part, Text) and SYSTEM_NOTE not in part.text:
            text = f"{part.text.rstrip()}\n\n{SYSTEM_NOTE}"
            added = order.tokenizer.count(text) - order.tokenizer.count(part.text)
            return _SystemNote(Rewritten(end - 1, {at: Text(text)}), max(0, added))
    return None


def _leave_room(limits: PlanLimits, note: _SystemNote) -> PlanLimits:
    target, spent = limits.target_tokens - note.tokens, limits.spend_tokens - note.tokens
    return msgspec.structs.replace(limits, target_tokens=max(1, target), spend_tokens=max(1, spent))


def _add_note(plan: Plan, note: _SystemNote) -> Plan:
    """Returns the plan with the note in the system prompt. Only for plans with a handoff."""
    place = note.piece.position
    pieces = tuple(note.piece if piece == Kept(place) else piece for piece in plan.pieces)
    sizes = plan.sizes | {place: plan.sizes[place] + note.tokens}
    return msgspec.structs.replace(
        plan, pieces=pieces, sizes=sizes, tokens_after=plan.tokens_after + note.tokens
    )


def _carry_out(opened: Opened, plan: Plan, limits: PlanLimits, order: CompactionOrder) -> CompactionResult:
    """Builds the list that the plan describes, checks it, and returns it with its receipt."""
    transcript = opened.transcript
    encoded = encode(plan.pieces, transcript, transcript.dialect)
    _require_legal(plan, transcript, encoded)
    ours: set[int] = set()
    if not isinstance(opened.sources, range):  # which says that all messages are the caller's
        ours.update(place for place, source in enumerate(opened.sources) if source is None)
    standing, rewritten = plan.sizes.keys() - ours, plan.rewritten - ours
    written = _list_written_texts(transcript, plan)
    facts_kept, facts_reachable = _count_facts(transcript, plan, written)
    receipt = Receipt(
        outcome=COMPACTED,
        tokens_before=transcript.total_tokens,
        tokens_after=plan.tokens_after,
        messages_before=len(opened.came),
        messages_after=len(encoded),
        target_tokens=limits.target_tokens,
        kept=len(standing) - len(rewritten),
        elided=len(rewritten),
        summarised=len(transcript.messages) - len(ours) - len(standing),
        facts_kept=facts_kept,
        facts_reachable=facts_reachable,
        facts_struck=plan.handoff.struck,
        struck=plan.handoff.struck_texts,
        repaired=opened.repairs,
        redacted=sum(text.count(REDACTED) for text in written),
        handoff_tokens=plan.handoff_tokens,
        tokenizer=order.tokenizer.name,
        dialect=transcript.dialect.name,
        room=_account_for_room(transcript, plan, limits, order),
    )
    return CompactionResult(encoded, plan, receipt)


def _account_for_room(
    transcript: Transcript, plan: Plan, limits: PlanLimits, order: CompactionOrder
) -> RoomUse:
    """Returns what the view's tokens went to, and, for a window, why it was not filled further."""
    parts = count_parts(plan, transcript.messages)
    if order.goal.target_tokens is not None:
        return RoomUse(granted_tokens=limits.spend_tokens, parts=parts)
    allowed = budgets(order.settings, order.goal.window_tokens)
    if limits.spend_tokens < limits.target_tokens:
        system = parts.get("system_prompt", 0)
        half = system + int((allowed.threshold_tokens - system) * _FILLED_SHARE)
        share = "half" if limits.spend_tokens <= half else "half to three quarters"
        limit = f"{share} of what the system prompt leaves" if system else f"{share} of it"
    elif limits.target_tokens >= order.goal.window_tokens - order.goal.outside_tokens:
        limit = "what the rest of the request leaves of the window"
    else:
        limit = (
            f"the head, {allowed.summary_ceiling_tokens:,} for a summary and {allowed.tail_ceiling_tokens:,} by "
            "compression.target_ratio; what one part does not need goes to the others"
        )
    return RoomUse(
        granted_tokens=limits.spend_tokens,
        threshold_tokens=allowed.threshold_tokens,
        limit=limit,
        parts=parts,
    )


def _leave(opened: Opened, reason: str, limits: PlanLimits, order: CompactionOrder) -> CompactionResult:
    """Returns the list unchanged, except for repairs."""
    transcript = opened.transcript
    pieces = [Kept(place) for place in range(len(transcript.messages))]
    encoded = encode(pieces, transcript, transcript.dialect) if opened.repairs else opened.came
    total = transcript.total_tokens
    receipt = Receipt(
        outcome=NOTHING_TO_DO,
        reason=reason,
        tokens_before=total,
        tokens_after=total,
        messages_before=len(opened.came),
        messages_after=len(encoded),
        target_tokens=limits.target_tokens,
        kept=len(encoded),
        facts_kept=int(np.count_nonzero(transcript.index.in_sources)),  # the vocabulary may know others
        repaired=opened.repairs,
        tokenizer=order.tokenizer.name,
        dialect=transcript.dialect.name,
    )
    return CompactionResult(encoded, None, receipt)


def _require_legal(plan: Plan, transcript: Transcript, encoded: list[Any]) -> None:
    """Raises IllegalResult if the new list breaks a rule that the input did not break already."""
    result = [as_message(piece, transcript) for piece in plan.pieces if not is_merged(piece)]
    broken = check(result, transcript.dialect.rules)
    if broken:
        given = [transcript[place] for place in range(len(transcript.messages))]
        had = {violation.rule for violation in check(given, transcript.dialect.rules)}
        broken = [violation for violation in broken if violation.rule not in had]
    if broken or len(encoded) != len(result):
        first = broken[0] if broken else None
        where = f"{first.rule} at message {first.index + 1}: {first.text}" if first else "its length"
        raise IllegalResult(f"the compacted conversation breaks a rule of {transcript.dialect.name}: {where}")


def _count_facts(transcript: Transcript, plan: Plan, written: Sequence[str]) -> tuple[int, int]:
    """Counts the distinct values that are still in the view, and those that are only in the originals."""
    index = transcript.index
    named = index.in_sources > 0  # one row per value, of other conversations, too
    present = np.zeros(len(named), np.bool_)
    verbatim = np.array(sorted(plan.kept_verbatim), np.int32)
    for source in np.flatnonzero(np.isin(index.message_of_source, verbatim)).tolist():
        present[index.sources[source].distinct] = True
    known = index.vocabulary.find_known(written)
    present[known[known < len(present)]] = True
    kept = int((present & named).sum())
    return kept, int(named.sum()) - kept


def _list_written_texts(transcript: Transcript, plan: Plan) -> list[str]:
    """Returns the texts of the view that were written or changed."""
    return [
        getattr(part, "text", "") or getattr(part, "arguments", "")
        for piece in plan.pieces
        if isinstance(piece, (Handoff, Rewritten))
        for part in as_message(piece, transcript).parts
    ]
