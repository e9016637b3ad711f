"""Running and registration of studies, by starting workers and monitoring them."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from paribus.declared import provided
from paribus.engine import INSTALL, has_engine
from paribus.errors import ParibusError, require_positive
from paribus.files import remove_folder, sweep
from paribus.ledger import IS_RECORDING
from paribus.results import Results, ResultsFolder, load_results
from paribus.results.opened_texts import note
from paribus.results.registration import FILE
from paribus.results.store import results_folder
from paribus.runs.executors import Backend, find_backend
from paribus.runs.processes import TRACEBACK, ending_children
from paribus.runs.progress import Progress, Tracker, Watch, watching
from paribus.runs.queue import Order, Queue, Task
from paribus.runs.trainer_runner import TrainerRunner, find_trainer
from paribus.study import Study, require_trust, tuning_study
from paribus.study.custom_code import OWN_FOLDERS
from paribus.study.study import substance
from paribus.study.trainer import COMMAND, RUNS, STACKED

if TYPE_CHECKING:
    from paribus.runs.wandb import WeightsAndBiases

Device = Literal["auto", "cpu", "cuda", "mps"]
CHECKPOINT_SECONDS = 60.0
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Options:
    """Options of a run, as described in `run`."""

    workers: int | None = None
    device: Device = "auto"
    stack: int | None = None
    eager: bool = False
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    open_test: bool = True
    registers_only: bool = False


def run(
    study: Study,
    results: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = None,
    device: Device = "auto",
    stack: int | None = None,
    eager: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    watch: Watch | None = None,
    wandb: bool = False,
    backend: str | Backend = "local",
    open_test: bool = True,
    progress: bool | None = None,
) -> Results:
    """Train, evaluate and record all unfinished trials of a study.

    Args:
        study: study loaded by `load_study`.
        results: results folder; by default `results/<study name>`.
        workers: number of concurrent trials per machine; by default one per GPU or CPU core, or one
            if trials run an external program.
        device: device to train on; "auto" prefers a GPU.
        stack: number of replicas trained together in one process; by default 1 on a CPU. On GPUs,
            the default is as many trials of one model as fit into memory, distributed over the
            GPUs, according to the memory estimate of `paribus plan`.
        eager: whether to launch GPU kernels one by one instead of capturing and replaying a step;
            needed by custom modules that read a tensor's value on the host during a step.
        checkpoint_seconds: interval between checkpoints of an unfinished trial, in seconds.
        watch: callback that receives the `Progress` up to several times a second, from the
            registration of the study on.
        wandb: whether to log every trial to Weights & Biases (see `paribus.runs.wandb`).
        backend: name of a backend, path of a TOML file (docs/how-to/cluster.md), or a `Backend`
            from `find_backend`.
        open_test: whether to evaluate on the held-back test text after training, if there is one.
            A later call can do this instead.
        progress: whether to show progress if `watch` is None; by default only in a terminal.

    A precision of "auto" is resolved for the device of the first run or of `register`.

    Returns the results, as `load_results` does. Raises ParibusError for invalid input, before
    anything is written, or if a trial fails. Finished trials are kept.
    """
    if study.trainer == RUNS:
        return provided("function", "judge_runs")(study, results)
    require_positive(workers=workers, stack=stack)
    backend = find_backend(backend)
    folder = results_folder(study, results)
    folder.require_home()
    log = _wandb_log(study, folder) if wandb else None
    options = Options(workers, device, stack, eager, checkpoint_seconds, open_test)
    console = Console()
    is_shown = watch is None and (console.is_terminal if progress is None else progress)
    showing = watching(console) if is_shown else nullcontext(watch)
    with folder.lock(swept=backend.is_here), showing as watch:
        _follow(study, folder, options, backend, watch, log)
    return load_results(folder.path)


def register(
    study: Study,
    results: str | os.PathLike[str] | None = None,
    *,
    device: Device = "auto",
    eager: bool = False,
    backend: str | Backend = "local",
) -> Path:
    """Register a study without running it, and return the path of `registration.json`.

    The built-in trainer also tests one training step of every arm. Raises ParibusError if the
    results folder contains the registration of a different study.
    """
    backend = find_backend(backend)
    folder = results_folder(study, results)
    folder.require_home()
    options = Options(device=device, eager=eager, registers_only=True)
    with folder.lock(swept=backend.is_here):
        if study.trainer == STACKED:
            _follow(study, folder, options, backend)
        else:
            runner = TrainerRunner(None)
            runner.register(runner.open(study, folder), folder)
        note(folder)
    return folder.path / FILE


def try_briefly(study: Study, results: str | os.PathLike[str]) -> dict[str, str]:
    """Run each arm's external program for a few seconds, and return {arm: summary}."""
    trainer: Any = find_trainer(study, results_folder(study, results))
    with ending_children():
        return trainer.try_briefly(study)


def ask(
    study: Study,
    results: Path,
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    device: Device = "auto",
    backend: str | Backend = "local",
) -> list[Any]:
    """Run additional tasks in workers, outside the stages of a run, and return their results.

    The queue is a temporary folder, which is inside the results folder if workers run as jobs.
    Raises ParibusError if a task fails.
    """
    backend = find_backend(backend)
    require_trust(study)
    options = Options(workers, device)
    home = None if backend.is_here else results
    with tempfile.TemporaryDirectory(prefix="paribus-", dir=home) as name:
        queue = Queue(Path(name).absolute() / "queue")
        queue.open(_order(study, ResultsFolder(results), options, backend, stages=False))
        queue.put(tasks)
        backend.start(queue, len(tasks), _devices(study))
        _wait(queue, backend)
        return [queue.read_answer(task.id) for task in tasks]


