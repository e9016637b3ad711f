"""Tables: every cell reaches the terminal, at any width; series over steps."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from paribus.report.figures.recorded import over_steps
from paribus.report.table_model import Table

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


def test_a_mean_is_of_all_seeds_there():
    steps = {1: np.arange(0, 5000, 10), 2: np.arange(0, 4000, 10), 3: np.arange(5, 4995, 10)}
    series = [("base", s, "loss", at.astype(float), s + at / 1000) for s, at in steps.items()]
    results: Any = SimpleNamespace(study=SimpleNamespace(called={"base": "base"}))
    rows = over_steps(results, series, {"loss": ""}, most_rows=600)
    shown = sorted({row["x"] for row in rows})
    assert len(shown) < 250
    for step in shown:
        seeds = [s for s, at in steps.items() if at[0] <= step <= at[-1]]
        here = [row for row in rows if row["x"] == step]
        assert [row["seed"] for row in here] == seeds
        assert [row["value"] for row in here] == pytest.approx([s + step / 1000 for s in seeds])
    for s, at in steps.items():
        assert max(row["x"] for row in rows if row["seed"] == s) == at[-1]
