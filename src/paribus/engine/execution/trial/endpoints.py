"""The endpoints of a study, asked of the code that declares them, before anything trains.

This runs in a worker, as all code of a study does. What it finds is registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from paribus.engine.evaluation import all_measures, own_measures
from paribus.engine.evaluation.code_length import BITS_PER_BYTE
from paribus.engine.evaluation.harness import HEADLINE, TASK_ACCURACY, standard_tasks
from paribus.engine.execution.throughput import METRICS as IN_TURN
from paribus.engine.observation import Probe
from paribus.engine.probes import known_probes
from paribus.engine.setting import Setting
from paribus.engine.tasks import find_tasks, own_tasks
from paribus.engine.training import LOSS_SCALING, METRICS, OBJECTIVE, optimizer_slots
from paribus.errors import ParibusError, nearest
from paribus.metric import Metric, by_name, find, unknown
from paribus.results.curve_metrics import METRICS as CURVE_METRICS
from paribus.results.curve_metrics import OF_TURNS
from paribus.study import Study

OF_STEPS = (*METRICS, OBJECTIVE, *LOSS_SCALING)  # what a trainer may measure at every step


def declarations(
    study: Study, probes: Iterable[tuple[Probe, str]], columns: Iterable[str], *, tasks: bool
) -> dict[str, Metric]:
    """All that trials declare, by name.

    `probes` come with their first columns; `columns` are those of every step, and `tasks` says
    whether there are some. Raises ParibusError where two have one name.
    """
    curve = study.evaluation.every is not None
    return by_name(_by_owner(study, probes, columns, tasks=tasks, curve=curve))


def _by_owner(
    study: Study,
    probes: Iterable[tuple[Probe, str]],
    columns: Iterable[str],
    *,
    tasks: bool,
    curve: bool,
) -> dict[str, list[Metric]]:
    """Return the same by who declares it; what ships comes first, an own name is the second."""
    own = own_measures(study.evaluation.own, study.folder)
    observed = [(probe.is_own, probe.metric(first)) for probe, first in probes]
    return {
        "the held-out measures": [BITS_PER_BYTE, *(one.metric for one in all_measures())],
        "the tasks": [*HEADLINE.values(), TASK_ACCURACY] if tasks else [],
        "the held-out curve": [*CURVE_METRICS] if curve else [],
        "the trainer": [one for one in OF_STEPS if one.name in columns],
        "the probes": [metric for is_own, metric in observed if not is_own],
        "evaluation.own": [one.measure.metric for one in own],
        "probes.own": [metric for is_own, metric in observed if is_own],
    }


def possible(study: Study) -> dict[str, Metric]:
    """All that some trial of `study` could measure, by name, and what arms take turns for.

    Raises ParibusError where two have one name.
    """
    columns = probe_columns(study)
    first = [(probe, columns[probe.name][0]) for probe in known_probes(study)]
    of_trials = _by_owner(study, first, [one.name for one in OF_STEPS], tasks=True, curve=True)
    return by_name({"the arms that take turns": IN_TURN} | of_trials)


def probe_columns(study: Study) -> dict[str, list[str]]:
    """Return the columns of each probe in any of the arms."""
    settings = [study.setting(arm) for arm in study.arms]
    return {
        probe.name: list(dict.fromkeys(c for one in settings for c in _columns(probe, one, study)))
        for probe in known_probes(study)
    }


def endpoint_metrics(study: Study) -> dict[str, Metric]:
    """Return the declarations of all that `study` compares, by name; nothing is trained for it.

    Raises ParibusError for an unknown name, one that two declare, a part that there is not, two
    endpoints that are one number, and a primary endpoint that has no direction or is not measured.
    """
    settings = [study.setting(arm) for arm in study.arms]
    columns, known = probe_columns(study), possible(study)
    own = own_measures(study.evaluation.own, study.folder)
    parts = {
        measure.name: measure.part_names(max(one.data.seq_len for one in settings))
        for measure in (*all_measures(), *(one.measure for one in own))
    }
    tasks = _asked(study)
    found = {
        name: _task(name, known, tasks)
        if name.partition("/")[0] == TASK_ACCURACY.name
        else _known(name, known, columns, parts)
        for name in study.metrics
    }
    _require_once([found[endpoint.metric] for endpoint in study.endpoints])
    for endpoint in study.judged:
        _require_direction(study, found[endpoint.metric], "be primary")
        _require_shared_tokens(study, found[endpoint.metric], "be primary", "take")
        metric = found[endpoint.metric]
        in_turn = metric.record == "turns" or metric.key in OF_TURNS
        if study.plan is not None and in_turn:
            raise ParibusError(
                f"'{endpoint.metric}' cannot be primary with looks: arms take turns for it when "
                "all are trained, and a look would have none of it; state seeds as a list"
            )
    if study.decision.benefit is not None:
        _require_direction(study, found[study.decision.benefit], "be a benefit")
    if study.tuning is not None:
        select = found[study.tuning.select]
        role = "choose among values"
        _require_direction(study, select, role)
        instead = "tuning also compares them at each value; state tuning.select ="
        _require_shared_tokens(study, select, role, instead)
        if select.record in ("turns", "curve"):
            raise ParibusError(
                f"'{select.name}' cannot choose among values: tuning trials are not timed in turn, "
                "and measure no curve; take validation_loss"
            )
    return found


def _columns(probe: Probe, setting: Setting, study: Study) -> list[str]:
    slots = optimizer_slots(setting.training, study.folder) if probe.by_slot else ()
    return [column.name for column in probe.columns(setting, slots)] or [probe.name]


def _known(
    name: str,
    known: Mapping[str, Metric],
    columns: Mapping[str, list[str]],
    parts: Mapping[str, tuple[str, ...]],
) -> Metric:
    """Return what `name` is declared as. Raises ParibusError."""
    head, slash, part = name.partition("/")
    metric = find(name, known)
    if metric is None:
        raise unknown(name, known)
    if head in columns and slash and name not in columns[head]:
        raise ParibusError(
            f"metric '{name}' is unknown: probe '{head}' has no such column: "
            f"{nearest(name, columns[head])}"
        )
    if head in parts and (part or "all") not in parts[head]:
        what = f"no part '{part}'" if slash else "no value of the whole text; name a part"
        raise ParibusError(
            f"metric '{name}' is unknown: measure '{head}' has {what}: "
            f"{nearest(name, [f'{head}/{one}' for one in parts[head]])}"
        )
    if head in parts and part == "all":
        raise ParibusError(f"metric '{name}' is called '{head}'")
    return metric


def _asked(study: Study) -> list[str]:
    """Return the names of the tasks that the study asks, its own and the harness's too.

    Raises ParibusError for an own one that it does not ask.
    """
    own = own_tasks(study.tasks.own, study.folder)
    asked = [task.name for task in find_tasks(study.tasks.names, own)]
    for path, task in zip(study.tasks.own, own, strict=True):
        if task.name not in asked:
            raise ParibusError(
                f"tasks.own = '{path}': tasks.names does not name '{task.name}', so nobody would "
                "be asked it; add it there, or leave one of the two keys out"
            )
    standard = standard_tasks(study.tasks.standard) if study.tasks.standard else ()
    return [*asked, *standard]


def _task(name: str, known: Mapping[str, Metric], tasks: Sequence[str]) -> Metric:
    """Return the accuracy on a task that the study asks. Raises ParibusError for another."""
    metric = find(name, known)
    if metric is None or metric.task not in tasks:
        named = [f"{TASK_ACCURACY.name}/{task}" for task in tasks]
        raise ParibusError(
            f"metric '{name}' is unknown: it names no task that the study asks: "
            f"{nearest(name, named)}"
        )
    return metric


def _require_once(endpoints: Sequence[Metric]) -> None:
    """Raise ParibusError where two are one number: it would be tested, and counted, twice."""
    there: dict[tuple[str, str], str] = {}
    for metric in endpoints:
        first = there.setdefault((metric.record, metric.key), metric.name)
        if first != metric.name:
            raise ParibusError(
                f"endpoints '{first}' and '{metric.name}' are one number, '{metric.key}'; state it "
                "once"
            )


def _require_shared_tokens(study: Study, metric: Metric, role: str, instead: str) -> None:
    """Raise ParibusError where it is of single tokens, and arms have other ones."""
    for arm, reference in study.contrasts:
        if metric.of_tokens and not study.share_tokens(arm, reference):
            raise ParibusError(
                f"'{metric.name}' cannot {role}: it is of single tokens, and arms '{arm}' and "
                f"'{reference}' have other tokenizers; {instead} 'bits_per_byte'"
            )


def _require_direction(study: Study, metric: Metric, role: str) -> None:
    """Raise ParibusError where nothing of it is better, or it is not measured."""
    if metric.better == "neither":
        raise ParibusError(
            f"'{metric.name}' cannot {role}: neither more nor less of it is better; "
            "take validation_loss"
        )
    of_tasks = {one.name for one in HEADLINE.values()}
    if metric.name in of_tasks and study.tasks.names == () and not study.tasks.standard:
        raise ParibusError(
            f"'{metric.name}' cannot {role}: tasks.names = [] asks no task; name some, or leave it "
            "out for all"
        )
    precisions = {study.setting(arm).training.precision for arm in study.arms}
    if metric in LOSS_SCALING and "float16" not in precisions:
        raise ParibusError(
            f"'{metric.name}' cannot {role}: no arm scales its loss; it is measured with "
            "training.precision = 'float16'"
        )
    if metric.record == "curve":
        if study.evaluation.every is None:
            raise ParibusError(
                f"'{metric.name}' cannot {role}: no held-out curve is measured; state "
                "evaluation.every, the steps between two points"
            )
        if not metric.of_pair and study.evaluation.target is None:
            raise ParibusError(
                f"'{metric.name}' cannot {role}: there is no target; state evaluation.target, a "
                "loss, or take a speed-up at equal loss, such as tokens_speedup"
            )
    off = {probe.name for probe in known_probes(study) if probe.every == 0}
    if metric.record == "probes" and metric.name.partition("/")[0] in off:
        raise ParibusError(f"'{metric.name}' cannot {role}: probes.every turns its probe off")
