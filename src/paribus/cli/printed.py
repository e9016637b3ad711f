"""What verbs print: tables of `report`, tables of the terminal alone, lines between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text

from paribus import numbers
from paribus.analysis import Analysis, Detectable, PlannedLooks, least_effect, look_in_words, sights
from paribus.decision import Calibration, Verdicts, unreachable
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
# Of training at the shape of `quickstart` on two cores: 41,000 tokens/s of 1.57 million parameters.
FLOPS_PER_MINUTE = 60 * 41_000 * 6 * 1.57e6
MOST_MINUTES = 30 * 24 * 60.0  # above which cores are no place for a study

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


def _table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table of the terminal alone."""
    return Table(title, "", tuple(head), [tuple(row) for row in rows], title)


def _values(title: str, values: Mapping[str, str]) -> Table:
    """Return a table of names and values."""
    return _table(title, ("", " "), values.items())


# Results


def tables_of(verdicts: Verdicts) -> Parts:
    """Yield the tables that the card sums up: contrasts, endpoints, controls and the rule."""
    analysis = verdicts.analysis.by_name
    yield from tables.tuning_tables(analysis)
    if table := tables.sampling_table(analysis):
        yield table
    if table := tables.task_contrast_table(analysis):
        labels = [label for label in table.head if label != "arm"]
        for arm in dict.fromkeys(row[1] for row in table.rows):
            own = replace(table, rows=[row for row in table.rows if row[1] == arm])
            yield own.only(*labels, title=f"{arm}: {table.title}")
    yield contrasts(analysis)
    yield tables.stability(analysis)
    yield dim("analysis.json has everything else, every pair included")
    yield from comparison(analysis)
    rule = tables.decision(analysis, verdicts)
    applied = [row for row in rule.rows if row[-1]]
    yield replace(rule, title="what the registered rule applied", rows=applied)


def contrasts(analysis: Analysis) -> Table:
    """Return every contrast on a primary endpoint in full."""
    table = tables.contrasts(analysis)
    pairs = zip(table.rows, analysis.contrasts, strict=True)
    return replace(table, rows=[row for row, contrast in pairs if contrast.primary])


def comparison(analysis: Analysis) -> Parts:
    """Yield every endpoint of every arm, the controls, and what was excluded."""
    yield tables.endpoints(analysis)
    if absent := tables.not_measured(analysis):
        yield dim(absent)
    yield tables.controls(analysis)
    yield from (f"[yellow]excluded:[/] {escape(line)}" for line in tables.left_out(analysis))


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


# Standing of a study


def status(results: Results) -> Parts:
    """Yield every trial with its state and steps, and how many are finished."""
    from paribus.results.heldout_part import awaits_heldout_part

    begun, rows = _begun(results), []
    for folder in results.finished:
        trial = results.trials[folder.arm, folder.seed]
        timing = results.timing.get((folder.arm, folder.seed))
        took = numbers.duration(timing["training_seconds"]) if timing else ""
        state = "✓ finished" if trial["diverged_at"] is None else "✗ diverged"
        if failed := trial.get("failed"):
            state = f"✗ failed: {failed}"
        rows.append((folder.label, state, str(trial.get("iterations", "")), took))
    for folder in results.unfinished:
        steps = begun.get((folder.arm, folder.seed))
        state = "waiting" if steps is None else "started"
        rows.append((folder.label, state, str(steps or 0), ""))
    yield _table("", ("trial", "state", "steps", "training"), rows)
    yield f"{len(results.finished)} of {results.n_trials} trials are finished"
    if awaits_heldout_part(results):
        yield (
            "the sealed test part is not evaluated yet: the run opens it once, when every trial is "
            "finished"
        )


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


def standing(results: Results) -> Parts:
    """Yield the looks that were taken, and the one that comes."""
    study = results.study
    if study.plan is None:
        return
    yield from (escape(look_in_words(study, entry)) for entry in results.looks)
    number = len(results.looks)
    if results.unfinished and number < len(study.plan.looks):
        upto = study.plan.looks[number]
        yield f"next is look {number + 1} of {len(study.plan.looks)}, at {upto} seeds"


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


def jobs(rows: Sequence[JobRow]) -> Parts:
    """Yield the jobs of a run in the scheduler's words, and the last lines of those that failed."""
    shown = [(row.job, row.state, row.doing, row.node, row.reason) for row in rows]
    yield _table("", ("job", "state", "trials", "node", "the scheduler says"), shown)
    for row in rows:
        if row.state == "failed":
            yield from (escape(f"{row.job}: {line}") for line in reversed(row.log))


# Designs


