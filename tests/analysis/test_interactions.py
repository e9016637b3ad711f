"""Interactions: a difference between effects, seed by seed, with what a contrast has besides."""

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from paribus.analysis import Analysis, analyse
from paribus.analysis.items import block_scores
from paribus.analysis.table import Table
from paribus.decision import decide
from paribus.digests import canonical_json
from paribus.report.model import build_report
from paribus.report.record import verdict_record
from paribus.results import Results, load_results
from paribus.rng import stream
from paribus.statistics import TunedArm, crossed_components, lack_of_fit, vertex_error

from ..build import tables, tuned_and_trained, write_blocks
from ..conftest import Fabricate, Maker

NORM = {"model.embedding.norm": "layernorm"}
UNTIED = {"model.head.tied": False}
ARMS: dict[str, Any] = {
    "baseline": {},
    "norm": {"set": NORM},
    "untied": {"set": UNTIED, "reference": "untied"},
    "untied-norm": {"set": NORM | UNTIED, "reference": "untied"},
}
SEEDS = [1, 2, 3, 4, 5, 6]
DEPENDS = {"by-output": {"of": ["untied-norm"], "than": ["norm"]}}
# Of each arm, a mean and a spread over seeds that is its own.
MEANS = {"baseline": 2.0, "norm": 2.1, "untied": 1.9, "untied-norm": 1.85}


def loss(arm: str, seed: int) -> float:
    return MEANS[arm] + 0.01 * math.sin(17 * seed * len(arm))


def effect(arm: str) -> np.ndarray:
    reference = str(ARMS[arm].get("reference", "baseline"))
    return np.array([loss(arm, s) - loss(reference, s) for s in SEEDS])


def made(
    small_study: Maker, fabricate: Fabricate, of: Any = loss, *, folder: str = "made", **more: Any
) -> Results:
    about = {"arms": ARMS, "seeds": SEEDS, "tasks": {"names": []}, "interactions": DEPENDS} | more
    return fabricate(small_study(**about), of, folder=folder)


def analysed(*about: Any, **more: Any) -> Analysis:
    return analyse(made(*about, **more))


def test_interactions_are_the_paired_t_of_effects(small_study, fabricate):
    both = {"again": {"of": ["norm"], "than": ["untied-norm"]}, **DEPENDS}
    analysis = analysed(small_study, fabricate, interactions=both)
    oracle = stats.ttest_1samp(effect("untied-norm") - effect("norm"), 0.0)
    low, high = oracle.confidence_interval(0.95)
    again, found = analysis.interactions
    assert found.decided is not None and again.decided is not None and found.seeds == tuple(SEEDS)
    assert found.decided.p_value == pytest.approx(oracle.pvalue)
    assert (found.decided.interval.low, found.decided.interval.high) == pytest.approx((low, high))
    assert again.decided.mean == pytest.approx(-found.decided.mean)
    assert found.holm_p == pytest.approx(min(1.0, 2 * oracle.pvalue))
    # Verdicts on arms are in a family of their own, and are what they were.
    alone = analysed(small_study, fabricate, folder="alone", interactions={})
    assert [c.holm_p for c in analysis.contrasts] == [c.holm_p for c in alone.contrasts]
    assert alone.to_dict()["interactions"] == []


def test_means_over_effects_weigh_them_alike(small_study, fabricate):
    arms = ARMS | {"rms": {"set": {"model.embedding.norm": "rmsnorm"}}}
    depends = {"mean": {"of": ["norm", "rms"], "than": ["untied-norm"]}}
    means = MEANS | {"rms": 2.3}

    def of(arm: str, seed: int) -> float:
        return means[arm] + 0.01 * math.sin(17 * seed * len(arm))

    (found,) = analysed(small_study, fabricate, of, arms=arms, interactions=depends).interactions
    by_seed = [
        (of("norm", s) + of("rms", s)) / 2
        - of("baseline", s)
        - (of("untied-norm", s) - of("untied", s))
        for s in SEEDS
    ]
    assert found.decided.p_value == pytest.approx(stats.ttest_1samp(by_seed, 0.0).pvalue)


