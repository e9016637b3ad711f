"""Tuning on the page and in the paper: every trial is drawn, and the caveats are in the verdict."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vl_convert
from rich.console import Console

from paribus import numbers
from paribus.analysis import Analysis, analyse
from paribus.cli.printed import chosen
from paribus.decision import decide, shared_caveats
from paribus.errors import ParibusError
from paribus.report.figures import Figure
from paribus.report.figures.tuning_curves import tuning_figures
from paribus.report.page import render
from paribus.report.paper.bound import Bound
from paribus.report.paper.contents import Material, sections
from paribus.report.section_tables import AT_BEST, shared_table, tuning_in_words, tuning_table
from paribus.report.words import headlines
from paribus.results import Results

from ..conftest import Fabricate, Maker, studies_in
from ..tuned_results import RATE, surface, tables, tuned_and_trained

RATES = [1e-5, 1e-4, 1e-3, 1e-2]  # the best of layernorm is at the edge
DECAY = "training.optimizer.weight_decay"
WARMUP = "training.schedule.warmup"


def loss(arm: str, rate: float, seed: int) -> float:
    """The surface; the baseline diverges at the largest rate with one seed."""
    return math.nan if (arm, rate, seed) == ("baseline", 1e-2, 102) else surface(arm, rate, seed)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("tuned")
    return tuned_and_trained(studies_in(folder)(**tables(RATES)), folder / "r", loss)


@pytest.fixture(scope="module")
def analysis(made: Results) -> Analysis:
    return analyse(made)


@pytest.fixture(scope="module")
def drawn(analysis: Analysis) -> dict[str, Figure]:
    return {figure.name: figure for figure in tuning_figures(analysis)}


def test_a_paper_names_the_best_that_was_tried(made: Results, analysis: Analysis) -> None:
    means = {
        point.arm: point.mean
        for point in analysis.tuned.points
        if point.chosen  # type: ignore
    }
    bound = Bound({"one": made.path}, digits=3)
    assert bound.best_tried("one", "layernorm") == numbers.fixed(means["layernorm"], 4)
    change = numbers.signed(means["layernorm"] - means["baseline"], 3)
    assert bound.best_tried("one", "layernorm", against="baseline") == change
    low, high = sorted(numbers.fixed(surface("layernorm", 1e-2, of), 4) for of in (101, 102))
    with_ends = bound.best_tried("one", "layernorm", ends=True)
    assert with_ends == f"{numbers.fixed(means['layernorm'], 4)} ({low} to {high})"


def test_a_paper_says_what_a_shared_value_would_have_told(made: Results) -> None:
    # Where the baseline diverges with a seed, the rate has no change of that seed.
    changes = {
        rate: np.mean(
            [
                surface("layernorm", rate, of) - surface("baseline", rate, of)
                for of in (101, 102)
                if (rate, of) != (1e-2, 102)
            ]
        )
        for rate in RATES
    }
    low, high = min(changes, key=changes.__getitem__), max(changes, key=changes.__getitem__)
    told = Bound({"one": made.path}, digits=3).at_one_value("one", "layernorm")
    low_told, high_told = (
        f"{numbers.signed(changes[rate], 3)} at {numbers.compact(rate)}" for rate in (low, high)
    )
    assert told == f"{low_told} to {high_told}"
    with pytest.raises(ParibusError, match="share no value"):
        Bound({"one": made.path}).at_one_value("one", "baseline")


def of(figure: Figure, kind: str, arm: str) -> list[dict[str, Any]]:
    return [row for row in figure.rows if row["kind"].startswith(kind) and row["arm"] == arm]


def test_a_curve_has_every_seed_its_means_and_the_choice(drawn: dict[str, Figure]) -> None:
    curve = drawn["tuning-learning_rate"]
    seeds = of(curve, "seed", "layernorm")
    expected = {(rate, s): surface("layernorm", rate, s) for rate in RATES for s in (101, 102)}
    found = {(row["at"], row["seed"]): row["value"] for row in seeds}
    assert found == pytest.approx(expected, rel=1e-4)
    means = {row["at"]: row["value"] for row in of(curve, "mean", "layernorm")}
    each = {r: sum(expected[r, s] for s in (101, 102)) / 2 for r in RATES}
    assert means == pytest.approx(each, rel=1e-4)
    best = [(row["at"], row["state"]) for arm in ("baseline", "layernorm")
            for row in of(curve, "chosen", arm)]  # fmt: skip
    assert best == [(1e-3, "chosen"), (1e-2, "chosen: upper edge")]
    lost = [(row["at"], row["lost"]) for row in of(curve, "diverged", "baseline")]
    assert lost == [(1e-2, "1 of 2 diverged")]
    assert '"type": "log"' in json.dumps(curve.definition)


def test_the_contrast_stands_at_shared_values(analysis: Analysis, drawn: dict[str, Figure]) -> None:
    figure = drawn["tuning-contrast"]
    means = {row["at"]: row["value"] for row in of(figure, "mean", "layernorm")}
    log = {rate: math.log10(rate) for rate in RATES}
    apart = {rate: 0.1 * ((x + 2) ** 2 - (x + 3) ** 2) for rate, x in log.items()}
    assert means == pytest.approx(apart, abs=1e-4)
    (band,) = of(figure, "verdict", "layernorm")
    says = analysis.contrast("layernorm", "validation_loss").decided
    ends = (says.mean, says.interval.low, says.interval.high)
    assert (band["value"], band["low"], band["high"]) == pytest.approx(ends, rel=1e-4)
    table = shared_table(analysis)
    assert [row[2] for row in table.rows] == [
        *(f"both at learning_rate {rate}" for rate in ("1e-5", "1e-4", "0.001", "0.01")),
        AT_BEST,
    ]
    assert [row[3] for row in table.rows] == ["2", "2", "2", "1", "5"]
    assert float(table.rows[0][4]) == pytest.approx(apart[1e-5], abs=1e-4)


def test_what_the_tuning_leaves_open_is_in_every_verdict(analysis: Analysis) -> None:
    (verdict,) = decide(analysis)
    open_ = "of layernorm: the best is the largest value tried (learning_rate 0.01)"
    assert "with each arm at its best of the learning rates tried" in verdict.answer
    assert open_ not in verdict.answer and open_ not in " ".join(headlines(analysis, [verdict]))
    assert any(open_ in line for line in verdict.caveats)
    assert verdict.sentence == " ".join([verdict.answer, *verdict.caveats])
    assert any("2 tuning seeds cannot show it" in line for line in verdict.caveats)
    assert "learning rate" in verdict.caveats[0] and "layernorm changes" in verdict.caveats[0]
    assert "the sign depends" in verdict.caveats[0]
    assert [caution.text for caution in verdict.cautions] == list(verdict.caveats)
    assert verdict.cautions[0].code == "tuning"
    assert shared_caveats([verdict, replace(verdict, cautions=verdict.cautions[1:])]) == [
        *verdict.caveats[1:]
    ]
    assert shared_caveats([]) == []


def test_the_page_shows_tuning(made: Results, analysis: Analysis, drawn: dict[str, Figure]) -> None:
    page = render(made, analysis, decide(analysis), list(drawn.values()))
    places = [page.index(f'id="{name}"') for name in ("verdict", "tuning", "controls")]
    assert places == sorted(places)
    figures = [page.index(f'id="figure-tuning-{name}"') for name in ("learning_rate", "contrast")]
    assert places[1] < figures[0] < figures[1] < page.index("What every arm was tuned to")


def test_the_report_has_tuning(made: Results, analysis: Analysis, drawn: dict[str, Figure]) -> None:
    material = Material(made, analysis, decide(analysis), list(drawn.values()))
    (part,) = (one for one in sections(material) if one.title == "Tuning")
    table, _, figures = part.blocks
    assert table == tuning_table(analysis)
    assert [one.name for one in figures] == ["tuning-learning_rate", "tuning-contrast"]
    assert "4 candidates" in next(one.text for one in material.facts if one.name == "Tuning")


def test_two_keys_are_two_curves_that_print(small_study: Maker, tmp_path: Path) -> None:
    grid = {RATE: [1e-3, 1e-2], DECAY: [0.0, 0.1]}
    study = small_study(**tables([], grid=grid))
    analysis = analyse(tuned_and_trained(study, tmp_path / "r"))
    found = {figure.name: figure for figure in tuning_figures(analysis)}
    assert list(found) == [
        "tuning-surface-weight_decay",
        *("tuning-learning_rate", "tuning-weight_decay"),
        *("tuning-contrast",),
    ]
    # At each rate the line has the better decay; of equal ones the first.
    assert len(of(found["tuning-learning_rate"], "mean", "baseline")) == 2
    assert {row["at"] for row in found["tuning-contrast"].rows if "at" in row} == {
        *("0.001, 0", "0.001, 0.1", "0.01, 0", "0.01, 0.1")
    }
    for figure in found.values():
        assert vl_convert.vegalite_to_svg(json.dumps(figure.printed(380))).startswith("<svg")


def over_two_keys(arm: str, at: tuple[float, int], seed: int) -> float:
    """A surface whose best rate moves with warmup; without any, the largest rate diverges."""
    rate, warmup = at
    if (rate, warmup) == (1e-1, 0):
        return math.nan
    return surface(arm, rate / (1 + warmup), seed) + 0.001 * warmup


def two_keys(setting: Any) -> tuple[float, int]:
    training = setting.training
    return training.optimizer.learning_rate, training.schedule.warmup


def test_a_surface_has_a_line_for_each_other_value(small_study: Maker, tmp_path: Path) -> None:
    rates, warmups = [1e-3, 1e-2, 1e-1], [4, 0, 2]
    grid = {RATE: rates, WARMUP: warmups, "training.schedule.kind": ["cosine", "constant"]}
    made = tuned_and_trained(
        small_study(**tables([], grid=grid)), tmp_path / "r", over_two_keys, two_keys
    )
    drawn = {one.name: one for one in tuning_figures(analyse(made))}
    figure = drawn["tuning-surface-warmup"]
    for arm in ("baseline", "layernorm"):
        means = {(row["at"], row["by"]): row["value"] for row in of(figure, "mean", arm)}
        expected = {
            (rate, n): sum(over_two_keys(arm, (rate, n), seed) for seed in (101, 102)) / 2
            for rate in rates
            for n in warmups
            if (rate, n) != (1e-1, 0)
        }
        assert means == pytest.approx(expected, rel=1e-4)
        ((at, by, best),) = [(r["at"], r["by"], r["value"]) for r in of(figure, "chosen", arm)]
        assert best == min(means.values()) == means[at, by]
        assert [(r["at"], r["by"]) for r in of(figure, "diverged", arm)] == [(1e-1, 0)]
    # Of colours in their order; a line where every value is listed.
    definition = json.dumps(figure.definition)
    assert '"domain": [0, 2, 4]' in definition and '"line"' in definition
    # The best has no warmup or any rate but the outermost: nothing lies below 0.
    chosen = of(drawn["tuning-warmup"], "chosen", "baseline")
    assert [(row["at"], row["state"]) for row in chosen] == [(0, "chosen")]
    assert {row["by"] for row in drawn["tuning-surface-kind"].rows} == {"cosine", "constant"}


def test_listed_combinations_are_dots(small_study: Maker, tmp_path: Path) -> None:
    listed = [{RATE: 1e-4 * 2**n, WARMUP: 3 * n % 5} for n in range(8)]
    study = small_study(**tables([], grid={}, combinations=listed))
    made = tuned_and_trained(study, tmp_path / "r", over_two_keys, two_keys)
    drawn = {one.name: one for one in tuning_figures(analyse(made))}
    assert len(of(drawn["tuning-surface-warmup"], "mean", "baseline")) == 8
    for figure in drawn.values():
        assert '"line"' not in json.dumps(figure.definition)
        assert vl_convert.vegalite_to_svg(json.dumps(figure.printed(380))).startswith("<svg")


def test_the_terminal_says_what_was_chosen(analysis: Analysis) -> None:
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in chosen(analysis):
        console.print(part)
    text = " ".join(console.export_text().split())
    assert "tuning: 4 candidates by validation loss" in text
    assert "layernorm learning_rate 0.01" in text
    assert "-0.1000 (learning_rate 0.01) and +0.5000 (learning_rate 1e-5)" in text


def test_an_untuned_study_says_nothing_of_it(small_study: Maker, fabricate: Fabricate) -> None:
    analysis = analyse(fabricate(small_study(), lambda arm, seed: 2.0 + seed / 100))
    assert tuning_figures(analysis) == tuning_in_words(analysis) == list(chosen(analysis)) == []
    assert tuning_table(analysis) is shared_table(analysis) is None
