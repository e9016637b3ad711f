"""Workers do not outlive who started them, whatever they are doing."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paribus.engine.execution.workers.lifetime import tie_to
from paribus.engine.execution.workers.messages import (
    Check,
    Hello,
    Ready,
    Task,
    Train,
    decode,
    encode,
)
from paribus.study import Study

from ..process_life import is_alive

Maker = Callable[..., Study]

# The user's own module, which takes its time once it is told to.
SLOW = """
import os, time
from torch import nn

class Slow(nn.Identity):
    def __init__(self, model):
        super().__init__()
    def forward(self, x):
        if os.path.exists(os.environ["SLOW"] + (".train" if self.training else ".eval")):
            open(os.environ["SLOW"] + ".begun", "w").close()
            for _ in range(6000):
                time.sleep(0.01)
        return x
"""


def hello(study: Study, results: Path) -> Hello:
    """The first message to a worker."""
    dump, folder = study.model_dump(mode="json"), str(study.folder)
    return Hello(dump, folder, str(results), "cpu", 0, checkpoint_seconds=60, eager=False)


@contextlib.contextmanager
def worker(
    study: Study, results: Path, slow: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A worker that is ready, not tied to us; `slow` is for its own module."""
    process = subprocess.Popen(
        [sys.executable, "-m", "paribus.engine.execution.workers.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ | {"SLOW": str(slow or "")},
    )
    try:
        send(process, hello(study, results))
        assert process.stdout is not None and isinstance(decode(process.stdout.readline()), Ready)
        yield process
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(BrokenPipeError, AttributeError):
                pipe.close()  # type: ignore[union-attr]


def send(process: subprocess.Popen[str], message: object) -> None:
    assert process.stdin is not None
    process.stdin.write(encode(message))
    process.stdin.flush()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("slow", "task"),
    [
        ("train", Check("slow", stack=1)),
        ("eval", Train("slow", (("slow", 1),))),
    ],
    ids=["dry run", "evaluation"],
)
def test_the_end_of_input_is_seen_in_the_middle_of_anything(
    small_study: Maker, tmp_path: Path, slow: str, task: Task[Any]
) -> None:
    """Without Linux's signal, which would hide it: the worker is not tied to us."""
    (tmp_path / "own.py").write_text(SLOW)
    arms = {"baseline": {}, "slow": {"set": {"model.modules.final_norm": "own.py:Slow"}}}
    study = small_study({"tasks.names": []}, arms=arms)
    (tmp_path / f"s.{slow}").touch()
    with worker(study, tmp_path / "r", tmp_path / "s") as process:
        send(process, task)
        wait_for((tmp_path / "s.begun").exists)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(5) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="a signal of Linux")
def test_a_worker_dies_with_its_parent_even_where_it_listens_to_nothing(
    small_study: Maker, tmp_path: Path
) -> None:
    """A worker stopped by SIGSTOP hears of no end of input; the parent's death ends it."""
    script = (
        "import json, subprocess, sys, os, signal, time\n"
        "child = subprocess.Popen([sys.executable, '-m',"
        " 'paribus.engine.execution.workers.template', 'worker', str(os.getpid())],"
        " stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)\n"
        "child.stdin.write(sys.argv[1]); child.stdin.flush()\n"
        "child.stdout.readline()\n"
        "os.kill(child.pid, signal.SIGSTOP)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    first = hello(small_study(), tmp_path / "r")
    parent = subprocess.Popen(
        [sys.executable, "-c", script, encode(first)], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not is_alive(child), 5)


def test_a_worker_whose_parent_is_gone_already_leaves_at_once() -> None:
    code = "from paribus.engine.execution.workers.lifetime import tie_to\n"
    code += f"tie_to({os.getpid()}); print('alive')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "alive\n"
    code = code.replace(str(os.getpid()), "999999999")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("", 1)
    assert tie_to.__doc__
