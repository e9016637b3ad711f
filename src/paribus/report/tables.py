"""Tables of a report, shared by the terminal, the page and the PDF.

Rows are dicts that map column labels to text. Tables without rows are not shown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Cost
from paribus.decision import Verdict, rule_of
from paribus.metric import Metric
from paribus.report.cells import TESTS, change_text, tuning_texts
from paribus.report.sentences import join
from paribus.report.table_model import Table, table_of
from paribus.results import Results
from paribus.statistics import EventRates
from paribus.study import Study, values_text

MOST_SEEDS = 20  # that a line names


def _change_label(study: Study, name: str = "change") -> str:
    return f"{name} [{numbers.level(study.inference.alpha)}]"


def _pair(study: Study, entry: Any) -> dict[str, str]:
    """Return the cell "arm" and, if the study has several references, the cell "against"."""
    return {"arm": study.called[entry.arm]} | _against(study, entry.reference)


def _against(study: Study, reference: str | None) -> dict[str, str]:
    references = {reference for _, reference in study.contrasts}
    return {"against": study.called.get(reference or "", "")} if len(references) > 1 else {}


def _mean(analysis: Analysis, arm: str, metric: Metric) -> dict[str, str]:
    summary = analysis.summary(arm, metric.name)
    mean, sd = metric.displayed(summary.mean), metric.displayed(summary.sd)
    text = numbers.mean_sd(mean, sd, metric.shown_digits)
    return {"mean (SD)": text, "seeds": str(summary.n)}


def _tests(contrast: Contrast) -> dict[str, str]:
    return {"p": numbers.p_value(contrast.p), "Holm p": numbers.p_value(contrast.holm_p)}


def primary(analysis: Analysis, verdicts: Iterable[Verdict] = ()) -> list[Table]:
    """Build one table per primary endpoint: mean, contrast and verdict label of each arm."""
    study, change = analysis.study, _change_label(analysis.study)
    words = {(verdict.arm, verdict.metric): verdict.word for verdict in verdicts}
    tables = []
    for endpoint in study.judged:
        metric, rows = analysis.metrics[endpoint.metric], []
        for arm in study.arms:
            row = {"arm": study.called[arm], **_mean(analysis, arm, metric)}
            if reference := study.reference(arm):
                contrast = analysis.contrast(arm, metric.name)
                row |= {change: change_text(contrast), **_tests(contrast)}
                equivalence_p = contrast.equivalence_holm_p if contrast.tested else None
                row["TOST p"] = numbers.p_value(equivalence_p)
                row |= _against(study, reference)
                row["word"] = words.get((arm, metric.name), "")
            rows.append(row)
        own = [c for c in analysis.contrasts if c.metric == metric.name and c.tested]
        tests = "".join(dict.fromkeys(f"; {TESTS[c.decided.test]}" for c in own if c.decided))
        margin = "no margin"
        if endpoint.margin is not None:
            margin = f"margin ±{metric.stated_text(endpoint.margin)}"
        caption = (
            f"{metric.title}: mean and SD over seeds, and the change with its unadjusted interval "
            f"and p ({margin}{tests}). TOST p tests equivalence."
        )
        name = "primary" if endpoint is study.primary else f"primary-{metric.name}"
        tables.append(table_of(name, caption, rows, metric.title))
    return tables


def decision(analysis: Analysis, verdicts: Sequence[Verdict]) -> Table:
    """Build a table of the registered decision rule: condition, outcome and matching arms."""
    rule, study = rule_of(analysis), analysis.study
    applied = defaultdict[str, list[str]](list)
    for v in verdicts:
        on = f" ({v.label})" if len(study.judged) > 1 else ""
        applied[v.row].append(study.called[v.arm] + on)
    rows = [
        {
            "row": row.id,
            "condition": row.when,
            "outcome": f"{row.outcome}: {row.reason}" if row.reason else row.outcome,
            "applied to": ", ".join(applied[row.id]),
        }
        for row in rule.all_rows.values()
    ]
    caption = f"Decision rule {rule.title}: the first row whose condition holds decides."
    return table_of("decision", caption, rows)


def secondary(analysis: Analysis) -> Table:
    """Build a table of means and contrasts of all arms on secondary endpoints."""
    study, rows = analysis.study, []
    for endpoint in study.endpoints:
        metric = analysis.metrics[endpoint.metric]
        if metric.name in analysis.unmeasured or endpoint.primary:
            continue
        for i, arm in enumerate(study.arms):
            row = {"endpoint": "" if i else metric.title, "arm": study.called[arm]}
            row |= _mean(analysis, arm, metric)
            if study.reference(arm):
                contrast = analysis.contrast(arm, metric.name)
                row |= {_change_label(study): change_text(contrast), **_tests(contrast)}
            rows.append(row)
    caption = f"Other endpoints: mean and SD over seeds, and the change. {not_measured(analysis)}"
    return table_of("secondary", caption.strip(), rows)


def contrasts(analysis: Analysis) -> Table:
    """Build a table of additional statistics for each contrast.

    Columns are the SD of differences, the effect size with its interval, the equivalence interval,
    the smallest detectable effect and the p-values of alternative tests.
    """
    alpha, rows = analysis.study.inference.alpha, []
    for c in analysis.contrasts:
        says, by_run, metric = c.decided, c.by_run, c.declared
        if says is None or by_run is None:
            continue
        ends, size = says.equivalence_interval, by_run.g_interval(1 - alpha)
        row = {"endpoint": metric.short_title} | _pair(analysis.study, c) | {"n": str(says.n)}
        row["SD"] = metric.size_text(by_run.sd)
        if by_run.pairs:
            scores = [(pair.baseline, pair.treatment) for pair in by_run.pairs]
            with np.errstate(all="ignore"):  # NaN if an arm's scores are equal
                row["r"] = numbers.fixed(float(np.corrcoef(scores, rowvar=False).ravel()[1]), 2)
        span = f" {numbers.interval(size.low, size.high, 2)}" if size else ""
        row[f"g [{numbers.level(alpha)}]"] = numbers.signed(by_run.g, 2) + span
        if says.has_interval:
            row[numbers.level(2 * alpha)] = metric.span_text(ends.low, ends.high)
        row["detectable"] = metric.size_text(says.detectable)
        for check in c.checks:
            disagrees = " (disagrees)" if check.disagrees else ""
            row[f"{check.test} p"] = numbers.p_value(check.p_value) + disagrees
        rows.append(row)
    related = "correlation r of the arms over seeds, " if analysis.study.is_paired else ""
    caption = (
        f"Every contrast: SD of the differences, {related}Hedges' effect size g, the "
        f"{numbers.level(2 * alpha)} interval (equivalence if inside the margin), the change "
        f"detectable with {analysis.study.inference.power:.0%} power, and p of the other tests."
    )
    return table_of("contrasts", caption, rows, "every contrast")


def not_measured(analysis: Analysis) -> str:
    """Return a sentence naming the endpoints that no trial measured, or "" if all were measured."""
    labels = ", ".join(analysis.metrics[metric].label for metric in analysis.unmeasured)
    return f"Not measured in this study: {labels}." if labels else ""


def controls(analysis: Analysis) -> Table:
    """Build a table of controls (checks of equal conditions), one row per distinct result."""
    called, arms = analysis.study.called, defaultdict[tuple[str, str, str], list[str]](list)
    for c in analysis.controls:
        arms[c.name, f"{c.sign} {c.state}", c.detail].append(called[c.arm])
    every = len(analysis.study.contrasts)
    rows = [
        {
            "control": name,
            "arm": "every arm" if 1 < len(shared) == every else join(shared),
            "state": state,
            "evidence": detail,
        }
        for (name, state, detail), shared in arms.items()
    ]
    caption = (
        "Held: equal in every seed. Declared: the arm is meant to differ. Not proven: the records "
        "are insufficient. Broken: differs, so the contrast is not analysed."
    )
    return table_of("controls", caption, rows, "all else equal?")


def stability(analysis: Analysis) -> Table:
    """Build a table of the number of diverged and spiked trials in each contrast."""
    study = analysis.study
    exact = "McNemar's" if study.is_paired else "Fisher's"
    measured = {arm for (arm, _), event in analysis.events.items() if event.has_losses}
    caption = f"Trials that diverged or spiked: reference → arm. {exact} exact p for either event."
    caption += f" Spike detection needs at least {study.stability.steps_needed} steps."
    rows = [
        _pair(study, s)
        | {"diverged": _rates(s.diverged)}
        | {"spiked": _rates(s.spiked) if measured & {s.arm, s.reference} else "not measured"}
        | {"either": _rates(s.any_event), "Holm p": numbers.p_value(s.holm_p)}
        for s in analysis.stabilities
    ]
    return table_of("stability", caption, rows, "stability")


def _rates(rates: EventRates) -> str:
    sizes = " and ".join(map(str, dict.fromkeys((rates.n_baseline, rates.n_treatment))))
    return f"{rates.baseline_events} → {rates.treatment_events} of {sizes}"


def costs(analysis: Analysis) -> Table:
    """Build a table of changes in calibration, speed and size relative to the reference."""

    def share(value: float | None) -> str:
        return numbers.signed(None if value is None else 100 * value, 1)

    rows = []
    for c in analysis.costs:
        values = {
            "calibration, points": _cost(c.calibration, 2, 100),
            "training speed, %": _cost(c.throughput, 1, -100),
            "reading speed, %": _cost(c.prefill, 1, -100),
            "writing speed, %": _cost(c.decoding, 1, -100),
            "parameters, %": share(c.more_parameters),
            "training FLOPs, %": share(c.more_flops),
            "memory, %": share(c.more_memory),
        }
        if {*values.values()} != {numbers.NONE}:
            rows.append(_pair(analysis.study, c) | values)
    caption = "Changes from the reference: calibration error in points, all others in per cent."
    return table_of("costs", caption, rows)


def _cost(cost: Cost | None, digits: int, scale: float) -> str:
    if cost is None:
        return numbers.NONE
    # Adding zero turns a negative zero into a positive one.
    low, high = sorted((scale * cost.interval.low + 0.0, scale * cost.interval.high + 0.0))
    return numbers.delta(scale * cost.mean + 0.0, low, high, digits)


# Looks and stages


def looks_table(analysis: Analysis) -> Table:
    """Build a table of the change and decision for each contrast at each interim analysis."""
    rows = []
    for entry in analysis.looks:
        for arm, decided in entry["contrasts"].items():
            # A contrast that an earlier look decided is in the entry as it was.
            endpoints = decided["endpoints"] if decided["look"] == entry["look"] else {}
            for name, cells in endpoints.items():
                metric = analysis.metrics[name]
                row = {"look": str(entry["look"]), "seeds": str(entry["seeds"])}
                row |= {"arm": analysis.study.called[arm], "endpoint": metric.short_title}
                row |= {"pairs": str(cells["pairs"]), "change": _look_change(cells, metric)}
                row["Holm p"] = numbers.p_value(cells.get("holm_p"))
                row["TOST p"] = numbers.p_value(cells.get("equivalence_holm_p"))
                rows.append(row | {"decision": cells.get("resolved") or decided["decision"]})
    caption = (
        "Every look (interim analysis): the change with an interval valid over all looks, Holm's "
        "p, the p of two one-sided tests (TOST), and the decision."
    )
    return table_of("looks-taken", caption, rows)


def _look_change(entry: dict[str, Any], metric: Metric) -> str:
    if "mean" not in entry:
        return entry["why_not"]
    low, high = entry["interval"]
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    return metric.delta_text(entry["mean"], *ends)


# Arms and trials


def arms(study: Study) -> Table:
    """Build a table of the arms: description and settings that differ from the reference."""
    rows = [
        {
            "arm": study.called[name],
            "description": arm.description or arm.title,
            **_against(study, study.reference(name)),
            "differs in": "; ".join(
                f"{key}: {text}" for key, text in study.difference_texts(name).items()
            ),
        }
        for name, arm in study.arms.items()
    ]
    caption = "The arms and all settings in which each differs from its reference."
    return table_of("arms", caption, rows, "arms")


def trials(results: Results, analysis: Analysis) -> Table:
    """Build a table of the trials: scores on each endpoint and outcome."""
    called = results.study.called
    metrics = [analysis.metrics[endpoint.metric] for endpoint in results.study.endpoints]
    rows = []
    for row in results.score_rows:
        events = analysis.events.get((row["arm"], row["seed"]))
        outcome = "failed" if events is None else "finished"
        if events:
            outcome = "diverged" if row["diverged"] or events.diverged else outcome
            outcome += ", spiked" if events.spiked else ""
        cells = {each.short_title: each.value_text(row[each.name]) for each in metrics}
        head = {"arm": called[row["arm"]], "seed": str(row["seed"])}
        rows.append(head | cells | {"outcome": outcome})
    rows += [
        {"arm": called[folder.arm], "seed": str(folder.seed), "outcome": "not finished"}
        for folder in results.unfinished
    ]
    return table_of("trials", "Every trial.", rows)


def left_out(analysis: Analysis) -> list[str]:
    """List the excluded seeds in one line per contrast and reason."""
    seeds = defaultdict[tuple[str, str, str], dict[int, None]](dict)
    for out in analysis.left_out:  # once for each endpoint
        arm, reference = (analysis.study.called[name] for name in (out.arm, out.reference))
        seeds[arm, reference, out.why][out.seed] = None
    return [
        f"{'Seed' if len(each) == 1 else 'Seeds'} {numbers.some([*map(str, each)], MOST_SEEDS)} of "
        f"{arm} against {reference}: {why}."
        for (arm, reference, why), each in seeds.items()
    ]


# Tuning


def tuning_table(analysis: Analysis) -> Table:
    """Build a table of the tuned hyperparameters of each arm."""
    tuned, study, rows = analysis.tuned, analysis.study, []
    if tuned is None:
        return table_of("tuning", "", [])
    metric = tuned.metric
    for arm in study.arms:
        best = tuned.best(arm)
        rows.append(
            {
                "arm": study.called[arm],
                "best tried": values_text(tuned.values_of(best)),
                "judged at": values_text(tuned.chosen[arm]),
                "mean": metric.value_text(best.mean),
                "diverged": str(sum(point.n_diverged for point in tuned.points_of(arm))),
                "open": "; ".join(tuning_texts(tuned, arm)),
            }
        )
    n, seeds = len(tuned.candidates), numbers.plural(len(tuned.points[0].values), "tuning seed")
    caption = (
        f"Tuning: {n} candidates on {seeds}. Best tried: by mean {metric.title}. Judged at: the "
        "fitted optimum if it exists, else the best tried."
    )
    return table_of("tuning", caption, rows, f"tuning: {n} candidates by {metric.label}")


# Along training


def along_table(analysis: Analysis) -> Table:
    """Build a table of speed-ups (ratios of budgets to equal loss) for each contrast."""
    rows = []
    for entry in analysis.along:
        ratio, speedup = entry.speedup, numbers.NONE
        if ratio is not None:
            ends = ratio.interval
            mean, low, high = np.exp([ratio.mean, ends.low, ends.high])
            speedup = f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        row = _pair(analysis.study, entry) | {
            "budget": entry.axis,
            _change_label(analysis.study, "speed-up"): speedup,
            "n": str(ratio.n) if ratio else "",
        }
        rows.append(row)
    caption = (
        "Speed-up: the reference's budget to reach a loss, divided by the arm's budget to reach "
        "it. The loss is the higher of their two final losses."
    )
    return table_of("along", caption, rows)


# Tasks


def accuracy_table(study: Study, recorded: list[dict[str, Any]]) -> Table:
    """Build a table of mean accuracy by task, number of shots and arm.

    Args:
        recorded: dicts with the keys arm, seed, task, shots, accuracy and chance.
    """
    answered = [r for r in recorded if r["accuracy"] is not None and math.isfinite(r["accuracy"])]
    values = defaultdict[tuple[str, int], dict[str, list[float]]](dict)
    for row in answered:
        values[row["task"], row["shots"]].setdefault(row["arm"], []).append(row["accuracy"])
    chances = {(row["task"], row["shots"]): row["chance"] for row in answered}
    rows = [
        {
            "task": "" if i else task,
            "shots": "" if i else str(shots),
            "arm": study.called[arm],
            "accuracy (SD)": _percent_sd(accuracies),
            "seeds": str(len(accuracies)),
            "chance": numbers.fixed(100 * chances[task, shots], 1),
        }
        for (task, shots), by_arm in values.items()
        for i, (arm, accuracies) in enumerate(by_arm.items())
    ]
    caption = "Accuracy on every task in per cent: mean (SD) over seeds, and chance level."
    return table_of("tasks", caption, rows)


def _percent_sd(values: list[float]) -> str:
    return numbers.mean_sd(100 * fmean(values), 100 * stdev(values) if len(values) > 1 else None, 1)


def task_contrast_table(analysis: Analysis) -> Table:
    """Build a table of the contrasts on each task."""
    rows = []
    for c in analysis.tasks:
        change, says = c.why_not, c.decided
        if says is not None:
            ends = says.interval
            change = numbers.delta(100 * says.mean, 100 * ends.low, 100 * ends.high, 1)
        rows.append(
            {
                "task": c.declared.column,
                "arm": analysis.study.called[c.arm],
                _change_label(analysis.study): change,
                "p": numbers.p_value(c.p),
                "Holm p": numbers.p_value(c.holm_p),
            }
        )
    new = "new questions" if analysis.study.inference.claims_new_questions else "these questions"
    caption = f"Change of accuracy on every task, in percentage points; p is for {new}."
    return table_of("task-contrasts", caption, rows, f"accuracy on tasks (%), for {new}")


def all_tables(results: Results, analysis: Analysis, verdicts: Sequence[Verdict]) -> list[Table]:
    """Build all nonempty tables of a study."""
    tables = [
        arms(results.study),
        tuning_table(analysis),
        *primary(analysis, verdicts),
        decision(analysis, verdicts),
        contrasts(analysis),
        secondary(analysis),
        stability(analysis),
        costs(analysis),
        controls(analysis),
        trials(results, analysis),
        along_table(analysis),
        looks_table(analysis),
        task_contrast_table(analysis),
        accuracy_table(results.study, results.tasks.to_pylist()),
    ]
    return [table for table in tables if table.rows]
