"""A tuned study whose error includes the choice, from records to the verdict."""

import math
from typing import Any

import numpy as np
import pytest

from paribus.analysis import analyse
from paribus.analysis.contrasts import with_lack_of_fit
from paribus.decision import decide
from paribus.errors import ParibusError
from paribus.results import load_results
from paribus.statistics import TunedArm, lack_of_fit, redrawn_error, vertex_error
from paribus.study import Study
from paribus.verification.verify import tuning_findings

from ..build import BEST, RATE, surface, tables, tuned_and_trained
from ..conftest import Maker, studies_in
from ..tools import codes

RATES = [1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2]
SEEDS = [101, 102, 103]


def loss(arm: str, rate: float, seed: int) -> float:
    """The surface, with noise of each run that is known."""
    return surface(arm, rate, seed) + 0.01 * math.sin(1000 * seed * math.log(rate))


def study_of(small_study: Maker, rates: list[float] = RATES, **inference: object) -> Study:
    about = tables(rates, seeds=SEEDS)
    return small_study(**about, **({"inference": inference} if inference else {}))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A tuned study as it is by default."""
    folder = tmp_path_factory.mktemp("tuned")
    return tuned_and_trained(study_of(studies_in(folder)), folder / "r", loss)


def test_arms_are_judged_at_the_vertex_with_its_error(made):
    analysis = analyse(made)
    fitted = []
    for arm in ("baseline", "layernorm"):
        scores = np.array([[loss(arm, rate, seed) for seed in SEEDS] for rate in RATES])
        w = min(max(int(scores.mean(1).argmin()), 1), len(RATES) - 2)
        x = np.log(RATES[w - 1 : w + 2])
        y = scores[w - 1 : w + 2]
        vertex = np.polyfit(x, y.mean(1), 2)
        value = float(analysis.study.tuning.chosen[arm][RATE])
        assert value == pytest.approx(math.exp(-vertex[1] / (2 * vertex[0])), rel=1e-3)
        assert abs(math.log10(value) - BEST[arm]) < 0.25
        fitted.append(TunedArm(x, y, y))
    (contrast,) = (c for c in analysis.contrasts if c.primary)
    assert analysis.contrast("layernorm") is contrast
    for arm, metric in (("layernrom", None), ("layernorm", "loss")):
        with pytest.raises(ParibusError):
            analysis.contrast(arm, metric)
    assert contrast.choice is not None and contrast.choice.how == "vertex"
    of_seeds, fit = vertex_error([[fitted[0]], [fitted[1]]], seed=0), lack_of_fit(fitted)
    assert fit > 0 and contrast.choice.lack_of_fit == pytest.approx(fit)
    assert contrast.choice.error == pytest.approx(math.hypot(of_seeds, fit))
    paired = contrast.by_run
    assert paired is not None
    error = paired.sd / math.sqrt(paired.n)
    assert paired.decided.basis.full_error == pytest.approx(
        math.hypot(error, contrast.choice.error)
    )
    assert "choice" not in codes(decide(analysis))
    assert list(tuning_findings(load_results(made.path))) == []


def test_the_interval_with_lack_of_fit_stands_beside_propagated(made, small_study, tmp_path):
    study = study_of(small_study, choice="propagated")
    analysis = analyse(tuned_and_trained(study, tmp_path / "r", loss))
    (contrast,) = (c for c in analysis.contrasts if c.primary)
    now = analyse(made)
    (included,) = (c for c in now.contrasts if c.primary)
    assert included.choice.lack_of_fit == pytest.approx(contrast.choice.lack_of_fit)
    assert included.choice.error == pytest.approx(
        math.hypot(contrast.choice.error, contrast.choice.lack_of_fit)
    )
    assert with_lack_of_fit(now) is now
    beside = with_lack_of_fit(analysis).contrast("layernorm").decided
    assert vars(beside.interval) == pytest.approx(vars(included.decided.interval))
    assert beside.p_value == pytest.approx(included.decided.p_value)


KIND, WARMUP = "training.schedule.kind", "training.schedule.warmup"


def over_three(arm: str, at: tuple[Any, Any, Any], seed: int) -> float:
    rate, warmup, kind = at
    return loss(arm, rate, seed) + 0.02 * math.cos(seed * (warmup + len(kind)))


def three_keys(setting: Any) -> tuple[float, int, str]:
    training = setting.training
    return training.optimizer.learning_rate, training.schedule.warmup, training.schedule.kind


def test_the_choice_among_combinations_is_redrawn(small_study, tmp_path):
    of, at = over_three, three_keys
    listed = [
        {RATE: rate, WARMUP: warmup, KIND: kind}
        for rate, warmup, kind in [
            (1e-3, 0, "constant"),
            (2e-3, 4, "cosine"),
            (5e-3, 1, "constant"),
            (1e-2, 0, "cosine"),
            (2e-2, 3, "constant"),
            (3e-2, 2, "cosine"),
        ]
    ]
    about = tables([], seeds=SEEDS, grid={}, combinations=listed)
    analysis = analyse(tuned_and_trained(small_study(**about), tmp_path / "r", of, at))
    tuning, (contrast,) = analysis.study.tuning, [c for c in analysis.contrasts if c.primary]
    tried = analysis.tuned.candidates
    assert list(tried) == tuning.candidates
    scores = {}
    for arm in ("layernorm", "baseline"):
        values = [[of(arm, (c[RATE], c[WARMUP], c[KIND]), s) for s in SEEDS] for c in tried]
        scores[arm] = np.array(values)
        # A listed combination is judged as it was tried, exactly.
        assert tuning.chosen[arm] == tried[int(scores[arm].mean(1).argmin())]
    error = redrawn_error([(one, one) for one in reversed(scores.values())], seed=0)
    assert contrast.choice is not None and contrast.choice.how == "redrawn"
    assert contrast.choice.included and contrast.choice.error == pytest.approx(error)
    assert "choice" in codes(decide(analysis))
    assert list(tuning_findings(load_results(tmp_path / "r"))) == []


def test_the_vertex_on_a_grid_of_several_keys(small_study, tmp_path):
    warmups = [0, 4]
    study = small_study(**tables([], seeds=SEEDS, grid={WARMUP: warmups, RATE: RATES}))
    kind = study.setting("baseline").training.schedule.kind
    analysis = analyse(tuned_and_trained(study, tmp_path / "r", over_three, three_keys))
    tuning, (contrast,) = analysis.study.tuning, [c for c in analysis.contrasts if c.primary]
    fitted = []
    for arm in ("baseline", "layernorm"):
        by_warmup = {
            warmup: np.array(
                [[over_three(arm, (rate, warmup, kind), s) for s in SEEDS] for rate in RATES]
            )
            for warmup in warmups
        }
        best = min(by_warmup, key=lambda key: by_warmup[key].mean(1).min())
        slices = []
        for warmup in [best, *(key for key in warmups if key != best)]:
            y = by_warmup[warmup]
            w = min(max(int(y.mean(1).argmin()), 1), len(RATES) - 2)
            slices.append(TunedArm(np.log(RATES[w - 1 : w + 2]).tolist(), *[y[w - 1 : w + 2]] * 2))
        fitted.append(slices)
        fit = np.polyfit(slices[0].x, np.mean(slices[0].chooses, 1), 2)
        assert tuning.chosen[arm][WARMUP] == best
        assert tuning.chosen[arm][RATE] == pytest.approx(math.exp(-fit[1] / (2 * fit[0])), rel=1e-3)
    assert contrast.choice is not None and contrast.choice.how == "vertex"
    error = math.hypot(vertex_error(fitted, seed=0), lack_of_fit([of[0] for of in fitted]))
    assert contrast.choice.error == pytest.approx(error)
