"""Tables of what a study asked, found and decided."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Cost, Costs
from paribus.decision import TESTS, Verdict, rule_of
from paribus.metric import Metric
from paribus.report.table_model import Table
from paribus.report.words import at_the_same_seed, is_large, state_of
from paribus.results import Results
from paribus.statistics import Decided, Interval, PairedRates, UnpairedContrast, UnpairedRates
from paribus.study import Endpoint, Study

MOST_SAID = 20  # seeds of one reason that have a line each
MOST_NOTABLE = 50  # trials that are named although they are many
WHOSE = ("endpoint", "arm", "against")


def change_head(study: Study) -> str:
    """Return the label of changes with their interval: `change [95%]`."""
    return f"change [{numbers.level(study.inference.alpha)}]"


def change_of(contrast: Contrast) -> str:
    """Return the change with its interval by the test that decides, or why there is none."""
    says = contrast.decided
    if says is None:
        return contrast.why_not
    if not says.has_interval:
        return contrast.declared.change_text(says.mean)
    return contrast.declared.delta_text(says.mean, says.interval.low, says.interval.high)


def primary(analysis: Analysis, verdicts: list[Verdict] | None = None) -> list[Table]:
    """Return a table for each primary endpoint: every arm, its contrast, and its verdict if any."""
    return [_primary(analysis, endpoint, verdicts or []) for endpoint in analysis.study.judged]


def _primary(analysis: Analysis, endpoint: Endpoint, verdicts: list[Verdict]) -> Table:
    study, called = analysis.study, analysis.study.called
    metric, several = analysis.metrics[endpoint.metric], len(study.judged) > 1
    decided = {v.arm: v.badge for v in verdicts if v.metric == metric.name}
    rows = []
    for arm in study.arms:
        reference = study.reference(arm)
        cells = [called[arm], *_summary(analysis, arm, metric.name), *[""] * 6]
        if reference is not None:
            contrast = analysis.contrast(arm, metric.name)
            cells[3], cells[8] = change_of(contrast), called[reference]
            if contrast.decided is not None:
                ratio = numbers.ratio(contrast.decided.mean, 3) if metric.ratio else numbers.NONE
                p = (numbers.p_or_blank(contrast.p), numbers.p_or_blank(contrast.tested_p))
                cells[4:8] = ratio, *p, state_of(contrast, study.inference.alpha)
        rows.append((*cells, decided.get(arm, "")))
    head = ("arm", "mean (SD)", "seeds", change_head(study), "ratio", "p", "Holm p", "finding")
    worth = endpoint.smallest_effect
    is_first = endpoint is study.primary
    table = Table(
        "primary" if is_first else f"primary-{plain_name(metric.name)}",
        f"{'A' if several else 'The'} primary endpoint, {metric.title}: mean and SD over seeds, "
        f"and the change{at_the_same_seed(study)} with its "
        f"{numbers.level(study.inference.alpha)} interval by the test that decides. "
        + _margin_in_words(metric, endpoint)
        + (
            f", the smallest effect worth detecting {metric.stated_text(worth)}."
            if worth is not None
            else "."
        )
        + (
            f" Holm's method adjusts over {len(study.judged)} primary endpoints and all contrasts."
            if several
            else ""
        ),
        (*head, "against", "verdict"),
        tuple(rows),
        frozenset({"arm", "against", "finding", "verdict"}),
        wide=True,
        title=metric.title,
    )
    return table if verdicts else table.only(*head)


def _margin_in_words(metric: Metric, endpoint: Endpoint) -> str:
    if endpoint.margin is None:
        return "No margin was stated, so that nothing can be shown to be too small to matter"
    return f"The margin is ±{metric.stated_text(endpoint.margin)}"


def _summary(analysis: Analysis, arm: str, metric: str) -> tuple[str, str]:
    """Return mean and SD over seeds, and how many there are."""
    summary = analysis.summary(arm, metric)
    return analysis.metrics[metric].mean_text(summary.mean, summary.sd), str(summary.n)


def decision(analysis: Analysis, verdicts: list[Verdict]) -> Table:
    """Return the registered rule: its rows in their order, and what they fired for."""
    rule, study = rule_of(analysis), analysis.study
    several = len(study.judged) > 1
    rows = []
    for row in rule.all_rows.values():
        fired = [verdict for verdict in verdicts if verdict.row == row.id]
        whose = (study.called[v.arm] + (f" ({v.label})" if several else "") for v in fired)
        says = f"{row.outcome}: {row.reason}" if row.reason else row.outcome
        rows.append((row.id, row.when, says, ", ".join(whose)))
    head = ("row", "when (no row before it)", "verdict", "fired for")
    return Table(
        "decision",
        f"The decision rule, {rule.title}: the first row whose condition holds decides, "
        "for each contrast and each primary endpoint by itself.",
        head,
        tuple(rows),
        frozenset(head),
        wide=True,
        title=f"{rule.title} (decision.rule = {study.decision.rule})",
    )


def endpoints(analysis: Analysis) -> Table:
    """Return every endpoint of every arm."""
    study, called = analysis.study, analysis.study.called
    rows = []
    for endpoint in study.endpoints:
        if endpoint.metric in analysis.unmeasured:
            continue
        metric = analysis.metrics[endpoint.metric]
        for i, arm in enumerate(study.arms):
            change = ""
            if study.reference(arm):
                change = change_of(analysis.contrast(arm, metric.name))
            whose = ("" if i else metric.title, called[arm])
            rows.append((*whose, *_summary(analysis, arm, metric.name), change))
    return Table(
        "endpoints",
        "Every endpoint: mean and SD over seeds, and the change to the arm's reference"
        f"{at_the_same_seed(study)} with its {numbers.level(study.inference.alpha)} interval by "
        f"the test that decides. {not_measured(analysis)}".strip(),
        ("endpoint", "arm", "mean (SD)", "seeds", change_head(study)),
        tuple(rows),
        frozenset({"endpoint", "arm"}),
        wide=True,
        grouped=True,
    )


def not_measured(analysis: Analysis) -> str:
    """Return a sentence on endpoints that nobody measured; empty without any."""
    named = ", ".join(analysis.metrics[metric].label for metric in analysis.unmeasured)
    return f"Not measured in this study: {named}." if named else ""


def contrasts(analysis: Analysis) -> Table:
    """Return all that is known of every contrast: estimates, tests and effect sizes."""
    called, alpha = analysis.study.called, analysis.study.inference.alpha
    head, rows = list(WHOSE), []
    for contrast in analysis.contrasts:
        cells = _in_full(contrast, alpha)
        head += [label for label in cells if label not in head]
        whose = (contrast.declared.short_title, called[contrast.arm], called[contrast.reference])
        rows.append(dict(zip(WHOSE, whose, strict=True)) | cells)
    return Table(
        "contrasts",
        "Every contrast in full.",
        tuple(head),
        tuple(tuple(row.get(label, "") for label in head) for row in rows),
        frozenset({*WHOSE, "decided by", "other tests"}),
        wide=True,
    )


def _in_full(contrast: Contrast, alpha: float) -> dict[str, str]:
    """Return the cells of a contrast by column; no p where it is not tested."""
    paired, says, metric = contrast.paired, contrast.decided, contrast.declared
    if contrast.unpaired:
        return _unpaired_in_full(contrast, contrast.unpaired, alpha)
    if paired is None or says is None:
        head = ("n", "mean (SD)", numbers.level(alpha), "simultaneous", numbers.level(2 * alpha))
        cells = (str(len(contrast.seeds)), contrast.why_not, "", "", "")
        return dict(zip(head, cells, strict=True))

    p = partial(_p, contrast)
    flip = f"{p(paired.sign_flip_p)} ({p(paired.sign_flip_floor)})" if contrast.tested else ""
    others = (
        f"{check.test} p {p(check.p_value)}, Holm {p(check.holm_p)}"
        + (" (disagrees)" if check.disagrees else "")
        for check in contrast.checks
    )
    cells = _shared_cells(contrast, says, str(says.n), paired.sd, alpha) | {
        "bootstrap": p(paired.studentized_p),
        "sign flip": flip,
        "TOST p": p(contrast.equivalence_holm_p),
        "g_z": f"{numbers.signed(paired.g_z, 2)} {_span(paired.g_z_interval, 2)}".strip(),
        "r": numbers.signed(paired.correlation, 2),
        "detectable": metric.size_text(says.detectable),
        "error of the text": metric.size_text(contrast.other_text.error)
        if contrast.other_text
        else "",
        "other tests": "; ".join(others) if contrast.tested else "",
        "percentile (descriptive)": _of(metric, paired.percentile_interval_descriptive),
        "d_z": f"{numbers.signed(paired.d_z, 2)} {_span(paired.d_z_interval, 2)}".strip(),
    }
    if paired.margin is not None:
        cells["margin"] = _at_margin(metric, says, paired.margin, alpha)
    if metric.ratio:
        between = numbers.ratio_interval(says.interval.low, says.interval.high, 4)
        cells[metric.ratio.removeprefix("a ")] = f"{numbers.ratio(says.mean, 4)} {between}"
    if contrast.capped is not None:
        capped = contrast.capped
        change = f"{metric.change_text(capped.mean)} {_of(metric, capped.decided.interval)}"
        cells["diverged trials capped"] = f"{change}, n = {capped.n}"
    return cells


def _unpaired_in_full(
    contrast: Contrast, unpaired: UnpairedContrast, alpha: float
) -> dict[str, str]:
    """Return the same of runs that are no pairs."""
    says, metric = contrast.decided or unpaired.decided, contrast.declared
    p, n = partial(_p, contrast), f"{unpaired.n_treatment} and {unpaired.n_baseline}"
    cells = _shared_cells(contrast, says, n, unpaired.sd, alpha) | {
        "df": numbers.fixed(unpaired.df, 1),
        "permutation": f"{p(unpaired.permutation_p)} ({p(unpaired.permutation_floor)})"
        if contrast.tested
        else "",
        "TOST p": p(contrast.equivalence_holm_p),
        "Hedges g": f"{numbers.signed(unpaired.g, 2)} {_span(unpaired.g_interval, 2)}".strip(),
        "SDs": f"{metric.size_text(unpaired.sd_treatment)} and "
        f"{metric.size_text(unpaired.sd_baseline)}",
        "detectable": metric.size_text(says.detectable),
    }
    if unpaired.margin is not None:
        cells["margin"] = _at_margin(metric, says, unpaired.margin, alpha)
    return cells


def _shared_cells(
    contrast: Contrast, says: Decided, n: str, sd: float, alpha: float
) -> dict[str, str]:
    """Return the first cells of a contrast, of runs that are pairs or not."""
    metric = contrast.declared
    return {
        "decided by": TESTS[says.test],
        "finding": state_of(contrast, alpha) if contrast.primary else "",
        "items": contrast.items_about,
        "n": n,
        "mean (SD)": f"{metric.change_text(says.mean)} ({metric.size_text(sd)})",
        numbers.level(alpha): _of(metric, says.interval),
        "simultaneous": _of(metric, says.simultaneous_interval),
        numbers.level(2 * alpha): _of(metric, says.equivalence_interval),
        "p": _p(contrast, says.p_value),
        "Holm p": _p(contrast, contrast.holm_p),
    }


def _p(contrast: Contrast, value: float | None) -> str:
    return numbers.p_or_blank(value if contrast.tested else None)


def _at_margin(metric: Metric, says: Decided, margin: float, alpha: float) -> str:
    inside = "inside" if says.equivalent else "not inside"
    return f"{numbers.level(2 * alpha)} interval {inside} ±{metric.size_text(margin)}"


def _of(metric: Metric, interval: Interval | None) -> str:
    return "" if interval is None else metric.span_text(interval.low, interval.high)


def _span(interval: Interval | None, digits: int) -> str:
    return "" if interval is None else numbers.interval(interval.low, interval.high, digits)


def controls(analysis: Analysis) -> Table:
    """Return all else equal: every control with its evidence."""
    called = analysis.study.called
    rows = tuple(
        (c.name, called[c.arm], called[c.reference], f"{c.sign} {c.state}", c.detail)
        for c in analysis.controls
    )
    head = ("control", "arm", "against", "state", "evidence")
    return Table(
        "controls",
        "All else equal. Held: equal in every seed, by digest; with ~ of what both arms have. "
        "Declared: differs because the arm says so. Not proven: not looked at yet. Broken: differs "
        "though nothing says so, and the contrast is not analysed.",
        head,
        rows,
        frozenset(head),
        wide=True,
        title="all else equal?",
    )


def controls_in_words(analysis: Analysis) -> str:
    """Return how many controls are in each state: `16 held, 2 declared`."""
    states = Counter(control.state for control in analysis.controls)
    return ", ".join(f"{n} {state}" for state, n in states.most_common())


def stability(analysis: Analysis) -> Table:
    """Return the events of every contrast, as counts of trials."""
    called, paired = analysis.study.called, analysis.study.is_paired
    exact = "McNemar's" if paired else "Fisher's"
    rows = tuple(
        (
            called[s.arm],
            called[s.reference],
            *map(_rates, (s.diverged, s.spiked, s.any_event)),
            numbers.p_value(s.holm_p),
        )
        for s in analysis.stabilities
    )
    return Table(
        "stability",
        "Trials that diverged or spiked: of the reference → of the arm, of all "
        f"{'pairs' if paired else 'runs'}; {exact} exact p of either, adjusted by Holm's method."
        + _without_spikes(analysis),
        ("arm", "against", "diverged", "spiked", "either", "Holm p"),
        rows,
        title=f"stability ({'McNemar' if paired else 'Fisher'})",
    )


def _without_spikes(analysis: Analysis) -> str:
    """Return that trials are too short for a spike, where some arm's are; else nothing."""
    study, needed = analysis.study, analysis.study.stability.steps_needed
    steps = [n for arm in study.arms if (n := study.arm_facts(arm).steps) is not None]
    short = min(steps, default=needed) < needed
    return f" No spike can be seen in fewer than {needed} steps." if short else ""


