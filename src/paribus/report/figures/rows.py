"""Rows for figures, read from the records: thinned, never averaged over steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from paribus import numbers
from paribus.report.figures.style import rounded
from paribus.report.tables import MOST_LINES, is_large
from paribus.results import Results

MOST_STEPS = 200  # points of one line
MOST_ROWS = 12_000  # of one figure
FEWEST_STEPS = 12
MOST_NAMED = 3  # arms of a title
ALIKE = 5e-4  # values that differ by less than so much of themselves read the same

Row = dict[str, Any]
Series = tuple[str, int, str, np.ndarray, np.ndarray]


def series_of(results: Results, columns: Collection[str]) -> Iterator[Series]:
    """Yield the series of columns, of trials that have them."""
    for (arm, seed), table in results.trial_steps.items():
        probes = results.trial_probes[arm, seed]
        for column in columns:
            source = table if column in table.column_names else probes
            if column in source.column_names:
                line = finite_series(arm, seed, column, source["step"], source[column])
                if line is not None:
                    yield line


def finite_series(arm: str, seed: int, column: str, steps: Any, values: Any) -> Series | None:
    """Return steps and values as far as both are finite; None where none are."""
    steps, values = (np.asarray(each, dtype=float) for each in (steps, values))
    kept = np.isfinite(steps) & np.isfinite(values)
    return (arm, seed, column, steps[kept], values[kept]) if kept.any() else None


def over_steps(
    results: Results, series: Sequence[Series], parts: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[Row]:
    """Return {arm, seed, part, x, value} of series over training; `parts` are those of columns.

    Of more than MOST_LINES trials, each arm's seeds become {arm, part, x, value, low, high}.
    """
    is_many = len({member[:2] for member in series}) > MOST_LINES
    groups: dict[tuple[str, str], list[Series]] = {}
    for member in series:
        groups.setdefault((member[0], member[2]), []).append(member)
    rows = []
    for (arm, column), members in groups.items():
        steps, values = _on_shared_steps(members, most_rows // len(groups if is_many else series))
        head: Row = {"arm": results.study.called[arm]}
        head |= {"part": parts[column]} if parts[column] else {}
        if is_many:
            ends = (
                np.nanmean(values, axis=0),
                np.nanmin(values, axis=0),
                np.nanmax(values, axis=0),
            )
            lines = [(head, dict(zip(("value", "low", "high"), ends, strict=True)))]
        else:
            seeds = (head | {"seed": seed} for _, seed, *_ in members)
            lines = [(head, {"value": line}) for head, line in zip(seeds, values, strict=True)]
        rows += [
            head | {"x": step} | {key: rounded(each[i]) for key, each in line.items()}
            for head, line in lines
            for i, step in enumerate(steps.tolist())
            if np.isfinite(line["value"][i])  # NaN before its first step and after its last
        ]
    return rows


def _on_shared_steps(members: list[Series], n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Return steps [n] that are chosen for all series, and their values [series, n]: a mean at a
    step is of every one that had begun and not ended. One that has no such step is read in a
    straight line between its own; outside its steps it is NaN."""
    own = []
    for *_, steps, values in members:  # of a step that was logged twice the last
        unique, at = np.unique(steps[::-1], return_index=True)
        own.append((unique, values[::-1][at]))
    every = np.unique(np.concatenate([steps for steps, _ in own]))
    n = min(len(every), max(FEWEST_STEPS, min(MOST_STEPS, n_points)))
    picked = np.linspace(0, len(every) - 1, n).round().astype(int)
    shared = np.union1d(every[picked], [steps[-1] for steps, _ in own]).astype(every.dtype)
    read = [np.interp(shared, *line, left=np.nan, right=np.nan) for line in own]
    return shared, np.array(read)


def over_seeds(rows: list[Row], *values: str) -> list[Row]:
    """Return one row for all seeds of what is else alike: means of these `values`, and of the first
    the lowest and the highest of all seeds as `low` and `high`."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = tuple(item for item in row.items() if item[0] not in ("seed", *values))
        groups.setdefault(key, []).append(row)
    summed = []
    for key, members in groups.items():
        means = {name: rounded(float(np.mean([row[name] for row in members]))) for name in values}
        each = [row[values[0]] for row in members]
        summed.append(dict(key) | means | {"low": min(each), "high": max(each)})
    return summed


def few(results: Results, rows: list[Row], *values: str) -> list[Row]:
    """Return the rows, of a large study those of all seeds together."""
    return over_seeds(rows, *values or ("value",)) if is_large(results) else rows


def finding(title: str, rows: list[Row], *, share: bool = False, sign: str = "") -> str:
    """Return a title with the mean over seeds of each arm's last value; of several parts the title.

    Args:
        share: whether numbers are shown as per cent.
        sign: `+` where they are changes.
    """

    def text(value: float) -> str:
        if share:
            return f"{100 * value:.3g}%"
        if abs(value) >= 1e4:
            return numbers.short(value)
        return f"{value:{sign}.{4 if abs(value) >= 1 else 3}g}"

    if len({row.get("part") for row in rows}) > 1:
        return title
    each: dict[str, list[float]] = {}
    for (arm, _), value in {(row["arm"], row.get("seed")): row["value"] for row in rows}.items():
        each.setdefault(arm, []).append(value)
    means = {arm: sum(values) / len(values) for arm, values in each.items()}
    lowest, highest = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
    size = max(map(abs, means.values()))
    if len(means) > 1 and means[highest] - means[lowest] <= ALIKE * size:
        return f"{title}: {text(means[lowest])} in every arm"
    if len(means) > MOST_NAMED:
        return f"{title}: {text(means[lowest])} ({lowest}) to {text(means[highest])} ({highest})"
    return f"{title}: {', '.join(f'{text(value)} ({arm})' for arm, value in means.items())}"
