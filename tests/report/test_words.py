"""Rows of the report: words with their numbers, notes, and arms by name or title."""

from __future__ import annotations

import math

import pytest

from paribus.analysis import Analysis, analyse
from paribus.decision import Verdicts, decide
from paribus.report.model import build_report
from paribus.report.tables import decision as decision_table

from ..conftest import Fabricate, Maker
from ..tools import rows

ARMS = {"baseline": {}, "ln": {"title": "LayerNorm", "set": {"model.embedding.norm": "center"}}}
GATE = {"decision.rule": "stability_gate.py:STABILITY_GATE"}


def worse(arm: str, seed: int) -> float:
    return 2.5 + seed / 100 + (arm != "baseline") * (0.3 + seed / 90)


@pytest.fixture
def judged(small_study: Maker, fabricate: Fabricate) -> tuple[Analysis, Verdicts]:
    analysis = analyse(fabricate(small_study(GATE, arms=ARMS, seeds=[1, 2, 3, 4, 5]), worse))
    return analysis, decide(analysis)


def test_a_row_has_the_numbers_of_its_test(judged: tuple[Analysis, Verdicts]) -> None:
    analysis, verdicts = judged
    assert (verdicts[0].row, verdicts[0].word) == ("3", "WORSE")
    says = analysis.contrast("ln", "validation_loss").decided
    row = rows(verdicts)["ln"]
    assert row.change == f"{says.mean:+.4f} [{says.interval.low:+.4f}, {says.interval.high:+.4f}]"
    assert (row.p, row.word) == ("<0.001", "WORSE")


@pytest.mark.parametrize(("spread", "level"), [(0.1, ""), (1.0, "90%")])
def test_same_interval(small_study: Maker, fabricate: Fabricate, spread: float, level: str) -> None:
    """Of 5 pairs with a mean of 0.012 and an error of 0.0033, the 95% interval ends at 0.0212."""
    apart = 0.0033 * math.sqrt(5) * math.sqrt(0.4) * spread

    def close(arm: str, seed: int) -> float:
        return 2.5 + seed / 100 + (arm != "baseline") * (0.012 + apart * (seed - 3))

    study = small_study({"decision.rule": "equivalence"}, arms=ARMS, seeds=[1, 2, 3, 4, 5])
    row = rows(decide(analyse(fabricate(study, close))))["ln"]
    assert row.word == "SAME" and row.p == ""
    assert "±0.02" in row.notes[0] and ("90%" in row.notes[0]) == bool(level)


def test_several_endpoints_have_a_block_each(small_study: Maker, fabricate: Fabricate) -> None:
    endpoints = [
        {"metric": "validation_loss", "primary": True, "margin": 0.02},
        {"metric": "brier_score", "primary": True, "margin": 0.01},
    ]
    study = small_study(GATE, arms=ARMS, endpoints=endpoints, seeds=[1, 2, 3, 4, 5])
    analysis = analyse(fabricate(study, worse))
    verdicts = decide(analysis)
    assert [(v.metric, v.row, v.word, v.margin) for v in verdicts] == [
        ("validation_loss", "3", "WORSE", 0.02),
        ("brier_score", "4", "SAME", 0.01),  # the same score in every trial
    ]
    applied = {row[0]: row[-1] for row in decision_table(analysis, verdicts).rows if row[-1]}
    assert applied == {"3": "LayerNorm (validation loss)", "4": "LayerNorm (Brier score)"}
    blocks = build_report(verdicts).blocks
    assert [block.rows[0].word for block in blocks] == ["WORSE", "SAME"]
    # One family: Holm over both endpoints, and over their equivalence to it.
    assert analysis.contrast("ln", "validation_loss").holm_p == pytest.approx(
        2 * analysis.contrast("ln", "validation_loss").p
    )


@pytest.mark.parametrize(("gain", "is_small"), [(0.025, True), (0.3, False)])
def test_a_gain_that_may_be_below_the_margin_is_noted(
    small_study: Maker, fabricate: Fabricate, gain: float, is_small: bool
) -> None:
    def better(arm: str, seed: int) -> float:
        return 2.5 + seed / 100 - (arm != "baseline") * (gain + 0.004 * (seed - 3))

    study = small_study(arms=ARMS, seeds=[1, 2, 3, 4, 5])
    row = rows(decide(analyse(fabricate(study, better))))["ln"]
    assert row.word == "BETTER"
    assert any("0.02" in note for note in row.notes) == is_small
