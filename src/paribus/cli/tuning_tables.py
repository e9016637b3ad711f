"""Tuning in the terminal: what every arm was tuned to, and what its contrast depends on."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.markup import escape

from paribus import numbers
from paribus.analysis import Analysis
from paribus.cli.printed_tables import table_of
from paribus.results import ResultsFolder
from paribus.study import in_words, is_untuned


def rounds(folder: ResultsFolder) -> Iterator[RenderableType]:
    """A line for each round of tuning that was begun, and what comes of it."""
    study = folder.read_study()
    if study.tuning is None:
        return
    for number, there in enumerate(folder.tuning_rounds, start=1):
        trials = [there.trial(arm, seed) for arm, seed in there.read_study().trials]
        done = sum(trial.is_finished for trial in trials)
        yield f"tuning, round {number}: {done} of {len(trials)} trials are finished"
    if is_untuned(study):
        yield "the arms are not tuned yet; the trials of the verdict come after that"
    else:
        told = [f"{arm} {in_words(values)}" for arm, values in study.tuning.chosen.items()]
        yield escape(f"tuned: {'; '.join(told)}")


def chosen(analysis: Analysis) -> Iterator[RenderableType]:
    """A row for each arm: its choice, and between what its contrast lies at shared values."""
    tuned = analysis.tuned
    if tuned is None:
        return
    n_seeds = len(tuned.points[0].values)
    plural = "s" if n_seeds > 1 else ""
    table = table_of(
        "arm",
        "chosen",
        f"mean of {n_seeds} seed{plural}",
        "delta where the reference has the same value",
        title=escape(f"tuning: {len(tuned.candidates)} candidates by {tuned.metric.label}"),
        right=(f"mean of {n_seeds} seed{plural}",),
    )
    for arm in analysis.study.arms:
        best, between = tuned.best(arm), ""
        if extremes := tuned.extremes(arm):
            between = " to ".join(
                f"{numbers.signed(one.mean, tuned.metric.change_digits)} "
                f"({in_words(tuned.values_of(one))})"
                for one in extremes
            )
        table.add_row(
            escape(arm),
            escape(in_words(tuned.values_of(best))),
            numbers.fixed(best.mean, tuned.metric.digits),
            escape(between),
        )
    yield table
    yield from _sensitivities(analysis)
    for line in tuned.left_open(tuple(analysis.study.arms)):
        yield f"[yellow]of the tuning, {escape(line)}[/]"


def _sensitivities(analysis: Analysis) -> Iterator[RenderableType]:
    if analysis.tuned is None or not analysis.tuned.sensitivities:
        return
    level = numbers.level(analysis.study.inference.alpha)
    table = table_of(
        *("arm", "mean", f"delta \\[{level} CI]", "p"),
        title="learning-rate sensitivity, nats/token",
        right=("mean", "p"),
    )
    for one in analysis.tuned.sensitivities:
        values = [value for value in one.values.values() if math.isfinite(value)]
        mean = numbers.fixed(sum(values) / len(values) if values else None, 4)
        row = ["", ""]
        if one.paired is not None:
            paired, interval = one.paired, one.paired.decided.interval
            row = [
                numbers.delta(paired.mean, interval.low, interval.high, 4),
                "" if paired.descriptive_only else numbers.p_value(paired.decided.p_value),
            ]
        table.add_row(escape(one.arm), mean, *row)
    yield table
