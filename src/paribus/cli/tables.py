"""Tables and texts printed by the verbs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.markup import escape

from paribus import numbers
from paribus.analysis import Detectable, least_effect, look_text
from paribus.cli.options import table
from paribus.decision import Verdicts
from paribus.metric import Metric
from paribus.report import tables
from paribus.report.cautions import unreachable_text
from paribus.report.cells import TESTS
from paribus.report.render import fill
from paribus.report.table_model import Table
from paribus.results import Results, ResultsFolder
from paribus.statistics import DESCRIPTIVE_BELOW, Boundary
from paribus.study import Study, is_untuned, tuning_study, values_text

if TYPE_CHECKING:
    from paribus.engine.cost import Cost
    from paribus.runs.executors.jobs import JobState
    from paribus.runs.progress import Progress

MIB = 2**20


def design(study: Study) -> list[str]:
    """Return a warning for each outcome that cannot occur."""
    return [f"[yellow]warning:[/] {escape(line)}." for line in unreachable_text(study)]


def plan(study: Study, rows: list[Detectable], metrics: Mapping[str, Metric], name: str) -> str:
    """Describe the smallest detectable change on each primary endpoint, and the assumed SD.

    Without an SD, suggest a pilot study.

    Args:
        name: the study as the user named it.
    """
    first = 1 + max((*study.seeds, *(study.tuning.seeds if study.tuning else ())))
    return fill(
        "plan.txt",
        study=study,
        rows=rows,
        judged=[metrics[endpoint.metric] for endpoint in study.judged],
        name=name,
        least=DESCRIPTIVE_BELOW,
        plural=numbers.plural,
        in_sds=least_effect(study, study.inference.alpha / study.family),
        test=TESTS[study.inference.test],
        pilot_seeds=[] if rows else list(range(first, first + DESCRIPTIVE_BELOW)),
    )


def in_full(verdicts: Verdicts) -> Iterator[Table | str]:
    """Yield the details behind the card: every test and control, and the rule."""
    analysis = verdicts.analysis
    yield tables.tuning_table(analysis)
    yield tables.looks_table(analysis)
    yield tables.task_contrast_table(analysis)
    yield tables.stability(analysis)
    yield from tables.primary(analysis)
    yield tables.contrasts(analysis)
    yield tables.secondary(analysis)
    yield escape(tables.not_measured(analysis))
    yield tables.controls(analysis)
    yield from (f"[yellow]excluded:[/] {escape(line)}" for line in tables.left_out(analysis))
    yield replace(tables.decision(analysis, verdicts), title="the rule")


# Studies, before they run


def shipped(studies: Mapping[str, Study]) -> Table:
    """Return a table of the built-in examples and their questions."""
    rows = [(name, study.question or study.title) for name, study in studies.items()]
    return table("examples", ("study", "what it asks"), rows)


def arms(study: Study, cost: Cost | None) -> Table:
    """Return a table of the arms: differences, parameters, and FLOPs per trial."""
    rows = []
    for arm in study.arms:
        differs = [f"{key}\n  {a} → {b}" for key, (a, b) in study.differences(arm).items()]
        size = (f"{cost.arms[arm].parameters:,}", f"{cost.arms[arm].flops:.3g}") if cost else ()
        rows.append((arm, study.reference(arm) or "", "\n".join(differs) or "(nothing)", *size))
    sizes = ("parameters", "FLOPs per trial") if cost else ()
    return table("arms", ("arm", "against", "differs in", *sizes), rows)


def costs(study: Study, cost: Cost | None) -> Table:
    """Return a table of a study's tokens, FLOPs, time, price and memory.

    If another program trains, only the number of trials is known.
    """
    n_tuning = len(tuning_study(study).trials) if study.tuning else 0
    trials = f"{len(study.trials)} trials"
    trials += f", after {n_tuning} tuning trials" if n_tuning else ""
    if cost is None:
        return table("", ("", " "), [("training", trials)])
    base, rate = cost.arms[study.baseline], cost.rate
    values = {
        "vocabulary": f"{cost.vocabulary:,}" if cost.vocabulary else "assumed, GPT-2's",
        "tokens per trial": f"{base.tokens:,} ({base.tokens / base.parameters:.3g} per parameter)",
        "tokens in all": f"{cost.tokens:,}",
        "FLOPs in all": f"{cost.flops:.4g}",
    }
    if rate is None or cost.hours is None or cost.device_hours is None:
        values["time"] = "not measured, as a step takes long here; use --tflops X for a device"
    else:
        at_once = numbers.plural(rate.workers * study.resources.devices, "device")
        if rate.step_seconds:
            at_once = numbers.plural(rate.workers, "worker")
            values["one step, measured"] = f"{_amount(rate.step_seconds * 1e3)} ms"
        values |= {
            "FLOPs per second, a device": f"{rate.flops_per_second:.4g}",
            "device-hours": _amount(cost.device_hours),
            f"time, {at_once}": numbers.duration(cost.hours * 3600),
        }
    if cost.price is not None:
        values["price"] = _amount(cost.price)
    memories = {arm: own.memory for arm, own in cost.arms.items() if own.memory}
    if memories:
        arm = max(memories, key=memories.__getitem__)
        values[f"MiB of a trial of {arm}"] = _amount(memories[arm] / MIB)
    return table(f"{trials}; training alone", ("", " "), values.items())


def _amount(value: float) -> str:
    """Format an amount: `1,234`, or with three digits below 100, such as `20.3` or `0.0031`."""
    return f"{value:,.0f}" if value >= 100 else numbers.compact(float(f"{value:.3g}"))


def looks(plan: Sequence[Boundary]) -> Table:
    """Return a table of the boundaries at each interim analysis, for Holm's first step."""
    rows = [
        (str(number), *(str(look.pairs), f"{look.spent:.2g}", f"{look.t:.2f}"))
        for number, look in enumerate(plan, start=1)
    ]
    return table("looks", ("look", "seeds", "spent", "|t|"), rows)


