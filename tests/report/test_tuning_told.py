"""Tuning on the page and in the paper: every trial is drawn, and the caveats are in the verdict."""

import json
import math
from typing import Any

import pytest

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report.figures import Figure
from paribus.report.figures.tuning import tuning_curves
from paribus.report.tables import tuning_table

from ..build import RATE, surface, tables, tuned_and_trained
from ..conftest import studies_in
from ..tools import texts

RATES = [1e-5, 1e-4, 1e-3, 1e-2]  # the best of layernorm is at the edge
WARMUP = "training.schedule.warmup"


def loss(arm: str, rate: float, seed: int) -> float:
    """The surface; the baseline diverges at the largest rate with one seed."""
    return math.nan if (arm, rate, seed) == ("baseline", 1e-2, 102) else surface(arm, rate, seed)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    return analyse(tuned_and_trained(studies_in(folder)(**tables(RATES)), folder / "r", loss))


def of(figure: Figure, kind: str, arm: str) -> list[dict[str, Any]]:
    return [row for row in figure.rows if row["kind"].startswith(kind) and row["arm"] == arm]


def test_a_curve_has_every_seed_its_means_and_the_choice(analysis):
    curve = tuning_curves(analysis)
    assert curve is not None and curve.name == "tuning-learning_rate"
    seeds = of(curve, "seed", "layernorm")
    expected = {(rate, s): surface("layernorm", rate, s) for rate in RATES for s in (101, 102)}
    found = {(row["at"], row["seed"]): row["value"] for row in seeds}
    assert found == pytest.approx(expected, rel=1e-4)
    means = {row["at"]: row["value"] for row in of(curve, "mean", "layernorm")}
    each = {r: sum(expected[r, s] for s in (101, 102)) / 2 for r in RATES}
    assert means == pytest.approx(each, rel=1e-4)
    best = [of(curve, "chosen", arm)[0]["at"] for arm in ("baseline", "layernorm")]
    assert best == [1e-3, 1e-2]
    assert '"type": "log"' in json.dumps(curve.definition)


def over_two_keys(arm: str, at: tuple[float, int], seed: int) -> float:
    """A surface whose best rate moves with warmup; without any, the largest rate diverges."""
    rate, warmup = at
    if (rate, warmup) == (1e-1, 0):
        return math.nan
    return surface(arm, rate / (1 + warmup), seed) + 0.001 * warmup


def two_keys(setting: Any) -> tuple[float, int]:
    training = setting.training
    return training.optimizer.learning_rate, training.schedule.warmup


def test_other_keys_have_a_panel_for_each_combination(small_study, tmp_path):
    rates, warmups = [1e-3, 1e-2, 1e-1], [4, 0, 2]
    grid = {RATE: rates, WARMUP: warmups}
    made = tuned_and_trained(
        small_study(**tables([], grid=grid)), tmp_path / "r", over_two_keys, two_keys
    )
    figure = tuning_curves(analyse(made))
    assert figure is not None
    assert len({row["part"] for row in figure.rows}) == 3 and figure.panel
    for arm in ("baseline", "layernorm"):
        means = {(row["at"], row["part"]): row["value"] for row in of(figure, "mean", arm)}
        assert len(means) == len(rates) * len(warmups) - 1
        (best,) = of(figure, "chosen", arm)
        assert best["value"] == min(means.values()) == means[best["at"], best["part"]]


def test_what_the_tuning_leaves_open_is_a_caution(analysis):
    cautions = texts(decide(analysis), "tuning")
    assert any("0.01" in text and "layernorm" in text for text in cautions)  # an open edge
    assert any("+0.5000" in text for text in cautions)  # the change at equal rates
    table = tuning_table(analysis)
    assert [row[:2] for row in table.rows] == [
        ("baseline", "learning_rate 0.001"),
        ("layernorm", "learning_rate 0.01"),
    ]