def _rates(rates: PairedRates | UnpairedRates) -> str:
    of = {rates.n_baseline: "", rates.n_treatment: ""}
    sizes = " and ".join(map(str, of))
    return f"{rates.baseline_events} → {rates.treatment_events} of {sizes}"


def costs(analysis: Analysis) -> Table:
    """Return what arms cost besides quality."""
    called, level = analysis.study.called, numbers.level(analysis.study.inference.alpha)

    def change(cost: Cost | None, digits: int, scale: float = 1.0) -> str:
        if cost is None:
            return numbers.NONE
        # Adding zero turns a negative zero into a positive one.
        low, high = sorted((scale * cost.interval.low + 0.0, scale * cost.interval.high + 0.0))
        return numbers.delta(scale * cost.mean + 0.0, low, high, digits)

    in_bytes = any(c.in_bytes for c in analysis.costs)
    rows = tuple(
        (
            called[c.arm],
            called[c.reference],
            change(c.calibration, 2, 100),
            *(change(kind, 1, -100) for kind in (c.throughput, c.prefill, c.decoding)),
            *(
                numbers.signed(None if share is None else 100 * share, 1)
                for share in (c.more_parameters, c.more_flops, c.more_memory)
            ),
            _budget(c),
        )
        for c in analysis.costs
    )
    counted = any(analysis.study.arm_facts(c.arm).tokens for c in analysis.costs)
    return Table(
        "costs",
        "Change of the expected calibration error (percentage points), and of "
        f"{'tokens per second' if counted else 'speed'} (per cent) in "
        f"training, reading and writing (from ratios), with {level} intervals over "
        f"{'seed pairs' if analysis.study.is_paired else 'runs'}; of parameters and training FLOPs "
        "as counted, and of the memory that training holds."
        f"{' Where tokenizers differ, it is bytes per second.' if in_bytes else ''} The "
        "budget is judged on the one-sided bound of the worse of calibration and training.",
        (
            "arm",
            "against",
            "calibration, points",
            "training, %",
            "reading, %",
            "writing, %",
            "parameters, %",
            "training FLOPs, %",
            "memory, %",
            "budget",
        ),
        rows,
        wide=True,
    )


