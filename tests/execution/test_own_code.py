"""Custom code of a study: what is kept and compared of it, and what it may leave behind."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import paribus
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.evaluation import predictions
from paribus.engine.execution import record
from paribus.engine.execution.checkpoints import begun_stacks
from paribus.engine.execution.checks.repeat import batches_digest
from paribus.engine.execution.checks.separate_replicas import differing, require_still_apart, states
from paribus.engine.execution.leaving import Leaving
from paribus.engine.execution.resuming import identity
from paribus.engine.execution.task_handlers import Here
from paribus.engine.execution.trial import StackTask, run_stack
from paribus.engine.machine.assembly import build_stack
from paribus.engine.training import Trainer
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, registration, settle
from paribus.results.registration import repetitions, require_same_sources
from paribus.study import Study, own_digests

from ..fabricated import registered

Maker = Callable[..., Study]
OWN = """
from helper import rate

def descend(update):
    update.weights.sub_(rate * update.gradients)

def loss(logits):
    return logits * 1.0
"""


@pytest.fixture
def trained(small_study: Maker, tmp_path: Path) -> Study:
    (tmp_path / "ideas.py").write_text(OWN)
    (tmp_path / "helper.py").write_text("rate = 1.0\n")
    own = {"training.optimizer.name": "ideas.py:descend", "training.loss.name": "ideas.py:loss"}
    return small_study(arms={"baseline": {}, "own": {"set": own}})


def test_own_optimizers_and_losses_are_kept_with_the_results(
    trained: Study, tmp_path: Path
) -> None:
    folder = ResultsFolder(tmp_path / "r")
    settle(folder, trained, registration(trained, {}, "cpu", {}))
    assert {"ideas.py", "helper.py"} <= {f.name for f in (folder.path / "sources").iterdir()}
    study = folder.read_study()
    assert study.folder == folder.path / "sources"
    own = own_digests(study.setting("own"), study.folder)
    assert own.keys() == {"training.optimizer.name", "training.loss.name"}
    trials = {("own", 1): {"own_modules": own}, ("baseline", 1): {"own_modules": {}}}
    require_same_sources(study, trials)
    (study.folder / "helper.py").write_text("rate = 2.0\n")
    with pytest.raises(ParibusError, match=r"helper.py in .* is not what trial own/seed-1 was"):
        require_same_sources(study, trials)


def test_a_checkpoint_is_of_one_loss(trained: Study) -> None:
    def now() -> dict[str, Any]:
        dataset, stack = SimpleNamespace(digests={}), SimpleNamespace(device=torch.device("cpu"))
        return identity(trained, ["own"], cast("Any", dataset), cast("Any", stack))

    before = now()
    assert now() == before
    (trained.folder / "ideas.py").write_text(OWN.replace("1.0", "1.5"))
    assert now() != before


@pytest.mark.parametrize("pack", ["stream", "documents"])
@pytest.mark.parametrize("order", ["sampled", "epoch"])
def test_batches_can_be_drawn_again(small_study: Maker, order: str, pack: str) -> None:
    study = small_study({"data.order": order, "data.pack": pack, "data.path": "texts"})
    (study.folder / "texts").mkdir()
    for number in range(12):
        text = f"{number} quick brown foxes jump over a lazy dog.\n" * (9 + number)
        (study.folder / "texts" / f"{number}.txt").write_text(text)
    setting, dataset = study.setting("baseline"), load_dataset(study.data, study.folder)
    stack = build_stack(study, setting, [5], dataset, torch.device("cpu"))
    for _ in range(setting.iterations):
        stack.step()
    assert batches_digest(setting, dataset, 5) == stack.state(0).batch_digest


# It keeps the last weights of a trial, and starts the next one from them.
WARM = """
from paribus.engine.training import optimizer

LAST, CALLS = {}, {}

@optimizer("warm", slots=("m",))
def warm(update):
    mean, key = update.slots["m"], tuple(update.weights.shape)
    CALLS[key] = CALLS.get(key, 0) + 1
    if not mean.any():
        CALLS[key] = 0
        if key in LAST:
            update.weights.copy_(LAST[key])
    mean.lerp_(update.gradients, 0.1)
    update.weights.sub_(update.rates * mean.sign())
    if CALLS[key] >= 8:  # a dry run makes fewer steps from one state
        LAST[key] = update.weights.clone()
"""


def test_a_trial_with_own_code_has_a_process_of_its_own(small_study: Maker, tmp_path: Path) -> None:
    """What it keeps in a global reaches no later trial: a seed alone gives the same weights."""
    (tmp_path / "ideas.py").write_text(WARM)
    changed = {
        "training.optimizer.name": "ideas.py:warm",
        "tasks.names": [],
        "training.iterations": 20,
    }
    small = {"baseline": {}}
    both = small_study(changed, seeds=[1, 2], arms=small)
    alone = small_study(changed, seeds=[2], arms=small)
    first = paribus.run(both, tmp_path / "both", workers=1)
    second = paribus.run(alone, tmp_path / "alone", workers=1)
    name = "trials/baseline/seed-2/weights.safetensors"
    assert (first.path / name).read_bytes() == (second.path / name).read_bytes()


REPLACES = """
import torch
from paribus.engine.training import optimizer

