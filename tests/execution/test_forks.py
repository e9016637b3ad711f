"""Workers are forks of a template that has imported what they need."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import numpy as np
import pytest

import paribus
from paribus.cli import main
from paribus.cli.options import HERE, Where
from paribus.engine.execution.backends import End, Hear, find_backend
from paribus.engine.execution.backends.local import PipedProcess
from paribus.engine.execution.start import Tried, _check
from paribus.engine.execution.workers import processes, template
from paribus.engine.execution.workers.messages import Check, Hello, Ready, decode, encode
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.execution.workers.processes import Fork, Template
from paribus.errors import ParibusError
from paribus.search_path import add_own_folder, own_folders
from paribus.study import Study

from ..process_life import is_alive

Maker = Callable[..., Study]
LOCAL = find_backend("local")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not processes.is_surely_cpu("auto"), reason="no forks here"
)


def hello(study: Study, results: Path) -> str:
    """The first line to a worker."""
    dump, folder = study.model_dump(mode="json"), str(study.folder)
    return encode(Hello(dump, folder, str(results), "cpu", 0, 60, eager=False))


def start(hear: Hear) -> PipedProcess:
    worker = LOCAL.start(hear)
    assert isinstance(worker, PipedProcess)
    return worker


def pid_of(worker: PipedProcess) -> int:
    assert isinstance(worker.process, Fork)
    return worker.process.forked.result(120)


def test_a_worker_is_a_fork_in_the_folder_of_its_run(
    small_study: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = SimpleQueue[str | None]()
    worker = start(said.put)
    worker.send(hello(small_study(), tmp_path / "r"))
    line = said.get(timeout=120)
    assert line is not None and isinstance(decode(line), Ready)
    here = Path(f"/proc/{pid_of(worker)}")
    assert (here / "cwd").resolve() == tmp_path
    assert (
        b"paribus.engine.execution.workers.template" in (here / "cmdline").read_bytes()
    )  # not started anew
    open_files = {file.name for file in (here / "fd").iterdir()}
    assert {"0", "1", "2"} <= open_files and len(open_files) <= 4  # and its channel
    worker.stop()
    worker.close()
    assert (said.get(), worker.process.wait()) == (None, 0)


def test_how_a_worker_ends(tmp_path: Path) -> None:
    """By a signal, by force, and by itself with words of its own."""
    ended = SimpleQueue[str | None]()
    killed, forced, wrong = (start(ended.put) for _ in range(3))
    wrong.send("{}\n")
    os.kill(pid_of(killed), signal.SIGKILL)
    assert killed.end().how == "signal 9 (out of memory? use fewer --workers)"
    forced.process.kill()
    assert forced.process.wait(60) == -9
    forced.process.kill()  # no other process that has its number by now
    assert wrong.end().how == "exit code 1"
    for one in (killed, forced, wrong):
        one.close()


def idle(channel: int) -> subprocess.Popen[bytes]:
    """A template that serves nobody, and leaves when its socket is closed."""
    return subprocess.Popen(["cat"], stdin=channel, stdout=subprocess.DEVNULL)


@pytest.fixture
def none_there(monkeypatch: pytest.MonkeyPatch) -> dict[bool, tuple[processes.Key, Template]]:
    there: dict[bool, tuple[processes.Key, Template]] = {}
    monkeypatch.setattr(processes, "_THERE", there)
    return there


def test_a_template_serves_while_nothing_has_changed(
    none_there: dict[bool, tuple[processes.Key, Template]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def now() -> Template:
        return processes.shared_template(idle, is_fresh=False)

    first = now()
    assert now() is first
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "elsewhere")
    assert now() is first
    fresh = processes.shared_template(idle, is_fresh=True)
    assert fresh is not first and now() is first
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        add_own_folder(Path("beside a study"))  # told to each worker, and searched last
        assert now() is first and sys.path[-1] == own_folders()[-1]
        assert processes.worker_environment()["PYTHONPATH"].endswith(sys.path[-1])
    seen = [first]
    with monkeypatch.context() as patch:
        patch.setenv("HF_HOME", "elsewhere")
        seen.append(now())
        patch.syspath_prepend("elsewhere")
        seen.append(now())
        patch.setattr("os.getpid", lambda: 1)  # as in a fork of this process
        seen.append(now())
        assert not seen[-2].is_over  # it is not ours
    assert len(set(seen)) == len(seen)
    assert first.process.wait(10) == 0  # it has left
    for one in (seen[-2], seen[-1], fresh):
        one.retire()


def test_a_template_that_dies_is_replaced(
    none_there: dict[bool, tuple[processes.Key, Template]],
) -> None:
    first = processes.shared_template(idle, is_fresh=False)
    asked = first.fork((0, 1, 2))
    first.kill()
    assert asked.wait(10) == -processes.END
    asked.kill()
    deadline = time.monotonic() + 10
    while not first.is_over:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert first.fork((0, 1, 2)).wait(0) == 1
    processes.shared_template(idle, is_fresh=False).retire()


def test_a_template_that_cannot_start_is_an_error_and_no_wait(
    none_there: dict[bool, tuple[processes.Key, Template]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> str:
        raise ParibusError("PARIBUS_CPU_KERNELS is 'fast'")

    monkeypatch.setattr(processes, "resolve", refused)
    with pytest.raises(ParibusError, match="'fast'"):
        start(lambda line: None)
    assert not none_there


def test_a_command_begins_it_before_the_first_worker_is_asked_for(
    none_there: dict[bool, tuple[processes.Key, Template]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_start_template", idle)
    for elsewhere in (Where(device="cuda"), Where(backend="cluster.py:Slurm")):
        elsewhere.warm_up()
    assert not none_there
    HERE.warm_up()
    deadline = time.monotonic() + 10
    while not none_there:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    begun = none_there[False][1]
    assert processes.worker_template(is_fresh=False) is begun
    begun.kill()


def test_a_command_that_trains_begins_it_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(processes, "warm_up", lambda: begun.append("begun"))
    monkeypatch.setattr("paribus.study.load_study", lambda *_, **__: begun.append("read"))
    monkeypatch.setattr("paribus.study.require_trust", lambda study: sys.exit(7))
    for words in (["run", "x"], ["run", "x", "--device", "cuda"], ["plan", "x"]):
        with pytest.raises(SystemExit):
            main(words)
    assert begun == ["begun", "read", "read", "read"]  # a GPU's workers are no forks of it


def test_a_command_has_little_to_import_before_that() -> None:
    code = (
        "import sys, paribus.cli.commands\n"
        "heavy = {'torch', 'scipy', 'pyarrow', 'pydantic', 'paribus.study', 'paribus.analysis'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_cannot_be_imported_is_told_by_the_worker(
    none_there: dict[bool, tuple[processes.Key, Template]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And so it is a new interpreter, which also serves where a fork would leave threads behind."""
    (tmp_path / "torch.py").write_text("raise ImportError('a torch of straw')\n")
    monkeypatch.syspath_prepend(tmp_path)
    worker = start(lambda line: None)
    assert worker.end() == End("exit code 1", "ImportError: a torch of straw")
    worker.close()
    none_there[False][1].retire()


