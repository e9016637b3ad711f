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
    """Yield (arm, seed, column, steps [n], values [n]) of trials that have it; finite alone."""
    for (arm, seed), table in results.trial_steps.items():
        probes = results.trial_probes[arm, seed]
        for column in columns:
            source = table if column in table.column_names else probes
            if column not in source.column_names:
                continue
            steps, values = source["step"].to_numpy(), source[column].to_numpy().astype(float)
            kept = np.isfinite(values)
            if kept.any():
                yield arm, seed, column, steps[kept], values[kept]


def over_steps(
    results: Results, series: Sequence[Series], parts: dict[str, str], *, most_rows: int = MOST_ROWS
) -> list[Row]:
    """Return {arm, seed, part, x, value} of series over training; `parts` are those of columns.

    Of more than MOST_LINES trials, each arm's seeds become {arm, part, x, value, low, high}.
    """
    is_many = len({member[:2] for member in series}) > MOST_LINES
    lines: dict[tuple[str, str], list[Series]] = {}
    for member in series:
        lines.setdefault((member[0], member[2]), []).append(member)
    rows = []
    for (arm, column), members in lines.items():
        limit = most_rows // (len(lines) if is_many else len(series))
        steps, values = _on_shared_steps(members, limit)
        head = {"arm": results.study.called[arm]}
        head |= {"part": parts[column]} if parts[column] else {}
        if is_many:
            rows += [
                head | {"x": step, "value": rounded(mean), "low": rounded(low), "high": rounded(up)}
                for step, mean, low, up in zip(
                    steps.tolist(),
                    np.nanmean(values, axis=0),
                    np.nanmin(values, axis=0),
                    np.nanmax(values, axis=0),
                    strict=True,
                )
            ]
            continue
        for (_, seed, *_), line in zip(members, values.tolist(), strict=True):
            rows += [
                head | {"seed": seed, "x": step, "value": rounded(value)}
                for step, value in zip(steps.tolist(), line, strict=True)
                if value == value  # NaN before its first step and after its last
            ]
    return rows


def _on_shared_steps(members: list[Series], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return steps [n] that are chosen for all series, and their values [series, n]: a mean at a
    step is of every one that had begun and not ended. One that has no such step is read in a
    straight line between its own; outside its steps it is NaN."""
    own = []
    for *_, steps, values in members:  # of a step that was logged twice the last
        unique, at = np.unique(steps[::-1], return_index=True)
        own.append((unique, values[::-1][at]))
    every = np.unique(np.concatenate([steps for steps, _ in own]))
    n = min(len(every), max(FEWEST_STEPS, min(MOST_STEPS, most)))
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


def finding(
    title: str,
    rows: list[Row],
    *,
    part: str = "part",
    before: str = "",
    share: bool = False,
    sign: str = "",
) -> str:
    """Return a title that says what was found: each arm's mean over seeds of its last value; of
    several parts, where arms differ most.

    Args:
        part: the key of parts; `before` stands before the name of one, as in `position 8`.
        share: whether numbers are shown as per cent.
        sign: `+` where they are changes.
    """

    def text(value: float) -> str:
        if share:
            return f"{100 * value:.3g}%"
        if abs(value) >= 1e4:
            return numbers.short(value)
        return f"{value:{sign}.{4 if abs(value) >= 1 else 3}g}"

    def apart(by_arm: dict[str, float]) -> float:
        size = max(map(abs, by_arm.values()))
        return (max(by_arm.values()) - min(by_arm.values())) / size if size else 0.0

    last = {(row.get(part, ""), row["arm"], row.get("seed")): row["value"] for row in rows}
    each: dict[Any, dict[str, list[float]]] = {}
    for (place, arm, _), value in last.items():
        each.setdefault(place, {}).setdefault(arm, []).append(value)
    means = {
        place: {arm: sum(values) / len(values) for arm, values in by_arm.items()}
        for place, by_arm in each.items()
    }
    place = max(means, key=lambda place: apart(means[place]))
    by_arm = means[place]
    if len(by_arm) == 1 and len(means) > 1:
        return title
    if len(by_arm) > 1 and apart(by_arm) < ALIKE:
        value = f"{text(next(iter(by_arm.values())))} in" if len(means) == 1 else "the same in"
        return f"{title}: {value} every arm"
    named = [f"{text(value)} ({arm})" for arm, value in by_arm.items()]
    changes = ", ".join(named)
    if len(named) > MOST_NAMED:
        named = [f"{text(by_arm[arm])} ({arm})" for arm in sorted(by_arm, key=by_arm.__getitem__)]
        changes = f"{named[0]} to {named[-1]}"
    name = place if isinstance(place, str) else f"{place:g}"
    where = f"arms differ most at {before}{name}, " if len(means) > 1 else ""
    return f"{title}: {where}{changes}"
