"""Learned weights: what was needed is learned from, and no session is judged by weights that saw its source."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks import folds, train_importance
from benchmarks.fidelity import compactor
from benchmarks.generate import coding_session, service_session
from benchmarks.train_importance import Sample, auc, main, samples_of, top, train

from penstock.writing.importance import FEATURES, LOGIT, LearnedImportance, TreeWeights, WeightsByContent


def talk(*texts):
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]


def test_a_session_is_known_by_its_first_messages_however_far_it_went():
    session = talk(*(f"message {n}" for n in range(9)))
    system = {"role": "system", "content": "Be brief."}
    assert folds.digests_of(session[:7]) == folds.digests_of([system, *session])
    assert folds.digests_of(session[:4]) == folds.digests_of(session)[1:]
    assert len(set(folds.digests_of(session))) == 3


def test_sessions_of_several_sources_that_begin_alike_are_judged_without_their_kind(monkeypatch):
    one, other = talk("warm up", "ready", "then one"), talk("warm up", "ready", "then another")
    table = folds.table_of_folds([("cli", one), ("context", other)])
    monkeypatch.setattr(folds, "_table", lambda: table)
    assert folds.fold_for(one) == "cli"
    assert folds.fold_for(other) == "context"
    assert folds.fold_for(one[:2]) == "coding"
    assert folds.fold_for(talk("something else")) is None


def test_every_fold_has_weights_that_never_saw_it():
    table = json.loads((folds.FOLDER / folds.TABLE).read_bytes())
    assert set(table.values()) <= {path.stem for path in folds.FOLDER.glob("*.json")}
    for fold in {*table.values(), *folds.KINDS}:
        both = WeightsByContent.read((folds.FOLDER / f"{fold}.json").read_bytes())
        for weights in filter(None, (both.text, both.data)):
            left_out = weights.provenance["sources_used"].removeprefix("all but ").split(", ")
            assert set(folds.KINDS.get(fold, (fold,))) <= set(left_out)


def test_a_kind_that_was_left_out_is_left_to_the_rule():
    coding, service = (
        WeightsByContent.read((folds.FOLDER / f"{kind}.json").read_bytes()) for kind in ("coding", "service")
    )
    assert coding.text is None
    assert service.data is None


def test_the_compactor_scores_a_recorded_session_with_the_weights_of_its_fold(monkeypatch):
    session = coding_session(6_000, seed=5)
    plain = compactor(session, 900)
    monkeypatch.setattr(folds, "_table", lambda: folds.table_of_folds([("cli", session)]))
    asked = []
    monkeypatch.setattr(folds, "_importance", lambda fold: asked.append(fold) or _loves("by_result"))
    assert compactor(session, 900) != plain
    assert asked == ["cli"]


def _loves(feature):
    weights = TreeWeights({}, (feature,), 0, 0, (((0, 0),),), ((-4 * LOGIT, 4 * LOGIT),))
    return LearnedImportance(weights)


def test_values_that_the_assistant_uses_untold_were_needed():
    session = talk(
        "the files are src/one_file.py and src/two_file.py and src/three_file.py",
        "I see",
        "and src/four_file.py",
        "good",
        "go on, with src/two_file.py",
        "I open src/one_file.py, src/two_file.py, src/three_file.py, src/four_file.py",
    )
    (sample,) = samples_of(train_importance.Session("cli", session, (4,)))
    assert sample.values == len(sample.needed)
    # Each path and the name at its end; the second was told again.
    assert int(sample.needed.sum()) == 6


def test_the_names_of_arguments_are_not_needed_and_their_values_are():
    call = {"id": "c1", "type": "function"}
    call |= {"function": {"name": "get", "arguments": json.dumps({"order_id": "W-4711", "batch_no": 8842})}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    assert [*train_importance._texts(said)] == ["", "8842", "W-4711"]


def test_a_path_whose_folder_is_named_later_was_needed():
    before = frozenset({"pkg/deep/store_file.py", "pkg/deeper", "srcs"})
    assert train_importance._holders({"pkg/deep", "src"}, before) == {"pkg/deep/store_file.py"}


IN_TEXT = False


def made_up(seed):
    random = np.random.default_rng(seed)
    features = random.integers(0, 50, (len(FEATURES), 400)).astype(np.int32)
    needed = (features[3] + features[7] > 60) ^ (random.random(400) < 0.05)
    return Sample("cli", IN_TEXT, features, needed, np.ones(400), 400)


def test_training_finds_what_tells_them_apart_and_is_the_same_each_time(monkeypatch):
    monkeypatch.setattr(train_importance, "ROUNDS", 30)
    monkeypatch.setattr(train_importance, "SHRINK", 1.0)
    samples = [made_up(seed) for seed in range(6)]
    once, again = (train_importance._weights(train(samples), "", "made up") for _ in range(2))
    assert once == again
    unseen = made_up(99)
    score = LearnedImportance(once).logits(unseen.features).astype(float)
    assert auc(unseen.needed, score, unseen.stands_for) > 0.9
    assert top(unseen.needed, score, unseen.stands_for) > top(unseen.needed, -score, unseen.stands_for)


@pytest.mark.parametrize(
    ("score", "expected"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], 0.0), ([1, 3, 2, 4], 0.75)]
)
def test_the_area_counts_pairs_in_order(score, expected):
    assert auc(np.array([False, False, True, True]), np.array(score, float), np.ones(4)) == expected


def test_the_script_reads_trains_and_writes(tmp_path, monkeypatch, capsys):
    import gzip

    monkeypatch.setattr(train_importance, "ROUNDS", 4)
    monkeypatch.setattr(train_importance, "FEWEST_CUTS", 2)
    (tmp_path / "openai").mkdir()
    for name, make in (("cc_cli", coding_session), ("tau_retail", service_session)):
        with gzip.open(tmp_path / "openai" / f"{name}.jsonl.gz", "wt") as lines:
            for seed in range(2):
                lines.write(json.dumps({"messages": make(6_000, seed)}) + "\n")
    written, folder = tmp_path / "weights.json", tmp_path / "folds"
    assert (
        main(["--corpora", str(tmp_path), "--write", str(written), "--folds", str(folder), "--date", "today"])
        == 0
    )
    weights = WeightsByContent.read(written.read_bytes())
    assert weights.text.provenance["date"] == weights.data.provenance["date"] == "today"
    without = WeightsByContent.read((folder / "coding.json").read_bytes())
    assert without.data.leaves == weights.data.leaves
    assert {path.stem for path in folder.glob("*.json")} == {"cli", "retail", "coding", "service", "sessions"}
    assert "retail" in capsys.readouterr().out
