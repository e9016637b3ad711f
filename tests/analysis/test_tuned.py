"""Selection on loss surfaces whose best is known, through records and the real code."""

import json
import math
import shutil
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from paribus.analysis import Point, Table, Tuned, analyse
from paribus.analysis.tuning import losses_of, sensitivities, tuned_in
from paribus.metric import Metric
from paribus.results import ResultsFolder, extend, load_results
from paribus.runs.advance import take_look
from paribus.statistics import StabilityEvents, best_of
from paribus.study.tuning_study import candidate_arm
from paribus.verification import verify

from ..build import ARMS, RATE, surface, tables, tune_by, tuned_and_trained, write_results
from ..conftest import studies_in

DECAY = "training.optimizer.weight_decay"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    study = studies_in(folder)(**tables([1e-4, 1e-3, 1e-2, 1e-1]))
    return tuned_and_trained(study, folder / "r")


@pytest.fixture
def whole(made, tmp_path):
    """Its folder, to be written to."""
    return shutil.copytree(made.path, tmp_path / "copy")


def test_each_arm_gets_its_best(made):
    record = ResultsFolder(made.path).read_tuning()
    chosen = {arm: one["values"][RATE] for arm, one in record["chosen"].items()}
    assert chosen == {"baseline": 1e-3, "layernorm": 1e-2}
    assert len(record["trials"]) == 2 * 4 * 2
    assert {sum(t["arm"] == arm for t in record["trials"]) for arm in ARMS} == {8}


def caveats(study: Any, results: Any) -> dict[str, list[str]]:
    return tuned_in(study, Table.of(results)).caveats


def test_a_best_value_at_the_edge_is_said(small_study, tmp_path):
    study = small_study(**tables([1e-4, 1e-3, 1e-2]))
    left = caveats(study, tune_by(study, tmp_path / "r", surface))
    assert left.keys() == {"layernorm"}
    assert "learning_rate 0.01" in left["layernorm"][0]


NAN = math.nan


LOSS = Metric("validation_loss", "validation loss", "nats/token", "lower", "evaluation")


def points_of(scores: dict[str, Any], seeds: Iterable[int]) -> tuple[Point, ...]:
    """Return points with scores by candidate and seed, the first candidate of an arm as chosen."""
    return tuple(
        Point(arm, row + 1, dict(zip(seeds, by_seed, strict=True)), math.nan, chosen=row == 0)
        for arm, rows in scores.items()
        for row, by_seed in enumerate(rows)
    )


@pytest.mark.parametrize(
    ("scores", "better", "best"),
    [
        ([[0.5, 0.6], [0.9, 0.1], [0.7, 0.5]], "higher", 2),
        ([[0.5, 0.6], [0.9, 0.1], [0.7, 0.5]], "lower", 1),
        ([[NAN, 0.1], [9.0, 9.0]], "lower", 1),  # divergence comes last
        ([[NAN, NAN], [NAN, 5.0]], "lower", 1),
        ([[2.0], [2.0]], "lower", 0),  # ties go to the first
    ],
)
def test_the_best_candidate(scores, better, best):
    points = points_of({"arm": scores}, range(len(scores[0])))
    metric = replace(LOSS, better=better)
    assert best_of(losses_of(metric, points)) == best


def test_where_everything_diverges_that_is_said(small_study, tmp_path):
    study = small_study(**tables([1e-3, 1e-2, 1e-1]))

    def loss(arm: str, rate: float, seed: int) -> float:
        return math.nan if arm == "layernorm" else surface(arm, rate, seed)

    left = caveats(study, tune_by(study, tmp_path / "r", loss))
    assert "tried diverged" in left["layernorm"][0]


def test_the_contrast_stands_at_each_best_and_at_every_shared_value(made):
    analysis = analyse(made)
    # At each arm's best they are equal; at a shared rate the parabolas differ by what they do.
    found = analysis.contrast("layernorm", "validation_loss").decided
    assert found.mean == pytest.approx(0, abs=1e-12)
    shared = [one for one in analysis.tuned.shared if one.arm == "layernorm"]
    expected = [0.1 * ((x + 2) ** 2 - (x + 3) ** 2) for x in (-4, -3, -2, -1)]
    assert [one.mean for one in shared] == pytest.approx(expected)
    curve = analysis.tuned.of("baseline")
    assert [point.chosen for point in curve] == [False, True, False, False]
    json.dumps(analysis.to_dict(), allow_nan=False)