def smallest_change(
    study: Study, rows: list[Detectable], metrics: Mapping[str, Metric], named: str
) -> Parts:
    """Yield the smallest change that the design will see, for each primary endpoint, and by which
    SD; where none is known, the pilot that would tell. `named` is what the user called the study.
    """
    n, unknown = len(study.seeds), []
    if not study.contrasts:
        yield "One arm alone: nothing is compared."
        return
    if n < DESCRIPTIVE_BELOW:
        seeds = numbers.plural(n, "seed")
        yield warning(f"{seeds}: nothing is tested; state {DESCRIPTIVE_BELOW} seeds or more")
        return
    for endpoint in study.judged:
        metric = metrics[endpoint.metric]
        of_metric = [row for row in rows if row.metric == metric.name]
        if not of_metric:
            unknown.append(metric.label)
            continue
        largest = max(of_metric, key=lambda row: row.effect)
        unit = f" {metric.change_unit}" if metric.change_unit not in ("", "1") else ""
        yield (
            f"[bold]With {'up to ' if study.plan else ''}{n} seeds you will see a change of "
            f"{metric.size_text(largest.effect)}{escape(unit)} or more in "
            f"{escape(metric.label)}[/], at {study.inference.power:.0%} power."
        )
        yield dim(_source(largest, metric))
        if len({row.contrast.split(" against ")[0] for row in of_metric}) < len(study.contrasts):
            unknown.append(f"{metric.label} of the other arms")
    is_kept = any(row.kept for row in rows)
    if study.tuning and study.inference.choice != "fixed" and is_kept:
        yield dim("What choosing the tuned values adds is not in it.")
    if unknown:
        yield warning(
            f"how much {join(unknown)} varies from seed to seed is not known: no kept study has "
            "a like contrast. A pilot tells:"
        )
    elif is_kept:
        yield dim("A pilot of your own tells better:")
    if unknown or is_kept:
        first = 1 + max((*study.seeds, *(study.tuning.seeds if study.tuning else ())))
        seeds, pilot = list(range(first, first + DESCRIPTIVE_BELOW)), f"results/{study.name}-pilot"
        train = f'paribus run {named} --set "seeds={seeds}" --results {pilot}'
        judge = f"paribus judge RUNS ... --results {pilot}"
        # A `Text` keeps its line, however long: commands are copied.
        yield Text(f"  {judge if study.trainer == RUNS else train}")
        yield Text(f"  paribus plan {named} --pilot {pilot}")


def _source(row: Detectable, metric: Metric) -> str:
    """Say which SD a plan goes by, and where it is from."""
    sd = metric.size_text(row.sd)
    if row.kept is None:
        origins = {"stated": "as stated", "pilot": f"of {row.contrast} in the pilot"}
        source = origins.get(row.source, "the largest of the pilot")
        return f"SD of paired differences {sd}, {source}."
    low, high = map(metric.size_text, row.kept.middle_half)
    studies = numbers.plural(len(row.kept.studies), "kept study", "kept studies")
    half = f"; the middle half has {low} to {high}" if len(row.kept.sds) > 3 else ""
    return (
        f"SD of paired differences {sd}, the median of "
        f"{numbers.plural(len(row.kept.sds), 'contrast')} that change "
        f"{join([f'the {kind}' for kind in row.kept.kind])} in {studies} of small models{half}."
    )


def detectable(study: Study, rows: list[Detectable], metrics: Mapping[str, Metric]) -> Parts:
    """Yield what the design detects in SDs, what it cannot see, and each contrast in its units."""
    n, inference = len(study.seeds), study.inference
    if n < 2:
        yield "One seed: nothing can be tested."
        return
    family = numbers.plural(max(len(study.contrasts), 1), "contrast")
    if len(study.judged) > 1:
        family += f" x {len(study.judged)} primary endpoints"
    sds = least_effect(study, inference.alpha / study.family)  # the first step of Holm
    yield (
        f"{n} seed pairs{', looked at on the way,' if study.plan else ''} detect {sds:.2f} SDs "
        f"of a difference at {inference.power:.0%} power by the {TESTS[inference.test]} (alpha "
        f"{inference.alpha:g} over {family})."
    )
    yield from design(study, metrics)
    for name in dict.fromkeys(row.metric for row in rows):
        yield from _in_units([row for row in rows if row.metric == name], metrics[name])


