"""Tables: every cell reaches the terminal, whatever its width; tasks against their reference."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from paribus.analysis import analyse
from paribus.analysis.schema import TaskContrast
from paribus.report.table_model import Table
from paribus.report.tables import task_contrast_table
from paribus.statistics import paired_contrast

from ..conftest import Fabricate, Maker

BASELINE = [0.50, 0.52, 0.48, 0.51, 0.49]
TREATMENT = [0.45, 0.46, 0.44, 0.47, 0.43]


def contrast(n: int) -> TaskContrast:
    ours, theirs = TREATMENT[:n], BASELINE[:n]
    paired = paired_contrast(theirs, ours, seed=0) if n > 1 else None
    seeds = tuple(range(1, n + 1))
    means = sum(theirs) / n, sum(ours) / n
    about = {"arm": "layernorm", "reference": "baseline", "task": "typo", "chance": 0.5}
    about |= {"baseline": means[0], "treatment": means[1]}
    return TaskContrast(**about, seeds=seeds, by_run=paired, holm_p=0.0123)


def test_five_pairs_are_tested_fewer_described(small_study: Maker, fabricate: Fabricate) -> None:
    analysis = analyse(fabricate(small_study(), lambda arm, seed: 2.0 + 0.01 * seed))
    assert not task_contrast_table(analysis).rows  # no tasks, no table
    rows = []
    for n in (5, 4, 1):
        table = task_contrast_table(replace(analysis, tasks=(contrast(n),)))
        rows += table.rows
    assert rows[0][0] == "typo"
    assert rows[0][2:4] == ("50.0", "45.0")
    assert rows[0][4].startswith("-5.0 [-6.2, -3.")
    assert rows[0][6] == "0.012"
    assert rows[1][5:] == rows[2][5:] == ("–", "–")  # noqa: RUF001
    assert rows[2][4] == "-5.0"


INTERVAL = "+0.0120 [-0.0034, +0.0275]"
TABLE = Table(
    "endpoints",
    "A caption is of the page and the paper.",
    ("endpoint", "arm", "change [95%]", "p", "outcome"),
    [
        ("loss", "[red]norm[/red]", INTERVAL, "0.123", "not resolved, as many pairs are missing"),
        ("", "other", INTERVAL, "", "✗ broken"),
        ("accuracy", "other", "", "<0.001", ""),
    ],
    title="what arms do",
)


def printed(table: Table, width: int) -> list[str]:
    console = Console(width=width, file=StringIO())
    console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [48, 60, 80, 200])
def test_every_cell_is_printed_whole_within_the_width(width: int) -> None:
    lines = printed(TABLE, width)
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    for row in TABLE.rows:
        for cell in row:
            assert set(cell.split()) <= {*words}, f"{cell} at {width}"
    assert "caption" not in words and "arms" in words
