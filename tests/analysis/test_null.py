"""Error rates of the whole pipeline: on A/A studies, and by simulation of what it is made of."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from paribus.analysis import Contrast
from paribus.analysis.analyse import adjusted
from paribus.decision import calibrate, calibrate_tuned
from paribus.errors import ParibusError
from paribus.metric import Metric
from paribus.statistics import paired_contrast
from paribus.study import Study, null_study, tuned_null_studies

from ..build import tables, tuned_and_trained

SEEDS = [1, 2, 3, 4, 5]


def test_a_null_study_has_the_contrasts_of_the_study(small_study):
    study = small_study(seeds=SEEDS)
    nulls = null_study(study, 40)
    assert nulls.differences("again") == {"model.init.salt": (0, 1)}
    assert nulls.differences("again-2") == {"model.init.salt": (0, 2)}
    assert nulls.contrasts == [("again", "baseline"), ("again-2", "baseline")]
    assert len(nulls.seeds) == 200
    chained = {
        "baseline": {},
        "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
        "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}, "reference": "layernorm"},
    }
    nulls = null_study(small_study(arms=chained), 1)
    assert nulls.contrasts == [("again", "baseline"), ("again-2", "again")]
    with pytest.raises(ParibusError, match="replicates = 0"):
        null_study(study, 0)


ENDPOINTS = [
    {"metric": "validation_loss", "primary": True, "margin": 0.02},
    {"metric": "brier_score"},
]


def planted(
    nulls: Study, n_seeds: int, *, spread: float, effect: float = 1.0
) -> Callable[[str, int], float]:
    """Return losses of equal arms, but for an effect in the first seeds of the arm `again`."""
    rng = np.random.default_rng(0)
    noise = {trial: rng.normal(2.5, spread) for trial in nulls.trials}
    affected = {("again", seed) for seed in nulls.seeds[:n_seeds]}
    return lambda arm, seed: noise[arm, seed] + effect * ((arm, seed) in affected)


def test_the_whole_pipeline_is_counted(small_study, fabricate):
    nulls = null_study(small_study(seeds=SEEDS, endpoints=ENDPOINTS), 8)
    results = fabricate(nulls, planted(nulls, 3 * len(SEEDS), spread=0.02))
    found = calibrate(results, pairs=5, analyses=16)
    assert (found.replicates, found.analyses, found.contrasts) == (8, 16, 2)
    rates = {rate.name: rate for rate in found.rates}
    one = "one primary contrast significant, unadjusted"
    assert rates["coverage of one primary interval"].rate == pytest.approx(1 - rates[one].rate)
    assert all(rate.n == 8 for rate in found.rates)
    # As they were run, with no regrouping: the same counted by hand.
    alone = {rate.name: rate.rate for rate in calibrate(results, pairs=5, analyses=8).rates}
    p_values = np.array(found.p_values).reshape(8, 2)
    assert (p_values[:3, 0] <= 0.025).all()
    assert (p_values[3:] > 0.025).all()
    assert alone[one] == pytest.approx((p_values <= 0.05).mean())
    assert alone["any primary contrast significant (Holm)"] == 3 / 8
    assert alone["any verdict of an effect (quality or events)"] == 3 / 8


@pytest.mark.parametrize(
    "decision",
    [
        {"rule": "superiority"},
        {"rule": "equivalence"},
        {"rule": "non_inferiority", "benefit": "brier_score"},
    ],
    ids=lambda decision: decision["rule"],
)
def test_every_rule_is_counted(small_study, fabricate, decision):
    study = small_study(seeds=SEEDS, endpoints=ENDPOINTS, decision=decision)
    nulls = null_study(study, 3)
    assert nulls.decision == study.decision
    results = fabricate(nulls, planted(nulls, len(SEEDS), spread=0.001))
    found = calibrate(results, pairs=5, analyses=3)
    assert found.rule == decision["rule"]
    rates = {rate.name: rate.rate for rate in found.rates}
    assert rates["any verdict of an effect (quality or events)"] == 1 / 3


def test_an_incomplete_replicate_is_counted_out(small_study, fabricate):
    nulls = null_study(small_study(endpoints=ENDPOINTS), 3)
    results = fabricate(nulls, lambda arm, seed: 2.0 + seed / 7, skip=[("again", 4)])
    found = calibrate(results, pairs=2, analyses=2)
    assert (found.skipped, found.replicates) == (1, 2)
    assert len(found.p_values) == 2 * 2


def test_replicates_go_through_the_looks(small_study, fabricate):
    study = small_study(seeds={"looks": [5, 6], "futility": 0.0}, endpoints=ENDPOINTS)
    nulls = null_study(study, 3)
    assert nulls.plan is None and len(nulls.seeds) == 18
    results = fabricate(nulls, planted(nulls, 6, spread=0.05, effect=50.0))
    found = calibrate(results, pairs=6, analyses=3, plan=study.plan)
    rates = {rate.name: rate.rate for rate in found.rates}
    assert rates["any primary contrast significant (Holm)"] == 1 / 3
    assert found.looks == (5, 6)
    # Of three replicates of two contrasts, one contrast stops at five seeds.
    assert found.mean_seeds == pytest.approx((5 + 5 * 6) / 6)
    alone = calibrate(results, pairs=6, analyses=3)
    assert alone.looks == () and alone.mean_seeds == 6
    fixed, looked = (np.array(c.p_values) for c in (alone, found))
    assert (looked >= fixed).all() and (looked > fixed).any()  # the level is spent over two looks


LOSS = Metric("validation_loss", "validation loss", "nats/token", "lower", "evaluation")


def family_of(rng: np.random.Generator, arms: int, n: int) -> list[Contrast]:
    """Primary contrasts of `arms` arms against one baseline, with a true difference of 0."""
    baseline = rng.normal(2.5, 0.02, n)
    made = []
    for arm in range(arms):
        scores = rng.normal(2.5, 0.02, n)
        paired = paired_contrast(baseline, scores, seed=0, margin=0.03, family=arms)
        made.append(
            Contrast(f"arm-{arm}", "b", "validation_loss", True, (), paired, "", LOSS, margin=0.03)
        )
    return adjusted(made, 0.05)


@pytest.mark.slow
def test_the_family_of_a_study_is_held_at_its_level():
    """Three arms, five pairs: any false positive of the family in at most 5% of null studies."""
    rng, studies = np.random.default_rng(12), 4_000
    found = [any(c.significant(0.05) for c in family_of(rng, arms=3, n=5)) for _ in range(studies)]
    assert np.mean(found) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)
    # The contrasts share a baseline; Holm is then a little conservative, and no more than that.
    assert np.mean(found) >= 0.04 - 4 * math.sqrt(0.04 * 0.96 / studies)


@pytest.mark.parametrize("studies", [150, pytest.param(4_000, marks=pytest.mark.slow)])
def test_equivalence_is_held_over_the_family(studies):
    """Two arms whose true difference is the margin: claimed equal of any in at most 5%."""
    rng, claimed = np.random.default_rng(13), 0
    for _ in range(studies):
        arms = []
        for arm in range(2):
            baseline = rng.normal(2.5, 0.01, 5)
            scores = baseline + 0.03 + rng.normal(0, 0.01, 5)
            paired = paired_contrast(baseline, scores, seed=0, margin=0.03, family=2)
            arms.append(
                Contrast(f"{arm}", "b", "validation_loss", True, (), paired, "", LOSS, margin=0.03)
            )
        claimed += any(c.equivalent(0.05) for c in adjusted(arms, 0.05))
    assert claimed / studies <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)


def test_tuned_replicates_have_their_own_seeds(small_study, tmp_path):
    about = tables([1e-3, 1e-2, 1e-1], seeds=[101, 102, 103])
    study = small_study(**about, inference={"choice": "fixed"})
    nulls = tuned_null_studies(study, 4)
    seeds = [seed for one in nulls for seed in (*one.seeds, *one.tuning.seeds)]
    assert len(set(seeds)) == len(seeds) == 4 * (5 + 3)
    assert nulls[:2] == tuned_null_studies(study, 2)  # more replicates leave the first as they are
    assert all(one.differences("again") == {"model.init.salt": (0, 1)} for one in nulls)
    assert [one.name for one in nulls] == [f"{study.name}-null-{n}" for n in (1, 2, 3, 4)]

    def loss(arm: str, rate: float, seed: int) -> float:
        astray = arm == "again" and seed in nulls[0].tuning.seeds
        best = 1e-1 if astray else 1e-3
        return 2.0 + 0.1 * abs(math.log10(rate / best)) + 0.001 * math.sin(seed * (1 + len(arm)))

    replicates = [
        tuned_and_trained(one, tmp_path / str(n), loss) for n, one in enumerate(nulls, start=1)
    ]
    found = calibrate_tuned(replicates)
    assert found.tuned and (found.replicates, found.analyses, found.pairs) == (4, 4, 5)
    rates = {rate.name: rate for rate in found.rates}
    p_values = np.array(found.p_values)
    assert p_values[0] < 1e-4  # at 1e-1 it is worse by 0.2 on the seeds of the verdict
    one = rates["one primary contrast significant, unadjusted"]
    assert one.rate == (p_values <= 0.05).mean() >= 1 / 4
    assert (one.interval.low, one.interval.high) == pytest.approx(
        stats.binomtest(int(4 * one.rate), 4).proportion_ci(method="exact")
    )
    with pytest.raises(ParibusError, match="tunes nothing"):
        tuned_null_studies(small_study(), 2)
