"""The whole way: a small study is trained by worker processes, interrupted, and read back."""

import itertools
import os
import signal
import subprocess
import sys

import pytest
import torch

import paribus
from paribus.engine.check import check_arm
from paribus.engine.data import load_dataset
from paribus.engine.execution.start import estimate
from paribus.results import Results
from paribus.results.trial_folder import CANONICAL

from ..conftest import studies_in
from ..tools import eventually, refused


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
    paribus.run(trained.study, copy)
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("manifest.json")} == before


def test_a_stack_writes_the_same_trials(trained, tmp_path):
    solo = trained.results
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
paribus.run(study, sys.argv[2], workers=2, checkpoint_seconds=0.0)
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A study of a second a trial that was left alone; its folder has its study file."""
    folder = tmp_path_factory.mktemp("whole")
    studies_in(folder)  # writes the text
    (folder / "study.toml").write_text(
        """
        name = "small"
        seeds = [1, 2]
        data = {corpus = "text", path = "text.txt", seq_len = 16}
        model = {n_layer = 2, n_head = 2, d_model = 16}
        training = {iterations = 40, batch_size = 4, dropout = 0.1}
        [arms.baseline]
        [arms.layernorm]
        set."model.embedding.norm" = "layernorm"
        """
    )
    return paribus.run(paribus.load_study(folder / "study.toml"), folder / "r", workers=1)


@pytest.mark.parametrize(
    "how", [pytest.param(signal.SIGKILL, marks=pytest.mark.slow), signal.SIGINT]
)
def test_an_interruption_loses_nothing(whole, tmp_path, how):
    file = whole.path.parent / "study.toml"
    study = paribus.load_study(file)
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(file), str(tmp_path / "broken")],
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    trials = tmp_path / "broken" / "trials"
    eventually(lambda: any((tmp_path / "broken" / "checkpoints").glob("*/step-*")))
    if how is signal.SIGKILL:
        os.killpg(process.pid, how)  # workers and all, at once
    else:
        process.send_signal(how)
    process.wait(60)
    if how is signal.SIGINT:
        assert not list((tmp_path / "broken").rglob(".*.part"))
    done_before = len(list(trials.rglob("manifest.json")))
    assert done_before < len(study.trials)

    resumed = paribus.run(study, tmp_path / "broken", workers=1)
    assert canonical_bytes(resumed) == canonical_bytes(whole)
    assert not (tmp_path / "broken" / "checkpoints").exists()
    assert not list((tmp_path / "broken").rglob(".*.part"))


def test_errors_come_first(small_study, small_dataset, tmp_path):
    (tmp_path / "ideas.py").write_text(
        "from torch import nn\n"
        "class Doubles(nn.Identity):\n"
        "    def __init__(self, model): super().__init__()\n"
        "    def forward(self, x): return x.repeat(1, 1, 2)\n"
    )
    study = small_study(
        arms={"baseline": {}, "own": {"set": {"model.modules.mlp": "ideas.py:Doubles"}}}
    )
    wrong = r"modules.mlp = 'ideas.py:Doubles' gives \(2, 16, 32\) and must give \(2, 16, 16\)"
    with refused("value", match=wrong):
        paribus.run(study, tmp_path / "r", workers=1)
    misspelt = small_study(
        arms={"baseline": {}, "b": {"set": {"model.embedding.norm": "layernrm"}}}
    )
    with refused("unknown", match="'layernorm'"):
        check_arm(misspelt, "b", small_dataset, torch.device("cpu"), 1)
    if not torch.cuda.is_available():
        with refused("value", match="'cuda'"):
            paribus.run(small_study(), tmp_path / "r", device="cuda")
    with refused("value", match="workers = 0"):
        paribus.run(small_study(), tmp_path / "r", workers=0)
    with refused("value", match="workers = -1"):
        estimate(small_study(), workers=-1)
    with refused("system", match="cannot write"):
        paribus.run(small_study(), "/proc/no/such", workers=1)
    (study.folder / "text.txt").unlink()
    with refused("value", match="not exist"):
        paribus.run(small_study({"data.path": "gone.txt"}), tmp_path / "r")
    assert not (tmp_path / "r").exists()


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


def test_what_fails_in_a_stack_fails_in_the_dry_run(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text(
        "from torch import nn\n"
        "class Branches(nn.LayerNorm):\n"
        "    def __init__(self, model): super().__init__(model.d_model)\n"
        "    def forward(self, x): return super().forward(x) if self.weight.sum() > 0 else x\n"
    )
    arms = {"baseline": {}, "own": {"set": {"model.modules.final_norm": "ideas.py:Branches"}}}
    with refused("value", match="arm 'own'"):
        paribus.run(small_study(arms=arms), tmp_path / "r", workers=1, stack=2)
    assert not (tmp_path / "r").exists()


def test_an_estimate_counts_what_it_says(small_study):
    study = small_study()
    cost = estimate(study, workers=1, price=3.6)
    vocab, d, t = load_dataset(study.data, study.folder).vocab_size, 16, 16
    blocks = 2 * (12 * d * d + 13 * d)
    base = cost.arms["baseline"]
    assert base.parameters == vocab * d + t * d + blocks + 2 * d
    assert cost.arms["layernorm"].parameters == base.parameters + 2 * d
    assert base.tokens == 8 * 4 * 16
    per_token = 6 * (vocab * d + 2 * 12 * d * d) + 12 * 2 * d * t
    assert base.flops == per_token * 512
    assert cost.rate is not None and cost.rate.step_seconds is not None
    step = cost.rate.step_seconds
    assert 0 < step < 5
    # Norms have no products: every trial takes 8 steps as long as the measured one.
    hours = len(study.trials) * 8 * step / 3600
    assert cost.hours == pytest.approx(hours) == cost.device_hours
    assert cost.price == pytest.approx(3.6 * hours)


def test_an_estimate_is_of_the_run_that_it_is_asked_for(small_study):
    """Two stacks of three on one worker: half as many steps as one by one, each of three."""
    study = small_study(seeds=[1, 2, 3], arms={"baseline": {}, "b": {"set": {"model.bias": False}}})
    cost = estimate(study, workers=4, stack=3)
    assert cost.rate.places == 2, "no more workers than stacks"
    steps = study.setting(study.baseline).iterations * cost.rate.step_seconds
    assert cost.hours == pytest.approx(steps / 3600)
    with refused("value", match="stack ="):
        estimate(study, stack=0)
