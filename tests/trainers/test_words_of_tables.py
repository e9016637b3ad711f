"""Small tables with a known right word, and error rates of the word when runs diverge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paribus
from paribus.decision import Verdict
from paribus.errors import ParibusError

TABLES = Path(__file__).parent / "words"


def judge_table(name: str, **options: Any) -> Verdict:
    about = {"score": "loss", "baseline": "base", "margin": 0.02}
    return paribus.judge(str(TABLES / f"{name}.csv"), **about | options)[0]


def codes(verdict: Verdict) -> set[str]:
    return {caution.code for caution in verdict.cautions}


def test_an_unstable_baseline_whose_survivors_are_better_is_unresolved() -> None:
    """The base diverged in 5 of 10 runs, and on every seed that survived both arms are alike."""
    verdict = judge_table("surv")
    assert (verdict.word, verdict.outcome) == ("UNRESOLVED", "INCONCLUSIVE")
    assert "0 of 10 runs against 5 of 10" in verdict.answer and "p = 0.033" in verdict.answer
    assert "+0.101" in verdict.answer
    assert verdict.pairs_needed is None
    by_seed = judge_table("surv", pair="seed")
    assert by_seed.word != "WORSE"


def test_a_cure_is_better_and_its_mirror_image_worse() -> None:
    verdict = judge_table("cure")
    assert (verdict.word, verdict.outcome) == ("BETTER", "ADOPT")
    assert "by stability" in verdict.answer and "0 of 8 runs against 8 of 8" in verdict.answer
    mirrored = judge_table("cure", baseline="new")
    assert (mirrored.word, mirrored.outcome) == ("WORSE", "REJECT")
    assert "8 of 8 runs against 0 of 8" in mirrored.answer


@pytest.mark.parametrize(
    ("name", "word", "outcome"),
    [
        ("33_arm_1of20_nan_better", "BETTER", "ADOPT"),
        ("35_arm_nan_same", "SAME", "NO EFFECT"),
    ],
)
def test_one_diverged_run_of_20_is_a_caution(name: str, word: str, outcome: str) -> None:
    verdict = judge_table(name)
    assert (verdict.word, verdict.outcome) == (word, outcome)
    assert "diverged" in codes(verdict)
    swapped = judge_table(name, baseline="new")
    assert swapped.word == {"BETTER": "WORSE", "SAME": "SAME"}[word]


def test_one_diverged_run_of_400_forbids_nothing() -> None:
    rng = np.random.default_rng(1)
    losses = [3 + 0.01 * rng.standard_normal(400), 2.9 + 0.01 * rng.standard_normal(400)]
    losses[1][0] = np.nan
    verdict = paribus.judge(as_table(*losses), score="loss", baseline="base", margin=0.02)[0]
    assert verdict.word == "BETTER" and "diverged" in codes(verdict)


def test_a_run_that_ends_at_a_huge_finite_loss_is_no_divergence() -> None:
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


def judge_cell(cell: str, folder: Path, **options: Any) -> Verdict:
    """Judge a table whose last run has this cell for a loss."""
    arms = [("base", seed, loss) for seed, loss in enumerate(BASE)]
    arms += [("new", seed, loss) for seed, loss in enumerate([*NEW, cell])]
    file = folder / "runs.csv"
    file.write_text("arm,seed,loss\n" + "\n".join(",".join(map(str, row)) for row in arms) + "\n")
    about = {"score": "loss", "baseline": "base", "margin": 0.02}
    return paribus.judge(str(file), **about | options)[0]


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("cell", ["", "NA", "null"])
def test_an_empty_cell_is_a_missing_score(cell: str, pair: bool, tmp_path: Path) -> None:
    verdict = judge_cell(cell, tmp_path, pair=pair)
    assert (verdict.word, verdict.n, verdict.evidence.n) == ("BETTER", 5, 5)
    assert verdict.evidence.state.divergence == "equal"
    assert any("1 of 6 runs of new excluded" in caution.text for caution in verdict.cautions)


@pytest.mark.parametrize("cell", ["nan", "NaN", "inf", "-Infinity", "diverged", "Overflow"])
def test_a_word_for_nan_is_a_divergence(cell: str, tmp_path: Path) -> None:
    verdict = judge_cell(cell, tmp_path)
    assert (verdict.evidence.n, verdict.evidence.state.divergence) == (6, "more")
    assert not any("excluded" in caution.text for caution in verdict.cautions)


def test_none_is_a_missing_score_and_nan_a_divergence() -> None:
    pandas = pytest.importorskip("pandas")
    about = {"score": "loss", "baseline": "base", "margin": 0.02}
    missing, diverged = as_table(BASE, [*NEW, 0]), as_table(BASE, [*NEW, np.nan])
    missing["loss"][-1] = None
    for table, divergence in ((missing, "equal"), (diverged, "more")):
        assert paribus.judge(table, **about)[0].evidence.state.divergence == divergence
    frame = pandas.DataFrame(diverged)  # whose NaN Arrow would read as an empty cell
    assert paribus.judge(frame, **about)[0].evidence.state.divergence == "more"


def test_an_arm_without_any_score_is_refused() -> None:
    data = as_table(BASE, NEW)
    data["loss"][len(BASE) :] = [None] * len(NEW)
    with pytest.raises(ParibusError, match="missing score"):
        paribus.judge(data, score="loss", baseline="base", margin=0.02)
