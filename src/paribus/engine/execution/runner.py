"""Runner that executes the stages of a study with the built-in engine."""

from __future__ import annotations

import importlib
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from paribus.decision import require_comparison, require_reachable
from paribus.digests import digest, package_digest
from paribus.engine.data import Dataset
from paribus.engine.execution import start
from paribus.engine.execution.trial import stacks
from paribus.engine.ops import library
from paribus.engine.setting import Data, is_open, with_precision
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.heldout_part import is_tested, seal_heldout
from paribus.results.opened_texts import open_in_ledger, require_no_campaign
from paribus.results.registration import read_registration, utc_now
from paribus.results.store import DATA, LEDGER, REPEATED, TEST, TEST_PART
from paribus.runs.advance import Runner, task_of, train_task
from paribus.runs.queue import Context, Missing, Task
from paribus.study import Study
from paribus.study.trainer import Trial

# Device files of GPUs on Linux: NVIDIA, Windows Subsystem for Linux, AMD.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    # Needed for deterministic matrix products on CUDA.
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}


def require_runnable(study: Study, folder: ResultsFolder) -> Study:
    """Return the registered study with resolved iterations, after checking that it can run.

    Raises ParibusError for problems that can be detected before a worker starts.
    """
    study = start.as_registered(start.settled_budgets(study), folder)
    folder.require_same(study)
    require_comparison(study)
    if not folder.exists:
        require_reachable(study)
    return study