def _in_units(rows: list[Detectable], metric: Metric) -> Parts:
    size = metric.size_text
    unit = f" ({metric.change_unit})" if metric.change_unit else ""
    cells = [
        (
            row.contrast,
            f"{size(row.sd)} ({row.source})",
            *(size(row.effect), size(row.margin)),
            str(row.pairs_for_margin or "none"),
        )
        for row in rows
    ]
    head = ("contrast", "SD", "detects", "margin", "pairs for it")
    yield _table(f"{metric.label}{unit}", head, cells)
    warnings: dict[str, list[str]] = {}
    for row in rows:
        if row.one_more:
            seed, tuning_seed = map(size, row.one_more)
            yield escape(
                f"{row.contrast}: the choice of tuned values adds an SD of {size(row.choice)}. One "
                f"more seed detects {seed}, one more tuning seed {tuning_seed}."
            )
        exceeded = f"the smallest detectable effect, {size(row.effect)}, exceeds"
        if row.exceeds_margin:
            way_out = f"no number of seeds resolves it; try {row.instead}"
            if row.pairs_for_margin:
                way_out = f"{row.pairs_for_margin} seeds would detect it"
            warnings.setdefault(f"{exceeded} the margin; {way_out}", []).append(row.contrast)
        if row.could_miss:
            missed = f"{exceeded} the smallest effect worth detecting, {size(row.smallest_effect)}"
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
        effect = f"an effect of {sight.smallest_effect:g} on {sight.metric}"
        if metric := metrics.get(sight.metric):
            unit = f" {metric.change_unit}" if metric.change_unit else ""
            effect = f"an effect of {metric.shown(sight.smallest_effect):g}{unit} on {metric.label}"
        if sight.why_not:
            unseen.setdefault(sight.why_not, []).append(effect)
        elif sight.sd is not None and not warnings:
            yield escape(
                f"{numbers.plural(len(study.seeds), 'seed')} can detect {effect} only if the SD of "
                f"seed differences is at most {sight.sd:.2g}."
            )
    for why, effects in unseen.items():
        yield warning(f"{'; '.join(effects)} cannot be seen: {why}.")


def planned(study: Study, plan: PlannedLooks | None) -> Parts:
    """Yield the boundaries of each look."""
    if plan is None:
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


def calibration(c: Calibration) -> Parts:
    """Yield the measured error rates of the whole pipeline, and on how many replicates they are."""
    rows = [
        (
            *(rate.name, f"{rate.nominal:.1%}", f"{rate.rate:.1%}"),
            f"{rate.interval.low:.1%} to {rate.interval.high:.1%}",
        )
        for rate in c.rates
    ]
    sizes = ((c.replicates, "replicate"), (c.contrasts, "contrast"), (c.pairs, "seed pair"))
    replicates, *each = (numbers.plural(n, word) for n, word in sizes)
    title = f"A/A: {replicates} of {' x '.join(each)}"
    yield _table(title, ("how often", "nominal", "measured", "95% interval"), rows)
    yield (
        f"Measured: the whole pipeline ({'tuning, ' if c.tuned else ''}analysis, Holm, verdict) on "
        f"{escape(c.label)} by the {TESTS[c.test]}."
    )
    if c.looks:
        looks = ", ".join(map(str, c.looks))
        yield f"Looks at {looks} seeds; a contrast took {c.mean_seeds:.1f} seeds on average."
    if c.pairs < DESCRIPTIVE_BELOW:
        yield "With so few pairs no verdict claims an effect; the tests are counted all the same."
    if c.skipped:
        yield f"Left out, as a trial is not finished: {numbers.plural(c.skipped, 'replicate')}."


# Studies, before they run


def minutes(study: Study) -> float | None:
    """Return about how many minutes training takes on two cores; None where nobody says."""
    flops = study.facts.flops
    return None if flops is None else flops / FLOPS_PER_MINUTE


def shipped(groups: Mapping[str, list[str]], studies: Mapping[str, Study]) -> Parts:
    """Yield the examples that ship, group by group: what each asks, and what it takes."""
    for group, names in groups.items():
        rows = []
        for name in names:
            study, amount = studies[name], minutes(studies[name])
            takes = ""
            if amount is not None:
                takes = f"~{amount:.0f} min" if amount < 90 else f"~{amount / 60:.1f} h"
                takes = takes if amount <= MOST_MINUTES else "GPUs"
            network = "once" if study.facts.downloads else "no"
            rows.append((name, study.question or study.title, takes, network))
        yield _table(group, ("study", "what it asks", "takes", "network"), rows)
    yield (
        "Takes: training, on two cores with bfloat16; `paribus plan STUDY` measures it here. No "
        "example needs a GPU but those that say so: `paribus plan STUDY --tflops 989`. Network: "
        "whether its text is downloaded, once."
    )
    yield "Begin with: paribus run quickstart"


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
    yield _table("arms", ("arm", "against", "differs in", *sizes), rows)


