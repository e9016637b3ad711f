"""The whole way: a small study is trained by worker processes, interrupted, and read back."""

import itertools
import signal
import subprocess
import sys

import pytest

import paribus
from paribus.results import Results
from paribus.results.trial_folder import CANONICAL

from ..tools import eventually, in_one_process
from .job_backend import SMALL_TOML


def canonical_bytes(results: Results) -> dict[str, bytes]:
    """Every record that equal studies share, by path within the results folder."""
    return {
        f"{folder.label}/{name}": (folder.path / name).read_bytes()
        for folder in results.finished
        for name in (*CANONICAL, "manifest.json")
    }


def test_a_study_runs_and_reads_back(trained):
    study, results = trained.study, trained.results
    assert [(f.arm, f.seed) for f in results.finished] == study.trials
    assert results.unfinished == ()
    assert trained.seen[-1] == (9, 9 * 8 * 4 * 16)
    assert all(a <= b for a, b in itertools.pairwise(trained.seen))

    assert {c.state for c in results.controls} == {"held"}
    assert results.steps.num_rows == 9 * 8
    assert {"train_loss", "grad_norm", "learning_rate"} <= set(results.steps.column_names)
    scores = results.scores.to_pylist()
    assert len(scores) == 9
    assert all(2.0 < row["validation_loss"] < 4.0 for row in scores)
    text = (study.folder / "text.txt").read_text()
    trial = results.trials["baseline", 1]
    assert trial["tokens"] == 8 * 4 * 16
    assert trial["data"]["train_tokens"] == int(len(text) * 0.9)
    evaluation = results.finished[0].read_json("evaluation.json")
    assert evaluation["predicted"] == trial["data"]["validation_tokens"] - 1


def test_running_again_trains_nothing(trained, copy):
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("manifest.json")}
    assert len(before) == 10, "nine trials, and what the study itself has sealed"
    with in_one_process():
        paribus.run(trained.study, copy)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("manifest.json")} == before


def test_a_stack_writes_the_same_trials(trained, tmp_path):
    solo = trained.results
    with in_one_process():
        stacked = paribus.run(trained.study, tmp_path / "stacked", workers=1, stack=2)
    for folder in stacked.finished:
        key = (folder.arm, folder.seed)
        assert stacked.trials[key]["batch_digest"] == solo.trials[key]["batch_digest"]
    for ours, theirs in zip(stacked.scores.to_pylist(), solo.scores.to_pylist(), strict=True):
        assert ours["validation_loss"] == pytest.approx(theirs["validation_loss"], abs=1e-5)
    initial = [f.path.joinpath("initial.json").read_bytes() for f in stacked.finished]
    assert initial == [f.path.joinpath("initial.json").read_bytes() for f in solo.finished]


# A shell that starts tests in the background lets its children ignore Ctrl-C; this one must not.
RUN = """
import signal, sys, paribus
signal.signal(signal.SIGINT, signal.default_int_handler)
study = paribus.load_study(sys.argv[1])
paribus.run(study, sys.argv[2], workers=1, checkpoint_seconds=0.0)
"""


def test_an_interruption_loses_nothing(trained, tmp_path):
    """Ctrl-C; kills are in tests/torture."""
    file = trained.study.folder / "study.toml"
    file.write_text(SMALL_TOML)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(file), str(tmp_path / "broken")],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    trials = tmp_path / "broken" / "trials"
    eventually(lambda: any((tmp_path / "broken" / "checkpoints").glob("*/step-*")))
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert not list((tmp_path / "broken").rglob(".*.part"))
    done_before = len(list(trials.rglob("manifest.json")))
    assert done_before < len(trained.study.trials)

    with in_one_process():
        resumed = paribus.run(paribus.load_study(file), tmp_path / "broken", workers=1)
    assert canonical_bytes(resumed) == canonical_bytes(trained.results)
    assert not (tmp_path / "broken" / "checkpoints").exists()
    assert not list((tmp_path / "broken").rglob(".*.part"))


def test_odd_arms_train_and_are_recorded(odd_arms):
    assert {c.state for c in odd_arms.controls} == {"held"}
    assert len(odd_arms.finished) == len(odd_arms.study.arms)
    own, baseline = odd_arms.trials["quiet", 1], odd_arms.trials["baseline", 1]
    assert own["own_modules"].keys() == {"final_norm"}
    assert own["parameters"] == baseline["parameters"] - 16
    scores = {row["arm"]: row["validation_loss"] for row in odd_arms.scores.to_pylist()}
    # Its mask is of ones; its norm is PyTorch's, and not compiled.
    assert scores["masked"] == pytest.approx(scores["baseline"], rel=1e-7)
    assert baseline["diverged_at"] is None
    assert odd_arms.trials["wild", 1]["diverged_at"] is not None
