"""Trials on the page and in the paper: each in a row, or summed up where they are many."""

from __future__ import annotations

import numpy as np

from paribus import numbers
from paribus.analysis import Analysis
from paribus.report.figures import names
from paribus.report.figures.figure_rows import is_large
from paribus.report.tables import Table, trials
from paribus.results import Results

MOST_NOTABLE = 50  # trials that are named although they are many


def trial_tables(results: Results, analysis: Analysis) -> list[Table]:
    """Every trial; of a large study its arms, and what diverged, spiked or is missing."""
    every = trials(results, analysis)
    if not is_large(results):
        return [every]
    notable = tuple(row for row in every.rows if row[-1] != "finished")
    found = [_by_arm(results, analysis)]
    if notable:
        shown = f"The first {MOST_NOTABLE} of {len(notable):,}" if notable[MOST_NOTABLE:] else "The"
        caption = f"{shown} trials that diverged or spiked, or are not finished."
        rows = notable[:MOST_NOTABLE]
        found.append(Table("trials-notable", caption, every.head, rows, every.text, wide=True))
    return found


def summed_up_in_words(results: Results) -> str:
    """That figures and tables sum the trials up, and where each is; empty of a small study."""
    if not is_large(results):
        return ""
    return (
        f"{len(results.finished):,} trials are too many for a mark each: figures and tables here "
        "sum up the seeds of an arm. Every trial is in tables/scores.csv and "
        "paper/tables/trials.csv."
    )


def _by_arm(results: Results, analysis: Analysis) -> Table:
    """Of each arm how many trials came to what end, and the range of every endpoint."""
    study, called = results.study, names(results.study)
    metrics = [analysis.metrics[endpoint.metric] for endpoint in study.endpoints]
    events: dict[str, list[int]] = {arm: [0, 0, 0] for arm in study.arms}
    for (arm, _), one in analysis.events.items():
        counts = events[arm]
        counts[0] += 1
        counts[1] += one.diverged
        counts[2] += one.spiked
    rows = []
    for arm in study.arms:
        cells = [called[arm], *map(str, events[arm])]
        for metric in metrics:
            values = list(analysis.summary(arm, metric.name).values.values())
            least, middle, most = np.quantile(values, (0, 0.5, 1)) if values else (None,) * 3
            cells.append(" / ".join(numbers.fixed(v, metric.digits) for v in (least, middle, most)))
        rows.append(tuple(cells))
    return Table(
        "trials-by-arm",
        "The trials of every arm: how many finished, diverged and spiked, and of every endpoint "
        "the least, the median and the greatest value. Each trial is in trials.csv.",
        ("arm", "finished", "diverged", "spiked", *(metric.label for metric in metrics)),
        tuple(rows),
        wide=True,
    )
