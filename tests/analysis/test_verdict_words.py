"""A verdict follows from its test: counts of events, caveats, budgets."""

import pytest

from paribus.analysis import analyse
from paribus.analysis.side_effects import budget_state
from paribus.decision import Verdicts, decide, find_rule
from paribus.decision.reach import dead_rows, least_events_p
from paribus.statistics import Interval
from paribus.study import Study

from ..conftest import Fabricate, Maker
from ..tools import rows, texts

GATE = "stability_gate.py:STABILITY_GATE"
SEEDS = [1, 2, 3, 4, 5]
TWO_ARMS = {"baseline": {}, "arm": {"set": {"model.embedding.norm": "layernorm"}}}
LOSS = {"metric": "validation_loss", "primary": True, "margin": 0.02}
NOISE = dict(zip(SEEDS, [0.010, -0.013, 0.004, 0.021, -0.009], strict=True))


def verdicts_of(
    small_study: Maker, fabricate: Fabricate, deltas: list[float], **options: object
) -> Verdicts:
    seeds = list(range(1, len(deltas) + 1))
    study = small_study(seeds=seeds, endpoints=[LOSS], arms=options.pop("arms", TWO_ARMS))

    def loss(arm: str, seed: int) -> float:
        return 2.5 + NOISE.get(seed, 0) + (0.0 if arm == "baseline" else deltas[seed - 1])

    return decide(analyse(fabricate(study, loss, **options)))


def test_divergence_in_every_seed_is_a_verdict(small_study, fabricate):
    """At five pairs exact McNemar cannot go below .0625, and over two contrasts not below .125."""
    arms = TWO_ARMS | {"other": {"set": {"model.embedding.norm": "rmsnorm"}}}
    gone = [("arm", seed) for seed in SEEDS]
    verdicts = verdicts_of(small_study, fabricate, [0.0] * 5, arms=arms, diverged=gone)
    arm, other = verdicts
    assert (arm.word, arm.row, arm.outcome) == ("UNRESOLVED", "2b", "INCONCLUSIVE")
    assert other.word == "SAME"
    assert "5 of 5" in rows(verdicts)["arm"].change
    assert "5 of 5" not in rows(verdicts)["other"].note


@pytest.mark.parametrize(
    ("rule", "effect", "by_seed", "word", "outcome"),
    [
        ("superiority", 0.0, 0.001, "SAME", "NO EFFECT"),
        ("superiority", -0.3, 0.001, "BETTER", "ADOPT"),
        (GATE, -0.3, 0.001, "BETTER", "IMPROVES"),
        # Seeds differ by more than the margin, so that the lost run may matter.
        (GATE, 0.0, 0.03, "UNRESOLVED", "INCONCLUSIVE"),
    ],
)
def test_a_word_holds_with_diverged_runs_at_the_worst_finite_score(
    small_study, fabricate, rule, effect, by_seed, word, outcome
):
    seeds = list(range(1, 9))
    study = small_study(seeds=seeds, endpoints=[LOSS], arms=TWO_ARMS, decision={"rule": rule})

    def loss(arm: str, seed: int) -> float:
        return 2.5 + by_seed * seed + (effect + 0.001 * (seed % 3) if arm == "arm" else 0.0)

    made = fabricate(study, loss, diverged=[("arm", 1)])
    (verdict,) = verdicts = decide(analyse(made))
    assert (verdict.word, verdict.outcome) == (word, outcome)
    (caution,) = texts(verdicts, "diverged")
    assert "1 of 8" in caution and "0 of 8" in caution
    if word == "UNRESOLVED":  # more seeds are not what is missing
        assert verdict.needed.why_not


@pytest.mark.parametrize(
    ("deltas", "word", "disagreeing"),
    [
        ([1.1, 1.11, 1.12, 1.13, 1.11, 1.12, 1.1, 1.13, 1.12, 30], "UNRESOLVED", 1),
        ([1.08, 1.09, 1.12, 1.1201, 1.1202], "WORSE", 0),  # too few pairs for the bootstrap
    ],
)
def test_tests_disagree_about_an_outlier(small_study, fabricate, deltas, word, disagreeing):
    verdicts = verdicts_of(small_study, fabricate, deltas)
    assert verdicts[0].word == word
    warned = texts(verdicts, "tests_disagree")
    assert len(warned) == disagreeing
    assert all("0.002" in text for text in warned)  # exact sign flip: 2 / 2^10


@pytest.mark.parametrize(
    ("low", "high", "state"),
    [(-0.02, 0.04, "within"), (0.06, 0.09, "over"), (-0.079, 0.114, "not shown")],
)
def test_a_budget_is_judged_on_its_bound(low, high, state):
    bounds = Interval(low, high)
    assert budget_state(5, bounds, 0.05) == state
    assert budget_state(4, bounds, 0.05) == "not shown"
    assert budget_state(5, bounds, None) is None


def test_rows_out_of_reach_are_known_before_a_run(small_study):
    def dead(study: Study) -> set[str]:
        codes = dead_rows(study, find_rule(study))
        return {row for row, code in codes.items() if code in ("few_seeds", "no_events")}

    gate = {"decision.rule": GATE}
    five = small_study(seeds=SEEDS)
    assert dead(five) == {"2", "2a", "4b", "4c", "4d"}  # superiority judges harm and cure
    assert dead(small_study(gate, seeds=SEEDS)) == {"2", "9", "9b", "10", "11", "11b", "11c", "12"}
    assert least_events_p(five) == 0.125
    assert least_events_p(small_study(seeds=SEEDS, arms=TWO_ARMS)) == 0.0625
    assert not least_events_p(small_study(seeds=list(range(1, 8))))
    # Two stages, whose p are combined: five seeds could not show a cure, and ten of them can.
    staged = small_study(seeds=[*SEEDS, *range(6, 11)], arms=TWO_ARMS, stages=[5, 5])
    assert not least_events_p(staged)
    still = small_study(seeds=[1, 2, 3, 4, 5, 6], arms=TWO_ARMS, stages=[4, 2])
    assert least_events_p(still) == pytest.approx(0.118, abs=5e-4)
    three = small_study(gate, seeds=[1, 2, 3])
    assert dead(three) == set(find_rule(three).all_rows) - {"0", "1"}
