"""A run that tunes: the trials come first, survive an interruption, and choose what is trained."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import paribus
from paribus.analysis import analyse
from paribus.decision import decide
from paribus.engine.data import load_dataset, open_test
from paribus.engine.evaluation import evaluate_on
from paribus.engine.export import export_trial
from paribus.engine.model import build_model, load_parameters
from paribus.results import Results, ResultsFolder, extension, load_results
from paribus.results.store import TEST_PART
from paribus.runs.progress import Progress
from paribus.study import with_choice
from paribus.study.tuning import Value
from paribus.verification import verify

from ..conftest import SMALL, studies_in
from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")

RATE = "training.optimizer.learning_rate"
TABLES: dict[str, Any] = {
    "data": SMALL["data"] | {"test_fraction": 0.1},
    "arms": {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
    "tasks": {"names": []},
    "evaluation": {"precision": "bfloat16"},
    "seeds": [1],
    "tuning": {"seeds": [101], "grid": {RATE: [1e-4, 1e-2]}, "iterations": 6},
}


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """Tuned with two candidates side by side, then trained; interrupted once on the way."""
    folder = tmp_path_factory.mktemp("tuned")
    study = studies_in(folder)(**TABLES)

    def interrupt(progress: Progress) -> None:
        if progress.running:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        paribus.run(study, folder / "r", workers=1, stack=2, watch=interrupt)
    assert not (folder / "r" / "tuning.json").exists()
    assert load_results(folder / "r" / "tuning").unfinished
    return paribus.run(study, folder / "r", workers=1, stack=2)


def trials_of(tuned: Results) -> Results:
    """Its tuning trials."""
    assert tuned.tuning_trials is not None
    return tuned.tuning_trials


def test_what_was_chosen_is_what_is_trained(tuned):
    record = ResultsFolder(tuned.path).read_sealed("tuning.json")
    assert len(record["trials"]) == 4
    for arm, one in record["chosen"].items():
        rate = tuned.trials[arm, 1]["setting"]["training"]["optimizer"]["learning_rate"]
        assert rate == one["values"][RATE] == 1e-2
        assert tuned.trials[arm, 1]["iterations"] == 8
    assert {trial["iterations"] for trial in trials_of(tuned).trials.values()} == {6}
    assert verify(tuned.path).findings == []


def test_the_plan_was_registered_before_any_tuning_trial(tuned):
    registered = json.loads((tuned.path / "registration.json").read_text())
    assert registered["number"] == 1
    assert registered["metrics"]["validation_loss"]["better"] == "lower"
    of_tuning = json.loads((tuned.path / "tuning" / "registration.json").read_text())
    assert registered["registered_at"] <= of_tuning["registered_at"]


def test_tuning_trials_keep_no_weights_and_say_so(tuned, tmp_path):
    home = tuned.path / "tuning"
    assert not list(home.rglob("*.safetensors")) and list(tuned.path.rglob("*.safetensors"))
    trial = ResultsFolder(home).trial("baseline-1", 101)
    assert "weights.safetensors" in json.loads((trial.path / "manifest.json").read_text())
    words = "baseline-1/seed-101"
    with refused("missing", match=words):
        trial.read_weights()
    with refused("missing", match=words):
        export_trial(home, "baseline-1", 101, tmp_path / "out", folder=tuned.study.folder)


@pytest.mark.slow
def test_a_tuning_without_weights_goes_on_elsewhere(tuned, tmp_path):
    copy = shutil.copytree(tuned.path, tmp_path / "copy")
    for made in copy.iterdir():
        if made.name not in ("study.json", "registration.json", "sources", "tuning"):
            shutil.rmtree(made) if made.is_dir() else made.unlink()
    home = copy / "tuning"
    sealed = {path: path.read_bytes() for path in home.glob("trials/*/*/manifest.json")}
    lost = home / "trials" / "layernorm-2"
    shutil.rmtree(lost)
    again = paribus.run(studies_in(tmp_path)(**TABLES), copy, workers=1)
    assert not list(home.rglob("*.safetensors"))
    assert {path: path.read_bytes() for path in home.glob("trials/*/*/manifest.json")} == sealed
    chosen = ResultsFolder(tuned.path).read_sealed("tuning.json")
    assert (
        ResultsFolder(copy).read_sealed("tuning.json") == chosen
        and not paribus.verify(again.path).findings
    )


def test_the_verdict_is_of_the_test_part_which_it_opened_once(tuned):
    folder = ResultsFolder(tuned.path)
    opened = folder.read_sealed(TEST_PART)
    assert all(opened["opened"] >= when for when in finished_at(tuned))
    # No tuning trial has seen it: what chooses is the validation text.
    of_tuning = ResultsFolder(tuned.path / "tuning")
    assert not of_tuning.has_sealed(TEST_PART)
    judged = tuned.judged
    dataset = load_dataset(tuned.study.data, tuned.study.folder)
    tokens = open_test(dataset.test, opened)
    seq_len = tuned.study.data.seq_len
    for (arm, seed), trial in tuned.trials.items():
        # An independent way: the plain mean of the loss over windows of the test text.
        model = build_model(tuned.study.setting(arm), dataset.vocab_size, tuned.study.folder)
        load_parameters(model, folder.trial(arm, seed).read_weights())
        expected = mean_loss(model, tokens, seq_len)
        scores = {(r["arm"], r["seed"]): r for r in judged.scores.to_pylist()}[arm, seed]
        assert scores["validation_loss"] == pytest.approx(expected, rel=1e-3)
        # The test part, too, is read in the precision that is registered.
        again = evaluate_on(model, dataset, tokens, seq_len, precision="bfloat16").scores
        assert scores["validation_loss"] == again["validation_loss"]
        validation = folder.trial(arm, seed).read_json("evaluation.json")["validation_loss"]
        assert scores["validation_loss"] != validation
        assert judged.trials[arm, seed] == trial | {"blocks": judged.trials[arm, seed]["blocks"]}


def finished_at(results: Results) -> list[str]:
    """When each trial of the verdict was sealed, in the words of the record."""
    times = (f.path / "manifest.json" for f in results.finished)
    return [datetime.fromtimestamp(p.stat().st_mtime - 1, UTC).isoformat() for p in times]


def mean_loss(model: torch.nn.Module, tokens: Any, seq_len: int) -> float:
    """Cross-entropy per token over windows that do not overlap, the last one shorter."""
    total = 0.0
    ids = torch.from_numpy(np.asarray(tokens[:], np.int64))
    with torch.no_grad():
        for at in range(0, len(ids) - 1, seq_len):
            window = ids[at : at + seq_len + 1]
            logits = model(window[None, :-1])[0].double()
            total += float(F.cross_entropy(logits, window[1:], reduction="sum"))
    return total / (len(ids) - 1)


def test_a_test_score_that_was_changed_is_refused(tuned, tmp_path):
    copy = shutil.copytree(tuned.path, tmp_path / "copy")
    path = copy / "test" / "baseline" / "seed-1" / "evaluation.json"
    path.write_text(path.read_text().replace("1", "2", 1))
    with refused("changed", match="evaluation.json"):
        load_results(copy)


def test_test_part_missing(tuned, tmp_path, monkeypatch):
    copy = shutil.copytree(tuned.path, tmp_path / "copy")
    seals = json.loads((copy / "manifest.json").read_text())
    del seals["test.json"]
    (copy / "manifest.json").write_text(json.dumps(seals))
    opened = load_results(copy)
    (verdict,) = decide(analyse(opened))
    assert (verdict.outcome, verdict.evidence.invalid) == ("INVALID", "untested")
    registered = json.loads((copy / "registration.json").read_text())
    # The study has one seed, which is too few for a stage and would be the first reason.
    with monkeypatch.context() as patch:
        patch.setattr(extension, "LEAST_SEEDS", 1)
        why = extension._why_not(ResultsFolder(copy), opened.study, registered)
    assert "test split" in why


def test_a_choice_that_does_not_follow_is_not_judged(tuned, tmp_path):
    copy = shutil.copytree(tuned.path, tmp_path / "copy")
    folder, worse = ResultsFolder(copy), dict[str, Value]({RATE: 1e-4})
    record = folder.read_sealed("tuning.json")
    record["chosen"]["layernorm"] = {"candidate": 1, "values": worse}
    folder.seal("tuning.json", record)
    folder.create(with_choice(folder.read_study(), {"baseline": {RATE: 1e-2}, "layernorm": worse}))
    shutil.rmtree(copy / "trials" / "layernorm")
    analysis = analyse(load_results(copy))
    assert "learning_rate" in (analysis.unregistered)
    shutil.rmtree(copy / "tuning")
    assert "missing" in analyse(load_results(copy)).unregistered
