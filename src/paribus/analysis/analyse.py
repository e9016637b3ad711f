"""Analysis of a study, in which every contrast is tested as registered.

The unit of analysis is the seed pair: treatment minus baseline at the same seed. Four families of
hypotheses are adjusted separately by Holm's method: differences on primary endpoints, their
equivalence, their non-inferiority, and differences on secondary endpoints.

A p-value is computed as follows: `Table.from_results` reads the scores, `contrasts_of` selects the
seeds, `compare_arms` runs the test (for pairs, `paired_contrast`), and `adjusted` applies Holm's
method. `paribus.decision.decide` then derives the verdict, and `paribus.report.model.build_report`
prepares the report.
"""

from __future__ import annotations

from collections import Counter

from paribus.analysis.along import along
from paribus.analysis.contrasts import contrasts_of, interactions_of, task_contrasts
from paribus.analysis.looks import why_not_these_looks
from paribus.analysis.schema import Analysis, Summary
from paribus.analysis.side_effects import costs, stabilities_of
from paribus.analysis.table import Table
from paribus.analysis.tuning import tuned_before, why_not_these_values
from paribus.results import Results, ResultsFolder, why_unregistered
from paribus.results.opened_texts import read_reuse
from paribus.results.registration import RULE


def analyse(results: Results) -> Analysis:
    """Run the registered tests of a study on its finished trials.

    Raises ParibusError if a record is missing or was changed.
    """
    folder = ResultsFolder(results.path)
    table = Table.from_results(results.judged)
    study, tuned = results.study, tuned_before(table)
    unregistered = why_unregistered(folder, study, results.trials)
    if results.looks:  # taken at the validation text, and the verdict may be of the test part
        taken = table if results.judged is results else Table.from_results(results)
        unregistered = unregistered or why_not_these_looks(taken)
    contrasts, left_out = contrasts_of(table, study.endpoints, tuned)
    runs = folder.read_runs()
    failed = Counter(arm for (arm, _), trial in results.trials.items() if trial.get("failed"))
    return Analysis(
        study=study,
        missing=tuple(trial.label for trial in table.results.unfinished),
        unregistered=unregistered or why_not_these_values(study, tuned),
        controls=table.controls,
        summaries=tuple(
            Summary(arm, metric, table.usable(arm, metric))
            for metric in study.metrics
            for arm in study.arms
        ),
        contrasts=tuple(contrasts),
        interactions=tuple(interactions_of(table, contrasts, tuned)),
        events=table.events,
        stabilities=tuple(stabilities_of(table)),
        costs=tuple(costs(table)),
        tasks=tuple(task_contrasts(table)),
        left_out=tuple(left_out),
        metrics={name: table.results.metrics[name] for name in study.metrics},
        own_rule=results.registered.get(RULE, {}).get("rule", {}),
        untested=results.why_not_tested,
        tuned=tuned,
        looks=table.looks,
        along=tuple(along(table)),
        reuse=read_reuse(folder),
        runs=runs,
        excluded=dict(runs.excluded if runs else failed),
        edited=results.edited,
    )
