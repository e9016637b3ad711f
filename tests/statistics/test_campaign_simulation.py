"""The simulation of campaigns, small: what it says of errors and of what is found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ..repository import module_at

FILE = Path(__file__).parents[2] / "benchmarks" / "campaign.py"
NIGHTS = 1000


@pytest.fixture(scope="module")
def simulated():
    return module_at(FILE)


def rng():
    return np.random.default_rng(11)


def test_contrasts_share_their_baseline(simulated):
    found = simulated.contrasts(rng(), np.zeros((20_000, 2)), 1)[..., 0]
    assert np.corrcoef(found.T)[0, 1] == pytest.approx(0.5, abs=0.03)
    assert found.mean() == pytest.approx(0, abs=0.03)


def test_a_night_of_nothing(simulated):
    effects = simulated.night(rng(), NIGHTS, 0.0, 0)
    assert not effects.any()
    told = simulated.campaign(rng(), effects, 5)
    assert told.any_false.mean() < simulated.ALPHA
    assert simulated.one_seed(rng(), effects).any_false.mean() > 0.9
    assert simulated.two_sigma(rng(), effects).any_false.mean() > 0.3


def test_a_night_with_five_real_ideas(simulated):
    effects = simulated.night(rng(), NIGHTS, 4.0)
    assert ((effects > 0).sum(1) == simulated.REAL).all()
    told = simulated.campaign(rng(), effects, 10)
    found = (told.kept & told.real).sum(1).mean()
    assert told.false_share.mean() < simulated.ALPHA
    assert found > 4.5
    # To let the dropped ones spend the level finds less, and the slow sequence too.
    for options in ({"every": True}, {"sequence": "slow"}):
        other = simulated.campaign(rng(), effects, 10, **options)
        assert (other.kept & other.real).sum(1).mean() < found
