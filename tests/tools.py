"""What tests of many rooms use: the command line, what a report says, git, processes."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
from filelock import FileLock

from paribus.cli import main
from paribus.cli.options import console
from paribus.decision import Verdicts
from paribus.errors import ParibusError
from paribus.report.cautions import Caution, all_cautions
from paribus.report.model import Row, build_report
from paribus.runs.executors.local import Local
from paribus.runs.queue import Context, Queue
from paribus.runs.trainer_runner import runner_of


def disabled_kernels() -> Any:
    """Let PyTorch compute within."""
    return patch("paribus.engine.ops.kernels.calling.kernels", lambda: None)


def as_rows(tensors: dict[str, Any]) -> Any:
    """Return `Rows` with a copy of {name: [R, *shape]}."""
    import torch

    from paribus.engine.rows import Rows

    flat = torch.cat([tensor.flatten(1) for tensor in tensors.values()], dim=1)
    return Rows(flat, {name: tensor.shape[1:] for name, tensor in tensors.items()})


def verb(*arguments: object) -> tuple[int, str, str]:
    """Return the exit code, standard output and standard error of a command, at 80 columns."""
    with (
        patch.dict("os.environ", {"COLUMNS": "80", "NO_COLOR": "1"}),
        patch.object(console, "stderr", False),
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as err,
    ):
        code = main([*map(str, arguments)])
    return code, out.getvalue(), err.getvalue()


@contextlib.contextmanager
def refused(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[ParibusError]]:
    """Assert that a ParibusError with `code` is raised, whose message has `match`."""
    with pytest.raises(ParibusError, match=match) as raised:
        yield raised
    assert raised.value.code == code, raised.value


def cautions(verdicts: Verdicts) -> list[Caution]:
    """Return the cautions of the first verdict."""
    return list(all_cautions(verdicts)[0])


def codes(verdicts: Verdicts) -> set[str]:
    """Return the codes of the cautions of the first verdict."""
    return {caution.code for caution in cautions(verdicts)}


def texts(verdicts: Verdicts, code: str) -> list[str]:
    """Return the sentences that the first verdict has with a code."""
    return [caution.text for caution in cautions(verdicts) if caution.code == code]


def rows(verdicts: Verdicts) -> dict[str, Row]:
    """Return the rows of the first primary endpoint, by the label of the arm."""
    return {row.label: row for row in build_report(verdicts).blocks[0].rows}


IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def module_at(file: Path) -> ModuleType:
    """Import a file by its path, as `<folder>_<name>`."""
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # which dataclasses look up
    spec.loader.exec_module(module)
    return module


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder of that name in which `make` has worked, once for all processes of pytest-xdist.

    Nobody writes to it afterwards.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    done = folder.with_suffix(".done")
    with FileLock(folder.with_suffix(".lock")):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def is_alive(pid: int) -> bool:
    """Whether it runs; one that has ended and was not waited for does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def eventually(condition: Callable[[], object], seconds: float = 60) -> object:
    """Return what a condition gives as soon as it is true."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return value


def processes(folder: Path, *words: str) -> list[int]:
    """Return the processes whose command line has all `words`, working in `folder` or below."""
    return list(_processes(folder, words))


def _processes(folder: Path, words: tuple[str, ...]) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            line = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            where = os.readlink(path / "cwd")
            state = (path / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:  # it has left meanwhile
            continue
        if where.startswith(str(folder)) and state not in "ZX" and all(w in line for w in words):
            yield int(path.name)


def work_here(queue: Queue) -> None:
    """Do the next task of a run in the process of the test, or find out what comes next."""
    order = queue.read_order()
    runner = runner_of(order.study["trainer"])(Context(queue, order, "here", 0))
    names = queue.names()
    task = queue.read_task(names[0]) if names else None
    try:
        if task is None:
            runner.advance()
            return
        answer = runner.execute(task)
    except ParibusError as error:
        queue.fail(str(error))
        return
    if answer is not None:
        queue.answer(task.id, answer)
    queue.finish(task)


class Here(Local):
    """A run's tasks are done in the process of the test, one at each look at them."""

    def start(self, queue: Queue, *sizes: int) -> None:
        """Start nothing."""
        self._queue = queue

    def check(self) -> None:
        """Do the next task."""
        work_here(self._queue)

    def leave(self, *, is_interrupted: bool) -> None:
        """Nothing has been started."""


def in_one_process() -> Any:
    """Return a context in which runs start no process: their tasks are done by whoever waits."""
    methods = {name: vars(Here)[name] for name in ("start", "check", "leave")}
    both = contextlib.ExitStack()
    both.enter_context(patch.multiple(Local, **methods))
    both.enter_context(patch("paribus.runs.run.POLL_SECONDS", 0.0))
    return both