class EngineRunner(Runner):
    """Runner that trains, evaluates and times trials with the built-in engine."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.queue, self.settings = context.queue, context.order.settings
        self._size = 0  # of stacks
        self._datasets: dict[Data, Dataset] = {}

    @staticmethod
    def forks() -> bool:
        """Return whether child processes may be forked, which requires Linux without a GPU."""
        has_gpu = shutil.which("nvidia-smi") or any(Path(file).exists() for file in GPU_FILES)
        return sys.platform == "linux" and not has_gpu

    @staticmethod
    def warm_up() -> None:
        """Import PyTorch and all engine modules that a trial may need, before forking."""
        os.environ.update(ENVIRONMENT)
        library()  # compiled once, and inherited by forked children
        importlib.import_module("paribus.engine.execution.tasks")
        for name in ("scipy.interpolate", "scipy.optimize"):  # used in a trial's evaluation
            importlib.import_module(name)
        package_digest()  # cached for every child

    def slots(self) -> int:
        """Return the number of GPUs (or CPU cores) divided by the devices per trial.

        This is called in the worker process itself, so it runs no custom code and does not allocate
        GPU memory.
        """
        from paribus.engine.execution.tasks import default_workers
        from paribus.engine.machine.environment import choose_device

        n_devices = self.context.order.study["resources"]["devices_per_trial"] or 1
        return max(default_workers(choose_device(self.settings["device"])) // n_devices, 1)

    def go_through(self, study: Study, folder: ResultsFolder) -> None:
        """Run all stages of a study, or only register it."""
        if self.settings["registers_only"]:
            self.register(self.open(study, folder), folder)
        else:
            super().go_through(study, folder)

    def execute(self, task: Task) -> Any:
        """Run a task in the current child process, and return its result."""
        from paribus.engine.execution.tasks import execute

        return execute(task, self.context)

    @cached_property
    def machine(self) -> dict[str, Any]:
        """Machine properties that a run depends on, from `tasks.machine_of`."""
        from paribus.engine.execution.tasks import machine_of

        return machine_of(self.context)

    def open(self, study: Study, folder: ResultsFolder) -> Study:
        """Load the study's data sets, and return the study as registered."""
        study = require_runnable(study, folder)
        self._datasets = start.read_data(study)
        return study

    def _data(self, study: Study) -> dict[str, Any]:
        """Return the data set records for the registration, keyed by arm."""
        return {arm: self._datasets[study.setting(arm).data].record for arm in study.arms}

    def register(self, study: Study, folder: ResultsFolder, *, is_tuning: bool = False) -> Study:
        """Resolve precision and stack size, test one step of every arm, and register the study."""
        from paribus.engine.execution.trial.endpoints import endpoint_metrics

        if is_open(study):
            study = with_precision(study, self.machine["precision"])
        self._size = self._size_of_stacks(study, folder)
        metrics = endpoint_metrics(study)
        if not all(folder.trial(*trial).is_finished for trial in study.trials):
            for words in self._check(study):
                self.context.report("warning", words=words, once=words)
        asked = start.settled_tasks(study, folder, self._datasets)
        self.settle(study, folder, self._data(study), self.machine["device"], metrics, asked)
        return study

    def _size_of_stacks(self, study: Study, folder: ResultsFolder) -> int:
        stack, n_devices = self.settings["stack"], study.resources.devices_per_trial
        if n_devices is not None and stack not in (None, 1):
            raise ParibusError(
                f"--stack {stack} and resources.devices_per_trial = {n_devices} conflict, because "
                "a trial on several devices cannot be stacked; remove one of them"
            )
        if size := stacks.recorded_size(study, folder) or stack:
            return size
        workers = self.settings["workers"] or self.machine["workers"]
        data_of = {arm: study.setting(arm).data for arm in study.arms}
        vocabularies = {arm: self._datasets[data].vocab_size for arm, data in data_of.items()}
        return stacks.default_size(study, self.machine, vocabularies, workers)

    def _check(self, study: Study) -> list[str]:
        """Test one training step of every arm in workers, and return the warnings.

        Arms that can share a stack run the same code, so only one of them is tested.
        """
        largest, tasks = max(map(len, stacks.plan_stacks(study, self._size))), []
        replicas = min(largest, 2)  # two represent any larger number
        for arm, *_ in stacks.sharing_arms(study):
            setting = stacks.shared_setting(study, arm).model_dump(mode="json")
            name = f"check.{digest(setting)[:12]}.{replicas}"
            arguments = {"arm": arm, "study": study.model_dump(mode="json"), "stack": replicas}
            tasks.append(Task(name, "check", f"in the dry run of arm '{arm}'", "", arguments))
        return [line for lines in self.queue.ask(tasks) for line in lines]

    def tasks(self, study: Study, folder: ResultsFolder, todo: Sequence[Trial]) -> list[Task]:
        """Create one task per stack that contains a trial in `todo`."""
        wanted = set(todo)
        planned = enumerate(stacks.plan_stacks(study, self._size))
        todo_stacks = {k: stack for k, stack in planned if not wanted.isdisjoint(stack)}
        stacks.keep_stacks(folder.path, list(todo_stacks.values()))
        return [train_task(folder, k, stack) for k, stack in todo_stacks.items()]

    def after_trials(self, study: Study, folder: ResultsFolder) -> None:
        """Repeat the first steps of arms with custom code, and compare them with the records.

        A trial from a different machine cannot be compared bit by bit. In this case, a warning is
        logged, and the control stays "not proven". Trials on several devices are skipped, because
        the summation order of gradients depends on the number of devices.
        """
        registered, repeated = read_registration(folder) or {}, folder.read_repeated(study.arms)
        wanted = registered["repeated"] if study.resources.devices == 1 else {}
        todo = {arm: r for arm, r in wanted.items() if arm not in repeated}
        tasks = [
            task_of(folder, "again", f"again.{arm}", f"while {arm} was repeated", arm=arm, **r)
            for arm, r in todo.items()
        ]
        for (arm, repetition), answer in zip(todo.items(), self.queue.ask(tasks), strict=True):
            if elsewhere := answer.get("elsewhere"):
                logging.getLogger("paribus").warning(
                    "%s/seed-%d cannot be reproduced bit by bit on this machine, because its %s "
                    "differs; the control 'repeatable' is not proven",
                    *(arm, repetition["seed"], ", ".join(elsewhere)),
                    extra={"once": f"again {arm}"},
                )
                continue
            seal = folder.trial(arm, repetition["seed"]).seal
            repeated |= {arm: {**repetition, "trial": seal, **answer}}
        if repeated and todo:
            folder.seal(REPEATED, repeated)
        stacks.keep_stacks(folder.path, [])

    def finish(self, study: Study, folder: ResultsFolder, trials: Sequence[Trial]) -> None:
        """Evaluate trials on the test split, write data.json, and measure the arms' throughput."""
        if self.settings["open_test"] and (test := self._datasets[study.data].test):
            self._judge_test_text(study, folder, trials, test.text.digest)
        if not folder.has_sealed(DATA):
            folder.seal(DATA, start.described(study, self._datasets))
        if not folder.has_timed(trials):
            self.say("measuring the throughput of all arms")
            doing, timed = "while throughput was measured", [list(trial) for trial in trials]
            raise Missing([task_of(folder, "time", "time", doing, timed=timed)])

    def _judge_test_text(
        self, study: Study, folder: ResultsFolder, trials: Sequence[Trial], sha256: str
    ) -> None:
        """Record that the test split is opened, and evaluate finished trials on the test split."""
        todo = [trial for trial in trials if not is_tested(folder, folder.trial(*trial))]
        if not todo and folder.has_sealed(TEST):
            return
        if not folder.has_sealed(LEDGER):
            require_no_campaign(folder)  # before the folder records that the text was opened
            opened = folder.read_sealed(TEST_PART) or {"digest": sha256, "opened": utc_now()}
            folder.seal(TEST_PART, opened)
            folder.seal(LEDGER, open_in_ledger(folder, study))
        tasks = []
        for arm, seed in todo:
            name, doing = f"test.{arm}.seed-{seed}", f"on {arm}/seed-{seed}, test split"
            tasks.append(task_of(folder, "heldout", name, doing, arm=arm, seed=seed))
        if tasks:
            self.say("evaluating all trials on the test split")
            raise Missing(tasks)
        seal_heldout(folder, [folder.trial(*trial) for trial in trials])
