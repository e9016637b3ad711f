"""The endpoints of a study, as its code declares them, before anything trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paribus.engine.evaluation import all_measures, own_measures
from paribus.engine.evaluation.code_length import BITS_PER_BYTE
from paribus.engine.evaluation.harness.outcome import HEADLINE, TASK_ACCURACY
from paribus.engine.evaluation.harness.standard import standard_tasks
from paribus.engine.execution.throughput import METRICS as IN_TURN
from paribus.engine.observation import Probe
from paribus.engine.probes import known_probes
from paribus.engine.tasks import find_tasks, own_tasks
from paribus.engine.training import LOSS_SCALING, METRICS, OBJECTIVE, optimizer_slots
from paribus.errors import ParibusError, nearest
from paribus.metric import Metric, by_name, find, unknown
from paribus.results.curves import METRICS as CURVE_METRICS
from paribus.results.curves import OF_TURNS
from paribus.study import Study

STEP_METRICS = (*METRICS, OBJECTIVE, *LOSS_SCALING)  # a trainer may measure them at every step


def declarations(
    study: Study,
    probes: Iterable[tuple[Probe, str]],
    columns: Iterable[str],
    *,
    tasks: bool,
    curve: bool,
    in_turn: Sequence[Metric] = (),
) -> dict[str, Metric]:
    """Return the metrics that trials declare, by name.

    `probes` come with their first columns, `columns` are those of every step; `tasks` and `curve`
    tell whether there are any. Raises ParibusError if two metrics have the same name.
    """
    own = own_measures(study.evaluation.own, study.folder)
    observed = [(probe.is_own, probe.metric(first)) for probe, first in probes]
    by_owner = {
        "the arms that take turns": in_turn,
        "the held-out measures": [BITS_PER_BYTE, *(measure.metric for measure in all_measures())],
        "the tasks": [*HEADLINE.values(), TASK_ACCURACY] if tasks else [],
        "the held-out curve": [*CURVE_METRICS] if curve else [],
        "the trainer": [metric for metric in STEP_METRICS if metric.name in columns],
        "the probes": [metric for is_own, metric in observed if not is_own],
        # User-defined metrics come last, so that they are refused.
        "evaluation.own": [measure.metric for measure in own],
        "probes.own": [metric for is_own, metric in observed if is_own],
    }
    return by_name(by_owner)


def possible(study: Study) -> dict[str, Metric]:
    """Return all metrics that a trial of `study` could measure, timing included.

    Raises ParibusError if two metrics have the same name.
    """
    columns = probe_columns(study)
    probes = [(probe, columns[probe.name][0]) for probe in known_probes(study)]
    names = [metric.name for metric in STEP_METRICS]
    return declarations(study, probes, names, tasks=True, curve=True, in_turn=IN_TURN)


def probe_columns(study: Study) -> dict[str, list[str]]:
    """Return the columns of each probe in any of the arms."""
    settings = [study.setting(arm) for arm in study.arms]
    columns: dict[str, list[str]] = {}
    for probe in known_probes(study):
        names: list[str] = []
        for setting in settings:
            slots = optimizer_slots(setting.training, study.folder) if probe.by_slot else ()
            names += [column.name for column in probe.columns(setting, slots)] or [probe.name]
        columns[probe.name] = list(dict.fromkeys(names))
    return columns


def endpoint_metrics(study: Study) -> dict[str, Metric]:
    """Return the metrics that `study` compares, by name; nothing is trained.

    Raises ParibusError for an unknown metric, a name that two metrics have, an unknown part, two
    endpoints that are one number, and a primary endpoint without direction or measurement.
    """
    seq_len = max(study.setting(arm).data.seq_len for arm in study.arms)
    measures = (*all_measures(), *own_measures(study.evaluation.own, study.folder))
    parts = {measure.name: measure.part_names(seq_len) for measure in measures}
    known, columns, tasks = possible(study), probe_columns(study), _task_names(study)
    metrics = {name: _find(name, known, columns, parts, tasks) for name in study.metrics}
    names: dict[tuple[str, str], str] = {}
    for metric in (metrics[endpoint.metric] for endpoint in study.endpoints):
        first = names.setdefault((metric.record, metric.key), metric.name)
        if first != metric.name:  # it would be tested twice
            raise ParibusError(
                f"endpoints '{first}' and '{metric.name}' are one number, '{metric.key}'; state it "
                "once"
            )
    for endpoint in study.judged:
        metric = metrics[endpoint.metric]
        _require_role(study, metric, "be primary", "use")
        if study.plan is not None and (metric.record == "turns" or metric.key in OF_TURNS):
            raise ParibusError(
                f"'{endpoint.metric}' cannot be primary with looks: arms are timed in turn after "
                "all are trained, so that a look has no value of it; state seeds as a list"
            )
    if study.decision.benefit is not None:
        _require_role(study, metrics[study.decision.benefit], "be a benefit")
    if study.tuning is not None:
        select = metrics[study.tuning.select]
        _require_role(study, select, "choose among values", "set tuning.select =")
        if select.record in ("turns", "curve"):
            raise ParibusError(
                f"tuning.select cannot be '{select.name}': tuning trials record neither timings "
                "nor a held-out curve; use validation_loss"
            )
    return metrics


def _find(
    name: str,
    known: Mapping[str, Metric],
    columns: Mapping[str, list[str]],
    parts: Mapping[str, tuple[str, ...]],
    tasks: Sequence[str],
) -> Metric:
    """Return the metric of a name. Raises ParibusError for an unknown name."""
    head, slash, part = name.partition("/")
    metric, problem, known_names = find(name, known), "", list[str]()
    if head == TASK_ACCURACY.name:
        known_names = [f"{head}/{task}" for task in tasks]
        if name not in known_names:
            problem = "it names no task that the study asks"
    elif metric is None:
        raise unknown(name, known)
    elif head in columns and slash and name not in columns[head]:
        problem, known_names = f"probe '{head}' has no such column", columns[head]
    elif head in parts and part == "all" and part in parts[head]:
        raise ParibusError(f"metric '{name}' is called '{head}'")
    elif head in parts and (part or "all") not in parts[head]:
        missing = f"no part '{part}'" if slash else "no value of the whole text; name a part"
        problem = f"measure '{head}' has {missing}"
        known_names = [f"{head}/{part_name}" for part_name in parts[head]]
    if metric is None or problem:
        raise ParibusError(f"metric '{name}' is unknown: {problem}: {nearest(name, known_names)}")
    return metric


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


def _require_role(study: Study, metric: Metric, role: str, way_out: str = "") -> None:
    """Raise ParibusError for a metric that has no direction or is not measured.

    With a `way_out`, arms with other tokenizers cannot be compared by a metric of single tokens.
    """
    head, evaluation = metric.name.partition("/")[0], study.evaluation
    headline = {metric.name for metric in HEADLINE.values()}
    precisions = {study.setting(arm).training.precision for arm in study.arms}
    unprobed = {probe.name for probe in known_probes(study) if probe.every == 0}
    problem = ""
    if metric.better == "neither":
        problem = "neither more nor less of it is better; use validation_loss"
    elif metric.name in headline and study.tasks.names == () and not study.tasks.standard:
        problem = "tasks.names = [] asks no task; name some, or remove the key to ask all"
    elif metric in LOSS_SCALING and "float16" not in precisions:
        problem = "no arm scales its loss; it is measured with training.precision = 'float16'"
    elif metric.record == "curve" and evaluation.every is None:
        problem = (
            "no held-out curve is measured; set evaluation.every, the steps between two points"
        )
    elif metric.record == "curve" and not metric.of_pair and evaluation.target is None:
        problem = (
            "there is no target; set evaluation.target, a loss, or use a speed-up at equal loss, "
            "such as tokens_speedup"
        )
    elif metric.record == "probes" and head in unprobed:
        problem = "probes.every turns its probe off"
    for arm, reference in study.contrasts if metric.of_tokens and way_out else ():
        if not problem and not study.share_tokens(arm, reference):
            problem = (
                f"it is of single tokens, and arms '{arm}' and '{reference}' have other "
                f"tokenizers; {way_out} 'bits_per_byte'"
            )
    if problem:
        raise ParibusError(f"'{metric.name}' cannot {role}: {problem}")
