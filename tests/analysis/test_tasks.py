"""Task accuracy from records: paired by seed, in a family of its own, and by question for all."""

import numpy as np
import pytest

from paribus.analysis import Analysis, analyse
from paribus.results import Results, load_results
from paribus.results.trial_folder import TrialFolder
from paribus.rng import stream
from paribus.statistics import holm, macro_contrast, paired_contrast

from ..build import write_answers

CHANCE = {"easy": 0.5, "hard": 0.25}
SHOTS, N_ITEMS = (0, 3), 60
EFFECT = {"baseline": 0.0, "layernorm": -0.25, "rmsnorm": 0.0}


@pytest.fixture
def results(small_study, fabricate):
    """Two tasks; LayerNorm is worse at the easy one, RMSNorm differs by luck alone."""
    made = fabricate(small_study(seeds=[1, 2, 3, 4, 5, 6]), lambda arm, seed: 2.0 + 0.01 * seed)
    for trial in made.finished:
        answer(trial)
    return load_results(made.path)


def answer(trial: TrialFolder) -> None:
    rows, cells = [], []
    for task, chance in CHANCE.items():
        p = 0.4 + 0.3 * (task == "easy") + EFFECT[trial.arm] * (task == "easy")
        for shots in SHOTS:
            hits = stream(trial.seed, trial.arm, task, shots).random(N_ITEMS) < p
            cells.append({"task": task, "shots": shots, "chance": chance, "accuracy": hits.mean()})
            rows += [
                {"task": task, "shots": shots, "item": i, "correct": bool(hit)}
                for i, hit in enumerate(hits)
            ]
    write_answers(trial, rows, cells)


def accuracies(results: Results, arm: str, task: str) -> list[float]:
    rows = results.tasks.to_pylist()
    return [
        float(np.mean([r["accuracy"] for r in rows if key(r) == (arm, seed, task)]))
        for seed in results.study.seeds
    ]


def key(row: dict) -> tuple[str, int, str]:
    return row["arm"], row["seed"], row["task"]


def test_every_task_is_paired_by_seed_and_adjusted_in_a_family_of_its_own(results):
    found = analyse(results).tasks
    assert [(c.arm, c.declared.task) for c in found] == [
        (arm, task) for arm in ("layernorm", "rmsnorm") for task in CHANCE
    ]
    expected = [
        paired_contrast(
            accuracies(results, "baseline", c.declared.task),
            accuracies(results, c.arm, c.declared.task),
            seed=0,
            family=4,
            resolution=1 / (N_ITEMS * len(SHOTS)),
        )
        for c in found
    ]
    for contrast, paired in zip(found, expected, strict=True):
        assert contrast.by_run == paired
    # The registered target, new questions, decides: seeds and the task's questions are resampled.
    for contrast in found:
        scores = (
            [questions(results, arm, seed, contrast.declared.task) for seed in results.study.seeds]
            for arm in ("baseline", contrast.arm)
        )
        crossed = macro_contrast(
            *([np.array(score)] for score in scores),
            seed=0,
            family=4,
            resolution=1 / (N_ITEMS * len(SHOTS)),
        )
        assert contrast.decided == crossed
        assert contrast.decided.test == "crossed_components"
    adjusted = holm([c.decided.p_value for c in found if c.decided])
    assert [c.holm_p for c in found] == pytest.approx(list(adjusted))
    assert found[0].holm_p < 0.05 and found[0].decided.mean < -0.1


def questions(results: Results, arm: str, seed: int, task: str) -> list[float]:
    """The share of the numbers of shots at which each question was right."""
    items = [r for r in results.items.to_pylist() if key(r) == (arm, seed, task)]
    hits: dict[int, list[bool]] = {}
    for row in items:
        hits.setdefault(row["item"], []).append(row["correct"])
    return [float(np.mean(hits[item])) for item in sorted(hits)]


def macro(analysis: Analysis, arm: str):
    return analysis.contrast(arm, "macro_accuracy")


def test_macro_accuracy_is_paired_by_seed_and_question(results):
    analysis = analyse(results)
    contrast = macro(analysis, "layernorm")
    by_task = [
        np.mean(
            np.subtract(accuracies(results, "layernorm", t), accuracies(results, "baseline", t))
        )
        for t in CHANCE
    ]
    assert contrast.by_run.mean == pytest.approx(np.mean(by_task))
    assert contrast.decided.mean == pytest.approx(np.mean(by_task))  # every task weighs the same
    assert contrast.items_about == f"{2 * N_ITEMS} questions"


def test_a_diverged_trial_leaves_the_tasks_too(results):
    trial = next(t for t in results.finished if (t.arm, t.seed) == ("layernorm", 3))
    record = trial.read_json("trial.json") | {"diverged_at": 4}
    trial.write_json("trial.json", record)
    trial.finish()
    analysis = analyse(load_results(results.path))
    assert {c.seeds for c in analysis.tasks if c.arm == "layernorm"} == {(1, 2, 4, 5, 6)}
    assert {len(c.seeds) for c in analysis.tasks if c.arm == "rmsnorm"} == {6}
