"""Tables of a study: built once, shown by the terminal, the page and the PDF."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paribus import numbers
from paribus.analysis import Along, Analysis, Contrast, Cost, Ratio, extension_in_words
from paribus.decision import Verdict, rule_of
from paribus.metric import Metric
from paribus.report.cells import TESTS, change_text, join
from paribus.report.table_model import Table
from paribus.results import Results
from paribus.statistics import EventRates, Interval
from paribus.study import Study, in_words

MOST_LINES = 150  # trials that have a mark or a row each
MOST_NOTABLE = 50  # trials that are named although there are many
MOST_SEEDS = 20  # seeds with one reason that have a line each
FEWEST_TESTED = 5  # seed pairs; fewer are described
TIMES_SEEN = 3  # training tokens seen so often or more are counted together
WHOSE = ("endpoint", "arm", "against")
STATES = ("BETTER or WORSE", "SAME", "unresolved", "described only")
BUDGETS = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds"}
SPENDINGS = {"obrien_fleming": "O'Brien-Fleming", "pocock": "Pocock"}
SPLITS = {"corpus": "corpus", "train": "training split", "validation": "validation split"}


def is_large(results: Results) -> bool:
    """Return whether there are too many trials for a mark each."""
    return len(results.finished) > MOST_LINES


def state_of(contrast: Contrast, alpha: float) -> str:
    """Return what the test of a primary contrast shows: one of STATES."""
    says = contrast.decided
    if says is None or says.descriptive_only or contrast.holm_p is None:
        return STATES[3]
    if contrast.equivalent(alpha):
        return STATES[1]
    return STATES[0] if contrast.significant(alpha) else STATES[2]


def _level(study: Study) -> str:
    return numbers.level(study.inference.alpha)


def _mean(analysis: Analysis, arm: str, metric: str) -> tuple[str, str]:
    summary = analysis.summary(arm, metric)
    return analysis.metrics[metric].mean_text(summary.mean, summary.sd), str(summary.n)


def _interval(metric: Metric, interval: Interval | None) -> str:
    return "" if interval is None else metric.span_text(interval.low, interval.high)


def without_shared_reference(table: Table) -> Table:
    """Return a table without columns that say nothing, and without that of references where all
    rows have the same one."""
    at = table.head.index("against") if "against" in table.head else 0
    references = {row[at] for row in table.rows} - {""}
    table = table.filled
    if "against" not in table.head or len(references) != 1:
        return table
    kept = table.only(*(label for label in table.head if label != "against"))
    return replace(kept, caption=f"{table.caption} Compared with {references.pop()}.")


def primary(analysis: Analysis, verdicts: Iterable[Verdict] = ()) -> list[Table]:
    """Return a table for each primary endpoint: every arm, its contrast, and its word."""
    study, called, level = analysis.study, analysis.study.called, _level(analysis.study)
    words = {(verdict.arm, verdict.metric): verdict.word for verdict in verdicts}
    tables = []
    for endpoint in study.judged:
        metric, rows = analysis.metrics[endpoint.metric], []
        for arm in study.arms:
            cells = [called[arm], *_mean(analysis, arm, metric.name)]
            if reference := study.reference(arm):
                contrast = analysis.contrast(arm, metric.name)
                says = contrast.decided
                ratio = f" (x{numbers.ratio(says.mean, 3)})" if says and metric.ratio else ""
                cells += [
                    change_text(contrast) + ratio,
                    numbers.p_or_blank(contrast.p),
                    numbers.p_or_blank(contrast.holm_p),
                    called[reference],
                    words.get((arm, metric.name), ""),
                ]
            rows.append((*cells, *[""] * (8 - len(cells))))
        margin = "no margin"
        if endpoint.margin is not None:
            margin = f"margin ±{metric.stated_text(endpoint.margin)}"
        name = metric.name.replace("/", "-").replace(" ", "-")
        tables.append(
            Table(
                "primary" if endpoint is study.primary else f"primary-{name}",
                f"{metric.title}: mean and SD over seeds, and the change with its unadjusted "
                f"{level} interval and p ({margin}).",
                (
                    "arm",
                    "mean (SD)",
                    "seeds",
                    f"change [{level}]",
                    "p",
                    "Holm p",
                    "against",
                    "word",
                ),
                rows,
                metric.title,
            )
        )
    return tables


def decision(analysis: Analysis, verdicts: Sequence[Verdict]) -> Table:
    """Return the registered rule: its rows in order, and the arms that each applied to."""
    rule, study = rule_of(analysis), analysis.study
    rows = []
    for row in rule.all_rows.values():
        arms = (
            study.called[v.arm] + (f" ({v.label})" if len(study.judged) > 1 else "")
            for v in verdicts
            if v.row == row.id
        )
        outcome = f"{row.outcome}: {row.reason}" if row.reason else row.outcome
        rows.append((row.id, row.when, outcome, ", ".join(arms)))
    caption = f"The rule {rule.title}: the first row whose condition holds decides."
    return Table("decision", caption, ("row", "condition", "outcome", "applied to"), rows)


def endpoints(analysis: Analysis) -> Table:
    """Return every endpoint of every arm."""
    study, rows = analysis.study, []
    for endpoint in study.endpoints:
        metric = analysis.metrics[endpoint.metric]
        for i, arm in enumerate(study.arms if metric.name not in analysis.unmeasured else ()):
            change = ""
            if study.reference(arm):
                change = change_text(analysis.contrast(arm, metric.name))
            first = ("" if i else metric.title, study.called[arm])
            rows.append((*first, *_mean(analysis, arm, metric.name), change))
    return Table(
        "endpoints",
        f"Mean and SD over seeds, and the change. {not_measured(analysis)}".strip(),
        ("endpoint", "arm", "mean (SD)", "seeds", f"change [{_level(study)}]"),
        rows,
    )


def not_measured(analysis: Analysis) -> str:
    """Return which endpoints have no value in any trial; empty for none."""
    labels = ", ".join(analysis.metrics[metric].label for metric in analysis.unmeasured)
    return f"Not measured in this study: {labels}." if labels else ""


def contrasts(analysis: Analysis) -> Table:
    """Return every contrast in full: estimates, intervals, tests and effect sizes."""
    study, rows = analysis.study, []
    for contrast in analysis.contrasts:
        arms = (study.called[contrast.arm], study.called[contrast.reference])
        first = dict(zip(WHOSE, (contrast.declared.short_title, *arms), strict=True))
        rows.append(first | _in_full(contrast, study.inference.alpha))
    head = tuple(dict.fromkeys([*WHOSE, *(label for row in rows for label in row)]))
    cells = [tuple(row.get(label, "") for label in head) for row in rows]
    return Table("contrasts", "Every contrast in full.", head, cells)


def _in_full(contrast: Contrast, alpha: float) -> dict[str, str]:
    says, metric = contrast.decided, contrast.declared
    if says is None:
        return {"n": str(len(contrast.seeds)), "mean": contrast.why_not}

    def p(value: float | None) -> str:
        return numbers.p_or_blank(value if contrast.tested else None)

    cells = {
        "decided by": TESTS[says.test],
        "items": contrast.items_about,
        "n": str(says.n),
        "mean": metric.change_text(says.mean),
        numbers.level(alpha): _interval(metric, says.interval),
        "simultaneous": _interval(metric, says.simultaneous_interval),
        numbers.level(2 * alpha): _interval(metric, says.equivalence_interval),
        "p": p(says.p_value),
        "Holm p": p(contrast.holm_p),
        "TOST p": p(contrast.equivalence_holm_p),
        "detectable": metric.size_text(says.detectable),
    }
    if paired := contrast.paired:
        cells |= {
            "SD": metric.size_text(paired.sd),
            "g_z": numbers.signed(paired.effect.g, 2),
            "r": numbers.signed(paired.correlation, 2),
        }
    if unpaired := contrast.unpaired:
        sds = (unpaired.sd_treatment, unpaired.sd_baseline)
        cells |= {
            "n": f"{unpaired.n_treatment} and {unpaired.n_baseline}",
            "df": numbers.fixed(unpaired.df, 1),
            "Hedges g": numbers.signed(unpaired.effect.g, 2),
            "SDs": " and ".join(map(metric.size_text, sds)),
        }
    if contrast.tested:
        cells["other tests"] = "; ".join(
            f"{check.test} p {p(check.p_value)}{' (disagrees)' if check.disagrees else ''}"
            for check in contrast.checks
        )
    if contrast.other_text:
        cells["error of the text"] = metric.size_text(contrast.other_text.error)
    if metric.ratio:
        ends = numbers.ratio_interval(says.interval.low, says.interval.high, 4)
        cells[metric.ratio.removeprefix("a ")] = f"{numbers.ratio(says.mean, 4)} {ends}"
    return cells


def controls(analysis: Analysis) -> Table:
    """Return every control with its evidence; arms that have the same one share a row."""
    called, arms = analysis.study.called, defaultdict[tuple[str, str, str], list[str]](list)
    for c in analysis.controls:
        arms[c.name, f"{c.sign} {c.state}", c.detail].append(called[c.arm])
    every = len(analysis.study.contrasts)
    rows = [
        (name, "every arm" if 1 < len(shared) == every else join(shared), state, detail)
        for (name, state, detail), shared in arms.items()
    ]
    return Table(
        "controls",
        "Held: equal in every seed. Declared: the arm says that it differs. Not proven: nobody "
        "could show it. Broken: differs, and the contrast is not analysed.",
        ("control", "arm", "state", "evidence"),
        rows,
        "all else equal?",
    )


def stability(analysis: Analysis) -> Table:
    """Return the events of every contrast, as counts of trials."""
    called, study = analysis.study.called, analysis.study
    needed = study.stability.steps_needed
    steps = [n for arm in study.arms if (n := study.arm_facts(arm).steps) is not None]
    exact = "McNemar's" if study.is_paired else "Fisher's"
    caption = f"Trials that diverged or spiked: reference → arm. {exact} exact p of either."
    if min(steps, default=needed) < needed:
        caption += f" No spike can be seen in fewer than {needed} steps."
    rows = [
        (
            called[s.arm],
            called[s.reference],
            *map(_rates, (s.diverged, s.spiked, s.any_event)),
            numbers.p_value(s.holm_p),
        )
        for s in analysis.stabilities
    ]
    head = ("arm", "against", "diverged", "spiked", "either", "Holm p")
    return Table("stability", caption, head, rows, "stability")


def _rates(rates: EventRates) -> str:
    sizes = " and ".join(map(str, dict.fromkeys((rates.n_baseline, rates.n_treatment))))
    return f"{rates.baseline_events} → {rates.treatment_events} of {sizes}"


def costs(analysis: Analysis) -> Table:
    """Return what arms cost besides quality."""
    called, rows = analysis.study.called, []
    for c in analysis.costs:
        states = [cost.state if cost else "not shown" for cost in (c.calibration, c.throughput)]
        shares = (c.more_parameters, c.more_flops, c.more_memory)
        rows.append(
            (
                called[c.arm],
                called[c.reference],
                _cost(c.calibration, 2, 100),
                *(_cost(kind, 1, -100) for kind in (c.throughput, c.prefill, c.decoding)),
                *(numbers.signed(None if s is None else 100 * s, 1) for s in shares),
                next((str(s) for s in ("over", "not shown") if s in states), "within"),
            )
        )
    return Table(
        "costs",
        "Changes from the reference: expected calibration error in percentage points; speed, "
        "parameters, FLOPs and memory of training in per cent.",
        (
            *("arm", "against", "calibration, points", "training speed, %", "reading speed, %"),
            *("writing speed, %", "parameters, %", "training FLOPs, %", "memory, %", "budget"),
        ),
        rows,
    )


def _cost(cost: Cost | None, digits: int, scale: float) -> str:
    if cost is None:
        return numbers.NONE
    # Adding zero turns a negative zero into a positive one.
    low, high = sorted((scale * cost.interval.low + 0.0, scale * cost.interval.high + 0.0))
    return numbers.delta(scale * cost.mean + 0.0, low, high, digits)


# Looks and stages


def sampling_table(analysis: Analysis) -> Table | None:
    """Return the interval over all looks or stages of every primary contrast, and the plain one."""
    study, called = analysis.study, analysis.study.called
    if study.plan is None and not study.stages:
        return None
    rows = []
    for c in (contrast for contrast in analysis.contrasts if contrast.primary):
        cells = (str(len(c.seeds)), c.why_not, "", "", "")
        if c.decided is not None and c.paired is not None:
            ends = c.paired.t_interval
            plain = c.declared.delta_text(c.paired.mean, ends.low, ends.high)
            p = (numbers.p_or_blank(c.p), numbers.p_or_blank(c.holm_p))
            cells = (str(c.decided.n), change_text(c), plain, *p)
        sampled = c.sampling.in_words if c.sampling else ""
        rows.append((c.declared.short_title, called[c.arm], called[c.reference], sampled, *cells))
    level = _level(study)
    return Table(
        "looks",
        "How the pairs were sampled: the interval over all looks and stages, which decides, and "
        "the plain one.",
        (*WHOSE, "sampled", "pairs", f"{level}, decides", f"{level}, plain", "p", "Holm p"),
        rows,
    )


def looks_table(analysis: Analysis) -> Table | None:
    """Return what each look decided on each contrast; None without looks."""
    if not analysis.looks:
        return None
    rows = []
    for entry in analysis.looks:
        for arm, decided in entry["contrasts"].items():
            for name, cells in decided["endpoints"].items():
                metric = analysis.metrics[name]
                if decided["look"] == entry["look"]:
                    rows.append(
                        (
                            str(entry["look"]),
                            str(entry["seeds"]),
                            analysis.study.called[arm],
                            metric.short_title,
                            str(cells["pairs"]),
                            _look_change(cells, metric),
                            numbers.p_or_blank(cells.get("holm_p")),
                            numbers.p_or_blank(cells.get("equivalence_holm_p")),
                            numbers.fixed(cells["predictive_power"], 2),
                            cells.get("resolved") or decided["decision"],
                        )
                    )
    return Table(
        "looks-taken",
        "Every look: the change with its interval over all looks, Holm's p, the p of two one-sided "
        "tests, the chance to be resolved by the last look, and the decision.",
        (
            *("look", "seeds", "arm", "endpoint", "pairs", "change", "Holm p", "TOST p"),
            *("prospect", "decision"),
        ),
        rows,
    )


def _look_change(entry: dict[str, Any], metric: Metric) -> str:
    if "mean" not in entry:
        return entry["why_not"]
    low, high = entry["interval"]
    ends = (-math.inf if low is None else low, math.inf if high is None else high)
    return metric.delta_text(entry["mean"], *ends)


def sampling_method(analysis: Analysis) -> str:
    """Return the method of looks and stages; empty if all pairs are one sample."""
    study, text = analysis.study, []
    if study.plan is not None:
        looks = ", ".join(map(str, study.plan.looks))
        text.append(
            f"Looks after {looks} seeds; the level is spent like "
            f"{SPENDINGS[study.plan.spending]} (Lan and DeMets 1983). Every p and interval is over "
            "all looks (Jennison and Turnbull 1989)."
        )
    if study.stages:
        text.append(extension_in_words(study))
    return " ".join(text)


# Arms and trials


def arms(study: Study) -> Table:
    """Return the description of every arm and its differences from its reference."""
    called, rows = study.called, []
    for name, arm in study.arms.items():
        reference = study.reference(name)
        differs = "; ".join(f"{k}: {a} → {b}" for k, (a, b) in study.differences(name).items())
        against = called[reference] if reference else ""
        rows.append((called[name], arm.description or arm.title, against, differs))
    caption = "The arms, and exactly what sets each apart from its reference."
    return Table("arms", caption, ("arm", "description", "against", "differs in"), rows, "arms")


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
    head = ("arm", "seed", *(metric.short_title for metric in metrics), "outcome")
    return Table("trials", "Every trial.", head, rows)


def trial_tables(results: Results, analysis: Analysis) -> list[Table]:
    """Return every trial; of a large study a row for each arm, and the notable trials."""
    every = trials(results, analysis)
    if not is_large(results):
        return [every]
    study, rows = results.study, []
    metrics = [analysis.metrics[endpoint.metric] for endpoint in study.endpoints]
    for arm in study.arms:
        events = [events for (name, _), events in analysis.events.items() if name == arm]
        n_finished = len(events) + (0 if analysis.runs else analysis.excluded.get(arm, 0))
        counts = n_finished, sum(e.diverged for e in events), sum(e.spiked for e in events)
        cells = [study.called[arm], *map(str, counts)]
        for metric in metrics:
            values = list(analysis.summary(arm, metric.name).values.values())
            ends = np.quantile(values, (0, 0.5, 1)) if values else (None,) * 3
            cells.append(" / ".join(metric.value_text(v) for v in ends))
        rows.append(tuple(cells))
    by_arm = Table(
        "trials-by-arm",
        f"{len(results.finished):,} trials by arm: finished, diverged, spiked, and the least, "
        "median and greatest value of every endpoint. Every trial is in tables/scores.csv.",
        ("arm", "finished", "diverged", "spiked", *(metric.short_title for metric in metrics)),
        rows,
    )
    notable = tuple(row for row in every.rows if row[-1] != "finished")
    caption = f"The first {MOST_NOTABLE} of {len(notable):,} trials that did not end well."
    rest = replace(every, name="trials-notable", caption=caption, rows=notable[:MOST_NOTABLE])
    return [by_arm, rest] if notable else [by_arm]


def left_out(analysis: Analysis) -> list[str]:
    """Return a line for each seed that a contrast excludes and the reason; many seeds share one."""
    called, seeds = analysis.study.called, defaultdict[tuple[str, str, str], list[int]](list)
    for out in analysis.left_out:
        seeds[called[out.arm], called[out.reference], out.why].append(out.seed)
    lines = []
    for (arm, reference, why), numbers_ in seeds.items():
        each = list(dict.fromkeys(numbers_))
        if len(each) <= MOST_SEEDS:
            lines += [f"Seed {seed} of {arm} against {reference}: {why}." for seed in each]
        else:
            first = ", ".join(map(str, each[:MOST_SEEDS]))
            lines.append(f"{len(each):,} seeds of {arm} against {reference} ({first} ...): {why}.")
    return lines


# Tuning


def tuning_tables(analysis: Analysis) -> list[Table]:
    """Return what arms were tuned to, and how sensitive they are to the learning rate."""
    tables = (tuning_table(analysis), sensitivity_table(analysis))
    return [table for table in tables if table is not None]


def tuning_table(analysis: Analysis) -> Table | None:
    """Return what every arm was tuned to; None if nothing was, or tuning is not finished."""
    tuned, study = analysis.tuned, analysis.study
    if tuned is None:
        return None
    metric, rows = tuned.metric, []
    shares = {
        c.arm: f"{100 * c.choice_share:.0f}"
        for c in analysis.contrasts
        if c.primary and c.choice and c.choice.included and c.choice_share is not None
    }
    for arm in study.arms:
        best = tuned.best(arm)
        values = [value for value in best.values.values() if math.isfinite(value)]
        ends = [metric.value_text(extreme(values)) for extreme in (min, max)] if values else []
        rows.append(
            (
                study.called[arm],
                in_words(tuned.values_of(best)),
                in_words(tuned.chosen[arm]),
                metric.value_text(best.mean),
                " to ".join(ends),
                str(sum(point.n_diverged for point in tuned.of(arm))),
                shares.get(arm, ""),
                "; ".join(tuned.caveats.get(arm, [])),
            )
        )
    seeds = numbers.plural(len(tuned.points[0].values), "tuning seed")
    return Table(
        "tuning",
        f"Tuning: {len(tuned.candidates)} candidates on {seeds}. Best tried by mean "
        f"{metric.title}; judged at the fitted optimum, if there is one; and the share of the "
        "squared error of the contrast that comes from the choice.",
        (
            *("arm", "best tried", "judged at", "mean", "seeds from, to", "diverged"),
            *("choice, %", "open"),
        ),
        rows,
        f"tuning: {len(tuned.candidates)} candidates by {metric.label}",
    )


def sensitivity_table(analysis: Analysis) -> Table | None:
    """Return learning-rate sensitivity of every arm (Wortsman et al. 2023); None if unknown."""
    if analysis.tuned is None or not analysis.tuned.sensitivities:
        return None
    called, rows = analysis.study.called, []
    for s in analysis.tuned.sensitivities:
        values = [value for value in s.values.values() if math.isfinite(value)]
        mean = numbers.fixed(sum(values) / len(values) if values else None, 4)
        change = p = ""
        if s.paired is not None:
            ends = s.paired.decided.interval
            change = numbers.delta(s.paired.mean, ends.low, ends.high, 4)
            p = (
                ""
                if s.paired.decided.descriptive_only
                else numbers.p_value(s.paired.decided.p_value)
            )
        against = called[s.reference] if s.reference else ""
        rows.append((called[s.arm], against, mean, str(len(values)), change, p))
    return Table(
        "sensitivities",
        "Learning-rate sensitivity: by how much the loss exceeds that of the best rate, in the "
        "mean over all rates tried (nats/token), paired by tuning seed.",
        ("arm", "against", "mean", "seeds", f"change [{_level(analysis.study)}]", "p"),
        rows,
        "learning-rate sensitivity, nats/token",
    )


# Along training


def along_table(analysis: Analysis) -> Table | None:
    """Return speed-ups, crossings and targets of every contrast; None without a curve."""
    if not analysis.along:
        return None
    called, target = analysis.study.called, analysis.study.facts.target
    rows = []
    for entry in analysis.along:
        places = [(numbers.short(c.at), c.resolved) for c in entry.contrast.crossings]
        crossings = numbers.some([at if resolved else f"({at})" for at, resolved in places])
        rows.append(
            (
                called[entry.arm],
                called[entry.reference],
                BUDGETS[entry.axis],
                _ratio(entry.speedup, len(entry.seeds)),
                crossings or numbers.NONE,
                *(_reached(entry) if target is not None else ()),
            )
        )
    speedup = f"speed-up [{_level(analysis.study)}]"
    head = ("arm", "against", "budget", speedup, "mean curves cross at")
    caption = (
        "Speed-up: the budget that the reference needs to reach a loss over the budget that the "
        "arm needs; the loss is the higher of their two final ones. Crossings in brackets are not "
        "resolved."
    )
    if target is not None:
        head += ("reached by", "ratio to the target", "sign p")
        caption += f" Target: {target:g} nats/token; a trial that never reached it counts in full."
    if any(entry.left_out for entry in analysis.along):
        seeds = sorted({seed for entry in analysis.along for seed in entry.seeds_without})
        named = ", ".join(map(str, seeds))
        caption += f" Points at which the loss of a seed is not finite are excluded ({named})."
    return Table("along", caption, head, rows)


def _ratio(ratio: Ratio | None, pairs: int) -> str:
    if ratio is None:
        return numbers.NONE
    some = f" ({ratio.n} of {pairs} pairs)" if ratio.n < pairs else ""
    return f"{numbers.ratio(ratio.log, 3)} {numbers.ratio_interval(ratio.low, ratio.high, 3)}{some}"


def _reached(entry: Along) -> tuple[str, str, str]:
    if entry.reached is None:
        return numbers.NONE, numbers.NONE, ""
    first = entry.reached.first
    ratio = _ratio(entry.reached.ratio, first.n)
    return (
        f"{first.treatment} and {first.baseline} of {first.n}",
        ratio,
        numbers.p_value(first.p_value),
    )


# Tasks


def task_table(results: Results) -> Table | None:
    """Return accuracy of every arm on every task; None if no question was asked."""
    table = accuracy_table(results.study, results.tasks.to_pylist())
    source = tasks_text(results)
    return table and replace(table, caption=f"{table.caption} {source}".strip())


def tasks_text(results: Results) -> str:
    """Return which tasks were asked and through what, as a trial recorded it; empty for none."""
    record = next((t["tasks"] for t in results.trials.values() if t.get("tasks")), {})
    pins = record.get("pins", {})
    asked = set(results.tasks["task"].to_pylist())  # a suite has more than a study may ask
    known = {name: pin for name, pin in pins.get("tasks", {}).items() if name in asked}
    if not known:
        return ""
    parts = [
        f"{name} version {pin['version']:g}, {pin['documents']} questions of "
        f"{pin['dataset']}, SHA-256 {pin['data_sha256'][:12]}"
        for name, pin in known.items()
        if "dataset" in pin
    ]
    own = [name for name, pin in known.items() if "dataset" not in pin]
    parts += [f"{join(own)} from held-out text"] if own else []
    return f"{pins['package']} {pins['version']}: {'; '.join(parts)}."


def accuracy_table(study: Study, recorded: list[dict[str, Any]]) -> Table | None:
    """Return mean accuracy by task, shots and arm, from rows with arm, seed, task, shots, accuracy
    and chance; None for no row."""
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    chances: dict[tuple[str, int], float] = {}
    for row in recorded:
        if row["accuracy"] is None or not math.isfinite(row["accuracy"]):
            continue
        key = (row["task"], row["shots"])
        values.setdefault(key, {}).setdefault(row["arm"], []).append(row["accuracy"])
        chances[key] = row["chance"]
    rows = []
    for (task, shots), by_arm in values.items():
        chance = numbers.fixed(100 * chances[task, shots], 1)
        for i, (arm, accuracies) in enumerate(by_arm.items()):
            first = ("", "") if i else (task, str(shots))
            mean = (_percent_sd(accuracies), str(len(accuracies)))
            rows.append((*first, study.called[arm], *mean, chance))
    caption = "Accuracy on every task, per cent: mean (SD) over seeds, and chance."
    head = ("task", "shots", "arm", "accuracy (SD)", "seeds", "chance")
    return Table("tasks", caption, head, rows) if rows else None


def macro_table(study: Study, recorded: list[dict[str, Any]]) -> Table:
    """Return the unweighted mean accuracy over tasks of every arm, by shots."""
    by_seed: dict[tuple[str, int], dict[int, list[float]]] = {}
    for row in recorded:
        seeds = by_seed.setdefault((row["arm"], row["shots"]), {})
        seeds.setdefault(row["seed"], []).append(row["accuracy"])
    shots = sorted({n for _, n in by_seed})
    rows = []
    for arm in (arm for arm in study.arms if any(key[0] == arm for key in by_seed)):
        means = ([float(np.mean(a)) for a in by_seed.get((arm, n), {}).values()] for n in shots)
        rows.append((study.called[arm], *map(_percent_sd, means)))
    head = ("arm", *(f"{n} shots" for n in shots))
    return Table("macro", "Macro accuracy, per cent (SD).", head, rows, "macro accuracy, % (SD)")


def _percent_sd(values: list[float]) -> str:
    if not values:
        return numbers.NONE
    sd = 100 * float(np.std(values, ddof=1)) if len(values) > 1 else None
    return numbers.mean_sd(100 * float(np.mean(values)), sd, 1)


def task_contrast_table(analysis: Analysis) -> Table | None:
    """Return every task of every contrast; None if no question was asked."""
    rows = []
    for c in analysis.tasks:
        change, says = numbers.signed(100 * (c.treatment - c.baseline), 1), c.decided
        if says is not None:
            ends = says.interval
            change = numbers.delta(100 * says.mean, 100 * ends.low, 100 * ends.high, 1)
        is_tested = says is not None and len(c.seeds) >= FEWEST_TESTED
        rows.append(
            (
                c.task,
                analysis.study.called[c.arm],
                numbers.fixed(100 * c.baseline, 1),
                numbers.fixed(100 * c.treatment, 1),
                change,
                numbers.p_value(says.p_value if says and is_tested else None),
                numbers.p_value(c.holm_p if is_tested else None),
            )
        )
    if not rows:
        return None
    new = "new questions" if analysis.study.inference.of_new_questions else "these questions"
    change = f"change [{_level(analysis.study)}]"
    return Table(
        "task-contrasts",
        f"Accuracy on every task against the reference, per cent, for {new}.",
        ("task", "arm", "reference", "accuracy", change, "p", "Holm p"),
        rows,
        f"accuracy on tasks (%), for {new}",
    )


# Data


def data_tables(results: Results) -> list[Table]:
    """Return every table on the data that the records have."""
    makers = (token_classes, coverage, duplicates, leakage_by_arm, consumed_by_source)
    return [table for make in makers if (table := make(results)).rows]


def token_classes(results: Results) -> Table:
    """Return shares of token classes in corpus and splits, and in what each arm consumed."""
    recorded: dict[str, dict[str, int]] = results.data.get("token_classes", {})
    counts = {SPLITS.get(split, split): classes for split, classes in recorded.items()}
    for row in results.sampling.to_pylist():
        if row["kind"] == "token class":
            name = f"consumed: {results.study.called[row['arm']]}"
            of_arm = counts.setdefault(name, defaultdict(int))
            of_arm[row["part"]] += row["tokens"]
    classes = list(dict.fromkeys(part for parts in counts.values() for part in parts))
    rows = []
    for source, parts in counts.items():
        tokens = sum(parts.values())
        shares = [_percent(parts.get(part, 0), tokens) for part in classes]
        rows.append((source, f"{tokens:,}", *shares))
    caption = "Tokens by class, per cent, in the text and in what trials consumed."
    return Table("token-classes", caption, ("where", "tokens", *classes), rows)


def coverage(results: Results) -> Table:
    """Return how much of the training split was seen how often, averaged over an arm's seeds."""
    groups: dict[str, dict[int, int]] = {}
    for row in results.sampling.to_pylist():
        if row["kind"] == "times seen":
            counts = groups.setdefault(results.study.called[row["arm"]], defaultdict(int))
            counts[min(int(row["part"]), TIMES_SEEN)] += row["tokens"]
    rows = [
        (arm, *(_percent(counts[n], sum(counts.values())) for n in range(TIMES_SEEN + 1)))
        for arm, counts in groups.items()
    ]
    head = ("arm", "never", "once", "twice", f"{TIMES_SEEN} times or more")
    caption = "Training tokens by how often a trial saw them, per cent, averaged over seeds."
    return Table("coverage", caption, head, rows)


