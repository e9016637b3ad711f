"""Small tables with a known right word, and error rates of the word when runs diverge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import paribus
from paribus.decision import Verdicts
from paribus.report.figures.contrasts import forest
from paribus.report.model import build_report

from ..tools import cautions

TABLES = Path(__file__).parent / "words"


def judge_table(name: str, **options: Any) -> Any:
    """Judge a table; returns the verdict, with its cautions as attributes."""
    about = {"score": "loss", "baseline": "base", "margin": 0.02}
    return Judged(paribus.judge(str(TABLES / f"{name}.csv"), **about | options))


class Judged:
    """The first verdict, its `cautions`, and the counts of events of its arm."""

    def __init__(self, verdicts: Verdicts) -> None:
        self.verdicts, self.cautions = verdicts, cautions(verdicts)
        stability = verdicts.analysis.stability(verdicts[0].arm)
        rates = stability.diverged
        self.events = (rates.treatment_events, rates.baseline_events)
        self.events_p = stability.any_event.p_value

    def __getattr__(self, name: str) -> Any:
        return getattr(self.verdicts[0], name)


def codes(verdict: Any) -> set[str]:
    return {caution.code for caution in verdict.cautions}


def test_an_unstable_baseline_whose_survivors_are_better_is_unresolved():
    verdict = judge_table("surv")
    assert (verdict.word, verdict.outcome) == ("UNRESOLVED", "INCONCLUSIVE")
    assert verdict.events == (0, 5) and verdict.events_p == pytest.approx(0.033, abs=5e-4)
    assert verdict.effect == pytest.approx(0.101, abs=5e-4)
    assert verdict.needed.pairs is None
    by_seed = judge_table("surv", pair="seed")
    assert by_seed.word != "WORSE"


def test_a_cure_is_better_and_its_mirror_image_worse():
    verdict = judge_table("cure")
    assert (verdict.word, verdict.outcome) == ("BETTER", "ADOPT")
    assert verdict.events == (0, 8)
    mirrored = judge_table("cure", baseline="new")
    assert (mirrored.word, mirrored.outcome) == ("WORSE", "REJECT")
    assert mirrored.events == (8, 0)


@pytest.mark.parametrize(
    ("name", "needs", "why"), [("cure_5_pairs", 6, ""), ("collapse_5_pairs", None, "more_harm")]
)
def test_five_pairs_show_neither_a_cure_nor_its_mirror_image(name, needs, why):
    """The exact p of five pairs of five is 0.062; that of five runs against five is 0.008."""
    verdict = judge_table(name, pair="seed")
    assert (verdict.word, verdict.outcome) == ("UNRESOLVED", "INCONCLUSIVE")
    assert verdict.events_p == pytest.approx(0.0625)
    assert (verdict.needed.pairs, verdict.needed.why_not) == (needs, why)
    unpaired = judge_table(name)
    assert unpaired.word == ("BETTER" if needs else "WORSE")
    assert unpaired.events_p == pytest.approx(2 / 252)


def test_harm_whose_survivors_are_better_is_unresolved_and_both_are_said():
    verdict = judge_table("harm_survivors_better")
    assert (verdict.word, verdict.outcome) == ("UNRESOLVED", "INCONCLUSIVE")
    assert (verdict.needed.pairs, verdict.needed.why_not) == (None, "survivors_disagree")


def test_no_number_of_seeds_where_more_would_show_harm():
    verdict = judge_table("harm_not_shown", pair="seed")
    assert verdict.word == "UNRESOLVED" and verdict.needed.pairs is None
    assert (verdict.needed.why_not, verdict.needed.instead) == ("more_harm", "")


@pytest.mark.parametrize(
    ("name", "word", "outcome"),
    [("33_arm_1of20_nan_better", "BETTER", "ADOPT"), ("35_arm_nan_same", "SAME", "NO EFFECT")],
)
def test_one_diverged_run_of_20_is_a_caution(name, word, outcome):
    verdict = judge_table(name)
    assert (verdict.word, verdict.outcome) == (word, outcome)
    assert "diverged" in codes(verdict)
    swapped = judge_table(name, baseline="new")
    assert swapped.word == {"BETTER": "WORSE", "SAME": "SAME"}[word]


def test_a_run_that_ends_at_a_huge_finite_loss_is_no_divergence():
    verdict = judge_table("14_finite_blowup_in_arm")
    assert verdict.word == "UNRESOLVED"
    assert verdict.evidence.state.divergence == "equal"


def as_table(base: Any, new: Any) -> dict[str, list[Any]]:
    return {
        "arm": ["base"] * len(base) + ["new"] * len(new),
        "seed": [*range(len(base)), *range(len(new))],
        "loss": [*map(float, base), *map(float, new)],
    }


BASE, NEW = [3.012, 2.987, 3.003, 2.995, 3.021, 3.001], [2.9, 2.91, 2.89, 2.905, 2.892]


def judge_cell(cell: str, folder: Path, **options: Any) -> Any:
    """Judge a table whose last run has this cell for a loss."""
    arms = [("base", seed, loss) for seed, loss in enumerate(BASE)]
    arms += [("new", seed, loss) for seed, loss in enumerate([*NEW, cell])]
    file = folder / "runs.csv"
    file.write_text("arm,seed,loss\n" + "\n".join(",".join(map(str, row)) for row in arms) + "\n")
    about = {"score": "loss", "baseline": "base", "margin": 0.02}
    return Judged(paribus.judge(str(file), **about | options))


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("cell", ["", "NA", "null"])
def test_an_empty_cell_is_a_missing_score(cell, pair, tmp_path):
    verdict = judge_cell(cell, tmp_path, pair=pair)
    assert (verdict.word, verdict.n, verdict.evidence.n) == ("BETTER", 5, 5)
    assert verdict.evidence.state.divergence == "equal"
    assert any("6 runs" in caution.text for caution in verdict.cautions)


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-Infinity", "diverged", "Overflow"])
def test_a_word_for_nan_is_a_divergence(cell, tmp_path):
    verdict = judge_cell(cell, tmp_path)
    assert (verdict.evidence.n, verdict.evidence.state.divergence) == (6, "more")
    assert not any("excluded" in caution.text for caution in verdict.cautions)


def test_none_is_a_missing_score_and_nan_a_divergence():
    pandas = pytest.importorskip("pandas")
    about = {"score": "loss", "baseline": "base", "margin": 0.02}
    missing, diverged = as_table(BASE, [*NEW, 0]), as_table(BASE, [*NEW, np.nan])
    missing["loss"][-1] = None
    for table, divergence in ((missing, "equal"), (diverged, "more")):
        assert paribus.judge(table, **about)[0].evidence.state.divergence == divergence
    frame = pandas.DataFrame(diverged)  # whose NaN Arrow would read as an empty cell
    assert paribus.judge(frame, **about)[0].evidence.state.divergence == "more"


@pytest.mark.parametrize(
    ("base", "rise", "step"),
    [
        ([171, 172, 170, 173, 169], 3, 1.0),
        ([0.30000000000000004, 0.31, 0.32, 0.33, 0.34], -0.1, 0.01),
    ],
)
def test_equal_differences_have_the_spread_of_the_last_decimal(base, rise, step):
    new = np.round(np.asarray(base, dtype=float) + rise, 15)
    said = paribus.judge(as_table(base, new), score="loss", baseline="base", pair=True)[0]
    t = abs(rise) / (step / 5**0.5)
    assert said.p == pytest.approx(2 * stats.t.sf(t, 4), rel=1e-2)


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("n", [2, 3])
def test_two_runs_against_two_have_no_interval(n, pair):
    data = as_table([3.01, 2.98, 3.0][:n], [2.9, 2.91, 2.89][:n])
    verdicts = paribus.judge(data, score="loss", baseline="base", pair=pair)
    verdict = verdicts[0]
    assert verdict.word == "DESCRIPTIVE" and verdict.effect is not None
    has_none = n == 2
    assert (verdict.low is None, verdict.high is None) == (has_none, has_none)
    report = build_report(verdicts)
    for text in (report.blocks[0].rows[0].change, report.reading.replace("interval", "[")):
        assert ("[" in text) == (n > 2), text
    figure = forest(verdicts.analysis, verdicts.analysis.study.primary)
    (row,) = figure.rows
    assert (row["low"] == row["mean"] == row["high"]) == (n == 2)
    assert row["word"] == verdict.word


def test_the_mark_of_few_survivors_is_that_of_their_word():
    data = as_table(
        [3.01, 2.98, 3.0, 2.99, 3.02, 3.03], [3.0, 2.99, 3.01, 3.02, *[float("nan")] * 2]
    )
    (verdict,) = verdicts = paribus.judge(data, score="loss", baseline="base")
    figure = forest(verdicts.analysis, verdicts.analysis.study.primary)
    assert figure.rows[0]["word"] == verdict.word == "UNRESOLVED"