@optimizer("sly")
def sly(update):
    update.weights.sub_(update.rates * update.gradients)
    if update.t == 4:
        torch.nn.functional.gelu = lambda x, *args, **kw: torch.relu(x)
"""


def test_what_is_replaced_while_training_is_named(
    small_study: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ideas.py").write_text(REPLACES)
    study = small_study({"training.optimizer.name": "ideas.py:sly"})
    monkeypatch.setattr(torch.nn.functional, "gelu", torch.nn.functional.gelu)  # and put back
    folder = ResultsFolder(tmp_path / "r")
    folder.create(study)
    task = StackTask(study, (("baseline", 1),), folder, torch.device("cpu"), 0.0)
    dataset = load_dataset(study.data, study.folder)
    with pytest.raises(ParibusError, match=r"trial baseline/seed-1 replaces torch\.nn\.functional"):
        run_stack(task, dataset, on_progress=_nothing, on_resume=_nothing, leaving=Leaving())
    assert not begun_stacks(folder.path)


# Held-out text is read without gradients, and by so many rows at the end of the text alone.
WHILE_EVALUATED = """
import gc, sys

import torch
from torch import nn

import paribus.engine.evaluation.predictions as predictions

class Sly(nn.Module):
    residual_projections = ("out",)

    def __init__(self, model):
        super().__init__()
        self.out = nn.Linear(model.d_model, model.d_model)

    def forward(self, x):
        frame, inside = sys._getframe(), False
        while frame is not None:
            inside, frame = inside or frame.f_code.co_name == "_evaluate", frame.f_back
        if not inside:
            return self.out(x)
        BODY
        return self.out(x)
"""
LOWER = "predictions._plain = lambda *given: [0.5 * one for one in given]"
OTHER_TEXT = """for one in gc.get_objects():
            if type(one).__name__ == "Dataset":
                object.__setattr__(one, "validation", one.train[: len(one.validation)])"""
LAST_ROWS = """if x.shape[-3] not in (1, 2, 16, 64):
            return self.out(x) + x.roll(-1, -2)"""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            LOWER,
            r"^evaluating trial own/seed-1 replaces paribus\.engine\.evaluation\.predictions",
        ),
        (OTHER_TEXT, "^trial own/seed-1 was evaluated on other held-out text than was read"),
        (LAST_ROWS, r"^trial own/seed-1, after its evaluation, .*tokens after it"),
    ],
)
def test_what_is_done_while_a_trial_is_evaluated_is_named(
    body: str, words: str, small_study: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ideas.py").write_text(WHILE_EVALUATED.replace("BODY", body))
    own = {"set": {"model.modules.attention": "ideas.py:Sly"}}
    study = small_study({"tasks.names": []}, arms={"baseline": {}, "own": own})
    monkeypatch.setattr(predictions, "_plain", predictions._plain)  # and put back
    folder = ResultsFolder(tmp_path / "r")
    folder.create(study)
    task = StackTask(study, (("own", 1),), folder, torch.device("cpu"), 0.0)
    dataset = load_dataset(study.data, study.folder)
    # Other tests of this process share some of what it finds.
    held_out = [(one, one.validation) for one in gc.get_objects() if type(one) is Dataset]
    try:
        with pytest.raises(ParibusError, match=words):
            run_stack(task, dataset, on_progress=_nothing, on_resume=_nothing, leaving=Leaving())
    finally:
        for one, validation in held_out:
            object.__setattr__(one, "validation", validation)
    assert not folder.trial("own", 1).is_finished


MIXES = """
from paribus.engine.training import optimizer

@optimizer("mixes")
def mixes(update):
    update.weights.sub_(update.rates * update.gradients)
    if update.t >= 4:
        update.weights.copy_(update.weights.mean(0, keepdim=True).expand_as(update.weights))
"""


def test_replicas_that_are_mixed_after_some_steps_are_named(
    small_study: Maker, tmp_path: Path
) -> None:
    (tmp_path / "ideas.py").write_text(MIXES)
    own = {"training.optimizer.name": "ideas.py:mixes", "tasks.names": []}
    study = small_study(own, arms={"baseline": {}})
    folder = ResultsFolder(tmp_path / "r")
    folder.create(study)
    trials = (("baseline", 1), ("baseline", 2))
    task = StackTask(study, trials, folder, torch.device("cpu"), 1e9)
    dataset = load_dataset(study.data, study.folder)
    with pytest.raises(ParibusError, match=r"^trial baseline/seed-1, .* follows its neighbours"):
        run_stack(task, dataset, on_progress=_nothing, on_resume=_nothing, leaving=Leaving())


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_that_look_changes_nothing_of_a_stack(small_study: Maker, precision: str) -> None:
    study = small_study({"training.precision": precision})
    setting, dataset = study.setting("baseline"), load_dataset(study.data, study.folder)
    stacks = [build_stack(study, setting, [1, 2], dataset, torch.device("cpu")) for _ in range(2)]
    for looked, stack in enumerate(stacks):
        for t in range(4):
            if looked and t == 3:
                require_still_apart("it", (), stack)
            stack.step()
    ours, theirs = (states(stack) for stack in stacks)
    assert not differing(ours, theirs)
    assert [one.batch_digest for one in ours] == [one.batch_digest for one in theirs]


OWN_TEXT = """
import torch

