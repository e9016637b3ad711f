"""Tuning on the page and in the paper: every trial is drawn, and the caveats are in the verdict."""

import json
import math
from typing import Any

import pytest

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report.figures import Figure
from paribus.report.figures.tuning import tuning_figures
from paribus.report.page import render
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
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuned")
    return tuned_and_trained(studies_in(folder)(**tables(RATES)), folder / "r", loss)


@pytest.fixture(scope="module")
def analysis(made):
    return analyse(made)


@pytest.fixture(scope="module")
def drawn(analysis):
    return {figure.name: figure for figure in tuning_figures(analysis)}


def of(figure: Figure, kind: str, arm: str) -> list[dict[str, Any]]:
    return [row for row in figure.rows if row["kind"].startswith(kind) and row["arm"] == arm]


def test_a_curve_has_every_seed_its_means_and_the_choice(drawn):
    curve = drawn["tuning-learning_rate"]
    seeds = of(curve, "seed", "layernorm")
    expected = {(rate, s): surface("layernorm", rate, s) for rate in RATES for s in (101, 102)}
    found = {(row["at"], row["seed"]): row["value"] for row in seeds}
    assert found == pytest.approx(expected, rel=1e-4)
    means = {row["at"]: row["value"] for row in of(curve, "mean", "layernorm")}
    each = {r: sum(expected[r, s] for s in (101, 102)) / 2 for r in RATES}
    assert means == pytest.approx(each, rel=1e-4)
    best = [(row["at"], row["state"]) for arm in ("baseline", "layernorm")
            for row in of(curve, "chosen", arm)]  # fmt: skip
    assert best == [(1e-3, "chosen"), (1e-2, "chosen: upper edge")]
    lost = [(row["at"], row["lost"]) for row in of(curve, "diverged", "baseline")]
    assert lost == [(1e-2, "1 of 2 diverged")]
    assert '"type": "log"' in json.dumps(curve.definition)


def test_the_contrast_stands_at_shared_values(analysis, drawn):
    figure = drawn["tuning-contrast"]
    means = {row["at"]: row["value"] for row in of(figure, "mean", "layernorm")}
    log = {rate: math.log10(rate) for rate in RATES}
    apart = {rate: 0.1 * ((x + 2) ** 2 - (x + 3) ** 2) for rate, x in log.items()}
    assert means == pytest.approx(apart, abs=1e-4)
    (band,) = of(figure, "verdict", "layernorm")
    says = analysis.contrast("layernorm", "validation_loss").decided
    ends = (says.mean, says.interval.low, says.interval.high)
    assert (band["value"], band["low"], band["high"]) == pytest.approx(ends, rel=1e-4)


def test_the_page_shows_tuning(made, analysis, drawn):
    page = render(made, analysis, decide(analysis), list(drawn.values()))
    places = [page.index(f'id="{name}"') for name in ("verdict", "tuning", "controls")]
    assert places == sorted(places)
    figures = [page.index(f'id="figure-tuning-{name}"') for name in ("learning_rate", "contrast")]
    assert places[1] < figures[0] < figures[1] < page.index("judged at")


def over_two_keys(arm: str, at: tuple[float, int], seed: int) -> float:
    """A surface whose best rate moves with warmup; without any, the largest rate diverges."""
    rate, warmup = at
    if (rate, warmup) == (1e-1, 0):
        return math.nan
    return surface(arm, rate / (1 + warmup), seed) + 0.001 * warmup


def two_keys(setting: Any) -> tuple[float, int]:
    training = setting.training
    return training.optimizer.learning_rate, training.schedule.warmup


def test_a_surface_has_a_line_for_each_other_value(small_study, tmp_path):
    rates, warmups = [1e-3, 1e-2, 1e-1], [4, 0, 2]
    grid = {RATE: rates, WARMUP: warmups, "training.schedule.kind": ["cosine", "constant"]}
    made = tuned_and_trained(
        small_study(**tables([], grid=grid)), tmp_path / "r", over_two_keys, two_keys
    )
    drawn = {one.name: one for one in tuning_figures(analyse(made))}
    figure = drawn["tuning-surface-warmup"]
    for arm in ("baseline", "layernorm"):
        means = {(row["at"], row["by"]): row["value"] for row in of(figure, "mean", arm)}
        expected = {
            (rate, n): sum(over_two_keys(arm, (rate, n), seed) for seed in (101, 102)) / 2
            for rate in rates
            for n in warmups
            if (rate, n) != (1e-1, 0)
        }
        assert means == pytest.approx(expected, rel=1e-4)
        ((at, by, best),) = [(r["at"], r["by"], r["value"]) for r in of(figure, "chosen", arm)]
        assert best == min(means.values()) == means[at, by]
        assert [(r["at"], r["by"]) for r in of(figure, "diverged", arm)] == [(1e-1, 0)]
    # Of colours in their order; a line where every value is listed.
    definition = json.dumps(figure.definition)
    assert '"domain": [0, 2, 4]' in definition and '"line"' in definition
    # The best has no warmup or any rate but the outermost: nothing lies below 0.
    chosen = of(drawn["tuning-warmup"], "chosen", "baseline")
    assert [(row["at"], row["state"]) for row in chosen] == [(0, "chosen")]
    assert {row["by"] for row in drawn["tuning-surface-kind"].rows} == {"cosine", "constant"}


def test_what_the_tuning_leaves_open_is_a_caution(analysis):
    cautions = texts(decide(analysis), "tuning")
    assert any("0.01" in text and "layernorm" in text for text in cautions)  # an open edge
    assert any("+0.5000" in text for text in cautions)  # the change at equal rates
    table = tuning_table(analysis)
    assert [row[:2] for row in table.rows] == [
        ("baseline", "learning_rate 0.001"),
        ("layernorm", "learning_rate 0.01"),
    ]
