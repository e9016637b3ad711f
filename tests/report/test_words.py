"""Rows of the report: words with their numbers, notes, and arms by name or title."""

import pytest

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report.model import build_report
from paribus.report.tables import decision as decision_table

ARMS = {"baseline": {}, "ln": {"title": "LayerNorm", "set": {"model.embedding.norm": "center"}}}
GATE = {"decision.rule": "stability_gate.py:STABILITY_GATE"}


def worse(arm: str, seed: int) -> float:
    return 2.5 + seed / 100 + (arm != "baseline") * (0.3 + seed / 90)


def test_several_endpoints_have_a_block_each(small_study, fabricate):
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
