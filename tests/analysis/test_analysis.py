"""From records to inference: the right pairs, the right family, and nothing dropped in silence."""

import json
import math

import numpy as np
import pytest

from paribus.analysis import analyse, detectable
from paribus.statistics import holm, minimum_detectable_effect, paired_contrast

from ..tools import refused

SEEDS = [1, 2, 3, 4, 5]
NOISE = {1: 0.010, 2: -0.013, 3: 0.004, 4: 0.021, 5: -0.009}


def loss(arm: str, seed: int) -> float:
    effect = {"baseline": 0.0, "layernorm": 0.08, "rmsnorm": -0.01}[arm]
    wobble = {"baseline": 0.0, "layernorm": 0.3, "rmsnorm": -0.7}[arm]
    return 2.5 + NOISE[seed] + effect + wobble * NOISE[seed]


def test_contrasts_are_those_of_the_seed_pairs(small_study, fabricate):
    study = small_study(seeds=SEEDS)
    analysis = analyse(fabricate(study, loss))
    contrast = analysis.contrast("layernorm", "validation_loss")
    expected = paired_contrast(
        [loss("baseline", s) for s in SEEDS],
        [loss("layernorm", s) for s in SEEDS],
        seed=0,
        margin=0.02,
        family=2,
    )
    assert contrast.by_run == expected
    assert contrast.seeds == tuple(SEEDS)
    assert contrast.by_run.mean == pytest.approx(0.08 + 0.3 * np.mean(list(NOISE.values())))
    least = minimum_detectable_effect(5, alpha=0.05 / 2)  # two contrasts
    assert contrast.by_run.decided.detectable == pytest.approx(least * contrast.by_run.sd)
    summary = analysis.summary("layernorm", "validation_loss")
    assert summary.sd == pytest.approx(np.std([loss("layernorm", s) for s in SEEDS], ddof=1))
    assert analysis.missing == ()
    assert analysis.left_out == ()
    json.dumps(analysis.to_dict(), allow_nan=False)


def test_holm_runs_over_the_primary_family_alone(small_study, fabricate):
    analysis = analyse(fabricate(small_study(seeds=SEEDS), loss))
    family = [analysis.contrast(arm, "validation_loss") for arm in ("layernorm", "rmsnorm")]
    raw = [c.decided.p_value for c in family if c.decided]
    assert [c.holm_p for c in family] == pytest.approx(list(holm(raw)))
    others = [c for c in analysis.contrasts if not c.primary and c.decided]
    adjusted = holm([c.decided.p_value for c in others if c.decided])
    assert [c.holm_p for c in others] == pytest.approx(list(adjusted))
    assert {c.decided.family for c in others if c.decided} == {len(others)}


def test_lost_contrasts_make_no_other_easier(small_study, fabricate):
    gone = [("rmsnorm", seed) for seed in SEEDS]
    analysis = analyse(fabricate(small_study(seeds=SEEDS), loss, skip=gone))
    kept = analysis.contrast("layernorm", "validation_loss")
    lost = analysis.contrast("rmsnorm", "validation_loss")
    assert lost.by_run is None
    assert lost.why_not and lost.decided is None
    assert kept.holm_p == pytest.approx(min(1.0, 2 * kept.by_run.decided.p_value))
    assert len(analysis.missing) == 5


@pytest.mark.parametrize("lost", ["skip", "diverged"])
def test_lost_trials_are_named_and_the_others_paired(small_study, fabricate, lost):
    analysis = analyse(fabricate(small_study(seeds=SEEDS), loss, **{lost: [("layernorm", 4)]}))
    assert analysis.contrast("layernorm", "validation_loss").seeds == (1, 2, 3, 5)
    assert {(o.arm, o.seed) for o in analysis.left_out} == {("layernorm", 4)}
    if lost == "skip":
        assert analysis.missing == ("layernorm/seed-4",)
    else:
        assert analysis.left_out[0].why.endswith("step 5")
        assert analysis.events["layernorm", 4].diverged


def test_broken_controls_are_not_analysed(small_study, fabricate):
    results = fabricate(small_study(seeds=SEEDS), loss)
    results.trials["layernorm", 3]["batch_digest"] = "other batches"
    analysis = analyse(results)
    assert [c.name for c in analysis.broken("layernorm")] == ["batches"]
    broken = [c for c in analysis.contrasts if c.arm == "layernorm"]
    assert all(c.by_run is None and c.why_not.endswith(" batches") for c in broken)
    assert analysis.contrast("rmsnorm", "validation_loss").by_run is not None


def test_a_plan_takes_its_spread_from_a_pilot(small_study, fabricate):
    study = small_study(seeds=SEEDS)
    pilot = analyse(fabricate(study, loss))
    rows = detectable(study, pilot=pilot)
    assert [row.contrast.split()[0] for row in rows] == ["layernorm", "rmsnorm"]
    deltas = [loss("layernorm", s) - loss("baseline", s) for s in SEEDS]
    assert rows[0].sd == pytest.approx(np.std(deltas, ddof=1))
    least = minimum_detectable_effect(5, alpha=0.05 / 2)
    assert rows[0].effect == pytest.approx(least * rows[0].sd)
    # statistics.md: an effect of 1 SD takes 10 pairs at 80% power, one of 2 SDs 5.
    one = small_study(
        seeds=SEEDS, arms={"baseline": {}, "b": {"set": {"model.embedding.norm": "rmsnorm"}}}
    )
    assert detectable(one, sd=0.02)[0].pairs_for_margin == 10
    assert detectable(one, sd=0.01)[0].pairs_for_margin == 5
    assert detectable(study, sd=0.02)[0].exceeds_margin
    assert not detectable(study, sd=0.001)[0].exceeds_margin
    with refused("value", match="sd = -1"):
        detectable(study, sd=-1)
    for nonsense in (math.inf, math.nan):
        with refused("value"):
            detectable(study, sd=nonsense)
    with refused("value", match="1 seed"):
        detectable(small_study(seeds=[1]), sd=0.1)
