"""Error rates of the whole pipeline: on A/A studies, and by simulation of what it is made of."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from paribus.analysis import Contrast
from paribus.analysis.analyse import adjusted
from paribus.decision import calibrate
from paribus.errors import ParibusError
from paribus.metric import Metric
from paribus.results import Results
from paribus.statistics import paired_contrast
from paribus.study import Study, null_studies

from ..build import tables, tuned_and_trained

SEEDS = [1, 2, 3, 4, 5]
ENDPOINTS = [
    {"metric": "validation_loss", "primary": True, "margin": 0.02},
    {"metric": "brier_score"},
]
ANY, VERDICT, SINGLE, COVERAGE = (
    "any primary contrast significant (Holm)",
    "any verdict of an effect (quality or events)",
    "one primary contrast significant, unadjusted",
    "coverage of one primary interval",
)


def test_a_null_study_has_the_contrasts_of_the_study(small_study):
    study = small_study(seeds=SEEDS)
    nulls = null_studies(study, 40)
    assert nulls[0].differences("again") == {"model.init.salt": (0, 1)}
    assert nulls[0].differences("again-2") == {"model.init.salt": (0, 2)}
    assert nulls[0].contrasts == [("again", "baseline"), ("again-2", "baseline")]
    assert len({seed for null in nulls for seed in null.seeds}) == 200
    assert nulls[:2] == null_studies(study, 2)  # more replicates leave the first as they are
    chained = {
        "baseline": {},
        "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
        "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}, "reference": "layernorm"},
    }
    (null,) = null_studies(small_study(arms=chained), 1)
    assert null.contrasts == [("again", "baseline"), ("again-2", "again")]
    with pytest.raises(ParibusError, match="replicates = 0"):
        null_studies(study, 0)


@pytest.fixture
def replicates(small_study, fabricate):
    """Results of equal arms, but for an effect on the arm `again` of the first replicates."""

    def make(
        n: int, affected: int, *, spread: float, effect: float = 1.0, skip: int = 0, **more: object
    ) -> list[Results]:
        study = small_study(**({"seeds": SEEDS, "endpoints": ENDPOINTS} | more))
        nulls, rng = null_studies(study, n), np.random.default_rng(0)
        assert nulls[0].decision == study.decision

        def train(number: int, null: Study) -> Results:
            noise = {trial: rng.normal(2.5, spread) for trial in null.trials}
            added = effect if number < affected else 0.0
            lost = [("again", null.seeds[0])] if number >= n - skip else []
            return fabricate(
                null,
                lambda arm, seed: noise[arm, seed] + added * (arm == "again"),
                folder=f"replicate-{number}",
                skip=lost,
            )

        return [train(number, null) for number, null in enumerate(nulls)]

    return make


def test_the_whole_pipeline_is_counted(replicates):
    rates = calibrate(replicates(8, 3, spread=0.02))
    assert (rates.replicates, rates.skipped, rates.contrasts, rates.pairs) == (8, 0, 2, 5)
    by_name = {rate.name: rate.rate for rate in rates.rates}
    p_values = np.array(rates.p_values).reshape(8, 2)
    assert (p_values[:3, 0] <= 0.025).all()
    assert (p_values[3:] > 0.025).all()
    assert by_name[SINGLE] == pytest.approx((p_values <= 0.05).mean())
    assert by_name[COVERAGE] == pytest.approx(1 - by_name[SINGLE])
    assert by_name[ANY] == by_name[VERDICT] == 3 / 8


@pytest.mark.parametrize("rule", ["equivalence", "non_inferiority"])
def test_every_rule_is_counted(replicates, rule):
    decision = {"rule": rule} | ({"benefit": "brier_score"} if rule == "non_inferiority" else {})
    rates = calibrate(replicates(3, 1, spread=0.001, decision=decision))
    assert rates.rule == rule
    assert {rate.name: rate.rate for rate in rates.rates}[VERDICT] == 1 / 3


def test_an_incomplete_replicate_is_counted_out(replicates):
    every = replicates(3, 0, spread=0.1, skip=1, seeds=[1, 2])
    rates = calibrate(every)
    assert (rates.skipped, rates.replicates, len(rates.p_values)) == (1, 2, 2 * 2)
    with pytest.raises(ParibusError) as error:
        calibrate(every[2:])
    assert error.value.code == "unfinished"


LOSS = Metric("validation_loss", "validation loss", "nats/token", "lower", "evaluation")


def family_of(rng: np.random.Generator, arms: int, n: int) -> list[Contrast]:
    """Primary contrasts of `arms` arms against one baseline, with a true difference of 0."""
    baseline = rng.normal(2.5, 0.02, n)
    made = []
    for arm in range(arms):
        scores = rng.normal(2.5, 0.02, n)
        paired = paired_contrast(baseline, scores, seed=0, margin=0.03, family=arms)
        made.append(primary_contrast(f"arm-{arm}", paired))
    return adjusted(made, 0.05)


def primary_contrast(arm, paired):
    """Return the contrast of an arm on the loss, not adjusted yet."""
    about = {"metric": "validation_loss", "primary": True, "declared": LOSS, "margin": 0.03}
    return Contrast(arm=arm, reference="b", seeds=(), by_run=paired, **about)


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
            arms.append(primary_contrast(f"{arm}", paired))
        claimed += any(c.equivalent(0.05) for c in adjusted(arms, 0.05))
    assert claimed / studies <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / studies)


def test_tuned_replicates_have_their_own_seeds(small_study, tmp_path):
    plan = tables([1e-3, 1e-2, 1e-1], seeds=[101, 102, 103])
    study = small_study(**plan, inference={"choice": "fixed"})
    nulls = null_studies(study, 4)
    seeds = [seed for null in nulls for seed in (*null.seeds, *null.tuning.seeds)]
    assert len(set(seeds)) == len(seeds) == 4 * (5 + 3)
    assert all(null.differences("again") == {"model.init.salt": (0, 1)} for null in nulls)
    assert [null.name for null in nulls] == [f"{study.name}-null-{n}" for n in (1, 2, 3, 4)]

    def loss(arm: str, rate: float, seed: int) -> float:
        astray = arm == "again" and seed in nulls[0].tuning.seeds
        best = 1e-1 if astray else 1e-3
        return 2.0 + 0.1 * abs(math.log10(rate / best)) + 0.001 * math.sin(seed * (1 + len(arm)))

    replicates = [
        tuned_and_trained(null, tmp_path / str(n), loss) for n, null in enumerate(nulls, start=1)
    ]
    measured = calibrate(replicates)
    assert measured.tuned and (measured.replicates, measured.pairs) == (4, 5)
    rates = {rate.name: rate for rate in measured.rates}
    p_values = np.array(measured.p_values)
    assert p_values[0] < 1e-4  # at 1e-1 it is worse by 0.2 on the seeds of the verdict
    single = rates[SINGLE]
    assert single.rate == (p_values <= 0.05).mean() >= 1 / 4
    assert (single.interval.low, single.interval.high) == pytest.approx(
        stats.binomtest(int(4 * single.rate), 4).proportion_ci(method="exact")
    )
    assert null_studies(study, 1, tuned=False)[0].tuning is None
