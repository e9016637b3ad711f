"""The second computation against known answers, and against the first on records of both."""

import json
import math
import shutil

import numpy as np
import pytest

from paribus.analysis import analyse

from ..build import surface, tables, tuned_and_trained
from . import headline
from .agreeing import disagreements

SLEEP = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
SLEEP_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def test_student_s_sleep_is_what_r_says():
    drugs = (dict(enumerate(SLEEP_2)), dict(enumerate(SLEEP)))
    found = headline.contrast(*drugs)
    assert found["t"] == pytest.approx(-4.062128, abs=1e-6)
    assert found["p"] == pytest.approx(0.00283289, abs=1e-8)
    assert (found["low"], found["high"]) == pytest.approx((-2.459886, -0.700114), abs=1e-6)


def test_mcnemar_is_the_table():
    assert headline.mcnemar(6, 0) == 0.03125 and headline.mcnemar(1, 9) == 0.021484375
    assert headline.mcnemar(0, 0) == 1.0


def test_both_computations_agree(small_study, fabricate):
    study = small_study(seeds=[1, 2, 3, 4, 5])
    rng = np.random.default_rng(0)
    drawn = {trial: 2 + rng.normal() / 50 for trial in study.trials}
    results = fabricate(study, lambda arm, seed: drawn[arm, seed])
    told = json.loads(json.dumps(analyse(results).to_dict(), default=float))
    assert list(disagreements(results.path, told)) == []
    (loss, *_) = (one for one in told["contrasts"] if one["metric"] == "validation_loss")
    loss["by_run"]["decided"]["interval"]["low"] += 1e-5
    assert any("low is" in line for line in disagreements(results.path, told))
    told["stabilities"][0]["any_event"]["both"] -= 1
    assert any("events of" in line for line in disagreements(results.path, told))


def test_both_choose_the_same_rate(small_study, tmp_path):
    study = small_study(**tables([1e-4, 1e-3, 1e-2]))
    results = tuned_and_trained(study, tmp_path / "r", surface)
    assert headline.best_values(results.path) == results.study.tuning.chosen
    shutil.rmtree(results.path / "tuning/trials/baseline-2")
    assert headline.best_values(results.path) != results.study.tuning.chosen


def test_events_are_seen_as_the_study_says(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rule = {"smoothing_steps": 2, "median_steps": 4, "mad_multiplier": 3.0, "spike_steps": 2}

    def of(*loss: float) -> tuple[bool, bool]:
        pq.write_table(pa.table({"train_loss": list(loss)}), tmp_path / "steps.parquet")
        return headline.events(tmp_path, rule)

    calm = (4.0, 3.9, 3.8, 3.7, 3.6, 3.5)
    assert of(*calm) == (False, False)
    assert of(*calm, 9, 3.4, 3.3) == (False, False)  # one step is not a spike
    assert of(*calm, 9, 9, 3.4, 3.3) == (False, True)
    assert of(*calm, 9, 9) == (True, True)
    assert of(*calm, math.nan, 3.3) == (True, False)
