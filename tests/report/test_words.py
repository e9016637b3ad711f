"""Every row of the decision table has its own honest wording."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from paribus.analysis import Analysis, analyse
from paribus.decision import Verdict, decide, shipped_rules
from paribus.report.tables import decision as decision_table
from paribus.report.words import clause, headline, headlines, p_in_words
from paribus.results import Results
from paribus.study import Study

ROWS = shipped_rules()["stability_gate"].all_rows
Maker, Fabricate = Callable[..., Study], Callable[..., Results]


@pytest.fixture
def judged(small_study: Maker, fabricate: Fabricate) -> tuple[Analysis, Verdict]:
    arms = {"baseline": {}, "ln": {"title": "LayerNorm", "set": {"model.embedding.norm": "center"}}}
    study = small_study(arms=arms, seeds=[1, 2, 3, 4, 5])
    results = fabricate(
        study, lambda arm, seed: 2.5 + seed / 100 + (arm == "ln") * (0.3 + seed / 90)
    )
    analysis = analyse(results)
    return analysis, decide(analysis)[0]


def test_the_flagships_verdict_reads_as_a_sentence(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    assert verdict.row == "3"
    text = headline(analysis, [verdict]).replace("\N{NO-BREAK SPACE}", " ")
    says = analysis.contrast("ln", "validation_loss").decided
    assert says is not None
    assert text == (
        "Keep the baseline at this learning rate (3e-4, not tuned): LayerNorm raises validation "
        f"loss by {says.mean:.4f} nats/token (95% interval {says.interval.low:+.4f} to "
        f"{says.interval.high:+.4f}, n = 5, "
        "Holm p < 0.001), and training was stable without it."
    )


# What a sentence must say, and what it must not, by row.
SAYS = {
    "0": ("cannot be judged", "raises"),
    "1": ("described, not tested", "raises"),
    "2": ("destabilises training", "stable without it"),
    "3": ("stable without it", "cures"),
    "4": ("no difference worth having", "raises"),
    "5": ("only a cure of instability is adopted", "Adopt"),
    "6": ("neither shown to differ nor to stay within", "raises"),
    "7": ("not shown to cure", "stable without it"),
    "8": ("a cure is not shown", "raises"),
    "9": ("cures instability", "stable without it"),
    "9b": ("another primary endpoint", "stable without it"),
    "10": ("its effect on quality is open", "raises"),
    "2b": ("the counts are described", "stable without it"),
    "11": ("over its budget", "not shown"),
    "11b": ("not shown to be within its budget", "Keep"),
    "11c": ("it diverged in more seeds", "Keep"),
    "12": ("no cost beyond the budgets", "Keep"),
}


@pytest.mark.parametrize("row", ROWS)
def test_every_row_says_its_own(judged: tuple[Analysis, Verdict], row: str) -> None:
    analysis, verdict = judged
    evidence = replace(verdict.evidence, invalid="a run is missing" if row == "0" else "")
    about = ROWS[row]
    given = replace(verdict, row=row, outcome=about.outcome, evidence=evidence)
    found = clause(analysis, given)
    text = f"{found.lead}: {found.why}"
    says, never = SAYS[row]
    assert says in text
    assert never not in text
    keeps = about.outcome in ("BASELINE", "IMPROVES")
    assert found.lead.startswith("Keep the baseline") == keeps
    assert found.lead.startswith("Adopt LayerNorm") == (about.outcome == "ADOPT")
    judged_at_all = about.outcome not in ("INVALID", "DESCRIPTIVE ONLY")
    assert found.lead.endswith(" at this learning rate (3e-4, not tuned)") == judged_at_all


def test_all_wordings_are_distinct(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    texts = {clause(analysis, replace(verdict, row=row)).why for row in ROWS}
    assert len(texts) == len(ROWS)


def test_what_would_resolve_it_is_said(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    text = clause(analysis, replace(verdict, row="6", pairs_needed=41)).why
    assert "about 41 seed pairs would tell" in text


def test_many_contrasts_are_counted(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    undecided = replace(verdict, row="6", outcome="INCONCLUSIVE")
    text = headline(analysis, [verdict] * 4 + [undecided] * 3)
    assert text == (
        "Of 7 contrasts, 4 keep the baseline, 3 are undecided, at this learning rate (3e-4, not "
        "tuned)."
    )


def test_an_untuned_rate_is_said_wherever_there_is_a_verdict(
    small_study: Maker, fabricate: Fabricate
) -> None:
    rate = "training.optimizer.learning_rate"
    arms = {
        "baseline": {},
        "ln": {"set": {"model.embedding.norm": "center"}},
        "hot": {"set": {rate: 1e-2}},
        "low": {"set": {rate: 1e-5}},
    }
    study = small_study({rate: 3e-4}, arms=arms, seeds=[1, 2, 3, 4, 5])
    results = fabricate(
        study, lambda arm, seed: 2.5 + seed / 100 + (arm != "baseline") * (0.3 + seed / 90)
    )
    analysis = analyse(results)
    verdicts = {verdict.arm: verdict for verdict in decide(analysis)}
    for arm, words in {
        "ln": "at this learning rate (3e-4, not tuned)",
        "hot": "at these learning rates (0.01 against 3e-4, not tuned)",
        "low": "at these learning rates (1e-5 against 3e-4, not tuned)",
    }.items():
        assert words in verdicts[arm].sentence
        assert words in clause(analysis, verdicts[arm]).lead
        assert words in headline(analysis, [verdicts[arm]])


def test_one_arm_compares_nothing(judged: tuple[Analysis, Verdict]) -> None:
    assert headline(judged[0], []) == "One arm alone: nothing is compared."


@pytest.mark.parametrize(
    ("p", "text"), [(0.0004, "< 0.001"), (0.0123, "= 0.012"), (1.0, "= 1.000")]
)
def test_p_values_have_their_sign(p: float, text: str) -> None:
    assert p_in_words(p).replace("\N{NO-BREAK SPACE}", " ") == text
    assert math.isfinite(p)


def test_several_endpoints_have_a_sentence_each(small_study: Maker, fabricate: Fabricate) -> None:
    endpoints = [
        {"metric": "validation_loss", "primary": True, "margin": 0.02},
        {"metric": "brier_score", "primary": True, "margin": 0.01},
    ]
    arms = {"baseline": {}, "ln": {"title": "LayerNorm", "set": {"model.embedding.norm": "center"}}}
    study = small_study(arms=arms, endpoints=endpoints, seeds=[1, 2, 3, 4, 5])
    results = fabricate(
        study, lambda arm, seed: 2.5 + seed / 100 + (arm == "ln") * (0.3 + seed / 90)
    )
    analysis = analyse(results)
    verdicts = decide(analysis)
    assert [(v.metric, v.row) for v in verdicts] == [
        ("validation_loss", "3"),
        ("brier_score", "4"),  # the same score in every trial
    ]
    fired = {row[0]: row[-1] for row in decision_table(analysis, verdicts).rows if row[-1]}
    assert fired == {"3": "LayerNorm (validation loss)", "4": "LayerNorm (Brier score)"}
    loss, brier = headlines(analysis, verdicts)
    assert loss.startswith("On validation loss: Keep the baseline")
    assert brier.startswith("On Brier score: Keep the baseline")
    assert "registered margin of ±0.01" in brier
    assert headline(analysis, verdicts) == f"{loss} {brier}"
    # One family: Holm over both endpoints, and over their equivalence to it.
    assert analysis.contrast("ln", "validation_loss").holm_p == pytest.approx(
        2 * analysis.contrast("ln", "validation_loss").p
    )
