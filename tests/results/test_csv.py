"""CSV files are opened in spreadsheets, which run what looks like a formula."""

from __future__ import annotations

import csv
from collections.abc import Callable

import pytest

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.report.paper import write_paper
from paribus.results import Results, write_tables
from paribus.results.formats import csv_cell
from paribus.study import Study

FORMULA = "=HYPERLINK(http)"


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-cmd", "'-cmd"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"),
        ("-0.095", "-0.095"),
        ("+1,024", "+1,024"),
        ("-1.5e-03", "-1.5e-03"),
        ("-5%", "-5%"),
        ("baseline", "baseline"),
        ("", ""),
        (-0.5, -0.5),
        (None, None),
    ],
)
def test_only_text_is_made_safe(cell: object, written: object) -> None:
    assert csv_cell(cell) == written


def test_no_table_begins_a_cell_with_a_formula(
    small_study: Callable[..., Study], fabricate: Callable[..., Results]
) -> None:
    change = {"set": {"model.embedding.norm": "layernorm"}, "title": "@SUM(1)"}
    study = small_study(arms={"baseline": {}, FORMULA: change}, seeds=[1, 2])
    results = fabricate(study, lambda arm, seed: 3.0 + seed / 100)
    write_tables(results)
    analysis = analyse(results)
    write_paper(results, analysis, decide(analysis), [])
    cells = [
        cell
        for file in [results.path / "tables" / "scores.csv", *results.path.glob("paper/**/*.csv")]
        for row in csv.reader(file.open(newline=""))
        for cell in row
    ]
    assert f"'{FORMULA}" in cells
    assert "'@SUM(1)" in cells
    assert [cell for cell in cells if csv_cell(cell) != cell] == []
