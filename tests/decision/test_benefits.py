"""Speed and memory as endpoints: compared as ratios, and the benefit of an arm that is no worse."""

import math

import numpy as np
import pytest

from paribus.analysis import Analysis, analyse
from paribus.decision import Verdict, decide
from paribus.results import ResultsFolder, load_results

from ..conftest import Fabricate, Maker

SEEDS = [1, 2, 3, 4, 5, 6]
NOISE = dict(zip(SEEDS, [0.010, -0.013, 0.004, 0.011, -0.009, 0.002], strict=True))
LOSS = {"metric": "validation_loss", "primary": True, "margin": 0.02, "smallest_effect": 0.02}
BENEFITS = ("training_throughput", "decoding_throughput", "training_memory")
NAMES = ("arm", "seed", "kind", "tokens", "seconds", "bytes")


def judged(
    small_study: Maker,
    fabricate: Fabricate,
    *,
    loss: float = 0.0,
    spread: float = 0.1,
    speed: float = 1.0,
    memory: float = 1.0,
    decoding: float = 1.0,
    **decision: object,
) -> tuple[Analysis, Verdict]:
    """Judge an arm whose loss is higher by `loss`, and which is so many times as fast (in training,
    reading and writing) and as large."""
    study = small_study(
        seeds=SEEDS,
        arms={"baseline": {}, "arm": {"set": {"model.embedding.norm": "layernorm"}}},
        endpoints=[LOSS, *({"metric": metric} for metric in BENEFITS)],
        decision={"rule": "non_inferiority"} | decision,
    )

    def value(arm: str, seed: int) -> float:
        noise = NOISE[seed]
        return 2.5 + noise + (loss + spread * noise if arm == "arm" else 0)

    results = fabricate(study, value)
    rows = [
        (
            *(arm, seed, kind, 1000),
            (1.0 + NOISE[seed] / 10) / (1 if arm == "baseline" else times * (1 + NOISE[seed] / 20)),
            2.0**20 * (1 if arm == "baseline" else memory) if kind == "training" else math.nan,
        )
        for arm, seed in study.trials
        for kind, times in (("training", speed), ("decoding", decoding))
    ]
    columns = (np.array(column) for column in zip(*rows, strict=True))
    folder = ResultsFolder(results.path)
    with folder.sealing("throughput.parquet"):
        folder.write_columns("throughput.parquet", dict(zip(NAMES, columns, strict=True)))
    analysis = analyse(load_results(results.path))
    (verdict,) = decide(analysis)
    return analysis, verdict


def test_speed_is_compared_as_a_ratio(small_study, fabricate):
    analysis, _ = judged(
        small_study, fabricate, speed=1.25, memory=0.5, benefit="training_throughput"
    )
    speed = analysis.contrast("arm", "training_throughput").decided
    memory = analysis.contrast("arm", "training_memory").decided
    by_hand = [math.log(1.25 * (1 + NOISE[seed] / 20)) for seed in SEEDS]
    assert speed.mean == pytest.approx(np.mean(by_hand))
    assert memory.mean == pytest.approx(math.log(0.5))
    assert memory.constant
    (costs,) = analysis.costs
    assert costs.more_memory == pytest.approx(-0.5) and costs.prefill is None
    assert costs.throughput.mean == pytest.approx(1 - np.mean(np.exp(by_hand)), rel=1e-2)
    assert analysis.summary("baseline", "training_memory").mean == pytest.approx(1.0)  # MiB


@pytest.mark.parametrize(
    ("given", "row"),
    [
        ({"speed": 1.25, "benefit": "training_throughput"}, "6"),
        ({"speed": 1.25, "benefit": "training_throughput", "least_benefit": 0.3}, "5"),
        ({"decoding": 1.25, "benefit": "decoding_throughput", "least_benefit": 0.2}, "6"),
        ({"memory": 1.2, "benefit": "training_memory"}, "5"),
        # The equal speed of an arm is within 0.1% of its baseline's, in no sure direction.
        ({"benefit": "training_throughput"}, "8"),
        ({"loss": 0.1, "speed": 1.25, "benefit": "training_throughput"}, "3"),
        # Significantly worse, and shown to be so by less than the margin.
        ({"loss": 0.01, "spread": 0.05, "speed": 1.25, "benefit": "training_throughput"}, "6"),
        ({"spread": 4.0, "speed": 1.25, "benefit": "training_throughput"}, "9"),
        # A quarter of the speed is over its budget, whatever is saved; without one it is allowed.
        (
            {"speed": 0.25, "memory": 0.5, "benefit": "training_memory", "throughput_budget": 0.05},
            "4",
        ),
        ({"speed": 0.25, "memory": 0.5, "benefit": "training_memory"}, "6"),
    ],
)
def test_a_benefit_adopts(small_study, fabricate, given, row):
    _, verdict = judged(small_study, fabricate, **given)
    assert verdict.row == row
    assert (verdict.outcome == "ADOPT") == (row == "6")