def test_sensitivity_to_the_learning_rate_is_paired_by_tuning_seed(small_study):
    """Wortsman et al. 2023: the mean over the rates of min(final, initial) minus the best."""
    seeds = [101, 102, 103, 104, 105]
    study = small_study(**tables([1e-3, 1e-2], seeds=seeds))
    last = {"baseline": (2.0, 9.0), "layernorm": (2.1, 2.3)}
    scores = {
        arm: np.array([[of + (s - 100) / 100 for s in seeds] for of in both])
        for arm, both in last.items()
    }
    scores["baseline"][1, 4] = math.nan
    points = points_of(scores, seeds)
    tuned = Tuned(LOSS, ({RATE: 1e-3}, {RATE: 1e-2}), points, ())

    def started_at(loss: float) -> dict[tuple[str, int], StabilityEvents]:
        seen = StabilityEvents(False, None, loss, None, ())
        return {(candidate_arm(arm, 1), seed): seen for arm in last for seed in seeds}

    baseline, layernorm = sensitivities(study, tuned, started_at(3.0))
    # Seed 101: baseline ends at 2.01 and 9.01, which counts as the initial 3.
    assert baseline.values[101] == pytest.approx((2.01 + 3.0) / 2 - 2.01)
    assert baseline.values[105] == pytest.approx((2.05 + 3.0) / 2 - 2.05)  # diverged: 3 as well
    assert layernorm.values[102] == pytest.approx((2.12 + 2.32) / 2 - 2.12)
    assert baseline.paired is None
    assert layernorm.paired.pairs[0].delta == pytest.approx(0.1 - 0.495)
    (nothing, _) = sensitivities(study, tuned, started_at(1.0))
    assert math.isnan(nothing.values[101])
    # Of two keys it is over the rates with the other as chosen: here what it was without.
    grid = {RATE: [1e-3, 1e-2], DECAY: [0.0, 0.1]}
    two = small_study(**tables([], seeds=seeds, grid=grid))
    several = replace(
        tuned,
        candidates=({RATE: 1e-3, DECAY: 0.0}, {RATE: 1e-2, DECAY: 0.0}, {RATE: 1e-2, DECAY: 0.1}),
        points=points_of({arm: np.vstack([own, [2.9] * 5]) for arm, own in scores.items()}, seeds),
    )
    events = started_at(3.0)
    assert repr(sensitivities(two, several, events)) == repr([baseline, layernorm])
    # Where no two candidates share the other key, and where that changes the first loss, none.
    apart = replace(several, candidates=({RATE: 1e-3, DECAY: 0.2}, *several.candidates[1:]))
    assert sensitivities(two, apart, events) == []
    grid = {RATE: [1e-3, 1e-2], "model.init.std": [0.01, 0.02]}
    assert sensitivities(small_study(**tables([], seeds=seeds, grid=grid)), tuned, events) == []


def test_a_run_leaves_the_initial_losses(made):
    found = analyse(made).tuned
    # Fabricated curves begin at 3; every rate ends below.
    rates = (1e-4, 1e-3, 1e-2, 1e-1)
    final = [surface("baseline", rate, 101) for rate in rates]
    baseline = found.sensitivities[0]
    assert baseline.values[101] == pytest.approx(sum(final) / 4 - min(final))


def test_trials_that_were_left_out_are_no_equal_budget(whole):
    trial = next((whole / "tuning" / "trials").iterdir()) / "seed-101"
    (trial / "manifest.json").unlink()
    findings = verify(whole).findings
    assert any("compared" in finding for finding in findings)


def test_untuned_arms_are_not_as_registered(small_study, tmp_path):
    study = small_study(**tables([1e-3, 1e-2]))
    results = write_results(tmp_path / "r", study, lambda arm, seed: 2.0 + seed / 100)
    assert "registered" in analyse(results).unregistered
    assert analyse(results).tuned is None


def test_a_second_stage_has_the_arms_that_were_tuned(small_study, tmp_path):
    target = {"inference": {"target": "this item set"}}
    made = tuned_and_trained(small_study(**tables([1e-3, 1e-2]) | target), tmp_path / "r")
    study = extend(made.path, 2)
    assert study.stages == (5, 2)
    assert study.tuning == made.study.tuning is not None
    rates = {arm: study.setting(arm).training.optimizer.learning_rate for arm in ARMS}
    assert rates == {"baseline": 1e-3, "layernorm": 1e-2}
    for seed in study.seeds[5:]:
        folder = ResultsFolder(made.path)
        for arm in ARMS:
            # Records as those of the first stage, of another seed.
            there = shutil.copytree(folder.trial(arm, 1).path, folder.trial(arm, seed).path)
            about = json.loads((there / "trial.json").read_text())
            about |= {"seed": seed, "batch_digest": f"batches of {seed}"}
            (there / "trial.json").write_text(json.dumps(about))
            initial = (there / "initial.json").read_text()
            (there / "initial.json").write_text(initial.replace("of 1", f"of {seed}"))
            folder.trial(arm, seed).finish()
    analysis = analyse(load_results(made.path))
    assert analysis.tuned is not None and analysis.missing == ()


def test_looks_leave_tuning_trials_out(small_study, tmp_path):
    plan = {"seeds": {"looks": [5, 7]}}
    made = tuned_and_trained(small_study(**tables([1e-3, 1e-2]) | plan), tmp_path / "r")
    assert take_look(made.study, ResultsFolder(made.path), print)
    results = load_results(made.path)
    (look,) = results.looks
    assert look["seeds"] == 5
    analysis = analyse(results)
    assert analysis.unregistered == "" and analysis.tuned is not None
    contrast = analysis.contrast("layernorm", "validation_loss")
    assert not set(contrast.seeds) & {101, 102}
