"""A run over files: order, figures, what stands beside the output, and rows that make it stumble."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from penstock.errors import RunBroken, SettingsError
from penstock.measure.tokens import tokenizer_named
from penstock.trajectories.compress import Compressor
from penstock.trajectories.metrics import Totals, TrajectoryMetrics, TrajectoryOutcome
from penstock.trajectories.options import TrajectoryOptions
from penstock.trajectories.run import LocalEngine, Run, SerialEngine, run
from penstock.trajectories.shards import Shard, ShardJob, _compress_row, _LineRows, compress_shard

pytestmark = pytest.mark.outside

OPTIONS = TrajectoryOptions(target_tokens=400, summary_tokens=150)
JOB = ShardJob(options=OPTIONS)
ROWS = 75


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """An eighth of the usual size, so that few rows make several shards."""
    monkeypatch.setattr("penstock.trajectories.run.SHARD_BYTES", 1 << 17)


def row(number, exchanges):
    turns = [{"from": "human", "value": f"Order {number}, please."}, {"from": "gpt", "value": "At once."}]
    for at in range(exchanges):
        turns += [
            {"from": "human", "value": f"What about item {number}-{at} of the order?"},
            {
                "from": "gpt",
                "value": f"Item {number}-{at} stands on shelf {at * 7 + number}, third from the left.",
            },
        ]
    return json.dumps({"id": number, "conversations": turns}).encode() + b"\n"


def data(count):
    return b"".join(row(number, 5 + number % 40) for number in range(count))


class Backwards:
    """An engine that gives results in the opposite order, as one on many machines may."""

    def run(self, shards, job):
        yield from reversed(list(SerialEngine().run(shards, job)))


def done(folder, engine=None, **changes):
    source = folder / "in.jsonl"
    if not source.exists():
        source.write_bytes(data(ROWS))
    wanted = Run(source=source, target=folder / "out.jsonl", job=JOB, workers=1)
    return run(msgspec.structs.replace(wanted, **changes), engine)


@pytest.mark.parametrize("dry", [False, True])
def test_rows_and_metrics_are_in_the_order_of_the_input_whatever_the_engine_does(dry, tmp_path):
    target = None if dry else tmp_path / "out.jsonl"
    finished = done(tmp_path, Backwards(), target=target, metrics=tmp_path / "m.json")
    assert finished.totals.rows == ROWS
    metrics = json.loads((tmp_path / "m.json").read_bytes())
    assert [one["row"] for one in metrics["rows"]] == list(range(1, ROWS + 1))
    assert metrics["totals"]["outcomes"] == finished.totals.outcomes
    if not dry:
        ids = [json.loads(line)["id"] for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
        assert ids == list(range(ROWS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl", "m.json"] + ["out.jsonl"] * (
        not dry
    )


def test_an_engine_that_fails_leaves_its_shards_and_another_goes_on(tmp_path):
    class Failing:
        def run(self, shards, job):
            for number, one in enumerate(SerialEngine().run(shards, job)):
                if number == 1:
                    raise RunBroken("the lights went out")
                yield one

    with pytest.raises(RunBroken):
        done(tmp_path, Failing(), metrics=tmp_path / "m.json")
    assert not (tmp_path / "out.jsonl").exists()
    assert not (tmp_path / "m.json").exists()
    with pytest.raises(SettingsError, match="--resume"):
        done(tmp_path)
    finished = done(tmp_path, LocalEngine(1), resume=True, metrics=tmp_path / "m.json")
    assert 0 < finished.resumed_rows < ROWS
    assert finished.totals.rows == ROWS
    assert len(json.loads((tmp_path / "m.json").read_bytes())["rows"]) == ROWS
    resumed = (tmp_path / "out.jsonl").read_bytes()
    done(tmp_path, target=tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == resumed


def test_a_run_that_could_not_begin_leaves_nothing_and_a_folder_of_others_is_not_touched(tmp_path):
    class Broken:
        def run(self, shards, job):
            raise RunBroken("no machine")

    with pytest.raises(RunBroken):
        done(tmp_path, Broken())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.jsonl"]
    precious = tmp_path / "out.jsonl.parts" / "thesis.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    with pytest.raises(SettingsError, match="in the way"):
        done(tmp_path)
    assert precious.read_text() == "mine"


def test_an_input_that_changed_is_not_gone_on_with(tmp_path):
    class Failing:
        def run(self, shards, job):
            yield next(iter(SerialEngine().run(shards, job)))
            raise RunBroken("out")

    with pytest.raises(RunBroken):
        done(tmp_path, Failing())
    (tmp_path / "in.jsonl").write_bytes(data(ROWS + 1))
    with pytest.raises(SettingsError, match="files"):
        done(tmp_path, resume=True)


def test_a_part_that_was_damaged_is_noticed_and_done_again_when_it_is_gone(tmp_path):
    class Last:
        def run(self, shards, job):
            results = list(SerialEngine().run(shards, job))
            part = tmp_path / "out.jsonl.parts" / "00000000.part"
            part.write_bytes(part.read_bytes().replace(b"Order", b"Odder", 1))
            yield from results

    with pytest.raises(RunBroken, match=r"00000000\.part is damaged"):
        done(tmp_path, Last())
    (tmp_path / "out.jsonl.parts" / "00000000.part").unlink()
    assert done(tmp_path, resume=True).totals.rows == ROWS
    assert b"Odder" not in (tmp_path / "out.jsonl").read_bytes()


def test_a_row_over_which_we_stumble_is_copied_and_marked():
    class Stumbling:
        """Counts all but one word."""

        name, exact = "stumbling", True

        def count(self, text):
            if "shelf 24" in text:
                raise ZeroDivisionError
            return tokenizer_named("o200k_base").count(text)

        def count_many(self, texts):
            return [self.count(text) for text in texts]

    lines = [row(3, 30), row(4, 30)]
    rows = _LineRows(Shard(0, 0, 1, 2, b"".join(lines)), JOB)
    compressor = Compressor(OPTIONS, tokenizer=Stumbling())
    first, second = (_compress_row(rows, at, compressor) for at in (0, 1))
    assert first.outcome is TrajectoryOutcome.FAILED
    assert "ZeroDivisionError in test_run.py" in first.reason
    assert second.outcome is TrajectoryOutcome.COMPRESSED
    assert rows.part([0]) == lines[0]
    assert rows.part([1]) != lines[1]


def test_a_shard_needs_no_folder():
    result, part = compress_shard(Shard(5, 0, 11, 3, data(3)), JOB)
    assert (result.shard, result.first_row, result.row_count) == (5, 11, 3)
    assert [json.loads(line)["row"] for line in result.rows.splitlines()] == [11, 12, 13]
    assert part.count(b"\n") == 3


def test_totals_stay_small_and_add_up():
    totals = Totals()
    for number in range(200):
        totals.add(
            TrajectoryMetrics(
                outcome=TrajectoryOutcome.DEGRADED, tokens_before=number, reason=f"reason {number}", cost=0.01
            )
        )
    assert len(totals.reasons) == 51
    both = Totals()
    both.merge(totals)
    both.merge(totals)
    assert both.rows == 400
    assert sum(both.reasons.values()) == 400
    assert len(both.reasons) == 51
    assert sum(both.distribution_before) == 398  # two rows had no tokens
    assert both.to_dict()["cost"] == 4.0


def test_what_a_process_loads_is_not_booked_on_its_first_row():
    code = (
        "import sys\n"
        "from penstock.trajectories.options import TrajectoryOptions\n"
        "from penstock.trajectories.shards import _compressor\n"
        "assert not {'toktok', 'splintr'} & set(sys.modules)\n"
        "_compressor(TrajectoryOptions())\n"
        "assert 'toktok' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_at_its_end_when_the_last_shard_is_done_in_whatever_order(tmp_path):
    shares = []
    source = tmp_path / "in.jsonl"
    source.write_bytes(data(ROWS))
    wanted = Run(source=source, target=tmp_path / "out.jsonl", job=JOB, workers=1)
    run(wanted, Backwards(), on_progress=lambda progress: shares.append(progress.read_bytes))
    assert len(shares) > 1
    assert shares == sorted(set(shares))
    assert shares[-1] == source.stat().st_size
