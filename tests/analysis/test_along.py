"""Contrasts along training from whole results folders: known answers, censoring, endpoints."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

import paribus

SPEEDUP = {"metric": "tokens_speedup", "primary": True, "margin": 0.05}
SEEDS = [1, 2, 3, 4, 5]
ARMS = {"baseline": {}, "fast": {"set": {"model.embedding.norm": "layernorm"}}}
GATE = "stability_gate.py:STABILITY_GATE"  # a rule of one's own, which examples ship
WITH_CURVE = {"evaluation.every": 1, "training.iterations": 10}


def falling(speed: dict[str, float]) -> Callable[[str, int, np.ndarray], np.ndarray]:
    """Losses that fall in lines, an arm `speed` times as fast, from where its seed starts."""

    def heldout(arm: str, seed: int, steps: np.ndarray) -> np.ndarray:
        return 3 + 0.1 * seed - 0.1 * speed[arm] * (1 + 0.01 * seed * (arm == "fast")) * steps

    return heldout


def test_speed_up_endpoint_has_a_verdict(small_study, fabricate):
    study = small_study(WITH_CURVE, arms=ARMS, seeds=SEEDS, endpoints=[SPEEDUP])
    results = fabricate(study, lambda arm, seed: 2.0, heldout=falling({"baseline": 1, "fast": 2}))
    analysis = paribus.analyse(results)
    contrast = analysis.contrast("fast", "tokens_speedup")
    expected = [math.log(2 * (1 + 0.01 * seed)) for seed in SEEDS]
    assert contrast.decided.mean == pytest.approx(np.mean(expected))
    assert contrast.declared.better == "higher" and contrast.margin == pytest.approx(
        math.log1p(0.05)
    )
    assert analysis.summary("baseline", "tokens_speedup").mean == 1
    (verdict,) = paribus.decide(analysis)
    assert "H1a" not in verdict.row and contrast.significant(0.05)
    (tokens, flops) = analysis.along  # nothing was timed in turn
    assert [one.axis for one in analysis.along] == ["tokens", "flops"]
    for one in (tokens, flops):
        assert one.speedup.mean == pytest.approx(np.mean(expected))
    # 1,000 operations per token, as its records say.
    assert flops.spent == pytest.approx(np.array(tokens.spent) * 1000)
    assert tokens.mean[0] == 0 and tokens.mean[-1] < 0
    last = [results.trial_curves["fast", s].loss[-1] for s in SEEDS]
    deltas = np.subtract(last, [results.trial_curves["baseline", s].loss[-1] for s in SEEDS])
    assert [tokens.low[-1], tokens.high[-1]] == pytest.approx(
        list(stats.ttest_1samp(deltas, 0).confidence_interval())
    )


def test_unreached_targets_are_censored(small_study, fabricate):
    target = {"evaluation.target": 2.3}
    endpoint = {"metric": "tokens_to_target", "primary": True, "margin": 0.05}
    study = small_study(WITH_CURVE | target, arms=ARMS, seeds=SEEDS, endpoints=[endpoint])

    def heldout(arm: str, seed: int, steps: np.ndarray) -> np.ndarray:
        reached = 5 if arm == "baseline" else 8
        if arm == "fast" and seed > 2:
            return np.full(len(steps), 2.5)
        return np.where(steps < reached, 3.0, 2.3) - 1e-9

    results = fabricate(study, lambda arm, seed: 2.0, heldout=heldout)
    analysis = paribus.analyse(results)
    contrast = analysis.contrast("fast", "tokens_to_target")
    assert contrast.seeds == tuple(SEEDS) and contrast.decided is not None
    # 8 steps in two seeds and all 10 in the others, against 5; a step is 64 tokens.
    expected = np.log([8 / 5, 8 / 5, 2, 2, 2])
    assert contrast.decided.mean == pytest.approx(expected.mean(), rel=1e-4)
    assert contrast.censored == (3, 0)


def test_nonfinite_points_are_left_out_by_name(small_study, fabricate):
    study = small_study(WITH_CURVE, arms=ARMS, seeds=SEEDS)

    def heldout(arm: str, seed: int, steps: np.ndarray) -> np.ndarray:
        lost = (steps == 4) & (arm == "fast") & (seed == 2)
        return np.where(lost, np.nan, falling({"baseline": 1, "fast": 2})(arm, seed, steps))

    results = fabricate(study, lambda arm, seed: 2.0, heldout=heldout)
    analysis = paribus.analyse(results)
    by_tokens = analysis.along[0]
    assert 4 * 64 not in by_tokens.spent and 5 * 64 in by_tokens.spent
    assert by_tokens.speedup is not None and by_tokens.speedup.n == 5  # no pair is lost by it


@pytest.mark.parametrize(
    ("reach", "rule"),
    [((), GATE), (("baseline",), "equivalence"), (("fast",), "non_inferiority")],
)
def test_of_trials_that_never_reach_a_target_no_equality_is_said(
    small_study, fabricate, reach, rule
):
    """min(needed, budget) is alike, as a budget is: 10 steps in both, whatever they need."""
    study = small_study(
        WITH_CURVE | {"evaluation.target": 2.3},
        arms=ARMS,
        seeds=SEEDS,
        endpoints=[
            {"metric": "tokens_to_target", "primary": True, "margin": 0.05},
            {"metric": "flops_to_target"},
        ],
        decision={"rule": rule} | ({"benefit": "flops_to_target"} if rule[0] == "n" else {}),
    )

    def heldout(arm: str, seed: int, steps: np.ndarray) -> np.ndarray:
        return np.where((steps == 10) & (arm in reach), 2.3, 3.0)

    analysis = paribus.analyse(fabricate(study, lambda arm, seed: 2.0, heldout=heldout))
    contrast = analysis.contrast("fast", "tokens_to_target")
    assert contrast.decided is not None and contrast.decided.equivalence_p < 0.05
    assert contrast.censored == tuple(0 if arm in reach else 5 for arm in ("fast", "baseline"))
    assert not contrast.equivalent(0.05) and not contrast.not_worse(0.05)
    (verdict,) = paribus.decide(analysis)
    assert verdict.outcome == "INCONCLUSIVE" and verdict.needed.pairs is None
    assert verdict.evidence.state.benefit == "not shown"


def test_cut_trials_are_not_sooner_at_the_target(small_study, fabricate):
    """The arm spends half of the tokens and never is at 2.3; the baseline is, with 8 of 10 steps:
    what the arm would have needed, nobody knows."""
    half = {"training.iterations": 5, "model.n_layer": 4}
    study = small_study(
        {"evaluation.every": 1, "evaluation.target": 2.3},
        training={"iterations": 10, "batch_size": 4, "budget": "flops"},
        arms={"baseline": {}, "fast": {"set": half}},
        seeds=SEEDS,
        endpoints=[{"metric": "tokens_to_target", "primary": True, "margin": 0.05}],
    )

    def heldout(arm: str, seed: int, steps: np.ndarray) -> np.ndarray:
        return np.where((steps >= 8) & (arm == "baseline"), 2.3, 3.0)

    analysis = paribus.analyse(fabricate(study, lambda arm, seed: 2.0, heldout=heldout))
    contrast = analysis.contrast("fast", "tokens_to_target")
    assert contrast.decided is not None and contrast.decided.mean == 0
    assert contrast.censored == (5, 5) and not contrast.significant(0.05)
    assert analysis.summary("baseline", "tokens_to_target").mean > 5 * 64
