"""Rows for figures, read from the records: thinned, never averaged over steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from paribus.report import words
from paribus.report.figures.style import rounded
from paribus.report.words import names
from paribus.results import Results

MOST_STEPS = 200  # points of one line
MOST_ROWS = 12_000  # of one figure
FEWEST_STEPS = 12
QUANTILES = (0.05, 0.95)  # of the seeds of an arm, where it has too many to draw each

Series = tuple[str, int, str, np.ndarray, np.ndarray]


class Curves:
    """Columns of steps and probes of all finished trials."""

    def __init__(self, results: Results) -> None:
        self.results = results

    def series(self, columns: Collection[str]) -> Iterator[Series]:
        """Yield (arm, seed, column, steps [n], values [n]) of trials that have it; finite alone."""
        probes = self.results.trial_probes
        for (arm, seed), table in self.results.trial_steps.items():
            probed = probes[arm, seed]
            for column in columns:
                if column in table.column_names:
                    steps, values = table["step"].to_numpy(), table[column].to_numpy()
                else:
                    steps, values = probed.step, probed.column(column)
                if values is None:
                    continue
                values = values.astype(float)
                kept = np.isfinite(values)
                if kept.any():
                    yield arm, seed, column, steps[kept], values[kept]

    def last(self, columns: Collection[str]) -> dict[tuple[str, int, str], float]:
        """Return the last finite value of each column, by (arm, seed, column)."""
        found = self.series(columns)
        return {(arm, seed, column): float(values[-1]) for arm, seed, column, _, values in found}


def over_steps(
    curves: Curves, columns: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[dict[str, Any]]:
    """Return {arm, seed, step, value, part} of columns over training; `columns` gives their parts.

    Of more than MOST_LINES trials, each arm's seeds become {arm, step, mean, low, high, part}.
    """
    called, found = names(curves.results.study), list(curves.series(columns))
    if not found:
        return []
    if len({(arm, seed) for arm, seed, *_ in found}) > words.MOST_LINES:
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
    """Return indices of an even choice, first and last among them."""
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
        at = np.concatenate([steps for steps, _ in members])
        values = np.concatenate([of_one for _, of_one in members])
        order = np.argsort(at, kind="stable")
        steps, first, counts = np.unique(at[order], return_index=True, return_counts=True)
        values = values[order]
        means = np.add.reduceat(values, first) / counts
        low, high = (of.reduceat(values, first) for of in (np.minimum, np.maximum))
        for i in _picked(len(steps), most_rows // len(groups)):
            row = {"arm": called[arm], "step": int(steps[i]), "mean": rounded(float(means[i]))}
            row |= {"low": rounded(float(low[i])), "high": rounded(float(high[i]))}
            rows.append(row | ({"part": columns[column]} if len(columns) > 1 else {}))
    return rows


def over_seeds(rows: list[dict[str, Any]], *values: str) -> list[dict[str, Any]]:
    """Return one row for all seeds of what is else alike: means of these `values`, and of the first
    the 5th and the 95th percentile over seeds as `low` and `high`."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = tuple(item for item in row.items() if item[0] not in ("seed", "count", *values))
        groups.setdefault(key, []).append(row)
    found = []
    for key, members in groups.items():
        numbers = {name: np.array([row[name] for row in members]) for name in values}
        low, high = np.quantile(numbers[values[0]], QUANTILES)
        means = {name: rounded(of.mean()) for name, of in numbers.items()}
        found.append(dict(key) | means | {"low": rounded(low), "high": rounded(high)})
    return found
