"""Tables and sentences of single sections: tuning, looks, along training, tasks and data."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from paribus import numbers
from paribus.analysis import Along, Analysis, Ratio, SharedContrast, Tuned, extension_in_words
from paribus.analysis.lack_of_fit import with_lack_of_fit
from paribus.report.table_model import Table
from paribus.report.tables import change_head
from paribus.report.words import listed
from paribus.results import Results
from paribus.statistics import Decided
from paribus.study import Study, in_words

AT_BEST = "each at its best (verdict)"
BUDGETS = {"tokens": "tokens", "flops": "FLOPs", "seconds": "seconds"}
SPENDINGS = {"obrien_fleming": "O'Brien-Fleming", "pocock": "Pocock"}
MOST_CROSSINGS = 3  # that are told of one contrast
RATIO_DIGITS = 3
ACCURACY_DIGITS = 1  # of per cent
FEWEST_TESTED = 5  # seed pairs; fewer are described
TIMES_SEEN = 3  # training tokens seen so often or more are counted together
SPLITS = {"corpus": "corpus", "train": "training split", "validation": "validation split"}


# Tuning


def tuning_tables(analysis: Analysis) -> list[Table]:
    """Return what arms were tuned to, the contrast at shared values, and sensitivities."""
    every = (tuning_table(analysis), shared_table(analysis), sensitivity_table(analysis))
    return [table for table in every if table is not None]


def tuning_table(analysis: Analysis) -> Table | None:
    """Return what every arm was tuned to; None where nothing was, or it is not finished."""
    tuned = analysis.tuned
    if tuned is None:
        return None
    called, metric = analysis.study.called, tuned.metric
    rows = []
    best_of = {arm: tuned.best(arm) for arm in analysis.study.arms}
    beside = any(tuned.chosen[arm] != tuned.values_of(best) for arm, best in best_of.items())
    judged = ["judged at"] if beside else []
    for arm, best in best_of.items():
        values = [value for value in best.values.values() if math.isfinite(value)]
        ends = [metric.value_text(of(values)) for of in (min, max)] if values else []
        rows.append(
            (
                called[arm],
                in_words(tuned.values_of(best)),
                *([in_words(tuned.chosen[arm])] if beside else []),
                metric.value_text(best.mean),
                " to ".join(ends),
                str(sum(point.n_diverged for point in tuned.of(arm))),
                "; ".join(tuned.caveats.get(arm, [])),
            )
        )
    seeds = numbers.plural(len(tuned.points[0].values), "tuning seed")
    return Table(
        "tuning",
        f"What every arm was tuned to: of {len(tuned.candidates)} candidates, each with {seeds}, "
        f"the one with the best mean {tuned.metric.title}"
        + (
            ", and the vertex of the parabola through it and its neighbours, at which the arm is "
            "judged"
            if beside
            else ""
        )
        + ". Beside it how many of the arm's tuning trials diverged.",
        ("arm", "chosen", *judged, "mean", "seeds from, to", "diverged", "left open"),
        tuple(rows),
        frozenset({"arm", "chosen", "judged at", "left open"}),
        wide=True,
        title=f"tuning: {len(tuned.candidates)} candidates by {tuned.metric.label}",
    )


def shared_table(analysis: Analysis) -> Table | None:
    """Return each contrast at every shared value, and beside them with each arm at its best."""
    tuned = analysis.tuned
    if tuned is None or not tuned.shared:
        return None
    called, metric = analysis.study.called, tuned.metric
    rows = []
    for arm, reference in analysis.study.contrasts:
        who = (called[arm], called[reference])
        for one in tuned.shared_by(arm):
            there, at = list(one.differences.values()), in_words(tuned.values_of(one))
            cells = ("", "diverged")
            if there:
                ends = metric.ends_text(min(there), max(there))
                cells = (metric.change_text(one.mean), ends)
            rows.append((*who, f"both at {at}", str(len(there)), *cells))
        says = at_best(analysis, arm)
        if says is not None:
            span = metric.ends_text(says.interval.low, says.interval.high)
            rows.append((*who, AT_BEST, str(says.n), metric.change_text(says.mean), span))
    level = numbers.level(analysis.study.inference.alpha)
    return Table(
        "tuning-shared",
        f"Change of {tuned.metric.label} where both arms have the same values, on the tuning "
        "seeds: its mean and its range over these seeds, which describe and test nothing. The last "
        f"row of a contrast is the verdict's, of {judged_label(analysis)}, on other seeds and with "
        f"its {level} interval.",
        ("arm", "against", "at", "seeds", "change", "from, to"),
        tuple(rows),
        frozenset({"arm", "against", "at"}),
        wide=True,
    )


def at_best(analysis: Analysis, arm: str) -> Decided | None:
    """Return the verdict's contrast of `arm` on the metric that chose, each arm at its best; None
    where that is no endpoint, or could not be compared."""
    if analysis.tuned is None:
        return None
    mine = [c for c in analysis.contrasts if (c.arm, c.metric) == (arm, analysis.tuned.metric.name)]
    return mine[0].decided if mine else None


def judged_label(analysis: Analysis) -> str:
    """Return what the verdict calls the metric that chose: `test loss`, if of the test part."""
    assert analysis.tuned is not None
    return analysis.metrics[analysis.tuned.metric.name].label


def sensitivity_table(analysis: Analysis) -> Table | None:
    """Return learning-rate sensitivity of every arm; None where it is not known."""
    if analysis.tuned is None or not analysis.tuned.sensitivities:
        return None
    called, rows = analysis.study.called, []
    for s in analysis.tuned.sensitivities:
        values = [value for value in s.values.values() if math.isfinite(value)]
        mean = numbers.fixed(sum(values) / len(values) if values else None, 4)
        change = p = ""
        if s.paired is not None:
            interval = s.paired.decided.interval
            change = numbers.delta(s.paired.mean, interval.low, interval.high, 4)
            p = "" if s.paired.descriptive_only else numbers.p_value(s.paired.decided.p_value)
        against = called[s.reference] if s.reference else ""
        rows.append((called[s.arm], against, mean, str(len(values)), change, p))
    several = len(analysis.tuned.candidates[0]) > 1
    others = " with the other keys as chosen" if several else ""
    return Table(
        "sensitivities",
        "Learning-rate sensitivity (Wortsman et al. 2023): by how much a loss exceeds that of the "
        f"best rate, in the mean over all rates that were tried{others}, in nats/token. Paired by "
        "tuning seed; a trial that diverged counts as one that learned nothing.",
        ("arm", "against", "mean", "tuning seeds", change_head(analysis.study), "p"),
        tuple(rows),
        wide=True,
        title="learning-rate sensitivity, nats/token",
    )


def tuning_in_words(analysis: Analysis) -> list[str]:
    """Return sentences: how the arms were tuned, and what each contrast depends on."""
    tuned, plan = analysis.tuned, analysis.study.tuning
    if tuned is None or plan is None:
        return []
    called, each = analysis.study.called, len(tuned.candidates) * len(plan.seeds)
    keys = listed([key.rpartition(".")[2].replace("_", " ") for key in plan.keys])
    told = [
        f"Every arm was trained with the same {len(tuned.candidates)} candidates for {keys} on "
        f"{numbers.plural(len(plan.seeds), 'tuning seed')}, {each} trials an arm, before any trial "
        f"of the verdict. Each got the one with the best mean {tuned.metric.label}"
        + (
            ", or the vertex of the parabola through it and its neighbours"
            if any(tuned.chosen[arm] != tuned.values_of(tuned.best(arm)) for arm in called)
            else ""
        )
        + "; the verdict is of other seeds."
    ]
    told += _choice_in_words(analysis)
    for arm, reference in analysis.study.contrasts:
        if line := _depends(analysis, tuned, arm):
            told.append(f"{called[arm]} against {called[reference]}: {line}")
    left = tuned.left_open(tuple(analysis.study.arms), called)
    told += [f"Left open: {'; '.join(left)}."] if left else []
    return told


def _choice_in_words(analysis: Analysis) -> list[str]:
    """Return how much of the squared error the choice makes, for each primary contrast.

    If the registered error leaves lack of fit out, the interval that includes it is added.
    """
    called, lines, wider = analysis.study.called, [], with_lack_of_fit(analysis)
    for c in analysis.contrasts:
        if c.primary and c.choice and c.choice.included and c.choice_share is not None:
            line = (
                f"{called[c.arm]} against {called[c.reference]}, {c.declared.label}: the choice is "
                f"{100 * c.choice_share:.0f}% of the squared error"
            )
            if wider and (says := wider.contrast(c.arm, c.metric).decided):
                interval = says.interval
                line += (
                    f"; with lack of fit in the error the {numbers.level(1 - interval.level)} "
                    f"interval is {c.declared.span_text(interval.low, interval.high)}"
                )
            lines.append(f"{line}.")
    return lines


def _depends(analysis: Analysis, tuned: Tuned, arm: str) -> str:
    """Return `the change lies between -0.50 (learning_rate 3e-3) and +0.14 (...)`."""
    extremes = tuned.extremes(arm)
    if extremes is None:
        return ""
    low, high = extremes
    unit = f" {tuned.metric.change_unit}" if tuned.metric.change_unit not in ("", "1") else ""

    def at(one: SharedContrast) -> str:
        return f"{tuned.metric.change_text(one.mean)} ({in_words(tuned.values_of(one))})"

    text = f"over values that both share, the change of {tuned.metric.label} lies between "
    text += f"{at(low)} and {at(high)}{unit}"
    if low.mean < 0 < high.mean:
        text += ", so that its sign depends on the value"
    says = at_best(analysis, arm)
    if says is not None:
        bounds = tuned.metric.delta_text(says.mean, says.interval.low, says.interval.high)
        text += f"; of {judged_label(analysis)}, each at its best, it is {bounds} on the verdict's "
        text += "seeds"
    return f"{text}."


# Looks and stages


def sampling_method(analysis: Analysis) -> str:
    """Return the method of looks and stages; empty where all pairs are one sample."""
    study, told = analysis.study, []
    if study.plan is not None:
        looks = ", ".join(map(str, study.plan.looks))
        told.append(
            f"The data were looked at after {looks} seeds of every arm that was still needed. The "
            f"level is spent over these looks by the {SPENDINGS[study.plan.spending]}-like "
            "function of Lan and DeMets (1983); boundaries are of the paired t with so few pairs, "
            "from simulated studies under a registered seed. A contrast stops where it is an "
            "effect, where it lies inside the margin"
            + (
                ", and where the chance to resolve it by the last look, given what was seen, is "
                f"below {study.plan.futility:g}. "
                if study.plan.futility
                else ". "
            )
            + "By Holm's method it passes its level on to the others from that look on, and what a "
            "look resolved stays resolved, also where the contrast goes on for another endpoint "
            "(Maurer and Bretz 2013). Every p and interval is of all looks: intervals are repeated "
            "confidence intervals (Jennison and Turnbull 1989), which hold whatever made sampling "
            "stop."
        )
    if study.stages:
        told.append(extension_in_words(analysis.study))
    return " ".join(told)


# Along training


def note(study: Study) -> str:
    """Return what curves are no evidence of; a constant learning rate depends on no length."""
    falls = any(study.arm_facts(arm).schedule_ends for arm in study.arms)
    earlier = ": a shorter run would have lowered its learning rate earlier" if falls else ""
    return (
        "The verdict rests on the end of the schedule. What lies before describes the way there, "
        f"under this schedule{earlier}."
    )


def along_table(analysis: Analysis) -> Table | None:
    """Return speed-ups, crossings and targets of every contrast; None without a curve."""
    if not analysis.along:
        return None
    called, level = analysis.study.called, numbers.level(analysis.study.inference.alpha)
    target = analysis.study.facts.target
    rows = [
        (
            called[one.arm],
            called[one.reference],
            BUDGETS[one.axis],
            _ratio(one.speedup, len(one.seeds)),
            _crossings(one),
            *(_reached(one) if target is not None else ()),
        )
        for one in analysis.along
    ]
    head = ("arm", "against", "budget", f"speed-up [{level}]", "mean curves cross at")
    caption = (
        "Along training. The speed-up is of reaching equal loss: how many times the budget the "
        "reference took to the loss that both trials of a pair reach, the higher of their two "
        f"final losses; the mean ratio over seed pairs with its {level} interval, not adjusted. "
        "The first time counts, and between points of a curve the loss is taken to fall in a "
        "straight line. A pair of which one trial ends no lower than it began has no speed-up. A "
        "crossing in brackets has no pointwise interval that excludes zero on one of its sides."
    )
    if target is not None:
        head += ("reached by", "ratio to the target", "sign p")
        caption += (
            f" The target is {target:g} nats/token: the seeds in which "
            "the arm and its reference reached it within the smaller of their two budgets; the "
            "ratio of what they needed, where a trial that did not counts with that budget; and "
            "an exact sign test of who came first, in which such a trial is behind one that did."
        )
    caption += " ".join(["", *not_compared(analysis)])
    text = frozenset({"arm", "against", "budget"})
    return Table("along", caption, head, tuple(rows), text, wide=True)


def not_compared(analysis: Analysis) -> list[str]:
    """Return a sentence for each contrast of which some points are left out, along any budget."""
    called, found = analysis.study.called, {}
    for one in analysis.along:
        if one.left_out:
            points, many = numbers.plural(one.left_out, "point"), len(one.seeds_without) > 1
            seeds = ", ".join(map(str, one.seeds_without))
            found[one.arm, one.reference] = (
                f"{called[one.arm]} against {called[one.reference]}: {points} of the contrast "
                f"{'are' if one.left_out > 1 else 'is'} left out, where the loss of seed"
                f"{'s' if many else ''} {seeds} is not finite; speed-ups count it as above any "
                "loss."
            )
    return list(found.values())


def _ratio(ratio: Ratio | None, pairs: int) -> str:
    """Return a ratio with its interval, and of how many pairs where some have none."""
    if ratio is None:
        return numbers.NONE
    interval = numbers.ratio_interval(ratio.low, ratio.high, RATIO_DIGITS)
    some = f" ({ratio.n} of {pairs} pairs)" if ratio.n < pairs else ""
    return f"{numbers.ratio(ratio.log, RATIO_DIGITS)} {interval}{some}"


def _crossings(one: Along) -> str:
    found = one.contrast.crossings
    places = [(numbers.short(c.at), c.resolved) for c in found]
    told = [at if is_resolved else f"({at})" for at, is_resolved in places]
    return numbers.some(told, MOST_CROSSINGS) or numbers.NONE


def _reached(one: Along) -> tuple[str, str, str]:
    if one.reached is None:
        return numbers.NONE, numbers.NONE, ""
    first = one.reached.first
    ours, theirs = first.both + first.only_treatment, first.both + first.only_baseline
    seeds = f"{ours} and {theirs} of {first.n}"
    return seeds, _ratio(one.reached.ratio, first.n), numbers.p_value(first.p_value)


# Tasks


def tasks_in_words(results: Results) -> str:
    """Return which tasks were asked, and through what, as a trial recorded it; empty without."""
    record = next((t["tasks"] for t in results.trials.values() if t.get("tasks")), {})
    pins = record.get("pins", {})
    asked = set(results.tasks["task"].to_pylist())  # a suite has more than a study may ask
    there = [pair for pair in pins.get("tasks", {}).items() if pair[0] in asked]
    if not there:
        return ""
    drawn = [name for name, about in there if "dataset" not in about]
    parts = [f"{listed(drawn)}, made from held-out text"] if drawn else []
    parts += [
        f"{name} (version {about['version']:g}, {numbers.plural(about['documents'], 'question')} "
        f"of {about['dataset']}, SHA-256 {about['data_sha256'][:12]})"
        for name, about in there
        if "dataset" in about
    ]
    shots = listed([str(n) for n in results.study.tasks.shots])
    return (
        f"Zero- and few-shot accuracy is measured through the LM Evaluation Harness "
        f"({pins['package']} {pins['version']}), with {shots} solved examples where they fit, on "
        f"{'; '.join(parts)}. Macro accuracy is the mean over all tasks."
    )


def task_table(results: Results) -> Table | None:
    """Return accuracy of every arm on every task; None where no trial answered any."""
    table = accuracy_table(results.study, results.tasks.to_pylist())
    words = f"{table.caption} {tasks_in_words(results)}" if table else ""
    return table and replace(table, caption=words.strip())


def accuracy_table(study: Study, recorded: list[dict[str, Any]]) -> Table | None:
    """Return mean accuracy (SD over seeds) of every arm by task and shots, beside what guessing
    gives; from rows with arm, seed, task, shots, accuracy and chance."""
    values: dict[tuple[str, int], dict[str, list[float]]] = {}
    chances: dict[tuple[str, int], float] = {}
    for row in recorded:
        if row["accuracy"] is None or not math.isfinite(row["accuracy"]):
            continue
        key = (row["task"], row["shots"])
        values.setdefault(key, {}).setdefault(row["arm"], []).append(row["accuracy"])
        chances[key] = row["chance"]
    called, rows = study.called, []
    for (task, shots), by_arm in values.items():
        for i, (arm, accuracies) in enumerate(by_arm.items()):
            about = ("", "") if i else (task, str(shots))
            chance = numbers.fixed(100 * chances[task, shots], ACCURACY_DIGITS)
            rows.append((*about, called[arm], *_mean_sd(accuracies), chance))
    if not rows:
        return None
    return Table(
        "tasks",
        "Accuracy on every task, per cent: mean and SD over seeds, and what guessing gives.",
        ("task", "shots", "arm", "accuracy (SD)", "seeds", "chance"),
        tuple(rows),
        frozenset({"task", "arm"}),
        wide=True,
    )


def macro_table(study: Study, recorded: list[dict[str, Any]]) -> Table:
    """Return the unweighted mean accuracy over tasks of every arm by shots (SD over seeds)."""
    by_seed: dict[tuple[str, int], dict[int, list[float]]] = {}
    for row in recorded:
        seeds = by_seed.setdefault((row["arm"], row["shots"]), {})
        seeds.setdefault(row["seed"], []).append(row["accuracy"])
    shots = sorted({n for _, n in by_seed})
    rows = []
    for arm in (arm for arm in study.arms if any(key[0] == arm for key in by_seed)):
        means = ([float(np.mean(a)) for a in by_seed.get((arm, n), {}).values()] for n in shots)
        rows.append((study.called[arm], *(_mean_sd(of)[0] for of in means)))
    head = ("arm", *(f"{n} shots" for n in shots))
    return Table(
        "macro", "Macro accuracy, per cent (SD).", head, tuple(rows), title="macro accuracy, % (SD)"
    )


def _mean_sd(values: list[float]) -> tuple[str, str]:
    if not values:
        return numbers.NONE, "0"
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    mean = 100 * float(np.mean(values))
    return numbers.mean_sd(mean, sd if sd is None else 100 * sd, ACCURACY_DIGITS), str(len(values))


def task_contrast_table(analysis: Analysis) -> Table | None:
    """Return every task of every contrast, with Holm over the family of tasks x contrasts."""
    called, rows = analysis.study.called, []
    for c in analysis.tasks:
        change = numbers.signed(100 * (c.treatment - c.baseline), ACCURACY_DIGITS)
        says = c.decided
        if says is not None:
            ends = says.interval
            mean, low, high = (100 * value for value in (says.mean, ends.low, ends.high))
            change = numbers.delta(mean, low, high, ACCURACY_DIGITS)
        tested = says is not None and len(c.seeds) >= FEWEST_TESTED
        rows.append(
            (
                c.task,
                called[c.arm],
                numbers.fixed(100 * c.baseline, ACCURACY_DIGITS),
                numbers.fixed(100 * c.treatment, ACCURACY_DIGITS),
                change,
                numbers.p_value(says.p_value if says and tested else None),
                numbers.p_value(c.holm_p if tested else None),
            )
        )
    if not rows:
        return None
    new = analysis.study.inference.of_new_questions
    about = (
        "the interval and p have the errors of both seeds and questions, for new ones."
        if new
        else "the interval and p are of the registered test of seed means, on these questions, and "
        "say nothing of new ones."
    )
    return Table(
        "task-contrasts",
        f"Accuracy on every task against the reference, per cent: {about} "
        "Holm's adjustment is over all tasks and contrasts.",
        ("task", "arm", "reference", "accuracy", change_head(analysis.study), "p", "Holm p"),
        tuple(rows),
        frozenset({"task", "arm"}),
        wide=True,
        title=f"accuracy on tasks (%), {'for new questions' if new else 'on these questions'}",
    )


# Data


def data_tables(results: Results) -> list[Table]:
    """Return every table of the data that the records have."""
    found = [token_classes(results), coverage(results), duplicates(results)]
    found += [leakage_by_arm(results), consumed_by_source(results)]
    return [table for table in found if table.rows]


def token_classes(results: Results) -> Table:
    """Return shares of token classes in corpus and splits, and in what each arm consumed."""
    called = results.study.called
    recorded: dict[str, dict[str, int]] = results.data.get("token_classes", {})
    counts = {SPLITS.get(split, split): classes for split, classes in recorded.items()}
    for row in results.sampling.to_pylist():
        if row["kind"] == "token class":
            of_arm = counts.setdefault(f"consumed: {called[row['arm']]}", {})
            of_arm[row["part"]] = of_arm.get(row["part"], 0) + row["tokens"]
    classes = list(dict.fromkeys(part for parts in counts.values() for part in parts))
    rows = []
    for source, parts in counts.items():
        tokens = sum(parts.values())
        shares = [_percent(parts.get(part, 0), tokens) for part in classes]
        rows.append((source, f"{tokens:,}", *shares))
    return Table(
        "token-classes",
        "Tokens by class, per cent: of the text, and of the targets that the trials of each arm "
        "consumed, all seeds together.",
        ("where", "tokens", *classes),
        tuple(rows),
        frozenset({"where"}),
        wide=True,
    )


def coverage(results: Results) -> Table:
    """Return how much of the training split was seen how often, averaged over an arm's seeds."""
    called = results.study.called
    groups: dict[str, dict[int, int]] = {}
    for row in results.sampling.to_pylist():
        if row["kind"] == "times seen":
            counts = groups.setdefault(called[row["arm"]], defaultdict(int))
            counts[min(int(row["part"]), TIMES_SEEN)] += row["tokens"]
    rows = []
    for arm, counts in groups.items():
        tokens = sum(counts.values())
        shares = [_percent(counts.get(times, 0), tokens) for times in range(TIMES_SEEN + 1)]
        rows.append((arm, *shares))
    return Table(
        "coverage",
        "Training tokens by how often a trial had them as a target, per cent, averaged over seeds.",
        ("arm", "never", "once", "twice", f"{TIMES_SEEN} times or more"),
        tuple(rows),
    )


