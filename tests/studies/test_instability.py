"""The unstable settings follow from the pilot by its rule, and make a study that is sound."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from paribus.statistics import mcnemar
from paribus.study import load_study, parse_study

from .scripts import HOME, script, study_of

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
PILOT = load_study(study_of("embedding-norm-instability-pilot"))


def test_the_lowest_unstable_rate_of_each_combination_is_chosen() -> None:
    chosen = script("instability").chosen
    calm = dict.fromkeys(PILOT.arms, 0)
    assert chosen(PILOT, calm) == []
    assert chosen(PILOT, calm | {"rate-0-32": 1}) == []  # one seed of three is not enough
    unstable = {"rate-1": 3, "rate-0-32": 2, "rate-0-1": 1, "rate-1-warmup": 3}
    assert chosen(PILOT, calm | unstable) == ["rate-0-32", "rate-1-warmup"]
    everywhere = chosen(PILOT, dict.fromkeys(PILOT.arms, 3))
    assert everywhere == ["baseline", "rate-0-01-warmup", "rate-0-01-deep", "rate-0-01-deep-warmup"]


def test_the_study_is_the_pilot_s_settings_with_both_norms() -> None:
    arms = ["rate-0-32", "rate-1-warmup", "rate-0-1-deep"]
    text = script("instability").study_file(PILOT, arms)
    study = parse_study(tomllib.loads(text), folder=Path())
    assert len(study.arms) == 9 and len(study.contrasts) == 6
    assert not set(study.seeds) & set(PILOT.seeds) and len(study.seeds) >= 12
    baselines = [arm for arm in study.arms if study.reference(arm) is None]
    for arm, base in zip(arms, baselines, strict=True):
        assert study.setting(base) == PILOT.setting(arm)
    for arm, _ in study.contrasts:
        assert study.differences(arm).keys() == {"model.embedding.norm"}
    # What its comment says of the seeds, where all four combinations are unstable.
    assert 8 * mcnemar(9, 0) <= study.inference.alpha < 8 * mcnemar(8, 0)
