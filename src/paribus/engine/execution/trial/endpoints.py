"""The endpoints of a study, known from declarations before anything trains."""

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

STEP_METRICS = (*METRICS, OBJECTIVE)  # a trainer may measure them at every step


def declarations(
    study: Study,
    first: Mapping[str, str],
    columns: Iterable[str],
    *,
    tasks: bool,
    curve: bool,
    in_turn: Sequence[Metric] = (),
) -> dict[str, Metric]:
    """Return the metrics that trials declare, by name.

    `first` is the first column of each probe, and `columns` are those of every step. `tasks` and
    `curve` say whether the study has any. Raises ParibusError if two metrics have the same name.
    """
    own = own_measures(study.evaluation.own, study.folder)
    probes = [probe for probe in known_probes(study) if probe.name in first]
    observed = {probe.name: probe.metric(first[probe.name]) for probe in probes}
    by_owner = {
        "the arms that take turns": in_turn,
        "the held-out measures": [measure.metric for measure in all_measures()],
        "the tasks": [*HEADLINE.values(), TASK_ACCURACY] if tasks else [],
        "the held-out curve": [*CURVE_METRICS] if curve else [],
        "the trainer": [metric for metric in STEP_METRICS if metric.name in columns],
        "the probes": [metric for name, metric in observed.items() if name in shipped_probes()],
        # User-defined metrics come last, so that they are refused.
        "evaluation.own": [measure.metric for measure in own],
        "probes.own": [metric for name, metric in observed.items() if name not in shipped_probes()],
    }
    return by_name(by_owner)


def possible(study: Study) -> dict[str, Metric]:
    """Return all metrics that a trial of `study` could measure, timing included.

    Raises ParibusError if two metrics have the same name.
    """
    first = {name: columns[0] for name, columns in probe_columns(study).items()}
    steps = [metric.name for metric in STEP_METRICS]
    return declarations(study, first, steps, tasks=True, curve=True, in_turn=IN_TURN)


def probe_columns(study: Study) -> dict[str, list[str]]:
    """Return the columns of each probe in any of the arms."""
    settings = [study.setting(arm) for arm in study.arms]
    columns: dict[str, list[str]] = {}
    for probe in known_probes(study):
        names: dict[str, None] = {}
        for setting in settings:
            slots = optimizer_slots(setting.training, study.folder) if probe.by_slot else ()
            names |= dict.fromkeys(column.name for column in probe.columns(setting, slots))
        columns[probe.name] = [*names] or [probe.name]
    return columns


def endpoint_metrics(study: Study) -> dict[str, Metric]:
    """Return the metrics that `study` compares, by name; nothing is trained.

    Raises ParibusError for an unknown metric, a name that two metrics have, an unknown part, and a
    primary endpoint without direction or measurement.
    """
    known, metrics = possible(study), dict[str, Metric]()
    names = _names(study, known)
    for name in study.metrics:
        metric = find(name, known)
        if metric is None or name not in names:
            raise ParibusError(
                f"metric '{name}' is unknown: {nearest(name, names)}", code="unknown"
            )
        metrics[name] = metric
    judged = [metrics[endpoint.metric] for endpoint in study.judged]
    for metric in judged:
        _require_role(study, metric, "be primary")
        _require_shared_tokens(study, metric)
        if study.plan is not None and (metric.record == "turns" or metric.key in OF_TURNS):
            raise ParibusError(
                f"'{metric.name}' cannot be primary with looks, because arms are timed only after "
                "all are trained; set seeds as a list"
            )
    if study.decision.benefit is not None:
        _require_role(study, metrics[study.decision.benefit], "be a benefit")
    if study.tuning is not None:
        select = metrics[study.tuning.select]
        _require_role(study, select, "choose among values")
        _require_shared_tokens(study, select)
        if select.record in ("turns", "curve"):
            raise ParibusError(
                f"tuning.select cannot be '{select.name}': tuning trials record neither timings "
                "nor a held-out curve; use validation_loss"
            )
    return metrics


def _names(study: Study, known: Mapping[str, Metric]) -> list[str]:
    """Return the names that an endpoint may have, including names of parts."""
    seq_len = max(study.setting(arm).data.seq_len for arm in study.arms)
    measures = (*all_measures(), *own_measures(study.evaluation.own, study.folder))
    parts = {measure.name: measure.part_names(seq_len) for measure in measures}
    names = [name for name in known if name not in parts and name != TASK_ACCURACY.name]
    for name, own in parts.items():
        names += [name if part == "all" else f"{name}/{part}" for part in own]
    names += [column for own in probe_columns(study).values() for column in own]
    return [*names, *(f"{TASK_ACCURACY.name}/{task}" for task in _task_names(study))]


def _task_names(study: Study) -> list[str]:
    """Return the names of the study's tasks, with those of the evaluation harness.

    Raises ParibusError for a user-defined task that is not among them.
    """
    own = own_tasks(study.tasks.own, study.folder)
    names = [task.name for task in find_tasks(study.tasks.names, own)]
    for path, task in zip(study.tasks.own, own, strict=True):
        if task.name not in names:
            raise ParibusError(
                f"tasks.own = '{path}': tasks.names does not name '{task.name}', so it would not "
                "be asked; add it there, or remove one of the two keys"
            )
    return [*names, *(standard_tasks(study.tasks.standard) if study.tasks.standard else ())]


def _require_role(study: Study, metric: Metric, role: str) -> None:
    """Raise ParibusError for a metric that has no direction or is not measured."""
    evaluation, tasks = study.evaluation, study.tasks
    unprobed = {probe.name for probe in known_probes(study) if probe.every == 0}
    is_curve = metric.record == "curve"
    problems = {
        "neither more nor less of it is better; use validation_loss": metric.better == "neither",
        "tasks.names = [] asks no task": metric in HEADLINE.values()
        and not (tasks.names != () or tasks.standard),
        "set evaluation.every, the steps between two points": is_curve and evaluation.every is None,
        "set evaluation.target, a loss, or use a speed-up at equal loss": is_curve
        and not (metric.of_pair or evaluation.target is not None),
        "probes.every turns its probe off": metric.record == "probes"
        and metric.name.partition("/")[0] in unprobed,
    }
    for problem, applies in problems.items():
        if applies:
            raise ParibusError(f"'{metric.name}' cannot {role}: {problem}")


def _require_shared_tokens(study: Study, metric: Metric) -> None:
    """Raise ParibusError if arms with different tokenizers would be compared per token."""
    for arm, reference in study.contrasts if metric.of_tokens else ():
        if not study.share_tokens(arm, reference):
            raise ParibusError(
                f"'{metric.name}' is per token, but arms '{arm}' and '{reference}' have "
                "different tokenizers; use 'bits_per_byte'"
            )
