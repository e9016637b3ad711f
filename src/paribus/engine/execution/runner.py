"""The built-in engine's part of a run: what follows from a results folder, stage by stage."""

from __future__ import annotations

import importlib
import logging
import math
import os
import pkgutil
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.analysis import boundaries
from paribus.decision import own_rule, require_comparison, require_reachable
from paribus.digests import digest, package_digest
from paribus.engine.data import Dataset
from paribus.engine.data.reading_progress import listening
from paribus.engine.execution.budgets import settled_budgets
from paribus.engine.execution.start import (
    as_registered,
    device_warnings,
    large_arms,
    read_data,
    step_identity,
)
from paribus.engine.execution.trial.checkpoints import keep_stacks
from paribus.engine.execution.trial.heldout_part import (
    is_judged,
    open_heldout_part,
    require_sealed,
    seal_heldout_part,
)
from paribus.engine.execution.trial.stacks import (
    default_size,
    plan_stacks,
    read_recorded,
    sharing_arms,
)
from paribus.engine.execution.trial.suite import adopt_suite, drafted_tasks
from paribus.engine.ops import resolve
from paribus.engine.setting import Data, is_open, with_precision
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, registration, settle
from paribus.results.opened_texts import note, require_fresh
from paribus.results.registration import repetitions
from paribus.results.store import DATA, REPEATED
from paribus.runs.advance import go_through, study_of, task_id, task_of
from paribus.runs.queue import Missing, Task
from paribus.runs.runners import note_executor
from paribus.study import Study, is_untuned
from paribus.study.trainer import Trial

if TYPE_CHECKING:
    from paribus.runs.worker import Context

# Folders whose files declare what a study may name.
DECLARING = (
    "paribus.engine.data.corpora",
    "paribus.engine.evaluation.measures",
    "paribus.engine.model.attentions",
    "paribus.engine.model.mlps",
    "paribus.engine.model.norms",
    "paribus.engine.model.positions",
    "paribus.engine.probes",
    "paribus.engine.tasks.generators",
    "paribus.engine.training.averages",
    "paribus.engine.training.losses",
    "paribus.engine.training.optimizers",
    "paribus.engine.training.schedules",
)
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # Needed for deterministic matrix products on CUDA.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def require_runnable(study: Study, folder: ResultsFolder) -> None:
    """Raise ParibusError for problems that are known before a worker is started."""
    study = as_registered(settled_budgets(study), folder)
    folder.require_same(study)
    require_comparison(study)
    require_sealed(study, folder)