def duplicates(results: Results) -> Table:
    """Return exact and near duplicates, and how much of the validation split training has too."""
    found: dict[str, Any] = results.data.get("duplicates", {})
    keys = ("units", "exact", "near", "validation_units", "leaked_exact", "leaked_near")
    rows = [
        (f"{kind}s", *(f"{counts.get(key, 0):,}" for key in keys)) for kind, counts in found.items()
    ]
    leakage, rules = results.data.get("leakage", {}), results.data.get("rules", {})
    caption = "Duplicates in the corpus, and validation units that training has too."
    if rules:
        caption += (
            f" Near: Jaccard similarity of at least {rules['near_duplicate_jaccard']:g} between "
            f"sets of {rules['shingle_characters']} characters."
        )
    if leakage:
        whose = "the shared training text" if results.data.get("arms") else "the training text"
        caption += (
            f" {leakage['in_training']:,} of {leakage['validation_tokens']:,} validation tokens "
            f"lie in a run of {rules.get('run_tokens', 0)} tokens that {whose} has word for word."
        )
    looked_at = results.data.get("looked_at", {})
    if looked_at and looked_at["duplicates"] < looked_at["tokens"]:
        caption += (
            f" Of the {looked_at['tokens']:,} tokens, {looked_at['duplicates']:,} in blocks at "
            "even distances were looked at."
        )
    head = (
        *("units", "in all", "exact copies", "near copies", "in validation"),
        *("of these exact in training", "near in training"),
    )
    return Table("duplicates", caption, head, tuple(rows), frozenset({"units"}), wide=True)