def _budget(costs: Costs) -> str:
    states = [cost.state if cost else "not shown" for cost in (costs.calibration, costs.throughput)]
    return next((str(s) for s in ("over", "not shown") if s in states), "within")


def sampling_table(analysis: Analysis) -> Table | None:
    """Return, of every primary contrast, the interval that holds over all looks or stages and the
    plain one of the same pairs; None where all pairs are one sample."""
    study, called = analysis.study, analysis.study.called
    if study.plan is None and not study.stages:
        return None
    rows = []
    for c in (one for one in analysis.contrasts if one.primary):
        says, paired = c.decided, c.paired
        who = (c.declared.short_title, called[c.arm], called[c.reference])
        cells = (str(len(c.seeds)), c.why_not, "", "", "")
        if says is not None and paired is not None:
            p = (numbers.p_or_blank(c.p), numbers.p_or_blank(c.tested_p))
            plain = c.declared.delta_text(paired.mean, *_ends(paired.t_interval))
            holds = c.declared.delta_text(says.mean, *_ends(says.interval))
            cells = (str(says.n), holds, plain, *p)
        rows.append((*who, c.sampling.in_words if c.sampling else "", *cells))
    level = numbers.level(study.inference.alpha)
    return Table(
        "looks",
        "How the pairs of every contrast were sampled: the interval that holds over all looks and "
        "stages, which decides, and the plain one of the same pairs, which does not hold.",
        (*WHOSE, "sampled", "pairs", f"{level}, holds", f"{level}, plain", "p", "Holm p"),
        tuple(rows),
        frozenset({*WHOSE, "sampled"}),
        wide=True,
    )


