"""From records to inference: every contrast, tested as the study registered it.

The unit is the seed pair: treatment minus baseline at the same seed. Families of hypotheses are
fixed at registration, each adjusted by Holm: the primary endpoints in every contrast, that they lie
inside their margins, that they are no worse, and the secondary endpoints. A contrast that could not
be analysed stays in its family as p = 1, so that losing one never makes the others easier. One of
fewer than five pairs counts in its family, and has no adjusted p: it is only described.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from paribus.analysis.along import along
from paribus.analysis.choice import tried_before
from paribus.analysis.contrasts import adjusted, contrast_of, task_contrasts
from paribus.analysis.interactions import interactions_of
from paribus.analysis.looks import why_not_these_looks
from paribus.analysis.schema import Analysis, Summary
from paribus.analysis.side_effects import costs, stabilities_of
from paribus.analysis.table import Table
from paribus.analysis.tuning import tuned, why_not_these_values
from paribus.errors import ParibusError
from paribus.results import (
    Results,
    ResultsFolder,
    judged_text,
    read_registration,
    registered_rule,
    why_not_tested,
    why_unregistered,
)
from paribus.results.opened_texts import read_reuse
from paribus.statistics import StatisticsError


def analyse(results: Results) -> Analysis:
    """Analyse the finished trials of `results` as their study says.

    Where the second of two stages cannot be judged, it is the first one's analysis (`standing`).
    Raises ParibusError where a record is missing or was changed.
    """
    folder = ResultsFolder(results.path)
    results = results.standing
    earlier = bool(results.later_stage)
    why = why_unregistered(folder, results.study, results.trials, earlier=earlier)
    table = Table.of(results.judged)
    if results.looks:  # taken at the validation text, and the verdict may be of the test part
        taken = table if results.judged is results else Table.of(results)
        why = why or why_not_these_looks(taken)
    analysis = analyse_table(
        table,
        unregistered=why,
        text=judged_text(results),
        untested=why_not_tested(results),
        late_seeds=_late_seeds(folder),
        own_rule=registered_rule(folder),
    )
    runs = folder.read_runs()
    return replace(
        analysis,
        reuse=read_reuse(folder),
        runs=runs,
        edited=results.edited,
        excluded=dict(runs.excluded if runs else analysis.excluded),
    )


def analyse_table(
    table: Table,
    *,
    unregistered: str = "",
    late_seeds: tuple[int, ...] = (),
    own_rule: dict[str, Any] | None = None,
    text: str = "",
    untested: str = "",
) -> Analysis:
    """Return the same of scores that have been read; the others are as `Analysis` has them."""
    study, tuning = table.results.study, tuned(table.results)
    metrics = {name: table.results.metrics[name] for name in study.metrics}
    contrasts, left_out, tried = [], [], tried_before(table)
    for endpoint in study.endpoints:
        for arm, reference in study.contrasts:
            try:
                contrast, out = contrast_of(table, arm, reference, endpoint, tried)
            except StatisticsError as error:  # scores of a magnitude that nothing is known of
                raise ParibusError(f"{endpoint.metric} of {arm}: {error}") from None
            contrasts.append(contrast)
            left_out += out
    tested = adjusted(contrasts, study.inference.alpha)
    return Analysis(
        study=study,
        missing=tuple(folder.label for folder in table.results.unfinished),
        unregistered=unregistered or why_not_these_values(study, tuning),
        late_seeds=late_seeds,
        controls=table.controls,
        summaries=tuple(
            Summary(arm, metric, table.usable(arm, metric))
            for metric in metrics
            for arm in study.arms
        ),
        contrasts=tuple(tested),
        interactions=tuple(interactions_of(table, tested, tried)),
        events=table.events,
        stabilities=tuple(stabilities_of(table)),
        costs=tuple(costs(table)),
        tasks=tuple(task_contrasts(table)),
        left_out=tuple(left_out),
        metrics=metrics,
        own_rule=own_rule or {},
        later_stage=table.results.later_stage,
        text=text,
        untested=untested,
        tuned=tuning,
        looks=table.looks,
        along=tuple(along(table)),
        excluded=Counter(arm for arm, _ in table.failed),
    )


def _late_seeds(folder: ResultsFolder) -> tuple[int, ...]:
    registered = read_registration(folder) or {}
    return tuple(registered.get("seeds_added_after_results", ()))