@pytest.mark.parametrize(
    ("shift", "noise", "word"),
    [(0.5, 0.01, "DIFFERS"), (0.0, 0.0005, "SAME"), (0.0, 1.0, "UNRESOLVED")],
)
def test_its_word_is_what_the_interval_says(small_study, fabricate, shift, noise, word):
    def of(arm: str, seed: int) -> float:
        here = shift if arm == "untied-norm" else 0.0
        return 2.0 + here + noise * math.sin(17 * seed * len(arm))

    verdicts = decide(analysed(small_study, fabricate, of))
    (told,) = verdicts.interactions
    assert told.word == word
    record = json.loads(canonical_json(verdict_record(build_report(verdicts))))
    (said,) = record["interactions"]
    assert (said["word"], said["n"], said["of"]) == (word, 6, ["untied-norm"])
    assert said["effect"] == pytest.approx(told.effect)
    assert [row.word for row in build_report(verdicts).blocks[-1].rows] == [word]


def test_lost_seeds_are_left_out_of_interactions(small_study, fabricate):
    def of(arm: str, seed: int) -> float:
        return math.nan if (arm, seed) == ("norm", 2) else loss(arm, seed)

    (found,) = analysed(small_study, fabricate, of).interactions
    assert found.seeds == (1, 3, 4, 5, 6)
    analysis = analysed(small_study, fabricate, of, folder="few", seeds=[1, 2, 3, 4, 5])
    (told,) = decide(analysis).interactions
    assert (told.word, told.p, told.adjusted_p) == ("DESCRIPTIVE", None, None)


def test_the_choice_of_every_arm_is_in_its_error(small_study, tmp_path):
    rates, tuned_on = [3e-4, 1e-3, 3e-3], [101, 102, 103]

    def of(arm: str, rate: float, seed: int) -> float:
        bent = 0.1 * (math.log10(rate) + 3) ** 2
        return MEANS[arm] + bent + 0.01 * math.sin(1000 * seed * len(arm) * math.log(rate))

    about = tables(rates, seeds=tuned_on) | {"arms": ARMS, "interactions": DEPENDS}
    (found,) = analyse(tuned_and_trained(small_study(**about), tmp_path / "r", of)).interactions
    fitted = []
    for arm in ARMS:
        scores = np.array([[of(arm, rate, seed) for seed in tuned_on] for rate in rates])
        at = slice((best := int(scores.mean(1).argmin())) - 1, best + 2)
        fitted.append(TunedArm(np.log(rates[at]), scores[at], scores[at]))
    assert found.choice is not None and found.choice.included and found.decided is not None
    weights = [1, -1, -1, 1]
    drawn = vertex_error([[one] for one in fitted], weights, seed=0, draws=10_000)
    error = math.hypot(drawn, lack_of_fit(fitted, weights))
    assert found.choice.error == pytest.approx(error, rel=0.05)
    # Choices of different arms are independent: their variances add up.
    pairs = [vertex_error([[fitted[i]], [fitted[i + 1]]], seed=0, draws=10_000) for i in (0, 2)]
    assert drawn == pytest.approx(math.hypot(*pairs), rel=0.1)
    values = np.array(found.decided.interval.high - found.decided.mean)
    assert values > stats.t.ppf(0.975, 4) * found.choice.error


def test_new_items_add_their_error(small_study, fabricate):
    results = made(small_study, fabricate, inference={"target": "new items"})
    for trial in results.finished:
        sizes = np.full(80, 8)
        shifts = stream(trial.seed, trial.arm).normal(0, 0.1, 80)
        nats = (loss(trial.arm, trial.seed) + shifts) * sizes
        sums = {"loss_sum_nats": nats, "correct": sizes // 2, "predicted": sizes}
        write_blocks(trial, sums, validation_loss=float(nats.sum() / sizes.sum()))
    results = load_results(results.path)
    (found,) = analyse(results).interactions
    table, seeds = Table.from_results(results), tuple(SEEDS)
    over = results.metrics["validation_loss"].items
    by_arm = {arm: block_scores(table, over, arm, seeds, 10) for arm in ARMS}
    deltas = by_arm["untied-norm"] - by_arm["untied"] - by_arm["norm"] + by_arm["baseline"]
    oracle = crossed_components([deltas])
    assert found.decided is not None and found.decided.mean == pytest.approx(float(deltas.mean()))
    assert found.decided.p_value == pytest.approx(oracle.p_value())