def duplicates(results: Results) -> Table:
    """Return duplicates in the corpus, and validation units that training has too."""
    recorded: dict[str, Any] = results.data.get("duplicates", {})
    keys = ("units", "exact", "near", "validation_units", "leaked_exact", "leaked_near")
    rows = [
        (f"{kind}s", *(f"{counts.get(key, 0):,}" for key in keys))
        for kind, counts in recorded.items()
    ]
    caption = "Duplicates in the corpus, and validation units that training has too."
    if leakage := results.data.get("leakage", {}):
        caption += (
            f" {leakage['in_training']:,} of {leakage['validation_tokens']:,} validation tokens "
            "stand word for word in the training text."
        )
    head = (
        *("units", "in all", "exact copies", "near copies", "in validation"),
        *("exact in training", "near in training"),
    )
    return Table("duplicates", caption, head, rows)


def leakage_by_arm(results: Results) -> Table:
    """Return how much held-out text stands in the training text of each arm that has its own."""
    described: dict[str, Any] = results.data.get("arms", {})
    called, rows = results.study.called, []
    for arm, of_arm in described.items():
        leakage = of_arm.get("leakage")
        if arm in called and leakage:
            counts = leakage["in_training"], leakage["validation_tokens"]
            rows.append((called[arm], f"{counts[0]:,}", f"{counts[1]:,}", _percent(*counts)))
    head = ("arm", "in training", "validation tokens", "per cent")
    caption = "Validation tokens that stand word for word in the training text of an arm."
    return Table("leakage", caption, head, rows)


