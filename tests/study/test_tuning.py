"""The plan of a tuning: what is tried, what is at an edge, and what is refused."""

import re
from typing import Any

import pytest

from paribus.engine.execution.start import as_registered
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.formats import write_study
from paribus.study import (
    Candidate,
    is_untuned,
    load_study,
    open_edges,
    tuning_study,
    with_choice,
)

from ..tools import refused

RATE = "training.optimizer.learning_rate"
DECAY = "training.optimizer.weight_decay"
WARMUP = "training.schedule.warmup"


def plan(**tables: Any) -> dict[str, Any]:
    return {"seeds": [101, 102], "grid": {RATE: [1e-4, 1e-3, 1e-2]}} | tables


def listed(*candidates: dict[str, Any]) -> dict[str, Any]:
    return {"grid": {}, "combinations": list(candidates)}


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"seeds": [2, 101]}, "contain 2"),
        ({"grid": {RATE: [1e-3, 1e-3]}}, "duplicate"),
        ({"grid": {"model.embedding.norm": ["none", "center"]}}, "arm 'layernorm'"),
        ({"grid": {"training.iterations": [4, 8]}}, "budgets"),
        ({"grid": {"training.batch_size": [4, 8]}}, "same budget"),
        ({"grid": {"training.optimizer.name": ["adamw", "own.py:mine"]}}, "custom code"),
        ({"grid": {RATE: [1e-3, 1e-2], DECAY: list(range(200))}}, "400 candidates"),
        ({"combinations": [{RATE: 1e-3}, {RATE: 1e-2}]}, "and combinations"),
        (listed({RATE: 1e-3, WARMUP: 0}, {RATE: 1e-2}), f"set {RATE}, {WARMUP} in each"),
        ({"seads": [1]}, "'tuning.seads'"),
    ],
)
def test_an_unfair_plan_is_refused(changed, line, small_study):
    with pytest.raises(ParibusError, match=re.escape(line)):
        small_study(tuning=plan(**changed))


def test_a_dotted_key_needs_no_quotes(small_study):
    grid = {"training": {"optimizer": {"learning_rate": [1e-3, 1e-2]}}}
    assert small_study(tuning=plan(grid=grid)).tuning.keys == (RATE,)


def test_every_arm_is_tried_with_the_same_values_on_the_same_budget(small_study):
    study = small_study(tuning=plan(iterations=6))
    made = tuning_study(study)
    assert len(made.arms) == 3 * len(study.arms)
    assert made.seeds == (101, 102)
    for arm in study.arms:
        rates = [made.setting(f"{arm}-{n}").training.optimizer.learning_rate for n in (1, 2, 3)]
        assert rates == [1e-4, 1e-3, 1e-2]
        assert {made.setting(f"{arm}-{n}").iterations for n in (1, 2, 3)} == {6}
    # The contrast at every shared value differs in what the arm does, and in nothing else.
    assert made.reference("layernorm-2") == "baseline-2"
    assert made.differences("layernorm-2") == study.differences("layernorm")


def test_listed_combinations_are_tried_as_they_stand(small_study):
    pairs = [{RATE: 1e-3, WARMUP: 2}, {WARMUP: 0, RATE: 1e-2}]
    study = small_study(tuning=plan(**listed(*pairs)))
    assert study.tuning.candidates == pairs and study.tuning.keys == (RATE, WARMUP)
    made = tuning_study(study)
    for number, pair in enumerate(pairs, start=1):
        training = made.setting(f"layernorm-{number}").training
        assert training.optimizer.learning_rate == pair[RATE]
        assert training.schedule.warmup == pair[WARMUP]


def test_nothing_lies_below_0_and_a_better_value_may_lie_beyond_any_other_edge():
    tried: list[Candidate] = [
        {DECAY: 0.0, RATE: 1e-4, WARMUP: 0},
        {DECAY: 0.05, RATE: 1e-3, WARMUP: 19},
        {DECAY: 0.1, RATE: 5e-4, WARMUP: 38},
    ]
    assert open_edges(tried, tried[0]) == [(RATE, -1)]
    assert open_edges(tried, tried[1]) == [(RATE, 1)]
    assert open_edges(tried, tried[2]) == [(DECAY, 1), (WARMUP, 1)]


def test_what_is_chosen_stands_in_no_study_file(small_study, tmp_path):
    """Values stated for every arm as if the tuning had chosen them."""
    with refused("value", match="study file"):
        load_study("quickstart", {"tuning": plan(chosen={"baseline": {RATE: 1e-2}})})
    made = small_study(tuning=plan())
    chosen: dict[str, Candidate] = {arm: {RATE: 1e-4} for arm in made.arms}
    # What a study in memory has counts only where it was tuned, by this plan.
    tuned = with_choice(made, chosen)
    assert tuned.digest == made.digest
    assert tuned.setting("layernorm").training.optimizer.learning_rate == 1e-4
    there = ResultsFolder(tmp_path / "r")
    assert is_untuned(as_registered(tuned, there))
    there.create(tuned)
    assert not is_untuned(as_registered(made, there))
    other = small_study(tuning=plan(grid={DECAY: [1e-4, 1e-3]}))
    assert is_untuned(as_registered(other, there))


def test_another_study_of_a_results_folder_is_tuned_anew(small_study):
    study = small_study(tuning=plan())
    path = study.folder / "study.json"
    write_study(path, with_choice(study, {a: {RATE: 1e-2} for a in study.arms}))
    assert not load_study(path).tuning.chosen
