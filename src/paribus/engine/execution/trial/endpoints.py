"""Resolution of a study's endpoints to declared metrics, before training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paribus.engine.evaluation import all_measures, own_measures
from paribus.engine.evaluation.harness.outcome import HEADLINE, TASK_ACCURACY
from paribus.engine.evaluation.harness.standard import standard_tasks
from paribus.engine.execution.throughput import METRICS as IN_TURN
from paribus.engine.probes import known_probes, shipped_probes
from paribus.engine.tasks import find_tasks, own_tasks
from paribus.engine.training import METRICS, OBJECTIVE, optimizer_slots
from paribus.errors import ParibusError, nearest
from paribus.metric import Metric, by_name, find
from paribus.results.curves import METRICS as CURVE_METRICS, OF_TURNS
from paribus.study import Study

STEP_METRICS = (*METRICS, OBJECTIVE)  # metrics that a trainer may measure at every step


def declarations(
    study: Study,
    first: Mapping[str, str],
    columns: Iterable[str],
    *,
    tasks: bool,
    curve: bool,
    in_turn: Sequence[Metric] = (),
) -> dict[str, Metric]:
    """Return the metrics that trials declare, keyed by name.

    Args:
        first: first column of each probe, keyed by probe.
        columns: names of columns that are measured at every step.
        tasks: whether the study has tasks.
        curve: whether the study has a held-out curve.
        in_turn: throughput metrics.

    Raises ParibusError if two metrics have the same name.
    """
    own = own_measures(study.evaluation.own, study.folder)
    probes = [probe for probe in known_probes(study) if probe.name in first]
    observed = {probe.name: probe.metric(first[probe.name]) for probe in probes}
    by_owner = {
        "the throughput measurement": in_turn,
        "the held-out measures": [measure.metric for measure in all_measures()],
        "the tasks": [*HEADLINE.values(), TASK_ACCURACY] if tasks else [],
        "the held-out curve": [*CURVE_METRICS] if curve else [],
        "the trainer": [metric for metric in STEP_METRICS if metric.name in columns],
        "the probes": [metric for name, metric in observed.items() if name in shipped_probes()],
        # Custom metrics come last, so that the error blames them for a name that is taken.
        "evaluation.own": [measure.metric for measure in own],
        "probes.own": [metric for name, metric in observed.items() if name not in shipped_probes()],
    }
    return by_name(by_owner)


def possible(study: Study) -> dict[str, Metric]:
    """Return all metrics that trials of a study can measure, including timings, keyed by name.

    Raises ParibusError if two metrics have the same name.
    """
    first = {name: columns[0] for name, columns in probe_columns(study).items()}
    steps = [metric.name for metric in STEP_METRICS]
    return declarations(study, first, steps, tasks=True, curve=True, in_turn=IN_TURN)


def probe_columns(study: Study) -> dict[str, list[str]]:
    """Return the names of the columns that each probe records in any arm, keyed by probe."""
    settings = {arm: study.setting(arm) for arm in study.arms}
    columns: dict[str, list[str]] = {}
    for probe in known_probes(study):
        names: dict[str, None] = {}
        for arm, setting in settings.items():
            try:
                slots = optimizer_slots(setting.training, study.folder) if probe.by_slot else ()
            except ParibusError as error:
                raise ParibusError(f"arm '{arm}': {error}", code=error.code) from None
            names |= dict.fromkeys(column.name for column in probe.columns(setting, slots))
        columns[probe.name] = [*names] or [probe.name]
    return columns


def endpoint_metrics(study: Study) -> dict[str, Metric]:
    """Return the metrics that a study compares, keyed by name, without training.

    Raises ParibusError for an unknown metric or part, a duplicate metric name, or a primary
    endpoint that has no direction or is not measured.
    """
    known, metrics = possible(study), dict[str, Metric]()
    names = _names(study, known)
    for name in study.metrics:
        metric = find(name, known)
        if metric is None or name not in names:
            raise ParibusError(f"unknown metric '{name}'; {nearest(name, names)}", code="unknown")
        metrics[name] = metric
    judged = [metrics[endpoint.metric] for endpoint in study.judged]
    for metric in judged:
        _require_role(study, metric, "be primary")
        _require_shared_tokens(study, metric)
        if study.plan is not None and (metric.record == "turns" or metric.key in OF_TURNS):
            raise ParibusError(
                f"'{metric.name}' cannot be primary in a study with interim analyses, because "
                "arms are timed after all trials have finished; set seeds to a list"
            )
    if study.decision.benefit is not None:
        _require_role(study, metrics[study.decision.benefit], "be decision.benefit")
    if study.tuning is not None:
        select = metrics[study.tuning.select]
        _require_role(study, select, "be tuning.select")
        _require_shared_tokens(study, select)
        if select.record in ("turns", "curve"):
            raise ParibusError(
                f"tuning.select cannot be '{select.name}', because tuning trials record neither "
                "timings nor a held-out curve; use 'validation_loss'"
            )
    return metrics


def _names(study: Study, known: Mapping[str, Metric]) -> list[str]:
    """Return the valid endpoint names, including parts such as 'task_accuracy/<task>'."""
    seq_len = max(study.setting(arm).data.seq_len for arm in study.arms)
    measures = (*all_measures(), *own_measures(study.evaluation.own, study.folder))
    parts = {measure.name: measure.part_names(seq_len) for measure in measures}
    names = [name for name in known if name not in parts and name != TASK_ACCURACY.name]
    for name, own in parts.items():
        names += [name if part == "all" else f"{name}/{part}" for part in own]
    names += [column for own in probe_columns(study).values() for column in own]
    return [*names, *(f"{TASK_ACCURACY.name}/{task}" for task in _task_names(study))]


def _task_names(study: Study) -> list[str]:
    """Return the names of the study's tasks, including those from the evaluation harness.

    Raises ParibusError for a custom task that is missing in `tasks.names`.
    """
    own = own_tasks(study.tasks.own, study.folder)
    names = [task.name for task in find_tasks(study.tasks.names, own)]
    for path, task in zip(study.tasks.own, own, strict=True):
        if task.name not in names:
            raise ParibusError(
                f"the task '{task.name}' in tasks.own = '{path}' would not run, because "
                "tasks.names does not list it; add it to tasks.names, or remove tasks.names"
            )
    return [*names, *(standard_tasks(study.tasks.standard) if study.tasks.standard else ())]


def _require_role(study: Study, metric: Metric, role: str) -> None:
    """Raise ParibusError if a metric has no direction or is not measured.

    Args:
        role: verb phrase for the error message, such as "be primary".
    """
    evaluation, tasks = study.evaluation, study.tasks
    unprobed = {probe.name for probe in known_probes(study) if probe.every == 0}
    is_curve = metric.record == "curve"
    problems = {
        "it has no direction of improvement; use 'validation_loss'": metric.better == "neither",
        "tasks.names = [] disables all tasks; remove it": metric in HEADLINE.values()
        and not (tasks.names != () or tasks.standard),
        "there is no held-out curve; set evaluation.every to a number of steps": is_curve
        and evaluation.every is None,
        "there is no target; set evaluation.target to a loss, or use a speed-up at equal loss": (
            is_curve and not (metric.of_pair or evaluation.target is not None)
        ),
        "its probe is turned off; set probes.every above 0": metric.record == "probes"
        and metric.name.partition("/")[0] in unprobed,
    }
    for problem, applies in problems.items():
        if applies:
            raise ParibusError(f"'{metric.name}' cannot {role}, because {problem}")


def _require_shared_tokens(study: Study, metric: Metric) -> None:
    """Raise ParibusError if a per-token metric would compare arms with different tokenizers."""
    for arm, reference in study.contrasts if metric.of_tokens else ():
        if not study.share_tokens(arm, reference):
            raise ParibusError(
                f"'{metric.name}' is per token, but arms '{arm}' and '{reference}' have "
                "different tokenizers; use 'bits_per_byte'"
            )
