"""Small tables with a known right word, and error rates of the word when runs diverge."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import paribus
from paribus.report.figures.contrasts import forest
from paribus.report.model import build_report

from ..tools import codes

TABLES = Path(__file__).parent / "words"
OPTIONS: dict[str, Any] = {"score": "loss", "baseline": "base", "margin": 0.02}


def judge_table(data: Any, **options: Any) -> Any:
    """Return the verdicts on a table in memory, in a file, or of a name in `words`."""
    data = str(TABLES / f"{data}.csv") if isinstance(data, str) and "/" not in data else data
    return paribus.judge(data, **OPTIONS | options)


@pytest.mark.parametrize(
    ("name", "options", "outcome", "events", "p", "needed"),
    [
        ("surv", {}, "INCONCLUSIVE", (0, 5), 0.033, None),
        ("cure", {}, "ADOPT", (0, 8), None, None),
        ("cure", {"baseline": "new"}, "REJECT", (8, 0), None, None),
        # The exact p of five pairs of five is 0.062; that of five runs against five is 0.008.
        ("cure_5_pairs", {"pair": "seed"}, "INCONCLUSIVE", (0, 5), 0.0625, (6, "")),
        ("cure_5_pairs", {}, "ADOPT", (0, 5), 2 / 252, None),
        ("collapse_5_pairs", {"pair": "seed"}, "INCONCLUSIVE", (5, 0), 0.0625, (6, "more_harm")),
        ("collapse_5_pairs", {}, "REJECT", (5, 0), 2 / 252, None),
        ("harm_survivors_better", {}, "INCONCLUSIVE", None, None, (None, "survivors_disagree")),
        ("harm_not_shown", {"pair": "seed"}, "INCONCLUSIVE", None, None, (37, "more_harm")),
        ("33_arm_1of20_nan_better", {}, "ADOPT", (1, 0), None, None),
        ("33_arm_1of20_nan_better", {"baseline": "new"}, "REJECT", (0, 1), None, None),
        ("35_arm_nan_same", {}, "NO EFFECT", (1, 0), None, None),
        ("14_finite_blowup_in_arm", {}, "INCONCLUSIVE", (0, 0), None, None),
    ],
)
def test_the_word_of_a_table_with_diverged_runs(name, options, outcome, events, p, needed):
    verdicts = judge_table(name, **options)
    verdict, stability = verdicts[0], verdicts.analysis.stability(verdicts[0].arm)
    rates = stability.diverged
    assert verdict.outcome == outcome
    assert events in (None, (rates.treatment_events, rates.baseline_events))
    assert p is None or stability.any_event.p_value == pytest.approx(p, abs=5e-4)
    assert needed in (None, (verdict.needed.pairs, verdict.needed.why_not))
    if events == (1, 0):
        assert "diverged" in codes(verdicts)


def as_table(base: Any, new: Any) -> dict[str, list[Any]]:
    return {
        "arm": ["base"] * len(base) + ["new"] * len(new),
        "seed": [*range(len(base)), *range(len(new))],
        "loss": [*map(float, base), *map(float, new)],
    }


BASE, NEW = [3.012, 2.987, 3.003, 2.995, 3.021, 3.001], [2.9, 2.91, 2.89, 2.905, 2.892]


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize(
    "cell", ["", "NA", "null", "nan", "NaN", "inf", "-Infinity", "diverged", "Overflow"]
)
def test_an_empty_cell_is_a_missing_score_and_a_word_for_nan_a_divergence(cell, pair, tmp_path):
    rows = [f"base,{seed},{loss}\n" for seed, loss in enumerate(BASE)]
    rows += [f"new,{seed},{loss}\n" for seed, loss in enumerate([*NEW, cell])]
    (tmp_path / "runs.csv").write_text("arm,seed,loss\n" + "".join(rows))
    verdicts = judge_table(f"{tmp_path}/runs.csv", pair=pair)
    is_missing = cell in ("", "NA", "null")
    evidence = verdicts[0].evidence
    assert (evidence.n == 5, evidence.state.divergence) == (
        (True, "equal") if is_missing else (False, "more")
    )
    assert ("no_score" in dict(verdicts.analysis.runs.notes)) == is_missing


def test_none_is_a_missing_score_and_nan_a_divergence():
    pandas = pytest.importorskip("pandas")
    missing, diverged = as_table(BASE, [*NEW, 0]), as_table(BASE, [*NEW, np.nan])
    missing["loss"][-1] = None
    frame = pandas.DataFrame(diverged)  # whose NaN Arrow would read as an empty cell
    for table, divergence in ((missing, "equal"), (diverged, "more"), (frame, "more")):
        assert judge_table(table)[0].evidence.state.divergence == divergence


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
