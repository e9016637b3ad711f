"""Verdicts from records: each row is reached by what it says, with words that match the numbers."""

import numpy as np
import pytest

from paribus.analysis import analyse
from paribus.decision import Verdict, decide, find_rule
from paribus.statistics import required_pairs
from paribus.study import load_study

from ..conftest import Fabricate, Maker

COMMISSIONED = load_study("embedding-norm")  # with a rule of its own
ROWS = find_rule(COMMISSIONED).all_rows

NOISE = [0.010, -0.013, 0.004, 0.021, -0.009, 0.012, -0.002, 0.007, -0.016, 0.001]
SEEDS = list(range(1, 11))


def verdict_of(
    small_study: Maker,
    fabricate: Fabricate,
    effect: float,
    spread: float = 0.1,
    *,
    metric_margin: float = 0.02,
    spiky: dict[str, int] | None = None,
    **options: object,
) -> Verdict:
    """The verdict on one arm whose loss is higher by `effect`, SD `spread` of the noise."""
    study = small_study(
        {"training.iterations": 40},
        decision=COMMISSIONED.decision.model_dump(),
        seeds=SEEDS,
        arms={"baseline": {}, "arm": {"set": {"model.embedding.norm": "layernorm"}}},
        endpoints=[
            {"metric": "validation_loss", "primary": True, "margin": metric_margin},
            {"metric": "calibration_error"},
        ],
    )

    def loss(arm: str, seed: int) -> float:
        noise = NOISE[seed - 1]
        return 2.5 + noise + (effect + spread * noise if arm == "arm" else 0)

    def curve(arm: str, seed: int) -> np.ndarray:
        losses = np.linspace(3, 2, 40) + 0.001 * np.sin(np.arange(40))
        if seed <= (spiky or {}).get(arm, 0):
            losses[25:30] += 2
        return losses

    return decide(analyse(fabricate(study, loss, curve=curve, **options)))[0]


@pytest.mark.parametrize(
    ("effect", "spread", "options", "row", "word"),
    [
        (0.1, 0.1, {}, "3", "WORSE"),
        (0.001, 0.1, {}, "4", "SAME"),
        (-0.1, 0.1, {}, "5", "BETTER"),
        (0.01, 4.0, {}, "6", "UNRESOLVED"),
        (0.0, 0.1, {"spiky": {"arm": 8}}, "2", "WORSE"),
        (0.0, 0.1, {"spiky": {"baseline": 4, "arm": 4}}, "8", "SAME"),
        # A cure is BETTER, unless the runs that survive are shown to be worse.
        (0.1, 0.1, {"spiky": {"baseline": 8}}, "9", "UNRESOLVED"),
        (0.01, 4.0, {"spiky": {"baseline": 8}}, "10", "BETTER"),
        (
            0.0,
            0.1,
            {"spiky": {"baseline": 8}, "calibration": {"baseline": 0.01, "arm": 0.03}.get},
            "11",
            "BETTER",
        ),
        (0.0, 0.1, {"spiky": {"baseline": 8}}, "12", "BETTER"),
        (0.1, 0.1, {"skip": [("arm", 3)]}, "0", "INVALID"),
        # Divergence leaves the quality analysis, and is judged all the same.
        (0.0, 0.1, {"diverged": [("arm", seed) for seed in SEEDS]}, "2", "WORSE"),
        (0.0, 0.1, {"diverged": [("baseline", seed) for seed in SEEDS]}, "10", "BETTER"),
    ],
)
def test_records_lead_to_their_row(small_study, fabricate, effect, spread, options, row, word):
    verdict = verdict_of(small_study, fabricate, effect, spread, **options)
    assert (verdict.row, verdict.word) == (row, word)
    assert verdict.outcome == ROWS[row].outcome
    if verdict.outcome != "INCONCLUSIVE":
        assert verdict.needed.pairs is None
    elif verdict.needed.pairs is not None:
        assert verdict.needed.pairs > 10


def test_inconclusive_verdicts_say_pairs_needed(small_study, fabricate):
    verdict = verdict_of(small_study, fabricate, 0.01, 4.0)
    sd = np.std([4.0 * noise for noise in NOISE], ddof=1)
    detects = required_pairs(0.02 / sd)
    excludes = required_pairs(0.02 / sd, power=0.9, alpha=0.1)  # TOST at 80% power
    assert verdict.needed.pairs == max(detects, excludes, 11)


def test_an_unshown_cure_says_pairs_needed(small_study, fabricate):
    verdict = verdict_of(small_study, fabricate, 0.0, spiky={"baseline": 4})
    assert verdict.row == "8"
    # 4 of 10 are cured and none caused; significant from 6 of 6 on: round(0.4 n) = 6 at n = 14.
    assert verdict.needed.pairs == 14


def adopted_by_superiority(
    small_study: Maker, fabricate: Fabricate, **options: object
) -> list[Verdict]:
    """Verdicts on an arm whose loss is surely lower, with two primary endpoints."""
    study = small_study(
        {"decision.rule": "superiority", "decision.calibration_budget": 0.5},
        seeds=SEEDS,
        arms={"baseline": {}, "arm": {"set": {"model.embedding.norm": "layernorm"}}},
        endpoints=[
            {"metric": "validation_loss", "primary": True, "margin": 0.02},
            {"metric": "calibration_error", "primary": True, "margin": 0.005},
        ],
    )

    def loss(arm: str, seed: int) -> float:
        return 2.5 + NOISE[seed - 1] * (1.1 if arm == "arm" else 1) - 0.1 * (arm == "arm")

    return decide(analyse(fabricate(study, loss, **options)))


def test_survivors_of_divergence_are_not_adopted(small_study, fabricate):
    lost = [("arm", seed) for seed in SEEDS[:5]]
    verdict = adopted_by_superiority(small_study, fabricate, diverged=lost)[0]
    assert (verdict.row, verdict.outcome, verdict.word) == ("8", "INCONCLUSIVE", "UNRESOLVED")
    assert (verdict.needed.pairs, verdict.needed.why_not) == (11, "more_harm")


def test_a_lost_primary_endpoint_rejects_on_both(small_study, fabricate):
    verdicts = adopted_by_superiority(
        small_study, fabricate, calibration=lambda arm: 0.2 if arm == "arm" else 0.01
    )
    assert [(v.row, v.outcome) for v in verdicts] == [("3b", "REJECT"), ("3", "REJECT")]
    assert [v.word for v in verdicts] == ["BETTER", "WORSE"]  # each on its own endpoint
    assert [v.evidence.state.elsewhere for v in verdicts] == ["worse", "not worse"]
