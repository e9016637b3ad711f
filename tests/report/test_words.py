"""The headline: a word for each arm with its numbers, and what a verdict's answer says."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paribus.analysis import Analysis, analyse
from paribus.decision import WORDS, Verdict, Word, decide
from paribus.report.card import card
from paribus.report.tables import decision as decision_table
from paribus.report.words import headlines, p_in_words

from ..conftest import Fabricate, Maker

ARMS = {"baseline": {}, "ln": {"title": "LayerNorm", "set": {"model.embedding.norm": "center"}}}
GATE = {"decision.rule": "stability_gate.py:STABILITY_GATE"}


def worse(arm: str, seed: int) -> float:
    return 2.5 + seed / 100 + (arm != "baseline") * (0.3 + seed / 90)


@pytest.fixture
def judged(small_study: Maker, fabricate: Fabricate) -> tuple[Analysis, Verdict]:
    analysis = analyse(fabricate(small_study(GATE, arms=ARMS, seeds=[1, 2, 3, 4, 5]), worse))
    return analysis, decide(analysis)[0]


def test_the_flagships_verdict_reads_as_a_sentence(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    assert (verdict.row, verdict.word) == ("3", "WORSE")
    says = analysis.contrast("ln", "validation_loss").decided
    change = f"{says.mean:+.4f} [{says.interval.low:+.4f}, {says.interval.high:+.4f}]"
    text = " ".join(headlines(analysis, [verdict])).replace("\N{NO-BREAK SPACE}", " ")
    assert text == f"LayerNorm is WORSE ({change}, p < 0.001)."
    # The answer has the numbers of the headline, at which rate, and what the rule does.
    for part in ("ln is worse than baseline", "learning rate 3e-4", "not tuned", change):
        assert part in verdict.answer
    assert "n = 5, Holm p < 0.001" in verdict.answer and "Keep baseline" in verdict.answer


@pytest.mark.parametrize(("spread", "which"), [(0.1, ""), (1.0, "90% interval ")])
def test_same_interval(small_study: Maker, fabricate: Fabricate, spread: float, which: str) -> None:
    """Of 5 pairs with a mean of 0.012 and an error of 0.0033, the 95% interval ends at 0.0212."""
    apart = 0.0033 * math.sqrt(5) * math.sqrt(0.4) * spread

    def close(arm: str, seed: int) -> float:
        return 2.5 + seed / 100 + (arm != "baseline") * (0.012 + apart * (seed - 3))

    made = small_study({"decision.rule": "equivalence"}, arms=ARMS, seeds=[1, 2, 3, 4, 5])
    analysis = analyse(fabricate(made, close))
    rows = [row for block in card(analysis, decide(analysis)).blocks.values() for row in block]
    row = next(row for row in rows if row.word == "SAME")
    assert row.note.split("; ")[0].replace("\N{NO-BREAK SPACE}", " ") == f"{which}inside ±0.02"


def test_sentences_name_arms_and_the_page_titles_them(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    (by_title,) = decide(analysis, titles=True)
    assert "LayerNorm is worse" in by_title.sentence and "ln is" not in by_title.sentence
    assert "LayerNorm" not in verdict.sentence
    rows = [
        row
        for one in (analysis, analysis.by_name)
        for block in card(one, [verdict]).blocks.values()
        for row in block
    ]
    assert [row.arm for row in rows] == ["LayerNorm", "ln"]


@pytest.mark.parametrize("word", WORDS)
def test_every_word_is_in_the_headline(judged: tuple[Analysis, Verdict], word: Word) -> None:
    analysis, verdict = judged
    evidence = replace(verdict.evidence, invalid="a run is missing" if word == "INVALID" else "")
    cost = "cost not measured" if word == "BETTER" else ""
    text = " ".join(
        headlines(analysis, [replace(verdict, word=word, cost=cost, evidence=evidence)])
    )
    badge = f"{word} ({cost})" if cost else word
    assert text.startswith(f"LayerNorm is {badge} (")
    assert not [other for other in WORDS if other != word and other in text]
    # What cannot be judged has its reason there, and no number.
    assert ("+0." in text) == (word != "INVALID")
    assert ("a run is missing" in text) == (word == "INVALID")


def test_what_was_not_tested_has_no_p(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    described = replace(verdict, word="DESCRIPTIVE", p=None, adjusted_p=None)
    text = " ".join(headlines(analysis, [described]))
    assert text.startswith("LayerNorm is DESCRIPTIVE (+0.") and text.endswith("]).")


def test_many_contrasts_are_counted(judged: tuple[Analysis, Verdict]) -> None:
    analysis, verdict = judged
    undecided = replace(verdict, word="UNRESOLVED", row="6", outcome="INCONCLUSIVE")
    text = " ".join(headlines(analysis, [verdict] * 4 + [undecided] * 5))
    assert text == "of 9 contrasts, 5 UNRESOLVED and 4 WORSE."
    assert (
        " ".join(headlines(analysis, [verdict] * 4 + [undecided] * 4)).count("LayerNorm is ") == 8
    )


def test_an_untuned_rate_is_said_in_verdicts(small_study: Maker, fabricate: Fabricate) -> None:
    rate = "training.optimizer.learning_rate"
    arms = {
        "baseline": {},
        "ln": {"set": {"model.embedding.norm": "center"}},
        "hot": {"set": {rate: 1e-2}},
        "low": {"set": {rate: 1e-5}},
    }
    study = small_study({rate: 3e-4}, arms=arms, seeds=[1, 2, 3, 4, 5])
    analysis = analyse(fabricate(study, worse))
    verdicts = {verdict.arm: verdict for verdict in decide(analysis)}
    for arm, rates in {
        "ln": "3e-4",
        "hot": "0.01 against 3e-4",
        "low": "1e-5 against 3e-4",
    }.items():
        codes = {caution.code: caution.text for caution in verdicts[arm].cautions}
        for told in (verdicts[arm].answer, codes["not_tuned"]):
            assert rates in told and "not tuned" in told


def test_one_arm_compares_nothing(judged: tuple[Analysis, Verdict]) -> None:
    assert " ".join(headlines(judged[0], [])) == "One arm alone: nothing is compared."


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
    study = small_study(GATE, arms=ARMS, endpoints=endpoints, seeds=[1, 2, 3, 4, 5])
    analysis = analyse(fabricate(study, worse))
    verdicts = decide(analysis)
    assert [(v.metric, v.row, v.word, v.margin) for v in verdicts] == [
        ("validation_loss", "3", "WORSE", 0.02),
        ("brier_score", "4", "SAME", 0.01),  # the same score in every trial
    ]
    fired = {row[0]: row[-1] for row in decision_table(analysis, verdicts).rows if row[-1]}
    assert fired == {"3": "LayerNorm (validation loss)", "4": "LayerNorm (Brier score)"}
    loss, brier = headlines(analysis, verdicts)
    assert loss.startswith("On validation loss: LayerNorm is WORSE (+0.3")
    assert brier.startswith("On Brier score: LayerNorm is SAME (0 ")
    assert " ".join(headlines(analysis, verdicts)) == f"{loss} {brier}"
    # One family: Holm over both endpoints, and over their equivalence to it.
    assert analysis.contrast("ln", "validation_loss").holm_p == pytest.approx(
        2 * analysis.contrast("ln", "validation_loss").p
    )