def _ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def looks_table(analysis: Analysis) -> Table | None:
    """Return each look that was taken at each contrast, and what it decided; None without any."""
    if not analysis.looks:
        return None
    called = analysis.study.called
    rows = [
        (
            str(entry["look"]),
            str(entry["seeds"]),
            called[arm],
            analysis.metrics[metric].short_title,
            str(one["pairs"]),
            _look_change(one, analysis.metrics[metric]),
            numbers.p_or_blank(one.get("holm_p")),
            numbers.p_or_blank(one.get("equivalence_holm_p")),
            numbers.fixed(one["predictive_power"], 2),
            one.get("resolved") or said["decision"],
        )
        for entry in analysis.looks
        for arm, said in entry["contrasts"].items()
        if said["look"] == entry["look"]
        for metric, one in said["endpoints"].items()
    ]
    return Table(
        "looks-taken",
        "Every look at the primary endpoints: the change with its interval over all looks, p and "
        "the p of two one-sided tests against the margin by Holm's method, the predicted chance to "
        "be resolved by the last look, and the decision.",
        (
            *("look", "seeds", "arm", "endpoint", "pairs", "change", "Holm p", "TOST p"),
            *("prospect", "decision"),
        ),
        tuple(rows),
        frozenset({"arm", "endpoint", "decision"}),
        wide=True,
    )