def keys(study: Study, *, every: bool = False) -> Parts:
    """Yield the keys that are set, or `every` key."""
    table = study.model_dump(exclude={"arms"}, exclude_defaults=not every)
    rows = [(key, _value_text(value)) for key, value in flatten(table).items() if value != {}]
    title = "as resolved" if every else "what is set; --all shows every key"
    yield _table(title, ("key", "value"), rows)


def _value_text(value: object) -> str:
    """Return a value of a study; of a list of tables a line for each, with what is stated in it."""
    if not isinstance(value, list | tuple) or not value or not isinstance(value[0], dict):
        return str(value)
    return "\n".join(
        ", ".join(f"{k} = {entry}" for k, entry in table.items() if entry not in (None, False))
        for table in value
    )


def parameters(study: Study, rows: dict[str, list[ParameterRow]]) -> Parts:
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
        yield _table(title, head, cells) if cells else escape(f"{title}: none")
        names = {row.name for row in rows[arm]}
        if gone := [row.name for row in known if row.name not in names]:
            yield escape(f"without {', '.join(gone)}")


def cost(study: Study, cost: Cost | None) -> Parts:
    """Yield tokens, FLOPs, time, price and memory; of another trainer the number of trials."""
    n_trials, n_tuning = len(study.trials), 0
    if cost is not None:
        n_trials, n_tuning = cost.trials, cost.tuning_trials
    elif study.tuning:
        n_tuning = len(tuning_study(study).trials)
    trials = f"{n_trials} trials" + (f", and {n_tuning} that tune before them" if n_tuning else "")
    if cost is None:
        yield trials
        return
    base, assumed = cost.arms[study.baseline], ""
    if cost.vocabulary_is_assumed:
        assumed = " (assumed, GPT-2's: the tokenizer is not there yet)"
    flops = list(dict.fromkeys(f"{f:.3g}" for f in sorted(arm.flops for arm in cost.arms.values())))
    values = {
        "vocabulary": f"{cost.vocabulary:,}{assumed}",
        "tokens per trial": f"{base.tokens:,} ({base.tokens / base.parameters:.3g} a parameter)",
        "tokens in all": f"{cost.tokens:,}",
        "FLOPs per trial": " to ".join(dict.fromkeys((flops[0], flops[-1]))),
        "FLOPs in all": f"{cost.flops:.4g}",
    }
    if len({arm.iterations for arm in cost.arms.values()}) > 1:
        values |= {
            f"trial of {name}": f"{arm.iterations:,} iterations, {arm.tokens:,} tokens"
            for name, arm in cost.arms.items()
        }
    values |= _times(cost, cost.rate)
    yield _values(trials, values)
    yield dim("Training alone; evaluation and tasks come on top.")
    memories = [(a.memory.total, arm, a.memory) for arm, a in cost.arms.items() if a.memory]
    if memories:
        total, arm, largest = max(memories, key=lambda memory: memory[0])
        sizes = asdict(largest) | {"total": total}
        values = {name: f"{_amount(size / MIB)} MiB" for name, size in sizes.items()}
        yield _values(f"memory of a trial: arm {arm}", values)


def _times(cost: Cost, rate: Rate | None) -> dict[str, str]:
    if rate is None or cost.hours is None or cost.device_hours is None:
        return {"time": "not measured, a step here takes long: --tflops X plans for a device"}
    if rate.step is None:
        device = "device"
        values = {"FLOPs per second, a device": f"{rate.flops_per_second:.4g} (as stated)"}
    else:
        device = "worker"
        side = f" of {rate.step.stack} trials side by side" if rate.step.stack > 1 else ""
        values = {
            f"one step{side}, measured": f"{_amount(rate.step.seconds * 1e3)} ms",
            "FLOPs per second, a worker": f"{rate.flops_per_second:.4g}",
        }
    seconds = cost.hours * 3600
    elapsed = numbers.duration(seconds) if seconds >= 1 else f"{_amount(seconds)} s"
    if cost.hours >= 24:
        elapsed = f"{cost.hours / 24:,.1f} days"
    values["device-hours"] = _amount(cost.device_hours)
    values[f"time, {numbers.plural(rate.places, device)}"] = elapsed
    return values | ({} if cost.price is None else {"price": _amount(cost.price)})


def _amount(value: float) -> str:
    """`1,234`, and below a hundred three digits: `20.3`, `0.0031`."""
    return f"{value:,.0f}" if value >= 100 else numbers.compact(float(f"{value:.3g}"))
