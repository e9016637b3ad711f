"""What may be stated of a contrast: p of five pairs and more, beside the interval it inverts."""

import pytest

from paribus.analysis import Analysis, analyse
from paribus.analysis.side_effects import costs
from paribus.analysis.table import Table
from paribus.decision import decide
from paribus.report import tables
from paribus.results import load_results
from paribus.study import Study

from ..tools import rows

TWO_ARMS = {"baseline": {}, "arm": {"set": {"model.embedding.norm": "layernorm"}}}
THREE_ARMS = TWO_ARMS | {"other": {"set": {"model.embedding.norm": "rmsnorm"}}}
LOSS = {"metric": "validation_loss", "primary": True, "margin": 0.02}
SECOND = {"metric": "calibration_error"}


@pytest.fixture
def analysed(small_study, fabricate):
    def make(deltas: list[float], arms: dict = TWO_ARMS, **inference: object) -> Analysis:
        seeds = list(range(1, len(deltas) + 1))
        study = small_study(
            {"decision.calibration_budget": 0.01, "decision.throughput_budget": 0.05},
            seeds=seeds,
            endpoints=[LOSS, SECOND],
            arms=arms,
            inference=inference or {},
        )
        return analyse(
            fabricate(study, lambda arm, s: 2 + 0.01 * s**2 + (arm != "baseline") * deltas[s - 1])
        )

    return make


def test_fewer_than_five_pairs_have_no_p_and_no_test(analysed):
    analysis = analysed([0.1, 0.1001, 0.1003, 0.35])
    contrast = analysis.contrast("arm", "validation_loss")
    assert contrast.p is contrast.holm_p is None
    assert not any(check.disagrees for check in contrast.checks)
    tests = ("p", "Holm p", "other tests", "TOST p")
    assert not {*tests} & {*tables.primary(analysis)[0].head}
    costs = analysis.costs[0]
    assert costs.calibration.state == costs.throughput.state == "not shown"


def test_p_beside_an_interval_is_the_one_that_it_inverts(analysed):
    """Over two contrasts Holm's p may be above 5% where the plain interval leaves 0 out."""
    analysis = analysed([0.004, 0.04, 0.01, 0.03, 0.05], THREE_ARMS)
    contrast = analysis.contrast("arm", "validation_loss")
    assert contrast.decided.interval.low > 0
    p, holm = contrast.decided.p_value, contrast.holm_p
    assert holm is not None
    assert p < 0.05 < holm
    verdicts = decide(analysis)
    assert (verdicts[0].word, verdicts[0].p, verdicts[0].adjusted_p) == ("UNRESOLVED", p, holm)
    row = rows(verdicts)["arm"]
    assert row.tests == f"p {p:.3f}, Holm {holm:.3f}"
    assert tables.primary(analysis)[0].rows[1][4:6] == (f"{p:.3f}", f"{holm:.3f}")


def test_speed_of_arms_with_other_tokenizers_is_compared_in_bytes(
    small_study, fabricate, monkeypatch
):
    """Tokens that stand for three bytes each: three times as much text at the same speed."""
    made = fabricate(small_study(seeds=[1, 2, 3], arms=TWO_ARMS), lambda *_: 2.0)
    for trial in made.finished:
        record = trial.read_json("trial.json")
        record["data"]["bytes_per_token"] = 3.0 if trial.arm == "arm" else 1.0
        trial.write_json("trial.json", record)
        trial.finish()
    table = Table.from_results(load_results(made.path))
    (of_tokens,) = costs(table)
    monkeypatch.setattr(Study, "share_tokens", lambda *_: False)
    (of_bytes,) = costs(table)
    assert 1 - of_bytes.throughput.mean == pytest.approx(3 * (1 - of_tokens.throughput.mean))