def leakage_by_arm(results: Results) -> Table:
    """Return how much held-out text stands in the training text of each arm that has its own."""
    described: dict[str, Any] = results.data.get("arms", {})
    called, rows = results.study.called, []
    for arm, of_arm in described.items():
        leakage = of_arm.get("leakage")
        if arm in called and leakage:
            counts = leakage["in_training"], leakage["validation_tokens"]
            rows.append((called[arm], f"{counts[0]:,}", f"{counts[1]:,}", _percent(*counts)))
    return Table(
        "leakage",
        "Validation tokens in a run that the training text has word for word, of arms that read "
        "another text than is shared.",
        ("arm", "in training", "validation tokens", "per cent"),
        tuple(rows),
    )


def consumed_by_source(results: Results) -> Table:
    """Return what trials of each arm with a mixture consumed of every source, over all seeds."""
    called, sums = results.study.called, {}
    windows: dict[str, int] = defaultdict(int)
    for (arm, _), trial in results.trials.items():
        sources = trial.get("consumed", {}).get("sources", {})
        for name, of in sources.items() if len(sources) > 1 else ():
            total = sums.setdefault((arm, name), defaultdict(int))
            windows[arm] += of["windows"]
            for key, count in of.items():
                total[key] += count
    rows = [
        (
            called[arm],
            name,
            *(f"{of[key]:,}" for key in ("windows", "tokens", "bytes")),
            _percent(of["windows"], windows[arm]),
        )
        for (arm, name), of in sums.items()
    ]
    return Table(
        "sources",
        "What was consumed of each source, all seeds together.",
        ("arm", "source", "windows", "tokens", "bytes", "per cent of windows"),
        tuple(rows),
        frozenset({"arm", "source"}),
    )


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "0.00"
