"""Rows for figures, read from the records: thinned, never averaged over steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from paribus import numbers
from paribus.report.figures.style import rounded
from paribus.report.tables import MOST_LINES
from paribus.results import Results

MOST_STEPS = 200  # points of one line
MOST_ROWS = 12_000  # of one figure
FEWEST_STEPS = 12
QUANTILES = (0.05, 0.95)  # of the seeds of an arm, where it has too many to draw each

MOST_NAMED, MOST_TOLD = 3, 3  # arms of a title; parts of a caption
ALIKE = 5e-4  # values that differ by less than so much of themselves read the same

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
    return rows_of(curves.results, list(curves.series(columns)), columns, most_rows=most_rows)


def rows_of(
    results: Results, series: list[Series], columns: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[dict[str, Any]]:
    """Return the same of series that were `found`."""
    called = results.study.called
    if not series:
        return []
    if len({(arm, seed) for arm, seed, *_ in series}) > MOST_LINES:
        return _summed_up(series, called, columns, most_rows)
    rows = []
    for (arm, column), members in _by_line(series).items():
        shared = _on_shared_steps([member[3:] for member in members], most_rows // len(series))
        for (_, seed, *_), (steps, values) in zip(members, shared, strict=True):
            head = {"arm": called[arm], "seed": seed}
            if len(columns) > 1:
                head["part"] = columns[column]
            rows += [
                head | {"step": step, "value": rounded(value)}
                for step, value in zip(steps.tolist(), values.tolist(), strict=True)
            ]
    return rows


def _by_line(series: list[Series]) -> dict[tuple[str, str], list[Series]]:
    """Return the series that one mean is of, by arm and column."""
    groups: dict[tuple[str, str], list[Series]] = {}
    for member in series:
        groups.setdefault((member[0], member[2]), []).append(member)
    return groups


def _on_shared_steps(
    members: list[tuple[np.ndarray, np.ndarray]], most_points: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return series at steps that are chosen for all: a mean at a step is of every one that had
    begun and not ended. One that has no such step is read in a straight line between its own."""
    first = members[0][0]
    if all(np.array_equal(steps, first) for steps, _ in members):
        picked = _picked(len(first), most_points)
        return [(steps[picked], values[picked]) for steps, values in members]
    ascending = []
    for steps, values in members:  # of a step that was logged twice the last
        steps, at = np.unique(steps[::-1], return_index=True)
        ascending.append((steps, values[::-1][at]))
    every = np.unique(np.concatenate([steps for steps, _ in ascending]))
    ends = [steps[-1] for steps, _ in ascending]
    chosen = np.union1d(every[_picked(len(every), most_points)], ends)
    interpolated = []
    for steps, values in ascending:
        within = chosen[(chosen >= steps[0]) & (chosen <= steps[-1])]
        interpolated.append((within, np.interp(within, steps, values)))
    return interpolated


def _picked(n: int, most_points: int) -> np.ndarray:
    """Return indices of an even choice, first and last among them."""
    count = min(n, max(FEWEST_STEPS, min(MOST_STEPS, most_points)))
    return np.unique(np.linspace(0, n - 1, count).round().astype(int))


def _summed_up(
    series: list[Series], called: dict[str, str], columns: dict[str, str], most_rows: int
) -> list[dict[str, Any]]:
    rows, groups = [], _by_line(series)
    for (arm, column), members in groups.items():
        shared = _on_shared_steps([member[3:] for member in members], most_rows // len(groups))
        at = np.concatenate([steps for steps, _ in shared])
        values = np.concatenate([of_one for _, of_one in shared])
        order = np.argsort(at, kind="stable")
        steps, first, counts = np.unique(at[order], return_index=True, return_counts=True)
        values = values[order]
        means = np.add.reduceat(values, first) / counts
        low, high = (reduce.reduceat(values, first) for reduce in (np.minimum, np.maximum))
        for i in range(len(steps)):
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
    means_by_key = []
    for key, members in groups.items():
        numbers = {name: np.array([row[name] for row in members]) for name in values}
        low, high = np.quantile(numbers[values[0]], QUANTILES)
        means = {name: rounded(column.mean()) for name, column in numbers.items()}
        means_by_key.append(dict(key) | means | {"low": rounded(low), "high": rounded(high)})
    return means_by_key


def last_means(
    rows: list[dict[str, Any]], value: str = "value", part: str = "part"
) -> dict[str, dict[str, float]]:
    """Return the mean over seeds of each arm's last `value`, by part and arm; of rows in their
    order. The part is empty where rows have none."""
    last = {(row["arm"], row.get("seed"), _part(row.get(part, ""))): row for row in rows}
    by_part: dict[str, dict[str, list[float]]] = {}
    for (arm, _, part_name), row in last.items():
        number = row.get(value, row.get("mean"))
        if number is not None:
            by_part.setdefault(part_name, {}).setdefault(arm, []).append(number)
    return {
        part_name: {arm: sum(values) / len(values) for arm, values in by_arm.items()}
        for part_name, by_arm in by_part.items()
    }


def _part(part: str | float) -> str:
    return part if isinstance(part, str) else f"{part:g}"


def finding(
    title: str,
    means: dict[str, dict[str, float]],
    at: str = "",
    *,
    share: bool = False,
    sign: str = "",
) -> tuple[str, str]:
    """Return a title that says what was found, and the numbers in a sentence.

    Args:
        means: of each arm, by part, as `last_means` gives them.
        at: before the name of a part: `position `.
        share: whether numbers are shown as per cent.
        sign: `+` where they are changes.
    """

    def text(value: float) -> str:
        if share:
            return f"{100 * value:.3g}%"
        if abs(value) >= 1e4:
            return numbers.short(value)
        return f"{value:{sign}.{4 if abs(value) >= 1 else 3}g}"

    def each(by_arm: dict[str, float]) -> str:
        return ", ".join(f"{text(value)} ({arm})" for arm, value in by_arm.items())

    def of_arms(by_arm: dict[str, float]) -> str:
        low, high = (pick(by_arm, key=by_arm.__getitem__) for pick in (min, max))
        if len(by_arm) > 1 and _apart(by_arm) < ALIKE:
            return f"{text(by_arm[low])} in every arm"
        if len(by_arm) <= MOST_NAMED:
            return each(by_arm)
        return f"{text(by_arm[low])} ({low}) to {text(by_arm[high])} ({high})"

    if not means:
        return title, ""
    if list(means) == [""]:
        return f"{title}: {of_arms(means[''])}", f"{each(means[''])}."
    several = {part: by_arm for part, by_arm in means.items() if len(by_arm) > 1}
    texts = [f"{at}{part}: {of_arms(by_arm)}" for part, by_arm in means.items()]
    rest = f"; and {len(texts) - MOST_TOLD} more" if len(texts) > MOST_TOLD else ""
    sentence = f"{'; '.join(texts[:MOST_TOLD])}{rest}."
    if not several:
        return title, sentence
    part = max(several, key=lambda one: _apart(several[one]))
    if _apart(several[part]) < ALIKE:
        return f"{title}: the same in every arm", sentence
    return f"{title}: arms differ most at {at}{part}, {of_arms(several[part])}", sentence


def _apart(by_arm: dict[str, float]) -> float:
    """Return by how much arms differ, as a share of the largest of them."""
    size = max(map(abs, by_arm.values()))
    return (max(by_arm.values()) - min(by_arm.values())) / size if size else 0.0