class EngineRunner:
    """Trains, evaluates and times with the built-in engine."""

    # The study's analysis tells whether a trial diverged, SciPy finds the best temperature, and the
    # harness asks its tasks.
    later: tuple[str, ...] = (
        "scipy.interpolate",
        "scipy.optimize",
        "paribus.engine.evaluation.harness.adapter",
        "lm_eval.tasks",
        "lm_eval.evaluator",
    )

    @property
    def forks(self) -> bool:
        """Whether children may be forked: the driver of a GPU does not survive it."""
        from paribus.engine.machine.signs import is_surely_cpu

        return is_surely_cpu("auto")

    def warm_up(self) -> None:
        """Import PyTorch and all of the engine that a trial may need."""
        os.environ.update(ENVIRONMENT)
        resolve()  # compiled once, and known to every child that is forked
        importlib.import_module("paribus.engine.execution.tasks")
        for package in DECLARING:
            folder = importlib.import_module(package)
            for info in pkgutil.iter_modules(folder.__path__):
                importlib.import_module(f"{package}.{info.name}")
        package_digest()  # known to every child: half a second of each

    def slots(self, context: Context) -> int:
        """Return one child per core of a CPU or per GPU; fewer if a trial takes several devices."""
        from paribus.engine.execution.tasks import devices_per_trial, machine_of

        most = machine_of(context)["workers"]
        return max(most // devices_per_trial(study_of(context.order)), 1)

    def advance(self, context: Context) -> None:
        """Go through the stages of the study."""
        study = settled_budgets(study_of(context.order))
        folder = ResultsFolder(Path(context.order.results))
        stages = EngineStages(context)
        say = context.say
        with listening(lambda what, n: say(f"{what}: {n / 1e6:,.0f} MB" if n else what)):
            if context.order.settings["registers_only"]:
                stages.register(stages.open(study, folder), folder, is_brief=True)
            else:
                go_through(stages, study, folder, say)

    def execute(self, task: Task, context: Context) -> Any:
        """Do a task of the engine."""
        from paribus.engine.execution.tasks import execute

        return execute(task, context)


class EngineStages:
    """The stages of a study that the engine trains."""

    def __init__(self, context: Context) -> None:
        self.context, self.queue = context, context.queue
        self.settings = context.order.settings
        self._stacks: dict[str, list[list[Trial]]] = {}
        self._datasets: dict[Data, Dataset] = {}

    @cached_property
    def machine(self) -> dict[str, Any]:
        """The device of this machine, its number, and what precision "auto" means on it."""
        from paribus.engine.execution.tasks import machine_of

        return machine_of(self.context)

    def open(self, study: Study, folder: ResultsFolder) -> Study:
        """Return the study as it is registered in its folder; its text is read."""
        study = as_registered(study, folder)
        folder.require_same(study)
        require_sealed(study, folder)
        self._datasets = read_data(study)
        data = {arm: self._datasets[study.setting(arm).data].record for arm in study.arms}
        require_fresh(study, {"data": data}, folder)
        return study

    def register(
        self,
        study: Study,
        folder: ResultsFolder,
        *,
        is_tuning: bool = False,
        is_brief: bool = False,
    ) -> Study:
        """Try a step of every arm, settle precision and stacks, and register the study."""
        is_brief = is_brief or (is_untuned(study) and not is_tuning)
        if is_open(study):
            study = with_precision(study, self.machine["precision"])
        name = task_id(folder, "prepared", digest(study.model_dump(mode="json"))[:12])
        prepared = self.queue.read_answer(name)
        if prepared is None:
            stack = self.settings["stack"]
            if study.resources.devices_per_trial is not None and stack not in (None, 1):
                raise ParibusError(
                    f"--stack {stack} trains trials side by side, and resources.devices_per_trial "
                    f"= {study.resources.devices_per_trial} trains one at a time; remove one of "
                    "them"
                )
            if not folder.exists:
                require_reachable(study)
            prepared = self._prepare(study, folder, is_brief=is_brief)
            self.queue.answer(name, prepared)
        self._stacks[str(folder.path)] = [
            [(arm, seed) for arm, seed in stack] for stack in prepared
        ]
        return study

    def _prepare(self, study: Study, folder: ResultsFolder, *, is_brief: bool) -> list[list[Trial]]:
        """Try the arms and register the study; returns its trials as stacks."""
        from paribus.engine.execution.trial.endpoints import endpoint_metrics

        machine, settings = self.machine, self.settings
        trials = [trial for trial in study.trials if not folder.trial(*trial).is_finished]
        size = settings["stack"] or default_size(study, machine["device"], machine["devices"])
        recorded = read_recorded(study, folder)
        stacks, warnings = plan_stacks(study, size, recorded.stacks), list[str]()
        metrics = endpoint_metrics(study)
        if trials:
            warnings += device_warnings(study, machine)
            large: Set[str] = set()
            if is_brief and machine["device"] == "cpu":
                large = large_arms(study, self._datasets)
            warnings += self._check(study, max(map(len, stacks)), large)
            sharing = math.ceil((settings["workers"] or machine["workers"]) / machine["devices"])
            if not is_brief:
                stacks, smaller = self._fitting(study, size, sharing, recorded)
                warnings += smaller
        with drafted_tasks(study, folder, self._datasets) as asked:
            data = {arm: self._datasets[study.setting(arm).data].record for arm in study.arms}
            wanted = registration(
                *(study, data, machine["device"], metrics, asked),
                own_rule(study),
                boundaries(study),
            )
            settle(folder, study, wanted, retries=settings["retries"])
            adopt_suite(folder)
        for words in dict.fromkeys(warnings):
            self.context.report("warning", words=words, once=words)
        return stacks

    def _check(self, study: Study, size: int, large: Set[str]) -> list[str]:
        """Let workers try a step of every arm; returns what to warn of.

        Arms that could share a stack, or differ in warmup besides, run the same code, and are tried
        as one.
        """
        tasks: dict[str, Task] = {}
        for arms in sharing_arms(study):
            arm, replicas = arms[0], min(size, 2)  # two replicas go the way of any more
            arguments = {"arm": arm, "stack": replicas, "by_shapes": arm in large}
            name = f"check.{step_identity(study, arm)[:12]}.{replicas}"
            name += ".shapes" if arm in large else ""
            arguments["study"] = study.model_dump(mode="json")
            doing = f"in the dry run of arm '{arm}'"
            tasks.setdefault(name, Task(name, "check", doing, "", arguments))
        return [line for lines in self.queue.ask(list(tasks.values())) for line in lines]

    def _fitting(
        self, study: Study, size: int, sharing: int, recorded: Any
    ) -> tuple[list[list[Trial]], list[str]]:
        """Return all trials as stacks of `size`, or of as many replicas as a device holds.

        `sharing` workers share the memory. Returns what to warn of, too. A stack that was begun and
        does not fit any more starts again in a smaller one; beside trials that were finished in a
        larger one, sizes stay theirs.
        """
        stacks, warnings = plan_stacks(study, size, recorded.stacks), list[str]()
        for arms in sharing_arms(study):
            wanted = recorded.largest(stacks, arms)
            if wanted == 1:
                continue
            name = f"memory.{step_identity(study, arms[0])[:12]}.{wanted}"
            arguments = {"arm": arms[0], "stack": wanted, "workers": sharing}
            arguments["study"] = study.model_dump(mode="json")
            task = Task(name, "memory", "while its memory was measured", "", arguments)
            [fit] = self.queue.ask([task])
            size = fit["stack"]
            if size >= wanted:
                continue
            again = len(recorded.begun) - len(recorded.up_to(size).begun)
            warnings.append(
                f"{size} of {wanted} replicas side by side: {fit['why']}"
                + (f"; {again} stacks that were begun start again" if again else "")
            )
            recorded = recorded.up_to(size)
            stacks = plan_stacks(study, size, recorded.stacks)
        return stacks, warnings

    def begin(self, study: Study, folder: ResultsFolder) -> None:
        """Note in the ledger that scores will be seen."""
        note_executor(folder, self.context)
        note(folder, is_begun=True)

    def tasks(self, study: Study, folder: ResultsFolder, todo: Sequence[Trial]) -> list[Task]:
        """Return a task for each stack that has a trial to train; the text is described last."""
        wanted = set(todo)
        planned = enumerate(self._stacks[str(folder.path)])
        stacks = {k: stack for k, stack in planned if not wanted.isdisjoint(stack)}
        keep_stacks(folder.path, list(stacks.values()))
        tasks = []
        for k, stack in stacks.items():
            labels = ", ".join(f"{arm}/seed-{seed}" for arm, seed in stack)
            arguments = {"trials": [list(trial) for trial in stack]}
            arm, seed = stack[0]
            names = (f"{k:05d}", arm, f"seed-{seed}")
            tasks.append(task_of(folder, names, "train", f"on {labels}", arguments))
        if folder.path.absolute() == Path(self.context.order.results):
            tasks += self._describing(folder)
        return tasks

    def _describing(self, folder: ResultsFolder) -> list[Task]:
        """Return the task that writes data.json, if it is not there."""
        if folder.has_sealed(DATA):
            return []
        home = str(folder.path.absolute())
        return [Task("text", "describe", "while the text was described", home)]

    def after_trials(self, study: Study, folder: ResultsFolder) -> None:
        """Train first steps of arms with custom code again, and compare them with the records."""
        done = folder.read_repeated(study.arms)
        tasks = [
            task_of(
                folder,
                ("again", arm, f"seed-{repetition['seed']}"),
                "again",
                f"on {arm}/seed-{repetition['seed']}, which it trained again",
                {"arm": arm, "seed": repetition["seed"], "steps": repetition["steps"]},
            )
            for arm, repetition in repetitions(folder).items()
            if arm not in done
        ]
        answered = [self.queue.read_answer(task.id) is not None for task in tasks]
        if tasks and not any(answered):
            steps = tasks[0].arguments["steps"]
            names = ", ".join(f"{t.arguments['arm']}/seed-{t.arguments['seed']}" for t in tasks)
            self.context.say(f"training again {steps} steps of {names}")
        if tasks:
            note_repeated(folder, done, tasks, self.queue.ask(tasks))
        keep_stacks(folder.path, [])

    def finish(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Evaluate on the sealed test text, describe the text, and time the arms in turn."""
        dataset = self._datasets[study.data]
        if self.settings["open_test"] and not is_judged(folder, dataset, trials):
            todo = open_heldout_part(study, folder, dataset, trials)
            tasks = [
                task_of(
                    folder,
                    ("test", arm, f"seed-{seed}"),
                    "heldout",
                    f"on {arm}/seed-{seed}, test part",
                    {"arm": arm, "seed": seed},
                )
                for arm, seed in todo
            ]
            if tasks:
                self.context.say("evaluating every trial on the sealed test part")
                raise Missing([*tasks, *self._describing(folder)])
            seal_heldout_part(folder, trials)
        if tasks := self._describing(folder):
            raise Missing(tasks)
        if not folder.has_timed(trials):
            self.context.say("timing the arms in turn")
            arguments = {"timed": [list(trial) for trial in trials]}
            home = str(folder.path.absolute())
            raise Missing(
                [Task("time", "time", "while the arms were timed in turn", home, arguments)]
            )


def note_repeated(
    results: ResultsFolder,
    done: Mapping[str, dict[str, Any]],
    tasks: Sequence[Task],
    answers: Sequence[dict[str, Any]],
) -> None:
    """Write `repeated.json` from what training again gave, beside what is `done` already.

    A trial of another machine cannot be compared to the bit: that is a warning, and it stays open.
    """
    repeated = dict(done)
    for task, answer in zip(tasks, answers, strict=True):
        arm, seed = task.arguments["arm"], task.arguments["seed"]
        if answer["elsewhere"]:
            logging.getLogger("paribus").warning(
                "%s/seed-%d cannot be trained again to the same bits here (another %s); the "
                "control 'repeatable' is not proven",
                *(arm, seed, ", ".join(answer["elsewhere"])),
                extra={"once": f"again {arm}"},
            )
            continue
        repeated[arm] = {
            "seed": seed,
            "steps": task.arguments["steps"],
            "trial": results.trial(arm, seed).seal,
            "differs_at": answer["differs_at"],
            "differs": answer["differs"],
        }
    if repeated:
        results.seal(REPEATED, repeated)
