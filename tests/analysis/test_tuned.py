"""Selection on loss surfaces whose best is known, through records and the real code."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest

from paribus.analysis import analyse
from paribus.analysis.tuning import lower_is_better
from paribus.metric import Metric
from paribus.results import ResultsFolder, load_results
from paribus.runs.advance import take_look
from paribus.statistics import best_of
from paribus.verification import verify

from ..build import ARMS, RATE, tables, tuned_and_trained, write_results
from ..conftest import studies_in


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
    record = ResultsFolder(made.path).read_sealed("tuning.json")
    chosen = {arm: one["values"][RATE] for arm, one in record["chosen"].items()}
    assert chosen == {"baseline": 1e-3, "layernorm": 1e-2}
    assert len(record["trials"]) == 2 * 4 * 2
    assert {sum(t["arm"] == arm for t in record["trials"]) for arm in ARMS} == {8}


NAN = math.nan
LOSS = Metric("validation_loss", "validation loss", "nats/token", "lower", "evaluation")


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
    metric = replace(LOSS, better=better)
    assert best_of(lower_is_better(metric, np.array(scores))) == best


def test_the_contrast_stands_at_each_best_and_at_every_shared_value(made):
    analysis = analyse(made)
    # At each arm's best they are equal; at a shared rate the parabolas differ by what they do.
    found = analysis.contrast("layernorm", "validation_loss").decided
    assert found.mean == pytest.approx(0, abs=1e-12)
    expected = [0.1 * ((x + 2) ** 2 - (x + 3) ** 2) for x in (-4, -1)]
    extremes = analysis.tuned.extremes("layernorm", "baseline")
    assert [change for _, change in extremes] == pytest.approx(expected[::-1])
    assert [candidate[RATE] for candidate, _ in extremes] == [1e-1, 1e-4]
    curve = analysis.tuned.points_of("baseline")
    assert [point.chosen for point in curve] == [False, True, False, False]
    json.dumps(analysis.to_dict(), allow_nan=False)


def test_two_tuning_seeds_have_the_spread_of_the_verdict_s_runs(made):
    analysis = analyse(made)
    choice = analysis.contrast("layernorm", "validation_loss").choice
    assert (choice.how, choice.included, choice.why_not) == ("vertex", True, "")
    assert choice.error > choice.lack_of_fit == pytest.approx(0, abs=1e-12)


def test_trials_that_were_left_out_are_no_equal_budget(whole):
    trial = next((whole / "tuning" / "trials").iterdir()) / "seed-101"
    (trial / "manifest.json").unlink()
    findings = verify(whole).findings
    assert any("tuning" in finding for finding in findings)


def test_untuned_arms_are_not_as_registered(small_study, tmp_path):
    study = small_study(**tables([1e-3, 1e-2]))
    results = write_results(tmp_path / "r", study, lambda arm, seed: 2.0 + seed / 100)
    assert "registered" in analyse(results).unregistered
    assert analyse(results).tuned is None


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
