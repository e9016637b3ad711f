"""Commands and their workers as forks of this process, which has imported everything.

A kill at a random moment then falls into the work of a command and not into its imports, which are
most of the time of a small study; and several hundred kills take an hour and not a day. Commands
stay processes of their own, in sessions of their own, with workers that are tied to them. What is
not as in a fresh process: nothing is imported anew, one order of sets holds for all, and what
pytest has patched (fsync, in this suite) is patched.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

# What commands and workers import on their way.
MODULES = (
    "lm_eval.evaluator",
    "lm_eval.tasks",
    "paribus.cli.commands",
    "paribus.cli.folder_verbs",
    "paribus.engine.execution.progress",
    "paribus.cli.printed",
    "paribus.engine.execution.run",
    "paribus.engine.execution.evaluate",
    "paribus.engine.execution.workers.worker",
    "paribus.engine.evaluation.harness",
    "paribus.analysis",
    "paribus.decision",
    "paribus.report",
    "paribus.engine.export",
    "scipy.stats",
    "pyarrow.csv",
)


class Forked:
    """A command in a fork; what of `subprocess.Popen` the harness uses."""

    def __init__(self, folder: Path, main: Callable[[list[str]], int], *arguments: str) -> None:
        _import_all()
        self._said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            os.chdir(folder)
            nowhere = os.open(os.devnull, os.O_RDWR)
            _leave_with(lambda: _command(main, arguments), nowhere, nowhere, self._said.fileno())

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = 600) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a fork", timeout)
            time.sleep(0.002)
        return code

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        self.wait(timeout)
        self._said.seek(0)
        return "", self._said.read()

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@cache
def _import_all() -> None:
    """Once for all forks, with what else a process finds out once about what is installed.

    What is imported is no garbage: looking through it took a seventh of a worker's time.
    """
    for name in MODULES:
        import_module(name)
    import_module("paribus.engine.evaluation.harness.outcome").installed_digest()
    gc.collect()
    gc.freeze()


class ForkedWorker(Forked):
    """A worker in a fork of its command; what of `subprocess.Popen` a backend uses."""

    def __init__(
        self, command: Sequence[str], *, env: dict[str, str], stdin: int, stdout: int, stderr: int
    ) -> None:
        self.returncode = None
        self.pid = os.fork()
        if self.pid == 0:
            from paribus.engine.execution.workers.lifetime import tie_to

            tie_to(int(command[-1]))
            os.environ.update(env)
            _leave_with(_worker, stdin, stdout, stderr)


def _command(main: Callable[[list[str]], int], arguments: Sequence[str]) -> int:
    from paribus.engine.execution.backends import local
    from paribus.engine.execution.workers import processes

    assert processes.subprocess is local.subprocess is subprocess and processes.FORKS
    processes.FORKS = False  # workers are forks of this command, which holds what was patched
    processes.subprocess = local.subprocess = SimpleNamespace(  # type: ignore[assignment]
        Popen=ForkedWorker, DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired
    )
    return main(list(arguments))


def _worker() -> int:
    from paribus.engine.execution.workers import worker

    return worker.main()


def _leave_with(work: Callable[[], int], *streams: int) -> NoReturn:
    """In a fork: `streams` as standard input, output and errors, nothing else open; then `work`."""
    code = 1
    try:
        kept = [os.dup(stream) for stream in streams]
        for number, stream in enumerate(kept):
            os.dup2(stream, number)
        faulthandler.disable()
        os.closerange(3, 4096)  # the locks of the parent, and the ends of others' pipes
        logging.getLogger().handlers.clear()  # pytest's
        sys.stdin, sys.stdout, sys.stderr = (
            os.fdopen(number, mode, encoding="utf-8", closefd=False, buffering=1)
            for number, mode in enumerate("rww")
        )
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.default_int_handler if name == 2 else signal.SIG_DFL)
        code = work()
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