def _follow(
    study: Study,
    folder: ResultsFolder,
    options: Options,
    backend: Backend,
    watch: Watch | None = None,
    log: WeightsAndBiases | None = None,
) -> None:
    """Start a run's workers, or join running workers, and monitor them until the run ends."""
    require_trust(study)
    queue = Queue.locate(folder.path)
    _join_or_open(queue, _order(study, folder, options, backend), folder)
    try:
        if study.trainer == STACKED:
            provided("function", "require_runnable")(study, folder)
        else:
            TrainerRunner(None, find_trainer(study, folder)).open(study, folder)
        tuning = tuning_study(study) if study.tuning else study
        n_trials = max(len(study.trials), len(tuning.trials))
        try:
            backend.start(queue, n_trials, _devices(study))
            _wait(queue, backend, watch, log)
        finally:
            if log is not None:
                log.close()
    except (ParibusError, KeyboardInterrupt) as error:
        if backend.is_here or isinstance(error, ParibusError):
            queue.remove(is_failed=folder.exists)
        if backend.is_here:  # nobody is at work
            remove_folder(folder.path / "worktrees")
        raise
    queue.remove()
    sweep(folder.path)
    remove_folder(folder.path / "worktrees")


def _order(
    study: Study, folder: ResultsFolder, options: Options, backend: Backend, *, stages: bool = True
) -> Order:
    if study.trainer == STACKED and not has_engine():
        raise ParibusError(
            f"training models needs the engine, which is not installed; {INSTALL}",
            code="not_installed",
        )
    settings = asdict(options) | {
        "retries": backend.options.retries,
        "recorded": IS_RECORDING.get(),
        "is_here": backend.is_here,
        "environment": {k: v for k, v in os.environ.items() if k == "PARIBUS_LEDGER"},
    }
    if options.workers is None:
        settings["workers"] = backend.workers(_devices(study))
    return Order(
        study=study.model_dump(mode="json"),
        folder=str(study.folder.absolute()),
        results=str(folder.path.absolute()),
        settings=settings,
        executor={"backend": backend.name, "options": backend.options.model_dump(mode="json")},
        cwd=os.getcwd(),
        search=[path for path in OWN_FOLDERS if path in sys.path],
        stages=stages,
    )


def _join_or_open(queue: Queue, order: Order, folder: ResultsFolder) -> None:
    """Join the queue of jobs submitted by an earlier command, or create a new queue."""
    earlier = queue.read_order() if queue.exists else None
    if earlier is None or earlier.settings.get("is_here", True) or queue.failure() is not None:
        queue.open(order)  # workers of this machine ended with the command that started them
        return
    same = (earlier.executor["backend"], earlier.settings, substance(earlier.study))
    if same != (order.executor["backend"], order.settings, substance(order.study)):
        raise ParibusError(
            f"jobs with a different backend, study or options are running in {folder.path}; "
            f"cancel them first with `paribus cancel {folder.path}`",
            code="in_use",
        )


def _wandb_log(study: Study, folder: ResultsFolder) -> WeightsAndBiases:
    try:
        from paribus.runs.wandb import WeightsAndBiases
    except ImportError:
        raise ParibusError(
            "--wandb needs wandb, which is not installed; run pip install 'paribus[wandb]'",
            code="not_installed",
        ) from None
    return WeightsAndBiases(study, folder.path)


def _wait(
    queue: Queue,
    backend: Backend,
    watch: Watch | None = None,
    log: WeightsAndBiases | None = None,
) -> None:
    """Monitor a run until it ends, or raise ParibusError if it fails."""
    has_stages, tracker = queue.read_order().stages, Tracker(queue)
    try:
        while not queue.is_over and (has_stages or queue.names()):
            for event in tracker.update():
                _tell(event, tracker.progress, watch, log)
            backend.check()
            time.sleep(POLL_SECONDS)
        if failure := queue.failure():
            error = ParibusError(failure["message"])
            if failure["trace"] and os.environ.get(TRACEBACK):
                error.add_note(failure["trace"])
            raise error
        queue.note_finished()
    except ParibusError as error:
        queue.fail(str(error))
        raise
    finally:
        backend.leave(is_interrupted=not queue.is_over)
        for event in tracker.update():  # what came last
            _tell(event, tracker.progress, watch, log)


def _tell(
    event: dict[str, Any],
    progress: Progress | None,
    watch: Watch | None,
    log: WeightsAndBiases | None,
) -> None:
    """Forward a worker's event to the logger, or to wandb and the `watch` callback."""
    if event["event"] == "warning":
        logging.getLogger("paribus").warning("%s", event["words"])
    elif progress is not None:
        if log is not None:
            log.follow(event, progress.home)
        if watch is not None:
            watch(progress)


def _devices(study: Study) -> int:
    """Return the number of devices that each trial uses."""
    if study.trainer == COMMAND:
        return study.program.gpus or 1
    return getattr(getattr(study, "resources", None), "devices_per_trial", None) or 1
