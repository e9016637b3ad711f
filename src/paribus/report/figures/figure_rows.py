"""Rows for figures, read from the records: thinned, never averaged over steps."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.report.figures.style import names, rounded
from paribus.results import Results

MOST_STEPS = 200  # points of one line
MOST_ROWS = 12_000  # of one figure
FEWEST_STEPS = 12
MOST_LINES = 150  # trials that are drawn as lines of their own

Series = tuple[str, int, str, np.ndarray, np.ndarray]


class Curves:
    """Columns of steps and probes of all finished trials, each file read once."""

    def __init__(self, results: Results, columns: Iterable[str]) -> None:
        wanted = ["step", *columns]
        self.results = results
        self._tables = {
            (folder.arm, folder.seed): folder.read_columns("probes.parquet", wanted)
            for folder in results.finished
        }

    def series(self, columns: Collection[str]) -> Iterator[Series]:
        """(arm, seed, column, steps [n], values [n]) of trials that have it; finite values only."""
        for (arm, seed), steps in self.results.trial_steps.items():
            for column in columns:
                table = steps if column in steps.column_names else self._tables[arm, seed]
                if column in table.column_names:
                    values = table[column].to_numpy().astype(float)
                    kept = np.isfinite(values)
                    if kept.any():
                        yield arm, seed, column, table["step"].to_numpy()[kept], values[kept]

    def last(self, columns: Collection[str]) -> dict[tuple[str, int, str], float]:
        """The last finite value of each column, by (arm, seed, column)."""
        found = self.series(columns)
        return {(arm, seed, column): float(values[-1]) for arm, seed, column, _, values in found}


def over_steps(
    curves: Curves, columns: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[dict[str, Any]]:
    """{arm, seed, step, value, part} of some columns over training; `columns` gives their parts.

    Of more than MOST_LINES trials, each arm's seeds become {arm, step, mean, low, high, part}.
    """
    called, found = names(curves.results.study), list(curves.series(columns))
    if not found:
        return []
    n_lines = len({(arm, seed) for arm, seed, *_ in found})
    if n_lines > MOST_LINES:
        return _summed_up(found, called, columns, most_rows)
    most = most_rows // len(found)
    rows = []
    for arm, seed, column, steps, values in found:
        picked = _picked(len(steps), most)
        about = {"arm": called[arm], "seed": seed}
        if len(columns) > 1:
            about["part"] = columns[column]
        rows += [
            about | {"step": step, "value": rounded(value)}
            for step, value in zip(steps[picked].tolist(), values[picked].tolist(), strict=True)
        ]
    return rows


def _picked(n: int, most: int) -> np.ndarray:
    """Indices of an even choice, first and last among them."""
    count = min(n, max(FEWEST_STEPS, min(MOST_STEPS, most)))
    return np.unique(np.linspace(0, n - 1, count).round().astype(int))


def _summed_up(
    found: list[Series], called: dict[str, str], columns: dict[str, str], most_rows: int
) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], list[tuple[np.ndarray, np.ndarray]]] = {}
    for arm, _, column, steps, values in found:
        groups.setdefault((arm, column), []).append((steps, values))
    rows = []
    for (arm, column), members in groups.items():
        steps = np.unique(np.concatenate([at for at, _ in members]))
        for step in steps[_picked(len(steps), most_rows // len(groups))]:
            there = [values[at == step] for at, values in members]
            values = np.concatenate(there)
            row = {"arm": called[arm], "step": int(step), "mean": rounded(values.mean())}
            row |= {"low": rounded(values.min()), "high": rounded(values.max())}
            rows.append(row | ({"part": columns[column]} if len(columns) > 1 else {}))
    return rows


def task_accuracy(results: Results) -> pa.Table | None:
    """arm, seed, task, shots, accuracy, chance; None where no trial answered any."""
    return results.tasks if len(results.tasks) else None
