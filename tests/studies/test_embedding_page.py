"""The page on embedding norms says what the records of the kept studies say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paribus.results import unpack
from paribus.results.keeping import read_analysis

from .scripts import HOME, script

pytestmark = pytest.mark.skipif(not HOME.exists(), reason="needs a checkout")
ARMS = ("baseline", "layernorm", "rmsnorm")
COLUMNS = ("", "-unit", "-4-unit")
ROWS = {
    "validation perplexity": ("validation_perplexity", 1),
    "next-token accuracy": ("validation_accuracy", 3),
    "gradient norm, final": ("grad_norm", 2),
    "embedding norm at block 1": ("embedding_norm", 2),
}
CELLS = {  # as its arms are called
    ("tied", "warmup"): "-warm",
    ("tied", "no warmup"): "",
    ("untied", "warmup"): "-untied-warm",
    ("untied", "no warmup"): "-untied",
}
HALVES = {"300": "embedding-factorial", "1,500": "embedding-factorial-long"}


def cells() -> dict[tuple[str, ...], list[str]]:
    """The rows of all tables of the page, by their first cell and by their first three."""
    page = (HOME.parent / "docs" / "explanation" / "embedding-norm.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    return {tuple(row[:n]): row for row in rows for n in (1, 3) if row}


def analysis(name: str) -> dict:
    return json.loads((HOME / name / "analysis.json").read_text())


def test_the_pilot_is_told_as_it_was_measured() -> None:
    found = analysis("embedding-norm-pilot")
    means = {(one["arm"], one["metric"]): one["mean"] for one in found["summaries"]}
    told = cells()
    claims = json.loads((HOME / "embedding-norm-pilot" / "study.json").read_text())["claims"]
    for row, (metric, digits) in ROWS.items():
        claimed = [one["mean"] for one in claims["values"] if one["metric"] == metric]
        assert [float(x) for x in told[row,][1].split(" / ")] == claimed
        for column, suffix in zip(told[row,][2:], COLUMNS, strict=True):
            here = [f"{means[arm + suffix, metric]:.{digits}f}" for arm in ARMS]
            assert column == " / ".join(here), (row, suffix)


@pytest.mark.parametrize("budget", HALVES)
@pytest.mark.parametrize("row", CELLS, ids="-".join)
def test_the_factorial_is_told_as_it_was_decided(row: tuple[str, str], budget: str) -> None:
    found = read_analysis(HOME / HALVES[budget])["contrasts"]
    decided = {one["arm"]: one["decided"] for one in found if one["metric"] == "validation_loss"}
    arms = ("layernorm", "rmsnorm", "factor", "steps")
    for cell, arm in zip(cells()[*row, budget][3:], arms, strict=True):
        one = decided[arm + CELLS[row]]
        low, high = one["interval"]["low"], one["interval"]["high"]
        assert cell.removesuffix(" †") == f"{one['mean']:+.3f} [{low:+.3f}, {high:+.3f}]"


def test_what_the_paper_says_of_the_changes_by_budget_is_so() -> None:
    changes = json.loads((HOME / "budget.json").read_text())
    p = {name: one for name, one in changes.items() if name.endswith("all cells: p")}
    assert p.pop("center, all cells: p") > 0.5 and max(p.values()) < 0.02 and len(p) == 4


@pytest.mark.slow
def test_the_changes_by_budget_are_those_of_the_records() -> None:
    budget = script("budget")
    found = budget.changes(*(HOME / name for name in HALVES.values()))
    kept = json.loads((HOME / "budget.json").read_text())
    assert found.keys() == kept.keys()
    for name, one in found.items():
        assert one == pytest.approx(kept[name], abs=1e-6), name


@pytest.mark.slow
def test_a_second_computation_without_paribus_agrees(tmp_path: Path) -> None:
    folders = [unpack(HOME / name, tmp_path / name) for name in HALVES.values()]
    assert script("recount").main(*folders) == 0
