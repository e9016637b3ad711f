"""The plan of a tuning: what is tried, how a grid grows, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.engine.execution.start import as_registered
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.formats import write_study
from paribus.study import (
    Candidate,
    Study,
    Tuning,
    at_edges,
    at_rates,
    further_candidates,
    is_untuned,
    load_study,
    open_edges,
    tuning_study,
    with_choice,
)

Maker = Callable[..., Study]
RATE = "training.optimizer.learning_rate"
DECAY = "training.optimizer.weight_decay"
WARMUP = "training.schedule.warmup"


def plan(**tables: Any) -> dict[str, Any]:
    return {"seeds": [101, 102], "grid": {RATE: [1e-4, 1e-3, 1e-2]}} | tables


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"seeds": [2, 101]}, "tuning.seeds and seeds share 2"),
        ({"seeds": [101, 101]}, "name one twice"),
        ({"grid": {}}, "tuning has nothing to try"),
        ({"grid": {RATE: [1e-3]}}, "tries one value"),
        ({"grid": {RATE: [1e-3, 1e-3]}}, "twice"),
        ({"grid": {DECAY: [0, 0.0]}}, "twice"),
        ({"grid": {"model.embedding.norm": ["none", "center"]}}, "and so does arm 'layernorm'"),
        ({"grid": {"training.iterations": [4, 8]}}, "which is the budget"),
        ({"grid": {"data.seq_len": [8, 16]}}, "keys of training and built-in parts"),
        ({"grid": {"training.optimizer.lr": [1, 2]}}, "unknown key 'training.optimizer.lr'"),
        ({"grid": {RATE: [-1.0, 1e-3]}}, "learning_rate"),
        ({"grid": {"training.batch_size": [4, 8]}}, "every trial has the same budget"),
        ({"grid": {"training.optimizer.name": ["adamw", "own.py:mine"]}}, "own code"),
        ({"grid": {RATE: [1e-3, 1e-2], DECAY: list(range(200))}}, "400 combinations"),
        ({"trials": 3}, "a grid is tried as a whole"),
        ({"method": "random"}, "needs trials"),
        ({"ranges": {DECAY: {"low": 0.1, "high": 1.0}}}, "a grid lists its values"),
        ({"method": "random", "trials": 2, "edge": "extend"}, "is of a grid"),
        ({"method": "sobol", "trials": 2, "edge": "extend"}, "is of a grid"),
        ({"method": "sobol", "trials": 4}, "the space has 3 candidates"),
        ({"method": "bayes"}, "tuning.method"),
        ({"chosen": {"baseline": {RATE: 1e-3, DECAY: 0.1}}}, "written when the tuning is done"),
        ({"seads": [1]}, "unknown key 'tuning.seads'"),
        (
            {"grid": {"training": {"optimizer": {"learning_rate": [1e-3, 1e-2]}}}},
            f'tuning.grid has the key {RATE} without quotes, which TOML reads as tables; write "',
        ),
        (
            {
                "method": "random",
                "trials": 2,
                "grid": {},
                "ranges": {"training": {"optimizer": {"weight_decay": {"low": 0.1, "high": 1}}}},
            },
            f"tuning.ranges has the key {DECAY} without quotes",
        ),
    ],
)
def test_an_unfair_plan_is_refused(changed: dict[str, Any], line: str, small_study: Maker) -> None:
    with pytest.raises(ParibusError, match=re.escape(line)) as refused:
        small_study(tuning=plan(**changed))
    assert "\n" not in str(refused.value)


def test_a_study_that_is_tuned_once_is_recorded_as_it_was(small_study: Maker) -> None:
    study = small_study(tuning=plan())
    values = {arm: {RATE: 1e-3} for arm in study.arms}
    assert "chosen_by_seed" not in with_choice(study, values).model_dump(mode="json")["tuning"]
    assert with_choice(study, values).digest == study.digest


def test_tuning_trials_may_be_too_short_to_show_spikes(small_study: Maker) -> None:
    assert small_study(tuning=plan(iterations=2)).tuning is not None


def test_a_range_that_is_none_is_refused(small_study: Maker) -> None:
    ranges = {DECAY: {"low": 0.0, "high": 1.0}}
    with pytest.raises(ParibusError, match="is no range on a log scale"):
        small_study(tuning=plan(method="random", trials=3, ranges=ranges))


def test_every_arm_is_tried_with_the_same_values_on_the_same_budget(small_study: Maker) -> None:
    study = small_study(tuning=plan(iterations=6))
    made = tuning_study(study, study.tuning.candidates if study.tuning else [])
    assert len(made.arms) == 3 * len(study.arms)
    assert made.seeds == (101, 102)
    for arm in study.arms:
        rates = [made.setting(f"{arm}-{n}").training.optimizer.learning_rate for n in (1, 2, 3)]
        assert rates == [1e-4, 1e-3, 1e-2]
        assert {made.setting(f"{arm}-{n}").iterations for n in (1, 2, 3)} == {6}
    # The contrast at every shared value differs in what the arm does, and in nothing else.
    assert made.reference("layernorm-2") == "baseline-2"
    assert made.differences("layernorm-2") == study.differences("layernorm")


SPACE = {
    "grid": {DECAY: [0.0, 0.1]},
    "ranges": {
        RATE: {"low": 1e-4, "high": 1e-2},
        WARMUP: {"low": 0, "high": 40, "scale": "linear"},
    },
}


@pytest.mark.parametrize("method", ["random", "sobol"])
def test_a_search_is_seeded_and_within_its_space(method: str) -> None:
    table = plan(method=method, trials=64, seed=3) | SPACE
    drawn = Tuning.model_validate(table).candidates
    assert drawn == Tuning.model_validate(table).candidates
    assert drawn != Tuning.model_validate(table | {"seed": 4}).candidates
    rates, warmups = ([one[key] for one in drawn] for key in (RATE, WARMUP))
    assert all(1e-4 <= float(rate) <= 1e-2 and rate == float(f"{rate:.4g}") for rate in rates)
    assert all(isinstance(n, int) and 0 <= n <= 40 for n in warmups)
    # Half of them below the middle, in log where the scale is.
    assert 20 < sum(float(rate) < 1e-3 for rate in rates) < 44
    assert 20 < sum(int(n) < 20 for n in warmups) < 44
    assert 16 < sum(one[DECAY] == 0.1 for one in drawn) < 48
    # A longer search goes on with the same sequence.
    assert Tuning.model_validate(table | {"trials": 10}).candidates == drawn[:10]


def test_a_sobol_search_has_every_part_of_its_space_once() -> None:
    """Of 16 points each sixteenth of each axis has one, whatever the seed: they are a net."""
    for seed in range(3):
        ranges = {key: {"low": 0.0, "high": 16.0, "scale": "linear"} for key in (RATE, DECAY)}
        table = plan(method="sobol", trials=16, seed=seed, grid={}, ranges=ranges)
        drawn = Tuning.model_validate(table).candidates
        for key in (RATE, DECAY):
            assert sorted(int(float(one[key])) for one in drawn) == list(range(16))


def test_a_sobol_search_draws_the_same_wherever_it_is_drawn_again() -> None:
    """Candidates of a finished study are drawn anew by later versions of SciPy and NumPy."""
    drawn = Tuning.model_validate(plan(method="sobol", trials=4, seed=1) | SPACE).candidates
    assert [[*one.values()] for one in drawn] == [
        [0.0, 0.007055, 39],
        [0.1, 0.000788, 6],
        [0.1, 0.001884, 26],
        [0.0, 0.0003018, 18],
    ]


def test_no_candidate_is_drawn_twice_and_all_of_a_small_space_are_drawn() -> None:
    small = {"grid": {DECAY: [0.0, 0.1]}, "ranges": {WARMUP: {"low": 1, "high": 4}}}
    for method in ("random", "sobol"):
        drawn = Tuning.model_validate(plan(method=method, trials=8) | small).candidates
        assert len({tuple(one.values()) for one in drawn}) == 8


def test_what_is_drawn_is_of_the_kind_of_its_key(small_study: Maker) -> None:
    ranges = {
        DECAY: {"low": 0, "high": 1, "scale": "linear"},
        WARMUP: {"low": 0.0, "high": 4.0, "scale": "linear"},
    }
    study = small_study(tuning=plan(method="sobol", trials=8, grid={}, ranges=ranges))
    assert study.tuning is not None
    assert any(0 < float(one[DECAY]) < 1 for one in study.tuning.candidates)
    made = tuning_study(study, study.tuning.candidates)
    assert {made.setting(arm).training.schedule.warmup for arm in made.arms} == {0, 1, 2, 3, 4}


def test_a_best_value_leaves_a_better_one_open_at_the_edge_of_the_space_alone() -> None:
    tuning = Tuning.model_validate(plan(method="random", trials=4) | SPACE)
    tried = [{DECAY: 0.0, RATE: 1.3e-4, WARMUP: 0}, {DECAY: 0.1, RATE: 3e-3, WARMUP: 38}]
    assert open_edges(tuning, tried, tried[0]) == [(RATE, -1)]  # there is no less of the others
    assert open_edges(tuning, tried, tried[1]) == [(DECAY, 1), (WARMUP, 1)]  # a rate by chance


@pytest.mark.parametrize(
    ("values", "factor", "side", "new"),
    [
        ([1e-4, 1e-3], None, 1, [1e-2]),
        ([1e-4, 1e-3], None, -1, [1e-5]),
        ([1e-3, 1e-4], 2.0, 1, [2e-3]),
        ([8, 16], None, 1, [32]),
        ([0.0, 0.1], None, 1, []),  # no ratio leads from 0
        ([0.0, 0.1], 2.0, -1, []),
        ([-2.0, -1.0], None, -1, [-4.0]),
    ],
)
def test_a_grid_grows_by_a_ratio(
    values: list[float], factor: float | None, side: int, new: list[float]
) -> None:
    tuning = Tuning.model_validate(plan(grid={RATE: values}, factor=factor))
    grown = further_candidates(tuning, tuning.candidates, [(RATE, side)])
    assert [one[RATE] for one in grown] == new


def test_a_grid_that_grows_beyond_what_numbers_are_ends_there_and_has_no_value_twice() -> None:
    tuning = Tuning.model_validate(plan(grid={RATE: [1e-3, 1e-2]}, factor=1e300, values=2))
    grown = further_candidates(tuning, tuning.candidates, [(RATE, 1)])
    assert grown == [{RATE: 1e298}]
    whole = Tuning.model_validate(plan(grid={"model.n_layer": [1, 2]}, factor=1.2, values=3))
    grown = further_candidates(whole, whole.candidates, [("model.n_layer", 1)])
    assert grown == [{"model.n_layer": 3}]


def test_what_is_chosen_stands_in_no_study_file(tmp_path: Path) -> None:
    """Values stated for every arm as if the tuning had chosen them."""
    high: Candidate = {RATE: 1e-2}
    low: Candidate = {RATE: 1e-4}
    file = tmp_path / "s.toml"
    chosen = f'{{ baseline = {{ "{RATE}" = 1e-2 }}, layernorm = {{ "{RATE}" = 1e-4 }} }}'
    file.write_text(
        'name = "s"\nseeds = [1, 2]\n[data]\ncorpus = "text"\npath = "text.txt"\nseq_len = 16\n'
        "[model]\nn_layer = 1\nn_head = 2\nd_model = 16\n"
        "[training]\niterations = 8\nbatch_size = 4\n"
        "[stability]\nsmoothing_steps = 2\nmedian_steps = 3\nspike_steps = 2\n"
        '[arms.baseline]\n[arms.layernorm]\nset."model.embedding.norm" = "layernorm"\n'
        f'[tuning]\nseeds = [101]\ngrid = {{ "{RATE}" = [1e-4, 1e-2] }}\n'
    )
    made = load_study(file)
    assert made.tuning is not None
    with pytest.raises(ParibusError, match="leave it out of a study file"):
        load_study(file, {"tuning.chosen": {"baseline": high, "layernorm": low}})
    file.write_text(f"{file.read_text()}chosen = {chosen}\n")
    with pytest.raises(ParibusError, match="leave it out of a study file"):
        load_study(file)
    # What a study in memory has counts only where it was tuned, by this plan.
    tuned = with_choice(made, {"baseline": high, "layernorm": low})
    there = ResultsFolder(tmp_path / "r")
    assert is_untuned(as_registered(tuned, there))
    there.create(tuned)
    assert not is_untuned(as_registered(made, there))
    decays = file.read_text().replace(RATE, DECAY).partition("chosen =")[0]
    file.write_text(decays)
    assert is_untuned(as_registered(load_study(file), there))


def test_a_grid_of_two_keys_grows_as_a_whole() -> None:
    tuning = Tuning.model_validate(plan(grid={RATE: [1e-3, 1e-2], DECAY: [0.1, 0.2]}, values=2))
    grown = further_candidates(tuning, tuning.candidates, [(RATE, 1)])
    assert grown == [{RATE: r, DECAY: d} for r in (0.1, 1.0) for d in (0.1, 0.2)]


def test_edges() -> None:
    tried = Tuning.model_validate(plan(grid={RATE: [1e-3, 1e-2, 1e-1], DECAY: [0.1]})).candidates
    assert at_edges(tried, tried[0]) == [(RATE, -1)]
    assert at_edges(tried, tried[1]) == []
    assert at_edges(tried, tried[2]) == [(RATE, 1)]


def test_a_choice_changes_settings_and_not_what_the_study_is(small_study: Maker) -> None:
    study = small_study(tuning=plan())
    tuned = with_choice(study, {arm: {RATE: 1e-2} for arm in study.arms})
    assert tuned.digest == study.digest
    assert tuned.setting("layernorm").training.optimizer.learning_rate == 1e-2
    words = at_rates(tuned, "layernorm", "baseline")
    assert words == ("with each arm at its best of the learning rates tried (0.01)")


def test_another_study_of_a_results_folder_is_tuned_anew(small_study: Maker) -> None:
    study = small_study(tuning=plan())
    path = study.folder / "study.json"
    write_study(path, with_choice(study, {a: {RATE: 1e-2} for a in study.arms}))
    again = load_study(path)
    assert again.tuning is not None
    assert not again.tuning.chosen


def test_tuning_trials_keep_no_weights_along_the_way(small_study: Maker) -> None:
    study = small_study({"training.keep_every": 2}, tuning=plan())
    assert study.tuning is not None and study.setting("baseline").kept_steps
    made = tuning_study(study, study.tuning.candidates)
    assert made.setting("baseline-1").kept_steps == ()
