"""Tables and texts printed by the commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
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
    from paribus.study.trainer import Trial

MIB = 2**20


def design(study: Study) -> list[str]:
    """Return one warning per outcome of the decision rule that cannot occur."""
    return [f"[yellow]warning:[/] {escape(line)}." for line in unreachable_text(study)]


def plan(study: Study, rows: list[Detectable], metrics: Mapping[str, Metric], name: str) -> str:
    """Describe the smallest detectable change on each primary endpoint and the SD it assumes.

    If no SD is known, suggest a pilot study.

    Args:
        name: study name or path, as given on the command line.
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
        test=("the " if study.is_paired else "") + TESTS[study.inference.test],
        sd_of="SD of paired differences" if study.is_paired else "SD of one run",
        pilot_seeds=[] if rows else list(range(first, first + DESCRIPTIVE_BELOW)),
    )


def in_full(verdicts: Verdicts) -> Iterator[Table | str]:
    """Yield the tables of `--verbose`: tuning, tests, controls, exclusions and decision rule."""
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
    yield replace(tables.decision(analysis, verdicts), title="decision rule")


# Studies, before they run


def shipped(studies: Mapping[str, Study]) -> Table:
    """Build a table of the built-in example studies and their questions."""
    rows = [(name, study.question or study.title) for name, study in studies.items()]
    return table("examples", ("study", "question"), rows)


def arms(study: Study, cost: Cost | None) -> Table:
    """Build a table of the arms: differences, parameters and FLOPs per trial."""
    rows = []
    for arm in study.arms:
        differs = [f"{key}\n  {text}" for key, text in study.difference_texts(arm).items()]
        size = (f"{cost.arms[arm].parameters:,}", f"{cost.arms[arm].flops:.3g}") if cost else ()
        rows.append((arm, study.reference(arm) or "", "\n".join(differs) or "(nothing)", *size))
    sizes = ("parameters", "FLOPs per trial") if cost else ()
    return table("arms", ("arm", "against", "differs in", *sizes), rows)


def costs(study: Study, cost: Cost | None, pilot: Results | None = None) -> Table:
    """Build a table of a study's tokens, FLOPs, time, price and memory.

    Without a cost, as for external programs, it has the number of trials, and their pilot's time.
    """
    n_tuning = len(tuning_study(study).trials) if study.tuning else 0
    trials = f"{len(study.trials)} trials"
    trials += f", after {n_tuning} tuning trials" if n_tuning else ""
    if cost is None:
        seconds = [own["training_seconds"] for own in pilot.timing.values()] if pilot else []
        if seconds:
            total = numbers.duration(fmean(seconds) * (len(study.trials) + n_tuning))
            trials += f", {total} one at a time (as in the pilot)"
        return table("", ("", " "), [("training", trials)])
    base, rate = cost.arms[study.baseline], cost.rate
    values = {
        "vocabulary": f"{cost.vocabulary:,}" if cost.vocabulary else "that of GPT-2, assumed",
        "tokens per trial": f"{base.tokens:,} ({base.tokens / base.parameters:.3g} per parameter)",
        "total tokens": f"{cost.tokens:,}",
        "total FLOPs": f"{cost.flops:.4g}",
    }
    if rate is None or cost.hours is None or cost.device_hours is None:
        values["time"] = "not measured, because a step is slow on this machine; add --tflops"
    else:
        at_once = numbers.plural(rate.workers * study.resources.devices, "device")
        if rate.step_seconds:
            at_once = numbers.plural(rate.workers, "worker")
            values["time per step, measured"] = f"{_amount(rate.step_seconds * 1e3)} ms"
        values |= {
            "FLOPs per second and device": f"{rate.flops_per_second:.4g}",
            "device-hours": _amount(cost.device_hours),
            f"time on {at_once}": numbers.duration(cost.hours * 3600),
        }
    if cost.price is not None:
        values["price"] = _amount(cost.price)
    memories = {arm: own.memory for arm, own in cost.arms.items() if own.memory}
    if memories:
        arm = max(memories, key=memories.__getitem__)
        values[f"MiB per trial (largest: {arm})"] = _amount(memories[arm] / MIB)
    trials += "; training only, without evaluation, tasks and timing"
    return table(trials, ("", " "), values.items())


def _amount(value: float) -> str:
    """Format a number as `1,234`, or with three significant digits if below 100 (`0.0031`)."""
    return f"{value:,.0f}" if value >= 100 else numbers.compact(float(f"{value:.3g}"))


def looks(plan: Sequence[Boundary]) -> Table:
    """Build a table of the critical values of the interim analyses, for Holm's first step."""
    rows = [
        (str(number), *(str(look.pairs), f"{look.spent:.2g}", f"{look.t:.2f}"))
        for number, look in enumerate(plan, start=1)
    ]
    return table("looks", ("look", "seeds", "spent", "|t|"), rows)


def detectable(
    rows: Sequence[Detectable], metrics: Mapping[str, Metric], *, is_paired: bool
) -> Iterator[Table]:
    """Yield one table per primary endpoint with the detectable change of each contrast."""
    runs = "pairs for margin" if is_paired else "runs for margin"
    head = ("contrast", "SD", "source", "detects", "margin", runs)
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


def trials(results: Results, live: Progress | None, failed: Sequence[Trial] = ()) -> Table:
    """Build a table of the trials: state, number of steps and training time.

    Args:
        live: progress of the run, or None if the study is not running.
        failed: trials in which the last run failed.
    """
    begun, rows = live.running if live else {}, []
    for folder in results.finished:
        trial = results.trials[folder.arm, folder.seed]
        timing = results.timing.get((folder.arm, folder.seed))
        took = numbers.duration(timing["training_seconds"]) if timing else ""
        state = "✓ finished" if trial["diverged_at"] is None else "✗ diverged"
        if why := trial.get("failed"):
            state = f"✗ failed: {why}"
        rows.append((folder.label, state, str(trial.get("iterations", "")), took))
    for folder in results.unfinished:
        is_failed = (folder.arm, folder.seed) in failed
        state = "started" if folder.label in begun else "✗ failed" if is_failed else "waiting"
        rows.append((folder.label, state, str(begun.get(folder.label, 0)), ""))
    return table("", ("trial", "state", "steps", "training"), rows)


def standing(results: Results, home: ResultsFolder) -> str:
    """Describe the progress of interim analyses and tuning of the study in `home`."""
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
    """Build a table of a run's jobs, including the scheduler's own state messages.

    Jobs that ended before the run are followed by their last log lines.
    """
    cells = []
    for row in rows:
        cells.append((row.id, row.phase, row.doing, row.node, row.words))
        cells += [("", "", "", "", line) for line in reversed(row.log)]
    return table("", ("job", "state", "trials", "node", "scheduler message"), cells)
