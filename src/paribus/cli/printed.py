"""All that verbs print: tables of `report`, tables of the terminal alone, lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from paribus import numbers
from paribus.analysis import (
    Analysis,
    Detectable,
    PlannedLooks,
    least_effect,
    look_in_words,
    sights,
)
from paribus.decision import Calibration, Verdicts, rule_of, unreachable
from paribus.digests import flatten
from paribus.metric import Metric
from paribus.report import tables
from paribus.report.cells import TESTS, join
from paribus.report.table_model import MARKS, Table
from paribus.results import Results, ResultsFolder
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.study import Study, in_words, is_untuned, tuning_study
from paribus.study.trainer import RUNS, STACKED

if TYPE_CHECKING:
    from paribus.engine.cost import Cost, Rate
    from paribus.engine.execution.evaluate import Answers
    from paribus.engine.training.parameters import ParameterRow
    from paribus.runs.standing import JobRow

MIB = 2**20

Parts = Iterator[RenderableType]


def marked(sign: str) -> str:
    """Return the sign of a control, in its colour."""
    return f"[{MARKS[sign]}]{sign}[/]"


def warning(text: str) -> str:
    """Return a line that warns."""
    return f"[yellow]warning:[/] {escape(text)}"


def dim(text: str) -> str:
    """Return a line of less weight."""
    return f"[dim]{escape(text)}[/]"


def _command(line: str) -> Text:
    """Return a command on one line, however long: it is copied."""
    return Text(f"  {line}")


def _span(values: Iterable[float]) -> str:
    """Return the least and the largest of several values, or the one that all have."""
    texts = list(dict.fromkeys(f"{value:.3g}" for value in sorted(values)))
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"


def _table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]], *text: str) -> Table:
    """Return a table of the terminal alone, with its columns of words."""
    cells = tuple(tuple(row) for row in rows)
    return Table(title, "", tuple(head), cells, title)


def _values(title: str, values: dict[str, str]) -> Table:
    """Return a table of names and values."""
    return _table(title, ("", " "), values.items(), "")


# Results


def comparison(analysis: Analysis) -> Parts:
    """Yield every endpoint of every arm, the controls, and what was excluded."""
    named = analysis.by_name
    yield tables.endpoints(named)
    if absent := tables.not_measured(analysis):
        yield dim(absent)
    yield tables.controls(named).only("control", "arm", "state", "evidence")
    yield from (f"[yellow]excluded:[/] {escape(line)}" for line in tables.left_out(named))


def contrasts(analysis: Analysis) -> Parts:
    """Yield every contrast: primary endpoints in full, the others in a line."""
    named = analysis.by_name
    full, level = tables.contrasts(named), numbers.level(analysis.study.inference.alpha)
    labels = [label for label in full.head if label not in tables.WHOSE]
    rows = list(zip(full.rows, named.contrasts, strict=True))
    for arm, reference in named.study.contrasts:
        own = [(row, c) for row, c in rows if c.arm == arm]
        for row, contrast in own:
            title = f"{arm} against {reference}: {contrast.declared.label}"
            if contrast.primary and contrast.decided is None:
                yield f"[bold]{escape(title)}[/]: {escape(contrast.why_not)}"
            elif contrast.primary:
                yield replace(full, rows=[row]).only(*labels, title=title)
        secondary = [row for row, c in own if not c.primary and c.decided is not None]
        title = f"{arm} against {reference}: the other endpoints"
        yield replace(full, rows=secondary).only("endpoint", level, "Holm p", title=title)
    yield tables.stability(named)
    yield dim("analysis.json has everything else, every pair included")


def decided(verdicts: Verdicts) -> Parts:
    """Yield the row of the registered rule that decided each verdict."""
    rule = rule_of(verdicts.analysis)
    rows = [(v.arm, v.label, v.word, v.row, v.outcome, v.reason) for v in verdicts]
    head = ("arm", "endpoint", "word", "row", "outcome", "reason")
    yield _table(f"by the rule: {rule.title}", head, rows, *head)


def tasks(analysis: Analysis) -> Parts:
    """Yield the tasks of each contrast."""
    table = tables.task_contrast_table(analysis.by_name)
    if table is None:
        return
    labels = [label for label in table.head if label != "arm"]
    for arm, reference in analysis.study.contrasts:
        rows = [row for row in table.rows if row[table.head.index("arm")] == arm]
        title = f"{arm} against {reference}: {table.title}"
        yield replace(table, rows=rows).only(*labels, title=title)


def answers(study: Study, answered: Answers) -> Parts:
    """Yield accuracy by task and shots, and the macro averages; means over seeds, with their SD."""
    named, rows = study.by_name, answered.tasks.to_pylist()
    if table := tables.accuracy_table(named, rows):
        yield table
    yield tables.macro_table(named, rows)
    if answered.not_offered:
        pairs = ", ".join(f"{task} at {n}" for task, n in answered.not_offered)
        yield dim(f"not asked, because it does not fit the window: {pairs}")
    for arm in answered.unlike:
        yield f"[red]{escape(arm)} was shown other prompts; it cannot be compared[/]"


# Tuning and looks


def tuning(folder: ResultsFolder) -> Parts:
    """Yield how many tuning trials are finished, and what was chosen by them."""
    study = folder.read_study()
    if study.tuning is None:
        return
    if (tuning_folder := folder.tuning_trials).exists:
        trials = [tuning_folder.trial(arm, seed) for arm, seed in tuning_folder.read_study().trials]
        done = sum(trial.is_finished for trial in trials)
        yield f"tuning: {done} of {len(trials)} trials are finished"
    if is_untuned(study):
        yield "the arms are not tuned yet; the trials of the verdict come after that"
    else:
        choices = [f"{arm} {in_words(values)}" for arm, values in study.tuning.chosen.items()]
        yield escape(f"tuned: {'; '.join(choices)}")


def chosen(analysis: Analysis) -> Parts:
    """Yield what each arm was tuned to, and its sensitivity to the learning rate."""
    named = analysis.by_name
    if table := tables.tuning_table(named):
        yield table.only("arm", "best tried", "judged at", "mean", "seeds from, to", "diverged")
    if table := tables.sensitivity_table(named):
        yield table


def planned(study: Study, plan: PlannedLooks | None) -> Parts:
    """Yield the boundaries of each look."""
    if plan is None or study.plan is None:
        return
    alpha, family = study.inference.alpha, study.family
    bounds = ("|t|", "p") if family == 1 else ("|t|, first", "p, first", "|t|, last", "p, last")
    rows = []
    for number, (first, last) in enumerate(zip(plan.first, plan.last, strict=True), start=1):
        cells = [str(number), str(first.pairs), f"{last.spent:.2g}"]
        for boundary in [first] if family == 1 else [first, last]:
            cells += [f"{boundary.t:.2f}", f"{boundary.nominal_p:.2g}"]
        rows.append(cells)
    yield _table("looks", ("look", "seeds", "spent", *bounds), rows)
    if family > 1:
        yield dim(
            f"first: the first of {family} family by Holm's method, at level {alpha / family:.3g}; "
            f"last: where all others are rejected, at {alpha:g}"
        )
    yield dim(
        "these error rates are of normal differences; skewed ones cost more with looks: log-normal "
        "ones of sigma 1 give 17.5% false effects at looks 5, 8, 12, 20 for a nominal 5%"
    )


def standing(results: Results) -> Parts:
    """Yield the looks that were taken, and the one that comes."""
    study = results.study
    if study.plan is None:
        return
    for entry in results.looks:
        yield escape(look_in_words(study, entry))
    number = len(results.looks)
    if results.unfinished and number < len(study.plan.looks):
        upto = study.plan.looks[number]
        yield f"next is look {number + 1} of {len(study.plan.looks)}, at {upto} seeds"


def sampled(analysis: Analysis) -> Parts:
    """Yield how the pairs of a study with looks or stages were sampled, and the plain interval."""
    if table := tables.sampling_table(analysis.by_name):
        plain = f"{numbers.level(analysis.study.inference.alpha)}, plain"
        title = "how pairs were sampled, and their plain interval, which does not hold"
        yield table.only("endpoint", "arm", "sampled", plain, title=title)


# Designs


def smallest_change(
    study: Study, rows: list[Detectable], metrics: Mapping[str, Metric], named: str
) -> Parts:
    """Yield the smallest change that the design will see, for each primary endpoint, and by which
    SD; where none is known, the pilot that would tell. `named` is what the user called the study.
    """
    n, inference = len(study.seeds), study.inference
    if not study.contrasts:
        yield "One arm alone: nothing is compared."
        return
    if n < DESCRIPTIVE_BELOW:
        seeds = numbers.plural(n, "seed")
        yield warning(f"{seeds}: nothing is tested; state {DESCRIPTIVE_BELOW} seeds or more")
        return
    unknown = []
    for endpoint in study.judged:
        metric = metrics[endpoint.metric]
        of_metric = [row for row in rows if row.metric == metric.name]
        if not of_metric:
            unknown.append(metric.label)
            continue
        largest = max(of_metric, key=lambda row: row.effect)
        unit = f" {metric.change_unit}" if metric.change_unit not in ("", "1") else ""
        upto = "up to " if study.plan else ""
        yield (
            f"[bold]With {upto}{n} seeds you will see a change of "
            f"{metric.size_text(largest.effect)}{escape(unit)} or more in "
            f"{escape(metric.label)}[/], at {inference.power:.0%} power."
        )
        yield dim(_source(largest, metric))
        if len({row.contrast.split(" against ")[0] for row in of_metric}) < len(study.contrasts):
            unknown.append(f"{metric.label} of the other arms")
    pilot = f"{study.name}-pilot"
    tuning_seeds = study.tuning.seeds if study.tuning else ()
    first = 1 + max((*study.seeds, *tuning_seeds))
    seeds = list(range(first, first + DESCRIPTIVE_BELOW))
    if study.tuning and study.inference.choice != "fixed" and any(row.kept for row in rows):
        yield dim("What choosing the tuned values adds is not in it.")
    if unknown:
        yield warning(
            f"how much {join(unknown)} varies from seed to seed is not known: no kept study has "
            "a like contrast. A pilot tells:"
        )
    elif any(row.kept for row in rows):
        yield dim("A pilot of your own tells better:")
    if unknown or any(row.kept for row in rows):
        train = f'paribus run {named} --set "seeds={seeds}" --results results/{pilot}'
        judge = f"paribus judge RUNS ... --results results/{pilot}"
        yield _command(judge if study.trainer == RUNS else train)
        yield _command(f"paribus plan {named} --pilot results/{pilot}")


def _source(row: Detectable, metric: Metric) -> str:
    """Say which SD a plan goes by, and where it is from."""
    sd = metric.size_text(row.sd)
    if row.kept is None:
        origins = {"stated": "as stated", "pilot": f"of {row.contrast} in the pilot"}
        return (
            f"SD of paired differences {sd}, {origins.get(row.source, 'the largest of the pilot')}."
        )
    low, high = (metric.size_text(value) for value in row.kept.middle_half)
    contrasts, n = numbers.plural(len(row.kept.sds), "contrast"), len(row.kept.studies)
    studies = "1 kept study" if n == 1 else f"{n} kept studies"
    half = f"; the middle half has {low} to {high}" if len(row.kept.sds) > 3 else ""
    return (
        f"SD of paired differences {sd}, the median of {contrasts} that change "
        f"{join([f'the {kind}' for kind in row.kept.kind])} in "
        f"{studies} of small models{half}."
    )


def detectable(study: Study, rows: list[Detectable], metrics: Mapping[str, Metric]) -> Parts:
    """Yield what the design detects in SDs, what it cannot see, and each contrast in its units."""
    n, inference = len(study.seeds), study.inference
    if n < 2:
        yield "One seed: nothing can be tested."
        return
    alpha = inference.alpha / study.family  # the first step of Holm
    family = numbers.plural(max(len(study.contrasts), 1), "contrast")
    if len(study.judged) > 1:
        family += f" x {len(study.judged)} primary endpoints"
    yield (
        f"{n} seed pairs{', looked at on the way,' if study.plan else ''} detect "
        f"{least_effect(study, alpha):.2f} SDs of a difference at {inference.power:.0%} power "
        f"by the {TESTS[inference.test]} (alpha {inference.alpha:g} over {family})."
    )
    yield from design(study, metrics)
    for name in dict.fromkeys(row.metric for row in rows):
        yield from _in_units([row for row in rows if row.metric == name], metrics[name])


def _in_units(rows: list[Detectable], metric: Metric) -> Parts:
    unit = f" ({metric.change_unit})" if metric.change_unit else ""
    cells = [
        (
            row.contrast,
            f"{metric.size_text(row.sd)} ({row.source})",
            metric.size_text(row.effect),
            metric.size_text(row.margin),
            str(row.pairs_for_margin or "none"),
        )
        for row in rows
    ]
    head = ("contrast", "SD", "detects", "margin", "pairs for it")
    yield _table(f"{metric.label}{unit}", head, cells, "contrast")
    warnings: dict[str, list[str]] = {}
    for row in rows:
        if row.one_more:
            seed, tuning_seed = (metric.size_text(x) for x in row.one_more)
            yield escape(
                f"{row.contrast}: the choice of tuned values adds an SD of "
                f"{metric.size_text(row.choice)}. One more seed detects {seed}, one more "
                f"tuning seed {tuning_seed}."
            )
        exceeded = f"the smallest detectable effect, {metric.size_text(row.effect)}, exceeds"
        if row.exceeds_margin:
            way_out = (
                f"{row.pairs_for_margin} seeds would detect it"
                if row.pairs_for_margin
                else f"no number of seeds resolves it; try {row.instead}"
            )
            warnings.setdefault(f"{exceeded} the margin; {way_out}", []).append(row.contrast)
        if row.could_miss:
            worth = metric.size_text(row.smallest_effect)
            missed = f"{exceeded} the smallest effect worth detecting, {worth}"
            warnings.setdefault(missed, []).append(row.contrast)
    for words, contrasts in warnings.items():
        yield warning(f"{join(contrasts)}: {words}")


def design(study: Study, metrics: Mapping[str, Metric], *, warnings: bool = False) -> Parts:
    """Yield what the study names and cannot occur, and effects that the design cannot see, and why.

    Args: warnings: these alone, and not what is seen at which spread.
    """
    yield from (warning(f"{line}.") for line in unreachable(study))
    unseen: dict[str, list[str]] = {}
    for sight in sights(study):
        metric = metrics.get(sight.metric)
        effect = f"an effect of {sight.smallest_effect:g} on {sight.metric}"
        if metric:
            size = f"{metric.shown(sight.smallest_effect):g}"
            unit = f" {metric.change_unit}" if metric.change_unit else ""
            effect = f"an effect of {size}{unit} on {metric.label}"
        if sight.why_not:
            unseen.setdefault(sight.why_not, []).append(effect)
        elif sight.sd is not None and not warnings:
            yield escape(
                f"{numbers.plural(len(study.seeds), 'seed')} can detect {effect} only if the SD of "
                f"seed differences is at most {sight.sd:.2g}."
            )
    for why, effects in unseen.items():
        yield warning(f"{'; '.join(effects)} cannot be seen: {why}.")


def calibration(c: Calibration) -> Parts:
    """Yield the measured error rates of the whole pipeline, and on how many replicates they are."""
    title = (
        f"A/A: {numbers.plural(c.replicates, 'replicate')} of "
        f"{numbers.plural(c.contrasts, 'contrast')} x {numbers.plural(c.pairs, 'seed pair')}"
    )
    rows = [
        (
            *(rate.name, f"{rate.nominal:.1%}", f"{rate.rate:.1%}"),
            f"{rate.interval.low:.1%} to {rate.interval.high:.1%}",
        )
        for rate in c.rates
    ]
    yield _table(title, ("how often", "nominal", "measured", "95% interval"), rows, "how often")
    parts = "tuning, analysis" if c.tuned else "analysis"
    again = (
        "every replicate was tuned on seeds of its own."
        if c.tuned
        else f"rates are means over {c.analyses} analyses of the same trials, regrouped by seed; "
        f"intervals are those of the {c.replicates} replicates that share no trial."
    )
    yield (
        f"Measured: the whole pipeline ({parts}, Holm, verdict) on {escape(c.label)} by "
        f"the {TESTS[c.test]}; {again}"
    )
    if c.looks:
        looks = ", ".join(map(str, c.looks))
        prepared = "" if c.tuned else ", of trials that were all there"
        yield (
            f"Every replicate went through the looks at {looks} seeds{prepared}; a contrast took "
            f"{c.mean_seeds:.1f} seeds on average."
        )
    if c.pairs < DESCRIPTIVE_BELOW:
        yield "With so few pairs no verdict claims an effect; the tests are counted all the same."
    if c.skipped:
        were = "was" if c.skipped == 1 else "were"
        yield f"{numbers.plural(c.skipped, 'replicate')} {were} left out: a trial is not finished."


# Studies, before and while they run


# Of training at the shape of `quickstart` on two cores: 41,000 tokens/s of 1.57 million parameters.
FLOPS_PER_SECOND = 41_000 * 6 * 1.57e6
MOST_MINUTES = 30 * 24 * 60.0  # above which cores are no place for a study


def minutes(study: Study) -> float | None:
    """Return about how many minutes training takes on two cores; None where nobody says."""
    flops = study.facts.flops
    return None if flops is None else flops / FLOPS_PER_SECOND / 60


def shipped(groups: Mapping[str, list[str]], studies: Mapping[str, Study]) -> Parts:
    """Yield the examples that ship, group by group: what each asks, and what it takes."""
    for group, names in groups.items():
        rows = [
            (
                name,
                studies[name].question or studies[name].title,
                _in_minutes(minutes(studies[name])),
                "once" if studies[name].facts.downloads else "no",
            )
            for name in names
        ]
        head = ("study", "what it asks", "takes", "network")
        yield _table(group, head, rows, "study", "what it asks", "network")
    yield (
        "Takes: training, on two cores with bfloat16; `paribus plan STUDY` measures it here. No "
        "example needs a GPU but those that say so: `paribus plan STUDY --tflops 989`. Network: "
        "whether its text is downloaded, once."
    )
    yield "Begin with: paribus run quickstart"


def _in_minutes(amount: float | None) -> str:
    if amount is None:
        return ""
    if amount > MOST_MINUTES:
        return "GPUs"
    return f"~{amount:.0f} min" if amount < 90 else f"~{amount / 60:.1f} h"


def cost(study: Study, cost: Cost | None) -> Parts:
    """Yield tokens, FLOPs, time, price and memory; of another trainer the number of trials."""
    if cost is None:
        n_tuning = len(tuning_study(study).trials) if study.tuning else 0
        yield _trials(len(study.trials), n_tuning)
        return
    base, rate = cost.arms[study.baseline], cost.rate
    assumed = " (assumed, GPT-2's: the tokenizer is not there yet)"
    told = {
        "vocabulary": f"{cost.vocabulary:,}" + (assumed if cost.vocabulary_is_assumed else ""),
        "tokens per trial": f"{base.tokens:,} ({base.tokens / base.parameters:.3g} a parameter)",
        "tokens in all": f"{cost.tokens:,}",
        "FLOPs per trial": _span(arm.flops for arm in cost.arms.values()),
        "FLOPs in all": f"{cost.flops:.4g}",
    }
    if len({arm.iterations for arm in cost.arms.values()}) > 1:
        told |= {
            f"trial of {name}": f"{arm.iterations:,} iterations, {arm.tokens:,} tokens"
            for name, arm in cost.arms.items()
        }
    if rate is None:
        told["time"] = "not measured, a step here takes long: --tflops X plans for a device"
    else:
        told |= _times(cost, rate)
    yield _values(_trials(cost.trials, cost.tuning_trials), told)
    yield dim("Training alone; evaluation and tasks come on top.")
    yield from _memory(study, cost)


def _trials(n_trials: int, n_tuning: int) -> str:
    return f"{n_trials} trials" + (f", and {n_tuning} that tune before them" if n_tuning else "")


def _times(cost: Cost, rate: Rate) -> dict[str, str]:
    assert cost.hours is not None and cost.device_hours is not None
    values = {"FLOPs per second, a device": f"{rate.flops_per_second:.4g} (as stated)"}
    places = numbers.plural(rate.places, "device")
    if rate.step is not None:
        side = f" of {rate.step.stack} trials side by side" if rate.step.stack > 1 else ""
        values = {
            f"one step{side}, measured": f"{_amount(rate.step.seconds * 1e3)} ms",
            "FLOPs per second, a worker": f"{rate.flops_per_second:.4g}",
        }
        places = numbers.plural(rate.places, "worker")
    values["device-hours"] = _amount(cost.device_hours)
    values[f"time, {places}"] = _elapsed(cost.hours)
    if cost.price is not None:
        values["price"] = _amount(cost.price)
    return values


def _memory(study: Study, cost: Cost) -> Parts:
    """Yield the memory of a device that trains one trial of the arm that takes most."""
    known = {
        arm: arm_cost.memory for arm, arm_cost in cost.arms.items() if arm_cost.memory is not None
    }
    if not known:
        return
    arm, most = max(known.items(), key=lambda item: item[1].total)
    parts = asdict(most) | {"total": most.total}
    values = {name: f"{_amount(size / MIB)} MiB" for name, size in parts.items()}
    yield _values(f"memory of a trial: arm {arm}", values)


def _amount(value: float) -> str:
    """`1,234`, and below a hundred three digits: `20.3`, `0.0031`."""
    return f"{value:,.0f}" if value >= 100 else numbers.compact(float(f"{value:.3g}"))


def _elapsed(hours: float) -> str:
    """`49.8 days`, `3 h 05 min`, `0.0059 s`."""
    if hours >= 24:
        return f"{hours / 24:,.1f} days"
    seconds = hours * 3600
    return numbers.duration(seconds) if seconds >= 1 else f"{_amount(seconds)} s"


def arms(study: Study, cost: Cost | None) -> Parts:
    """Yield the question, and the arms: what sets each apart, parameters and FLOPs of a trial."""
    yield f"[bold]{escape(study.title or study.name)}[/]"
    if study.question:
        yield escape(study.question)
    rows = []
    for arm in study.arms:
        differs = [f"{key}\n  {a} → {b}" for key, (a, b) in study.differences(arm).items()]
        size = (f"{cost.arms[arm].parameters:,}", f"{cost.arms[arm].flops:.3g}") if cost else ()
        rows.append((arm, study.reference(arm) or "", "\n".join(differs) or "(nothing)", *size))
    sizes = ("parameters", "FLOPs") if cost else ()
    head = ("arm", "against", "differs in", *sizes)
    yield _table("arms", head, rows, "arm", "against", "differs in")


def keys(study: Study, *, every: bool = False) -> Parts:
    """Yield the keys that are set, or `every` key."""
    table = study.model_dump(exclude={"arms"}, exclude_defaults=not every)
    rows = [(key, _shown(value)) for key, value in flatten(table).items() if value != {}]
    title = "as resolved" if every else "what is set; --all shows every key"
    yield _table(title, ("key", "value"), rows, "key", "value")


def _shown(value: object) -> str:
    """Return a value of a study; of a list of tables a line for each, with what is stated in it."""
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], dict):
        return str(value)
    stated = [
        {key: entry for key, entry in table.items() if entry is not None and entry is not False}
        for table in value
    ]
    return "\n".join(
        ", ".join(f"{key} = {entry}" for key, entry in table.items()) for table in stated
    )


def parameters(study: Study, rows: dict[str, list[ParameterRow]], warnings: list[str]) -> Parts:
    """Yield all parameters of arms that others are compared with; of the others, what differs.

    x: how many blocks have it; res.: if it writes to the residual stream.
    """
    for arm in study.arms:
        reference = study.reference(arm)
        known = rows[reference] if reference else []
        title = f"parameters of {arm}" + (f", where not those of {reference}" if reference else "")
        cells = [
            (
                row.name,
                str(row.blocks),
                "x".join(map(str, row.shape)) or "1",
                row.rule.replace("normal(std=", "normal(", 1),
                "yes" if row.residual else "",
                f"{row.weight_decay:g}" if row.weight_decay else "",
                row.optimizer,
            )
            for row in rows[arm]
            if row not in known
        ]
        head = ("parameter", "x", "shape", "starts as", "res.", "decay", "by")
        table = _table(title, head, cells, "parameter", "shape", "starts as", "res.", "by")
        yield table if cells else escape(f"{title}: none")
        names = {row.name for row in rows[arm]}
        if gone := [row.name for row in known if row.name not in names]:
            yield escape(f"without {', '.join(gone)}")
    yield from map(warning, warnings)


def status(results: Results) -> Parts:
    """Yield every trial with its state and steps, and how many are finished."""
    from paribus.results.heldout_part import awaits_heldout_part

    begun = _begun(results)
    rows = []
    for folder in results.finished:
        trial = results.trials[folder.arm, folder.seed]
        timing = results.timing.get((folder.arm, folder.seed))
        took = numbers.duration(timing["training_seconds"]) if timing else ""
        failed = trial.get("failed", "")
        state = "✓ finished" if trial["diverged_at"] is None else "✗ diverged"
        state = f"✗ failed: {failed}" if failed else state
        rows.append((folder.label, state, str(trial.get("iterations", "")), took))
    for folder in results.unfinished:
        steps = begun.get((folder.arm, folder.seed))
        state = "waiting" if steps is None else "started"
        rows.append((folder.label, state, str(steps or 0), ""))
    yield _table("", ("trial", "state", "steps", "training"), rows, "trial", "state")
    yield f"{len(results.finished)} of {results.n_trials} trials are finished"
    if awaits_heldout_part(results):
        yield (
            "the sealed test part is not evaluated yet: the run opens it once, when every trial is "
            "finished"
        )


def jobs(rows: Sequence[JobRow]) -> Parts:
    """Yield the jobs of a run in the scheduler's words, and the last lines of those that failed."""
    if not rows:
        return
    shown = [(row.job, row.state, row.doing, row.node, row.reason) for row in rows]
    head = ("job", "state", "trials", "node", "the scheduler says")
    yield _table("", head, shown, "job", "state", "trials", "node", "the scheduler says")
    for row in rows:
        if row.state == "failed":
            yield from (escape(f"{row.job}: {line}") for line in reversed(row.log))


def _begun(results: Results) -> dict[tuple[str, int], int]:
    """Return the steps of trials that are begun and not finished."""
    if results.study.trainer != STACKED:
        from paribus.runs.standing import read_progress

        progress = read_progress(results.path)
        begun = {label: t for label, (t, _) in progress.running.items()} if progress else {}
        parted = {label.rpartition("/seed-")[::2]: steps for label, steps in begun.items()}
        return {(arm, int(seed)): steps for (arm, seed), steps in parted.items()}
    from paribus.engine.execution.trial.checkpoints import begun_stacks

    return {trial: n for stack, n in begun_stacks(results.path).items() for trial in stack}
