"""The journal of a run: what an interruption leaves, wherever it falls."""

from __future__ import annotations

import json

import pytest

from penstock.trajectories.journal import Journal, parts_folder
from penstock.trajectories.metrics import Totals
from penstock.trajectories.shards import ShardResult, write_part

COMMAND = {"target_tokens": 400}


class InterruptedJournal(Journal):
    """Ctrl-C falls between the files of a shard and its line."""

    interrupted = False

    def _append(self, entry):
        if "done" in entry and not self.interrupted:
            self.interrupted = True
            raise KeyboardInterrupt
        super()._append(entry)


def done(number):
    return ShardResult(shard=number, file=0, first_row=1, row_count=1, size=4, rows=b"{}\n", totals=Totals())


def test_what_stands_there_is_kept_where_an_interruption_falls_before_the_line(tmp_path):
    folder = parts_folder(tmp_path / "out.jsonl")
    journal = InterruptedJournal(folder, COMMAND, lambda _: None, resume=False)
    write_part(folder, 0, b"row\n")
    with pytest.raises(KeyboardInterrupt):
        journal.add(done(0))
    journal.close()
    assert (folder / "00000000.part").read_bytes() == b"row\n"
    later = Journal(folder, COMMAND, lambda _: None, resume=True)
    assert later.done == {}  # without its line the shard is done again
    later.add(done(0))
    later.close()
    last = json.loads((folder / "journal.jsonl").read_bytes().splitlines()[-1])
    assert last["done"]["shard"] == 0


def test_where_nothing_was_done_nothing_stays(tmp_path):
    folder = parts_folder(tmp_path / "out.jsonl")
    Journal(folder, COMMAND, lambda _: None, resume=False).close()
    assert not folder.exists()


def test_a_shard_that_was_done_again_since_its_part_was_gone_counts_once(tmp_path):
    folder = parts_folder(tmp_path / "out.jsonl")
    journal = Journal(folder, COMMAND, lambda _: None, resume=False)
    for number in (1, 0):
        write_part(folder, number, b"row\n")
        journal.add(done(number))
    journal.close()
    (folder / "00000000.part").unlink()
    again = Journal(folder, COMMAND, lambda _: None, resume=True)
    assert list(again.done) == [1]
    write_part(folder, 0, b"row\n")
    again.add(done(0))
    again.close()
    known = []
    later = Journal(folder, COMMAND, known.append, resume=True)
    later.close()
    assert sorted(one.shard for one in known) == [0, 1]
    assert [one.shard for one in later.of_file(0)] == [0, 1]
