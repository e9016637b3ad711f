"""A worker process: takes tasks on standard input, and answers them on standard output.

Both ways are lines of JSON (`engine.execution.messages`), so a study runs the same from a command
line, a script or a notebook, and a worker that dies takes nothing with it. When the input ends in
the middle of a task (whoever asked is gone), or on SIGTERM, the worker leaves at once; in training
it finishes its step and writes a checkpoint first. What it does for each task is in `duties`.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from paribus.engine.execution.launch import leave
from paribus.engine.execution.leaving import Leaving, Left
from paribus.engine.execution.messages import Failed, Hello, Refused, Task, decode, encode
from paribus.engine.execution.task_handlers import Here, do
from paribus.engine.machine.failures import machine_failure
from paribus.engine.machine.memory import free_unused
from paribus.errors import ParibusError


def main() -> int:
    """Work until the input ends; returns the exit code of the process."""
    # Whatever a library prints must not end up among the lines of the protocol.
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    if isinstance(sys.stdout, io.TextIOWrapper):  # nor end the worker, in whatever letters
        sys.stdout.reconfigure(errors="backslashreplace")

    def tell(message: object) -> None:
        channel.write(encode(message))
        channel.flush()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who started us decides
    leaving = Leaving()
    leaving.listen()
    try:
        _work(tell, leaving)
    except Left:
        return 0
    except ParibusError as error:
        tell(Refused(str(error)))
        return 2
    except BrokenPipeError:
        return 1
    except Exception as error:
        if failure := machine_failure(error):
            tell(Refused(failure))
            return 1
        tell(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))
        return 1
    return 0


def _work(tell: Callable[[object], None], leaving: Leaving) -> None:
    hello = decode(sys.stdin.readline())
    assert isinstance(hello, Hello)
    here = Here(hello, tell, leaving)
    tell(here.ready)
    tasks = _tasks(leaving)
    while (task := tasks.get()) is not None:
        free_unused(here.device)  # other processes may need what the last task has left
        answer = do(here, task)
        if answer is not None:
            tell(answer)


def _tasks(leaving: Leaving) -> SimpleQueue[Task[Any] | None]:
    """Tasks as they arrive, then None. An end of input while a task runs asks it to stop."""
    queue: SimpleQueue[Task[Any] | None] = SimpleQueue()

    def read() -> None:
        try:
            for line in sys.stdin:
                queue.put(decode(line))
            leaving.request()
        except ValueError:  # whoever asked died in the middle of a line
            leaving.request()
        finally:
            queue.put(None)

    threading.Thread(target=read, daemon=True).start()
    return queue


if __name__ == "__main__":
    leave(main())