def _look_change(said: dict[str, Any], metric: Metric) -> str:
    if "mean" not in said:
        return said["why_not"]
    low, high = said["interval"]
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    return metric.delta_text(said["mean"], low, high)


def arms(study: Study) -> Table:
    """Return what every arm is, and exactly what sets it apart."""
    called = study.called
    rows = []
    for name, arm in study.arms.items():
        reference = study.reference(name)
        differs = "; ".join(f"{k}: {a} → {b}" for k, (a, b) in study.differences(name).items())
        against = called[reference] if reference else ""
        rows.append((called[name], arm.description or arm.title, against, differs))
    head = ("arm", "what it is", "against", "differs in exactly")
    caption = "The arms, and exactly what sets each apart from what it is compared with."
    return Table("arms", caption, head, tuple(rows), frozenset(head), wide=True, title="arms")


def trials(results: Results, analysis: Analysis) -> Table:
    """Return every trial with every endpoint."""
    called, study = results.study.called, results.study
    metrics = [analysis.metrics[endpoint.metric] for endpoint in study.endpoints]
    rows = []
    for row in results.scores.to_pylist():
        events = analysis.events.get((row["arm"], row["seed"]))
        outcome = "failed" if events is None else "finished"
        if events:
            outcome = "diverged" if row["diverged"] or events.diverged else outcome
            outcome += ", spiked" if events.spiked else ""
        values = [metric.value_text(row[metric.name]) for metric in metrics]
        rows.append((called[row["arm"]], str(row["seed"]), *values, outcome))
    for folder in results.unfinished:
        blank = [""] * len(metrics)
        rows.append((called[folder.arm], str(folder.seed), *blank, "not finished"))
    return Table(
        "trials",
        "Every trial.",
        ("arm", "seed", *(metric.short_title for metric in metrics), "outcome"),
        tuple(rows),
        frozenset({"arm", "outcome"}),
        wide=True,
    )


