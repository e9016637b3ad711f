"""What an output matrix of its own changes: the script on two kept studies, and numpy beside it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from paribus.results import readable

from . import headline
from .scripts import HOME, script

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
SHARED, OWN = HOME / "embedding-norm-mechanism-fixed-rate", HOME / "embedding-norm-untied"


@pytest.mark.slow
def test_the_difference_of_effects_is_numpy_s(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["sharing.py", str(SHARED), str(OWN)])
    assert script("sharing").main() == 0
    told = " ".join(capsys.readouterr().out.split())
    effects = {}
    for study in (SHARED, OWN):
        with readable(study) as folder:
            records = headline.Records(folder)
            losses = {
                arm: records.losses(arm) for arm in ("baseline", "fixed-scale", "unit-variance")
            }
        seeds = sorted(losses["baseline"])
        for arm, of in losses.items():
            effects[study, arm] = np.array([of[s] - losses["baseline"][s] for s in seeds])
    for arm in ("fixed-scale", "unit-variance"):
        delta = effects[OWN, arm] - effects[SHARED, arm]
        ends = stats.ttest_1samp(delta, 0).confidence_interval(0.95)
        mean, low, high = (f"{x:+.4f}" for x in (delta.mean(), ends.low, ends.high))
        assert f"{arm} {mean} [{low}, {high}], {len(delta)} seeds" in told
