"""What a plan says before any run: by the kept studies, and by a pilot that was tuned."""

from __future__ import annotations

import json
import math

import pytest
from scipy import stats
from tests.studies.scripts import script

from paribus.analysis import foreseen
from paribus.analysis.detectable import SPREADS
from paribus.errors import ParibusError
from paribus.study import load_study


def test_the_spreads_that_ship_are_those_of_the_kept_studies(
    tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = script("spreads")
    monkeypatch.setattr(made, "TARGET", tmp_path / "spreads.json")
    made.main()
    ours, theirs = (json.loads(p.read_text()) for p in (SPREADS, tmp_path / "spreads.json"))
    assert ours == theirs


def test_a_change_that_is_seen_is_so_many_standard_deviations() -> None:
    """Of the noncentral t: power 80% at the level of Holm's first step."""
    study = load_study("quickstart")
    (found,) = foreseen(study)
    sd = json.loads(SPREADS.read_text())["validation_loss"]["median"]
    n, alpha = len(study.seeds), study.inference.alpha / study.family
    ncp, critical = found.effect / sd * math.sqrt(n), stats.t.isf(alpha / 2, n - 1)
    power = stats.nct.sf(critical, n - 1, ncp) + stats.nct.cdf(-critical, n - 1, ncp)
    assert power == pytest.approx(0.8, abs=1e-6)
    assert found.low < found.effect < found.high


def test_four_seeds_foresee_nothing() -> None:
    assert foreseen(load_study("quickstart", {"seeds": [1, 2, 3, 4]})) == []


def test_a_study_is_read_of_a_dict_that_stays_as_it_is() -> None:
    table = {
        "name": "x",
        "seeds": [1, 2, 3, 4, 5],
        "data": {"corpus": "pydoc"},
        "training": {"iterations": 30},
        "arms": {"baseline": {}, "deep": {"set": {"model.n_layer": 2}}},
    }
    before = json.dumps(table)
    study = load_study(table, {"training.iterations": 40})
    assert study.training.iterations == 40 and json.dumps(table) == before
    assert study.differences("deep")["model.n_layer"][1] == 2
    with pytest.raises(ParibusError, match="unknown key 'arm'"):
        load_study({**table, "arm": {}})