def test_a_template_has_no_thread_that_a_fork_would_lose(small_study: Maker) -> None:
    worker = start(lambda line: None)
    worker.send("{}\n")
    worker.end()
    worker.close()
    process = processes._THERE[False][1].process
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    names = [(t / "comm").read_text().strip() for t in tasks if t.name != str(process.pid)]
    assert set(names) <= template.SAFE_THREADS
    # This process, which has threads of its own, would not be forked.
    assert not template._threads() <= template.SAFE_THREADS


def test_what_a_template_imports_later_leaves_it_safe_to_fork() -> None:
    """Only what it imports while its workers are busy; PyTorch is not imported for it here."""
    light = [module for module in template.LATER if not module.startswith("paribus")]
    assert light
    code = (
        "import sys\n"
        "from paribus.engine.execution.workers import template\n"
        f"for module in {light} + ['there_is.none']: template._import_later(module)\n"
        f"assert set({light}) <= sys.modules.keys()\n"
        "assert template._threads() <= template.SAFE_THREADS, template._threads()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_template_imports_later_while_its_workers_are_busy_and_nobody_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    woken, wake = os.pipe()
    waits: list[float | None] = []
    imported: list[str] = []

    def select(heard: list[object], _: object, __: object, wait: float | None) -> tuple[list, ...]:
        """A worker is asked for; nobody asks; then it leaves, and so does who asked."""
        waits.append(wait)
        if len(waits) > 1 and wait is not None:
            return [], [], []
        if len(waits) > 1:
            os.write(wake, b"x")
            ours.shutdown(socket.SHUT_WR)
        return heard if len(waits) > 1 else [theirs], [], []

    monkeypatch.setattr(template.select, "select", select)
    monkeypatch.setattr(template, "_import_later", imported.append)
    monkeypatch.setattr(template, "_threads", set)
    monkeypatch.setattr(template, "_start", lambda *_, **__: 1)
    monkeypatch.setattr(os, "waitpid", lambda pid, _: (pid, 0))
    monkeypatch.setattr("paribus.engine.execution.workers.lifetime.children", set)
    socket.send_fds(ours, [b'["."]'], [os.dup(woken) for _ in range(3)])
    template._serve(theirs, woken, is_warm=True)
    assert imported == [*template.LATER]
    assert waits == [None, template.IDLE_SECONDS, *[0.0] * (len(imported) - 1), None]


def test_global_generators_start_elsewhere() -> None:
    np.random.seed(0)
    first = np.random.random()
    np.random.seed(0)
    template._draw_anew()
    assert np.random.random() != first


def test_workers_die_with_whoever_asked_for_them(small_study: Maker, tmp_path: Path) -> None:
    """Though one is stopped, and hears of no end of input; and so does the template."""
    script = (
        "import os, signal, sys, threading, time\n"
        "from paribus.engine.execution.workers import processes\n"
        "from paribus.engine.execution.backends import find_backend\n"
        "said = threading.Event()\n"
        "workers = []\n"
        # Whoever asks may be a thread that ends.
        "begin = lambda: workers.append(find_backend('local').start(lambda line: said.set()))\n"
        "one = threading.Thread(target=begin); one.start(); one.join()\n"
        "workers[0].send(sys.argv[1])\n"
        "said.wait()\n"
        "pid = workers[0].process.forked.result()\n"
        "os.kill(pid, signal.SIGSTOP)\n"
        "print(pid, processes._THERE[False][1].process.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, hello(small_study(), tmp_path / "r")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    left = [int(number) for number in parent.stdout.readline().split()]
    assert len(left) == 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in left):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_dry_runs_before_tuning_are_shared_by_all_workers(
    small_study: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many as there are models to try: arms that differ in a rate alone are one."""
    asked: list[tuple[int | None, int]] = []

    def start(_pool: object, begins: Any, workers: int | None, _stack: object) -> None:
        asked.append((workers, begins.n_trials))
        raise ParibusError("enough")

    monkeypatch.setattr(import_module("paribus.engine.execution.crew"), "start", start)
    arms = {
        "baseline": {},
        "hot": {"set": {"training.optimizer.learning_rate": 1e-2}},
        "rotary": {"set": {"model.positions.kind": "rotary"}},
    }
    with pytest.raises(ParibusError, match="enough"):
        paribus.register(small_study(arms=arms), tmp_path / "r")
    assert asked == [(None, 2)]


def test_steps_and_reading_of_built_in_arms_are_two_tasks(small_study: Maker) -> None:
    """Own code is read with what its steps left, in the process that made them."""

    class NoWorkers:
        def work(self, tasks: list[Check], *_: object) -> None:
            asked.extend((task.arm, task.part) for task in tasks)

    asked: list[tuple[str, str]] = []
    own = {"set": {"model.modules.mlp": "ideas.py:Cheat"}}
    study, tried = small_study(arms={"baseline": {}, "own": own}), Tried()
    for _ in range(2):
        _check(cast(Pool, NoWorkers()), study, 1, tried)
    assert asked == [("baseline", "steps"), ("baseline", "reading"), ("own", "whole")]