def consumed_by_source(results: Results) -> Table:
    """Return what trials of each arm with a mixture consumed of every source."""
    sums: dict[tuple[str, str], dict[str, int]] = {}
    windows: dict[str, int] = defaultdict(int)
    for (arm, _), trial in results.trials.items():
        sources = trial.get("consumed", {}).get("sources", {})
        for name, counts in sources.items() if len(sources) > 1 else ():
            total = sums.setdefault((arm, name), defaultdict(int))
            windows[arm] += counts["windows"]
            for key, count in counts.items():
                total[key] += count
    keys, called = ("windows", "tokens", "bytes"), results.study.called
    rows = [
        (
            *(called[arm], name),
            *(f"{counts[key]:,}" for key in keys),
            _percent(counts["windows"], windows[arm]),
        )
        for (arm, name), counts in sums.items()
    ]
    head = ("arm", "source", *keys, "per cent of windows")
    return Table("sources", "What was consumed of each source, all seeds together.", head, rows)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0.00"


def all_tables(results: Results, analysis: Analysis, verdicts: Sequence[Verdict]) -> list[Table]:
    """Return every table of a study."""
    optional = (
        along_table(analysis),
        sampling_table(analysis),
        looks_table(analysis),
        task_contrast_table(analysis),
        task_table(results),
    )
    return [
        *tuning_tables(analysis),
        *primary(analysis, verdicts),
        decision(analysis, verdicts),
        endpoints(analysis),
        stability(analysis),
        costs(analysis),
        arms(results.study),
        controls(analysis),
        trials(results, analysis),
        contrasts(analysis),
        *data_tables(results),
        *(table for table in optional if table is not None),
    ]
