"""Small tables with a known right word, and error rates of the word when runs diverge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import paribus
from paribus.analysis.score_grid import repeated_scores, score_steps
from paribus.decision import Verdicts
from paribus.report.figures.contrasts import forest
from paribus.report.model import build_report
from paribus.statistics import paired_deltas, paired_t, welch

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
    assert verdict.pairs_needed is None
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
    assert (verdict.pairs_needed, verdict.needed.why_not) == (needs, why)
    unpaired = judge_table(name)
    assert unpaired.word == ("BETTER" if needs else "WORSE")
    assert unpaired.events_p == pytest.approx(2 / 252)


def test_harm_whose_survivors_are_better_is_unresolved_and_both_are_said():
    verdict = judge_table("harm_survivors_better")
    assert (verdict.word, verdict.outcome) == ("UNRESOLVED", "INCONCLUSIVE")
    assert (verdict.pairs_needed, verdict.needed.why_not) == (None, "survivors_disagree")


def test_no_number_of_seeds_where_more_would_show_harm():
    verdict = judge_table("harm_not_shown", pair="seed")
    assert verdict.word == "UNRESOLVED" and verdict.pairs_needed is None
    assert (verdict.needed.why_not, verdict.needed.instead) == ("more_harm", "")
    rng = np.random.default_rng(1)
    base, new = 3 + 0.06 * rng.standard_normal((2, 8))
    new[:3] = np.nan
    said = paribus.judge(as_table(base, new), score="loss", baseline="base", margin=0.02)[0]
    assert (said.pairs_needed, said.needed.why_not) == (None, "more_harm")


def test_diverged_runs_without_a_partner_are_called_diverged():
    verdict = judge_table("diverged_without_partner", pair="seed")
    (caution,) = (one.text for one in verdict.cautions if one.code == "no_partner")
    assert "2 diverged" in caution
    assert "diverged" not in codes(verdict)  # no pair has a diverged run


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
    assert any("1 of 6 runs of new excluded" in caution.text for caution in verdict.cautions)


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


def test_the_resolution_of_printed_scores_is_the_least_sd():
    """All five differences are -0.100 in scores of three decimals: t is -0.1 / (0.001 / sqrt 5)."""
    verdict = judge_table("22_pair_const_delta", pair="seed")
    assert verdict.word == "BETTER" and "resolution" in codes(verdict)
    assert verdict.p == pytest.approx(2 * stats.t.sf(0.1 / (0.001 / 5**0.5), 4), rel=1e-9)
    assert verdict.low is not None and verdict.high is not None
    assert verdict.high - verdict.low == pytest.approx(2 * 0.001 / 5**0.5 * stats.t.ppf(0.975, 4))


@pytest.mark.parametrize("stated", [None, 0.001])
@pytest.mark.parametrize("pair", [False, True])
def test_a_spread_below_the_printed_digits_is_not_believed(pair, stated):
    new = [3.001, 3.001, 3.001, 3.002, 3.002]  # differences of 0.001, and one of 0.002
    data = as_table([3.0, 3.0, 3.0, 3.001, 3.0], new)
    finer = as_table(data["loss"][:5], [loss + k * 1e-9 for k, loss in enumerate(new)])
    about = {"score": "loss", "baseline": "base", "pair": pair, "better": "lower"}
    about |= {"resolution": stated}
    coarse = st_p(data, new, pair=pair, rounded=True)
    assert coarse > 2 * st_p(data, new, pair=pair, rounded=False)
    if pair or stated:
        assert paribus.judge(data, **about)[0].p == pytest.approx(coarse)
        # The arm with the coarser grid sets the step.
        assert paribus.judge(finer, **about)[0].p == pytest.approx(coarse, rel=1e-3)


@pytest.mark.parametrize(
    ("base", "rise", "step"),
    [
        ([171, 172, 170, 173, 169], 3, 1.0),
        ([0.30000000000000004, 0.31, 0.32, 0.33, 0.34], -0.1, 0.01),
        ([k / 300 for k in (200, 205, 211, 199, 207)], 10 / 300, 1 / 300),
        ([round(k / 164, 4) for k in (100, 105, 111, 99, 107)], 10 / 164, 1 / 164),
        (np.array([3.012, 2.987, 3.003, 2.995, 3.021], np.float32), -0.1, 0.001),
    ],
)
def test_equal_differences_have_the_spread_of_the_grid(base, rise, step):
    decimals = {1 / 164: 4, 0.001: 3}.get(step, 15)
    new = np.round(np.asarray(base, dtype=float) + rise, decimals)
    if isinstance(base, np.ndarray):
        new = new.astype(np.float32)
    said = paribus.judge(as_table(base, new), score="loss", baseline="base", pair=True)[0]
    t = abs(rise) / (step / 5**0.5)
    assert said.p == pytest.approx(2 * stats.t.sf(t, 4), rel=1e-2)


def st_p(data: dict[str, list[Any]], new: list[float], *, pair: bool, rounded: bool) -> float:
    base = np.array(data["loss"][:5])
    if pair:
        deltas = paired_deltas(base, new)
        return paired_t(deltas, resolution=0.001, rounded=rounded).p_value()
    return welch(base, new, resolution=0.001, rounded=rounded).p_value()


@pytest.mark.parametrize(("name", "margin"), [("27_skew", 0.02), ("36_outlier_needs", 0.001)])
def test_an_outlier_makes_equal_scores_no_copies(name, margin):
    verdict = judge_table(name, margin=margin)
    assert verdict.p is not None
    assert "one_seed" in codes(verdict)


def test_honest_tables_of_few_decimals_are_tested_and_copies_are_not():
    rng, blocked = np.random.default_rng(2), 0
    for _ in range(300):
        base, new = 3 + 0.015 * rng.standard_normal((2, 10))
        base[0] += 0.5
        blocked += bool(repeated_scores({"base": np.round(base, 2), "new": np.round(new, 5)}))
    assert blocked <= 6
    base, new = np.round(3 + 0.015 * rng.standard_normal((2, 6)), 6)
    new[1] = new[0]
    said = paribus.judge(as_table(base, new), score="loss", baseline="base")[0]
    assert said.p is None


@pytest.mark.parametrize("stored", [np.float64, np.float32])
@pytest.mark.parametrize("decimals", [2, 3, 4, 12])
@pytest.mark.parametrize(("questions", "n"), [(164, 5), (300, 10), (1319, 10)])
def test_honest_shares_of_questions_are_no_copies(questions, n, decimals, stored):
    rng, blocked = np.random.default_rng(3), 0
    for _ in range(40):
        shares = rng.binomial(questions, [[0.55], [0.65]], (2, n)) / questions
        base, new = np.round(shares, decimals).astype(stored).astype(float)
        percent = np.round(100 * shares, max(decimals - 2, 1)).astype(stored).astype(float)
        blocked += bool(repeated_scores({"base": base, "new": new}))
        blocked += bool(repeated_scores({"base": percent[0], "new": percent[1]}))
    assert blocked <= 2


@pytest.mark.parametrize("decimals", [6, 3, 2])
@pytest.mark.parametrize("copies", [2, 3])
def test_a_copy_is_found_whatever_decimals_the_other_arm_has(copies, decimals):
    rng, missed = np.random.default_rng(4), 0
    for _ in range(20):
        base, new = 3 + 0.015 * rng.standard_normal((2, 6))
        base = np.round(base, 6)
        base[:copies] = base[0]
        repeated = repeated_scores({"base": base, "new": np.round(new, decimals)})
        missed += repeated != {"base": (base[0], copies)}
    assert missed <= 1


@pytest.mark.parametrize(
    ("values", "step"),
    [
        ([3.28, 3.2, 3.01], 0.01),
        ([23.5, 12.0, 19.125, 14.25], 0.125),
        ([23 / 30, 0.5, 2 / 3], 1 / 30),
        ([3.123457, 3.2], 1e-6),
        ([0.1 + 0.2, 1 / 3 + 1e-9], 1e-16),
        ([0.1 + 0.2, 0.1 * 3, 0.7 + 0.1], 0.1),
        ([3250.0, 3275.0], 1.0),
        ([float(np.float32(value)) for value in (3.012, 2.987, 3.5)], 0.001),
        ([71.34, 70.12, 69.51, 72.56, 75.61, 76.22, 74.39], 100 / 164),
    ],
)
def test_the_step_of_an_arm_holds_all_of_its_values(values, step):
    assert score_steps([values]) == pytest.approx([step], rel=1e-9)


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
    for text in (report.rows[0].change, report.reading.replace("interval", "[")):
        assert ("[" in text) == (n > 2), text
    figure = forest(verdicts.analysis, verdicts.analysis.study.primary)
    (row,) = figure.rows
    assert (row["low"] == row["mean"] == row["high"]) == (n == 2)
    assert row["interval"] == "no interval" if n == 2 else " to " in row["interval"]