def detectable(rows: Sequence[Detectable], metrics: Mapping[str, Metric]) -> Iterator[Table]:
    """Yield a table for each primary endpoint: the change that every contrast can detect."""
    head = ("contrast", "SD", "source", "detects", "margin", "pairs for it")
    for name in dict.fromkeys(row.metric for row in rows):
        size, unit = metrics[name].size_text, metrics[name].change_unit
        cells = [
            (
                *(row.contrast, size(row.sd), row.source, size(row.effect), size(row.margin)),
                str(row.pairs_for_margin or "none"),
            )
            for row in rows
            if row.metric == name
        ]
        yield table(f"{metrics[name].label}{f' ({unit})' if unit else ''}", head, cells)


# Studies that run


def trials(results: Results, live: Progress | None) -> Table:
    """Return a table of every trial with its state and steps.

    Args:
        live: progress of the study if it is running.
    """
    begun, rows = live.running if live else {}, []
    for folder in results.finished:
        trial = results.trials[folder.arm, folder.seed]
        timing = results.timing.get((folder.arm, folder.seed))
        took = numbers.duration(timing["training_seconds"]) if timing else ""
        state = "✓ finished" if trial["diverged_at"] is None else "✗ diverged"
        if failed := trial.get("failed"):
            state = f"✗ failed: {failed}"
        rows.append((folder.label, state, str(trial.get("iterations", "")), took))
    for folder in results.unfinished:
        state = "started" if folder.label in begun else "waiting"
        rows.append((folder.label, state, str(begun.get(folder.label, 0)), ""))
    return table("", ("trial", "state", "steps", "training"), rows)


def standing(results: Results, home: ResultsFolder) -> str:
    """Describe the interim analyses and the tuning of the study in `home`."""
    study, folder = home.read_study(), home.tuning_trials
    tuned = study.tuning.chosen if study.tuning else {}
    return fill(
        "standing.txt",
        study=results.study,
        results=results,
        looks=[look_text(results.study, entry) for entry in results.looks],
        awaits_test=results.awaits_test,
        tuning_trials=[folder.trial(*t) for t in folder.read_study().trials]
        if folder.exists
        else [],
        is_untuned=is_untuned(study),
        chosen=[f"{arm} {values_text(values)}" for arm, values in tuned.items()],
    )


def jobs(rows: Sequence[JobState]) -> Table:
    """Return a table of a run's jobs, with their states in the scheduler's words.

    It includes the last log lines of jobs that ended before the run.
    """
    cells = []
    for row in rows:
        cells.append((row.id, row.phase, row.doing, row.node, row.words))
        cells += [("", "", "", "", line) for line in reversed(row.log)]
    return table("", ("job", "state", "trials", "node", "the scheduler says"), cells)
