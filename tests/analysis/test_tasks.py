"""Task accuracy from records: paired by seed, in a family of its own, and by question for all."""

import numpy as np
import pytest

from paribus.analysis import analyse
from paribus.results import Results, load_results
from paribus.results.trial_folder import TrialFolder
from paribus.rng import stream
from paribus.statistics import holm, macro_contrast, paired_contrast

from ..build import write_answers

CHANCE = {"easy": 0.5, "hard": 0.25}
SHOTS, N_ITEMS = (0, 3), 60
EFFECT = {"baseline": 0.0, "layernorm": -0.25, "rmsnorm": 0.0}
SEEDS = [1, 2, 3, 4, 5, 6]


@pytest.fixture
def results(small_study, fabricate, request) -> Results:
    """Two tasks; LayerNorm is worse at the easy one, RMSNorm differs by luck alone."""
    target = {"target": getattr(request, "param", "new questions")}
    study = small_study(seeds=SEEDS, inference=target)
    made = fabricate(study, lambda arm, seed: 2.0 + 0.01 * seed)
    for trial in made.finished:
        answer(trial)
    return load_results(made.path)


def hits_of(arm: str, seed: int, task: str) -> np.ndarray:
    """Whether each question was right with each number of shots, [shots, questions]."""
    p = 0.4 + (0.3 + EFFECT[arm]) * (task == "easy")
    return np.array([stream(seed, arm, task, shots).random(N_ITEMS) < p for shots in SHOTS])


def answer(trial: TrialFolder) -> None:
    rows, cells = [], []
    for task, chance in CHANCE.items():
        for shots, hits in zip(SHOTS, hits_of(trial.arm, trial.seed, task), strict=True):
            cells.append({"task": task, "shots": shots, "chance": chance, "accuracy": hits.mean()})
            rows += [
                {"task": task, "shots": shots, "item": i, "correct": bool(hit)}
                for i, hit in enumerate(hits)
            ]
    write_answers(trial, rows, cells)


def scores(arm: str, task: str) -> np.ndarray:
    """The share of the numbers of shots at which each question was right, [seeds, questions]."""
    return np.array([hits_of(arm, seed, task).mean(axis=0) for seed in SEEDS])


def test_every_task_is_paired_by_seed_and_adjusted_in_a_family_of_its_own(results):
    found = analyse(results).tasks
    assert [(c.arm, c.declared.task) for c in found] == [
        (arm, task) for arm in ("layernorm", "rmsnorm") for task in CHANCE
    ]
    asked = {"seed": 0, "family": 4, "resolution": 1 / (N_ITEMS * len(SHOTS))}
    for contrast in found:
        theirs, ours = (scores(arm, contrast.declared.task) for arm in ("baseline", contrast.arm))
        expected = paired_contrast(theirs.mean(axis=1), ours.mean(axis=1), **asked)
        assert contrast.by_run.decided.p_value == pytest.approx(expected.decided.p_value)
        # The registered target, new questions, decides: seeds and questions are both samples.
        crossed = macro_contrast([theirs], [ours], **asked)
        assert contrast.decided == crossed and crossed.test == "crossed_components"
    adjusted = holm([c.decided.p_value for c in found])
    assert [c.holm_p for c in found] == pytest.approx(list(adjusted))
    assert found[0].holm_p < 0.05 and found[0].decided.mean < -0.1


@pytest.mark.parametrize("results", ["new questions", "this item set"], indirect=True)
def test_macro_accuracy_is_paired_by_seed_and_decided_by_the_target(results):
    contrast = analyse(results).contrast("layernorm", "macro_accuracy")
    changes = [scores("layernorm", task) - scores("baseline", task) for task in CHANCE]
    assert contrast.by_run.mean == pytest.approx(np.mean(changes))  # each task weighs the same
    says, paired = contrast.decided, contrast.by_run.decided
    if results.study.inference.claims_new_questions:
        assert says.test == "crossed_components" and says.mean == pytest.approx(paired.mean)
        assert contrast.items_about == f"{2 * N_ITEMS} questions"
        assert says.interval.low < paired.interval.low
    else:
        assert says == paired and says.test == "paired_t"


def test_a_diverged_trial_leaves_the_tasks_too(results):
    trial = next(t for t in results.finished if (t.arm, t.seed) == ("layernorm", 3))
    record = trial.read_json("trial.json") | {"diverged_at": 4}
    trial.write_json("trial.json", record)
    trial.finish()
    analysis = analyse(load_results(results.path))
    assert {c.seeds for c in analysis.tasks if c.arm == "layernorm"} == {(1, 2, 4, 5, 6)}
    assert {len(c.seeds) for c in analysis.tasks if c.arm == "rmsnorm"} == {6}
