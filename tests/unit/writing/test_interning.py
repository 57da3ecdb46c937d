"""Numbers for hashes: given in the order of meeting, and for good."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.writing.vocabulary import UNKNOWN, Interner

batches = st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12), max_size=6)


@given(batches)
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_it_numbers_as_a_dict_would(given_batches):
    interner, expected = Interner(), {}
    for batch in given_batches:
        before = len(expected)
        interned = interner.intern(np.array(batch, np.int64))
        for one in batch:
            expected.setdefault(one, len(expected))
        assert interned.numbers.tolist() == [expected[one] for one in batch]
        assert [batch[place] for place in interned.fresh] == list(expected)[before:]
        assert [batch.index(batch[place]) for place in interned.fresh] == interned.fresh.tolist()
        assert len(interner) == len(expected)
    assert interner.look_up(np.array(list(expected), np.int64)).tolist() == list(expected.values())


def test_what_was_never_met_has_no_number():
    interner = Interner()
    assert interner.look_up(np.array([1, 2], np.int64)).tolist() == [UNKNOWN, UNKNOWN]
    interner.intern(np.array([2], np.int64))
    assert interner.look_up(np.array([1, 2, 3], np.int64)).tolist() == [UNKNOWN, 0, UNKNOWN]