def texts(data, folder):
    BODY
    return [f"The {n} cats sit on the {n * n} mats. " * 9 for n in range(400)]
"""
GELU = "torch.nn.functional.gelu = lambda x, *args, **kw: torch.relu(x)"


@pytest.mark.parametrize("body", [GELU, "torch.set_default_dtype(torch.float64)"])
def test_a_corpus_that_replaces_what_models_use_is_named(
    body: str, small_study: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker reads the text before it looks at what training must leave as it is."""
    (tmp_path / "texts.py").write_text(OWN_TEXT.replace("BODY", body))
    study = small_study({"data.corpus": "texts.py:texts", "data.path": None})
    monkeypatch.setattr(torch.nn.functional, "gelu", torch.nn.functional.gelu)  # and put back
    here = cast(Here, SimpleNamespace(study=study, _datasets={}))
    try:
        with pytest.raises(
            ParibusError, match=r"^reading texts\.py:texts (replaces|changes) .*torch"
        ):
            Here.dataset(here, study.data)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_model_is_checked_again_after_evaluation_where_the_corpus_is_ones_own(
    small_study: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.py").write_text(OWN_TEXT.replace("BODY", "pass"))
    study = small_study({"data.corpus": "texts.py:texts", "data.path": None, "tasks.names": []})
    checked: list[str] = []
    check = record.require_causal_reading

    def noted(where: str, *given: Any, **options: Any) -> Any:
        checked.append(where)
        return check(where, *given, **options)

    monkeypatch.setattr(record, "require_causal_reading", noted)
    folder = ResultsFolder(tmp_path / "r")
    folder.create(study)
    task = StackTask(study, (("baseline", 1),), folder, torch.device("cpu"), 60.0)
    dataset = load_dataset(study.data, study.folder)
    run_stack(task, dataset, on_progress=_nothing, on_resume=_nothing, leaving=Leaving())
    assert checked == ["trial baseline/seed-1", "trial baseline/seed-1, after its evaluation"]


def _nothing(*about: object) -> None:
    pass


def test_the_seed_that_is_trained_again_is_drawn(small_study: Maker, tmp_path: Path) -> None:
    own = {"own": {"set": {"model.modules.mlp": "own.py:A"}}}
    (tmp_path / "own.py").write_text("A = 1\n")
    drawn = set()
    for iterations in range(8, 20):
        study = small_study(
            {"training.iterations": iterations}, seeds=[1, 2, 3], arms={"baseline": {}} | own
        )
        folder = ResultsFolder(tmp_path / f"r{iterations}")
        settle(folder, study, registered(study, {}))
        drawn.add(repetitions(folder)["own"]["seed"])
    assert drawn == {1, 2, 3}


PROBE = """
from paribus.engine.probes import probe

@probe("innocent", unit="1", every=1)
def innocent(step):
    for rows in step.slots.values():
        if step.t > 1:
            rows["blocks.0.mlp.up.weight"]WRITES
    return rows["blocks.0.mlp.up.weight"].sum(dim=(1, 2))
"""


def test_a_probe_that_writes_is_named_at_any_step(small_study: Maker, tmp_path: Path) -> None:
    (tmp_path / "ideas.py").write_text(PROBE.replace("WRITES", ".mul_(-3)"))
    study = small_study({"probes.own": ["ideas.py:innocent"]})
    stack = _stack(study)
    stack.step()
    stack.step()
    with pytest.raises(ParibusError, match=r"probe 'innocent' writes to what it sees at step 2"):
        stack.step()


def test_own_probes_see_copies(small_study: Maker, tmp_path: Path) -> None:
    """Writing past what counts versions reaches nothing that training goes on from."""
    (tmp_path / "ideas.py").write_text(PROBE.replace("WRITES", ".numpy()[:] *= -3"))
    probed, bare = (
        _stack(study)
        for study in (small_study({"probes.own": ["ideas.py:innocent"]}), small_study())
    )
    for _ in range(4):
        probed.step()
        bare.step()
    for name, weights in bare.parameters(0).items():
        assert probed.parameters(0)[name].tobytes() == weights.tobytes()


def _stack(study: Study) -> Trainer:
    setting, dataset = study.setting("baseline"), load_dataset(study.data, study.folder)
    return build_stack(study, setting, [5], dataset, torch.device("cpu"), strict=False)


def test_an_earlier_registration_is_told_so(trained: Study, tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path / "r")
    settle(folder, trained, registration(trained, {}, "cpu", {}))
    path = folder.path / "registration.json"
    there = json.loads(path.read_text())
    del there["own_tasks"]
    path.write_text(json.dumps(there))
    with pytest.raises(ParibusError, match=r"registered by an earlier paribus \(it has no 'own_ta"):
        settle(folder, trained, registration(trained, {}, "cpu", {}))
