"""A worker process: takes stacks to train on standard input, tells of them on standard output.

Both ways are lines of JSON, so a study runs the same from a command line, a script or a notebook,
and a worker that dies takes nothing with it. The first line says what to work on; then come tasks
until the input ends. When it ends in the middle of a task (whoever asked is gone), or on SIGTERM,
the worker leaves at once; in training it finishes its step and writes a checkpoint first.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from paribus.data import Dataset, load_dataset
from paribus.errors import ParibusError
from paribus.execution.answer import answer
from paribus.execution.checks.dry_run import dry_run
from paribus.execution.checks.repeat import repeat
from paribus.execution.checks.retrain import train_again
from paribus.execution.endpoints import endpoint_metrics
from paribus.execution.leaving import Leaving, Left
from paribus.execution.record import finite
from paribus.execution.throughput import Turns
from paribus.execution.trial import StackTask, run_stack
from paribus.files import fence
from paribus.machine.capacity import largest_stack
from paribus.machine.environment import choose_device, count_devices, native_precision, prepare
from paribus.machine.failures import machine_failure
from paribus.machine.memory import free_unused
from paribus.machine.speed import bench_stack, measure, model_size
from paribus.results import ResultsFolder
from paribus.study import Data, parse_study


def main() -> int:
    # Whatever a library prints must not end up among the lines of the protocol.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def tell(event: str, **content: Any) -> None:
        channel.write(json.dumps({"event": event} | content) + "\n")
        channel.flush()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides
    leaving = Leaving()
    leaving.listen()
    try:
        _work(tell, leaving)
    except Left:
        return 0
    except ParibusError as error:
        tell("refused", message=str(error))
        return 2
    except BrokenPipeError:
        return 1
    except Exception as error:
        if failure := machine_failure(error):
            tell("refused", message=failure)
            return 1
        tell("failed", message=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        return 1
    return 0


def _work(tell: Any, leaving: Leaving) -> None:
    hello = json.loads(sys.stdin.readline())
    study = parse_study(hello["study"], folder=Path(hello["folder"]))
    results = ResultsFolder(Path(hello["results"]))
    if run := hello["run"]:
        fence(results.path, lambda: results.is_held_by(run))
    device = choose_device(hello["device"], hello["number"])
    prepare(device)
    graphs = not hello["eager"]
    tell(
        "ready",
        device=device.type,
        devices=count_devices(device),
        precision=native_precision(device),
    )

    tasks = _tasks(leaving)
    datasets: dict[Data, Dataset] = {}

    def dataset_of(data: Data) -> Dataset:
        if data not in datasets:
            datasets[data] = load_dataset(data, study.folder)
        return datasets[data]

    turns = Turns(results, dataset_of, device, graphs=graphs)
    while (task := tasks.get()) is not None:
        free_unused(device)  # other processes may need what the last task has left
        if task["do"] == "rest":
            continue
        if task["do"] == "adopt":
            study = parse_study(task["study"], folder=study.folder)
            continue
        if task["do"] == "declare":
            found = endpoint_metrics(study)
            tell("declared", metrics={name: metric.about for name, metric in found.items()})
            continue
        arm = task["arm"] if "arm" in task else task["trials"][0][0]
        dataset = dataset_of(study.setting(arm).data)
        if task["do"] == "prepare":
            kinds = turns.prepare(study, arm, task["seed"], task["trains"])
            tell("prepared", kinds=kinds)
            continue
        if task["do"] == "turn":
            tell("timed", **turns.take(arm, task["kind"]))
            continue
        if task["do"] == "answer":
            answer(study, results, dataset, device, task)
            tell("finished")
            continue
        if task["do"] == "repeat":
            found = repeat(study, results, dataset, device, arm, task["seed"])
            tell("finished", findings=found)
            continue
        if task["do"] == "train again":
            tell("trained again", found=train_again(study, results, dataset, device, task, graphs))
            continue
        if task["do"] == "check":
            warnings = dry_run(study, arm, dataset, device, task["stack"], graphs=graphs)
            tell("finished", warnings=warnings)
            continue
        if task["do"] == "fit":
            fit, why = largest_stack(
                study, arm, dataset, device, task["stack"], task["workers"], graphs=graphs
            )
            tell("fits", stack=fit, why=why)
            continue
        if task["do"] == "size":
            tell("sized", **model_size(study, arm, dataset))
            continue
        if task["do"] == "measure":
            tell("measured", **measure(study, arm, dataset, device, task["stack"]))
            continue
        if task["do"] == "bench":
            found = bench_stack(study, arm, dataset, device, task["stack"], task["steps"])
            tell("measured", **found)
            continue
        trials = tuple((arm, seed) for arm, seed in task["trials"])
        stack = StackTask(study, trials, results, device, hello["checkpoint_seconds"], graphs)

        def on_progress(t: int, losses: list[float], stack: StackTask = stack) -> None:
            tell("progress", trials=stack.trials, t=t, losses=finite(losses))

        def on_resume(t: int, words: str, stack: StackTask = stack) -> None:
            tell("resumed", trials=stack.trials, t=t, words=words)

        if not run_stack(
            stack, dataset, on_progress=on_progress, on_resume=on_resume, leaving=leaving
        ):
            return
        tell("finished")


def _tasks(leaving: Leaving) -> SimpleQueue[dict[str, Any] | None]:
    """Tasks as they arrive, then None. An end of input while a task runs asks it to stop."""
    queue: SimpleQueue[dict[str, Any] | None] = SimpleQueue()

    def read() -> None:
        try:
            for line in sys.stdin:
                message = json.loads(line)
                if message["do"] == "leave":
                    return
                queue.put(message)
            leaving.request()
        except json.JSONDecodeError:  # whoever asked died in the middle of a line
            leaving.request()
        finally:
            queue.put(None)

    threading.Thread(target=read, daemon=True).start()
    return queue


if __name__ == "__main__":
    sys.exit(main())