def trial_tables(results: Results, analysis: Analysis) -> list[Table]:
    """Return every trial; of a large study its arms, and what diverged, spiked or is missing."""
    every = trials(results, analysis)
    if not is_large(results):
        return [every]
    found = [_trials_by_arm(results, analysis)]
    if notable := tuple(row for row in every.rows if row[-1] != "finished"):
        shown = f"The first {MOST_NOTABLE} of {len(notable):,}" if notable[MOST_NOTABLE:] else "The"
        caption = f"{shown} trials that diverged, spiked or failed, or are not finished."
        rows = notable[:MOST_NOTABLE]
        found.append(replace(every, name="trials-notable", caption=caption, rows=rows))
    return found


def _trials_by_arm(results: Results, analysis: Analysis) -> Table:
    """Return of each arm how many trials came to what end, and the range of every endpoint."""
    study, called = results.study, results.study.called
    metrics = [analysis.metrics[endpoint.metric] for endpoint in study.endpoints]
    rows = []
    for arm in study.arms:
        events = [one for (name, _), one in analysis.events.items() if name == arm]
        n_finished = len(events) + (0 if analysis.runs else analysis.excluded.get(arm, 0))
        counts = n_finished, sum(e.diverged for e in events), sum(e.spiked for e in events)
        cells = [called[arm], *map(str, counts)]
        for metric in metrics:
            values = list(analysis.summary(arm, metric.name).values.values())
            least, middle, most = np.quantile(values, (0, 0.5, 1)) if values else (None,) * 3
            cells.append(" / ".join(metric.value_text(v) for v in (least, middle, most)))
        rows.append(tuple(cells))
    return Table(
        "trials-by-arm",
        "The trials of every arm: how many finished, diverged and spiked, and of every endpoint "
        "the least, the median and the greatest value. Each trial is in trials.csv.",
        ("arm", "finished", "diverged", "spiked", *(metric.short_title for metric in metrics)),
        tuple(rows),
        wide=True,
    )


def summed_up_in_words(results: Results) -> str:
    """Return that figures and tables sum the trials up, and where each is; empty if they do not."""
    if not is_large(results):
        return ""
    return (
        f"{len(results.finished):,} trials are too many for a mark each: figures and tables here "
        "sum up the seeds of an arm. Every trial is in tables/scores.csv and "
        "paper/tables/trials.csv."
    )


def left_out(analysis: Analysis) -> list[str]:
    """Return a line for each seed and reason, or for all seeds that share one where these are many;
    the same reason is not said again for every metric."""
    called = analysis.study.called
    told: dict[tuple[str, str, str], list[int]] = {}
    for out in analysis.left_out:
        seeds = told.setdefault((called[out.arm], called[out.reference], out.why), [])
        seeds.append(out.seed)
    lines = []
    for (arm, reference, why), seeds in told.items():
        each = list(dict.fromkeys(seeds))
        if len(each) <= MOST_SAID:
            lines += [f"Seed {seed} of {arm} against {reference}: {why}." for seed in each]
        else:
            first = ", ".join(map(str, each[:MOST_SAID]))
            lines.append(f"{len(each):,} seeds of {arm} against {reference} ({first} ...): {why}.")
    return lines


def plain_name(metric: str) -> str:
    """Return the name of a metric as that of a file."""
    return metric.replace("/", "-").replace(" ", "-")
