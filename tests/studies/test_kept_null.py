"""The measured false positives: counted a second time from the scores of every trial."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from paribus.engine.format import PRECISION
from paribus.results import ResultsFolder
from paribus.study import load_study
from paribus.study.null_study import null_study
from paribus.study.study import substance

from .scripts import HOME, study_of

NULL = HOME / "embedding-norm-null"

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")


def losses(folder: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {}
    with (folder / "tables" / "scores.csv").open() as rows:
        for row in csv.DictReader(rows):
            found.setdefault(row["arm"], {})[int(row["seed"])] = float(row["validation_loss"])
    return found


def test_the_p_values_of_the_loss_are_those_of_the_scores() -> None:
    told = json.loads((NULL / "null.json").read_text())
    baseline, *arms = losses(NULL).values()
    seeds, pairs = sorted(baseline), told["pairs"]
    assert len(seeds) == pairs * told["replicates"] and len(arms) == told["contrasts"]
    ours = [
        stats.ttest_rel([arm[s] for s in some], [baseline[s] for s in some]).pvalue
        for some in np.reshape(seeds, (-1, pairs))
        for arm in arms
    ]
    theirs = np.array(told["p_values"])
    assert max(np.abs(theirs - p).min() for p in ours) < 1e-9


def test_the_intervals_of_the_rates_are_exact() -> None:
    told = json.loads((NULL / "null.json").read_text())
    assert len(told["p_values"]) == told["replicates"] * told["contrasts"] * len(told["metrics"])
    for one in told["rates"]:
        n, hits = one["n"], one["rate"] * one["n"]  # a mean over groupings: bounds of both sides
        for side, k in (("low", math.floor(hits + 1e-9)), ("high", math.ceil(hits - 1e-9))):
            exact = getattr(stats.binomtest(k, n).proportion_ci(method="exact"), side)
            assert math.isclose(one["interval"][side], exact, rel_tol=1e-6, abs_tol=1e-12)


def test_it_is_the_study_in_its_file() -> None:
    ran = ResultsFolder(NULL).read_study()
    asks = load_study(study_of(NULL.name), {PRECISION: ran.training.precision})
    told = json.loads((NULL / "null.json").read_text())
    asked = null_study(asks, told["replicates"])
    assert substance(ran.model_dump(mode="json")) == substance(asked.model_dump(mode="json"))
