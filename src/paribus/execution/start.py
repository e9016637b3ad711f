"""The start of a run: workers, one step of every arm, how many side by side, the registration."""

from __future__ import annotations

import logging
import math
import shutil
import sys
from pathlib import Path
from typing import Any

from paribus.data import Dataset, load_dataset
from paribus.execution.pool import Message, Pool, Worker, default_workers
from paribus.execution.precision import settle_precision, warn_of_emulation
from paribus.execution.stacks import default_size, plan_stacks, sharing_arms
from paribus.execution.suite import adopt_suite, drafted_suite
from paribus.results import ResultsFolder, registration, settle
from paribus.study import Data, Study, require_trust
from paribus.tasks import WrittenSuite

# Where Linux shows a GPU that PyTorch may use: NVIDIA's, one in Windows' subsystem, AMD's.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def read_data(study: Study) -> dict[Data, Dataset]:
    """The text as the study and each arm cut it; one that cannot be read is told at once."""
    require_trust(study)  # a corpus may be custom code
    wanted = [study.data, *(study.setting(arm).data for arm in study.arms)]
    return {data: load_dataset(data, study.folder) for data in dict.fromkeys(wanted)}


def start(
    pool: Pool,
    folder: ResultsFolder,
    study: Study,
    datasets: dict[Data, Dataset],
    workers: int | None,
    stack: int | None,
    n_trials: int,
) -> tuple[Study, int]:
    """Start the workers for `n_trials`, try a step of every arm, and register the study.

    Returns the study with its precision settled, and the size of a stack. Raises ParibusError
    before anything is written.
    """
    first = pool.start()
    if _is_surely_cpu(pool.device):
        _start_more(pool, workers or default_workers("cpu"), n_trials)
    # While they import PyTorch, which takes seconds, the questions are drawn.
    with drafted_suite(study, folder, datasets[study.data]) as suite:
        ready = pool.answer(first)
        study = settle_precision(study, ready, pool)
        size = stack or default_size(study, ready["device"], ready["devices"])
        if n_trials:
            warn_of_emulation(study, ready)
            _start_more(
                pool, workers or default_workers(ready["device"], ready["devices"]), n_trials
            )
            _check(pool, study, size)
            size = _fitting(
                pool, first, study, size, math.ceil(len(pool.workers) / ready["devices"])
            )
        data = {arm: datasets[study.setting(arm).data].record for arm in study.arms}
        settle(folder, study, registration(study, data, ready["device"], _chosen(study, suite)))
        adopt_suite(folder)
    return study, size


def _is_surely_cpu(device: str) -> bool:
    """Whether workers will train on the CPU, as far as one can tell without PyTorch."""
    if device != "auto":
        return device == "cpu"
    gpu = shutil.which("nvidia-smi") or any(Path(file).exists() for file in GPU_FILES)
    return sys.platform == "linux" and not gpu


def _start_more(pool: Pool, n_workers: int, n_trials: int) -> None:
    while len(pool.workers) < min(n_workers, n_trials):
        pool.start()


def _check(pool: Pool, study: Study, size: int) -> None:
    """Try one step of every arm, the workers sharing the arms."""
    asked: list[Worker] = []
    for i, arm in enumerate(study.arms):
        asked.append(pool.workers[i % len(pool.workers)])
        asked[-1].send({"do": "check", "arm": arm, "stack": size})
    warnings = [line for worker in asked for line in _await(pool, worker, "checked")["warnings"]]
    for line in dict.fromkeys(warnings):
        logging.getLogger("paribus").warning("%s", line)


def _await(pool: Pool, worker: Worker, event: str) -> Message:
    """The next message of `worker` of this kind; those before it (that it is ready) are passed."""
    while (message := pool.answer(worker))["event"] != event:
        pass
    return message


def _fitting(pool: Pool, worker: Worker, study: Study, size: int, sharing: int) -> int:
    """`size`, or as many replicas as the memory of a device holds that `sharing` workers share."""
    planned = plan_stacks(study, size, dict.fromkeys(study.trials, 0))
    for arms in sharing_arms(study):
        wanted = min(size, max(len(trials) for trials in planned if trials[0][0] in arms))
        if wanted == 1:
            continue
        worker.send({"do": "fit", "arm": arms[0], "stack": wanted, "workers": sharing})
        found = pool.answer(worker)
        if found["stack"] < wanted:
            size = found["stack"]
            logging.getLogger("paribus").warning(
                "%d of %d replicas side by side: %s", size, wanted, found["why"]
            )
    return size


def _chosen(study: Study, suite: WrittenSuite | None) -> dict[str, Any]:
    """What the registration says of the study's tasks."""
    if suite is None:
        return {}
    names = [task.name for task in suite.find(study.tasks.names)]
    return {"suite_sha256": suite.digest, "names": names, "left_out": suite.left_out}
