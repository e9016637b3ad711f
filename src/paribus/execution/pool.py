"""Worker processes, seen from the one who starts them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from queue import Queue
from typing import Any, Literal, Self

from paribus.errors import ParibusError
from paribus.metric import Metric, from_records
from paribus.study import Setting, Study, own_parts, require_trust

Device = Literal["auto", "cpu", "cuda", "mps"]
Message = dict[str, Any]

# -P: the current folder may be somebody else's; it is searched only where ours has it.
COMMAND = (sys.executable, "-P", "-m", "paribus.execution.launch")
LEAVE_SECONDS = 30  # a worker that was asked to stop finishes its step and writes a checkpoint


class Worker:
    """One worker process and the thread that listens to it.

    Its messages arrive in `inbox` as (worker, message); the message None says that it has left.
    `code` is what custom code it has loaded (see `code_of`); from then on it serves these alone.
    """

    def __init__(self, hello: Message, inbox: Queue[tuple[Worker, Message | None]]) -> None:
        self.number: int = hello["number"]
        self.code = ""
        # Its own words (warnings, a crash of the interpreter) are kept for the case of a failure.
        self._stderr = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self.process = subprocess.Popen(
            [*COMMAND, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            env=os.environ
            | {
                "OMP_NUM_THREADS": "1",
                # Needed for deterministic matrix products on CUDA.
                "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
                # The worker imports what this process imports, installed or not.
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            },
        )
        self.send(hello)
        self._listener = threading.Thread(target=self._listen, args=(inbox,), daemon=True)
        self._listener.start()

    def send(self, message: Message) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # if it has died, its end of output tells
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def stop(self) -> None:
        """Ask it to write a checkpoint and leave: its input ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def close(self) -> None:
        """Wait until it has left; kill it if it does not."""
        try:
            self.process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._listener.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()

    def died(self, doing: str) -> ParibusError:
        """What to tell the user of a worker that left in the middle of something."""
        code = self.process.wait()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        hint = " (out of memory? use fewer --workers)" if code == -9 else ""
        self._stderr.seek(0)
        words = [line.strip() for line in self._stderr if line.strip()]
        last = f": {words[-1]}" if words else ""
        return ParibusError(
            f"a worker died with {how}{hint} {doing}{last}; finished trials are kept: run again to "
            "continue"
        )

    def _listen(self, inbox: Queue[tuple[Worker, Message | None]]) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                inbox.put((self, json.loads(line)))
        except json.JSONDecodeError:
            pass  # it died in the middle of a line
        finally:
            inbox.put((self, None))


class Pool:
    """Workers for one study. As a context manager it leaves no worker behind, whatever happens.

    `run` is what the lock of the results folder gave: workers write there only while it is held.
    """

    def __init__(
        self,
        study: Study,
        results: Path,
        *,
        device: Device,
        checkpoint_seconds: float,
        eager: bool = False,
        run: str | None = None,
    ) -> None:
        require_trust(study)  # all code of a study runs in workers
        self.device = device
        self.study = study
        self.workers: list[Worker] = []
        self.at_once = 0  # so many work at the same time; others are idle
        self._gone: list[Worker] = []
        self._inbox: Queue[tuple[Worker, Message | None]] = Queue()
        self._unread: deque[tuple[Worker, Message | None]] = deque()
        self._hello = {
            "study": study.model_dump(mode="json"),
            "folder": str(study.folder),
            "results": str(results),
            "device": device,
            "checkpoint_seconds": checkpoint_seconds,
            "eager": eager,
            "run": run,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for worker in self.workers:
            worker.stop()
        for worker in (*self.workers, *self._gone):
            worker.close()

    def start(self, number: int | None = None) -> Worker:
        """One more worker; its first message will be "ready".

        `number` says which GPU it takes, in the place of an idle one; without it one more works at
        the same time.
        """
        if number is None:
            number, self.at_once = self.at_once, self.at_once + 1
        worker = Worker(self._hello | {"number": number}, self._inbox)
        self.workers.append(worker)
        return worker

    def worker_for(
        self, setting: Setting, busy: Collection[Worker] = (), *, is_fresh: bool = False
    ) -> Worker:
        """An idle worker that has loaded the custom code of `setting`, or none at all.

        One is started where there is none: an arm's own code never shares a process with an arm
        that does not declare it. GPUs that a busy worker has are left to it. Where `is_fresh` is
        asked for, no worker that has run own code is taken: those of the same code leave.
        """
        code, taken = code_of(setting), {worker.number for worker in busy}
        idle = [w for w in self.workers if w not in busy and w.number not in taken]
        if code and is_fresh:
            for worker in [w for w in idle if w.code == code]:
                self._retire(worker)
                idle.remove(worker)
        found = next((w for w in idle if w.code == code), None)
        found = found or next((w for w in idle if not w.code), None)
        if found is None:
            found = self.start(next(n for n in itertools.count() if n not in taken))
        found.code = code
        return found

    def ask(self, worker: Worker, message: Message, event: str, doing: str) -> Message:
        """Send `message`, and return the answer of the kind `event`; others are passed."""
        worker.send(message)
        return self._await(worker, event, doing)

    def metrics(self, worker: Worker) -> dict[str, Metric]:
        """What the study compares, as its code declares it; `worker` is asked.

        Raises ParibusError for an endpoint that nothing declares, or that cannot be one.
        """
        answer = self.ask(worker, {"do": "declare"}, "declared", "while endpoints were looked up")
        return from_records(answer["metrics"], "endpoints")

    def work_on(self, study: Study) -> None:
        """Let every worker, present and future, work on `study` from its next task on."""
        self.study = study
        self._hello["study"] = study.model_dump(mode="json")
        for worker in self.workers:
            worker.send({"do": "adopt", "study": self._hello["study"]})

    def receive(self) -> tuple[Worker, Message | None]:
        """The next message of anyone; None if that worker has left.

        Raises ParibusError where a worker says that something is wrong.
        """
        return self._unread.popleft() if self._unread else self._arriving()

    def ask_at_once(
        self, setting: Setting, message: Message, event: str, n_workers: int, doing: str
    ) -> list[Message]:
        """The answers of so many workers that are asked at the same time."""
        asked: list[Worker] = []
        for _ in range(n_workers):
            asked.append(self.worker_for(setting, asked))
        for worker in asked:
            worker.send(message)
        return [self._await(worker, event, doing) for worker in asked]

    def ask_fresh(
        self, messages: Sequence[Message], event: str, doing: Callable[[Message], str]
    ) -> list[Message]:
        """The answers of processes that have done nothing before, one for each message.

        `at_once` of them work at the same time, and each leaves after its answer.
        """
        for worker in self.workers:
            worker.send({"do": "rest"})
        answers = []
        for first in range(0, len(messages), self.at_once):
            asked = list(enumerate(messages[first : first + self.at_once]))
            workers = [self.start(number) for number, _ in asked]
            for worker, (_, message) in zip(workers, asked, strict=True):
                worker.send(message)
            for worker, (_, message) in zip(workers, asked, strict=True):
                answers.append(self._await(worker, event, doing(message)))
                self._retire(worker)
        return answers

    def answer(self, worker: Worker, doing: str = "at the start") -> Message:
        """The next message of this worker; those of others stay unread."""
        unread = next((one for one in self._unread if one[0] is worker), None)
        if unread is not None:
            self._unread.remove(unread)
        while unread is None:
            sender, message = self._arriving()
            if message is None:
                raise sender.died(doing)
            if sender is worker:
                unread = (sender, message)
            else:
                self._unread.append((sender, message))
        assert unread[1] is not None  # the last word of a worker is never left unread here
        return unread[1]

    def work(
        self,
        tasks: Iterable[Message],
        doing: Callable[[Message], str],
        hear: Callable[[Message, Message], None] = lambda task, message: None,
    ) -> None:
        """Do `tasks` in their order, `at_once` of them at the same time; then all are idle.

        Args:
            tasks: each of one arm, or of "trials" of one model: the first's setting says which
                custom modules it needs, and so which worker may do it.
            doing: words for a task, should its worker die ("on baseline/seed-1").
            hear: hears of the task and each message on it, "finished" before the next is given.

        Raises ParibusError where a worker dies in the middle of a task or says that something is
        wrong.
        """
        waiting, busy = deque(tasks), dict[Worker, Message]()
        while waiting or busy:
            while waiting and len(busy) < self.at_once:
                task = waiting.popleft()
                arm = task["arm"] if "arm" in task else task["trials"][0][0]
                # Own code could carry something from trial to trial in its process.
                is_fresh = task["do"] == "train"
                worker = self.worker_for(self.study.setting(arm), busy, is_fresh=is_fresh)
                busy[worker] = task
                worker.send(task)
            worker, message = self.receive()
            if message is None:
                if worker in self.workers:
                    self._gone.append(worker)
                    self.workers.remove(worker)
                if worker in busy:
                    raise worker.died(doing(busy[worker]))
            elif message["event"] != "ready":
                hear(busy[worker], message)
                if message["event"] == "finished":
                    del busy[worker]

    def _retire(self, worker: Worker) -> None:
        """Let an idle worker leave, and wait for its last word."""
        worker.stop()
        self.workers.remove(worker)
        self._gone.append(worker)
        while (arrived := self._arriving()) != (worker, None):
            if arrived[0] is not worker:
                self._unread.append(arrived)

    def _await(self, worker: Worker, event: str, doing: str) -> Message:
        while (answer := self.answer(worker, doing))["event"] != event:
            pass
        return answer

    def _arriving(self) -> tuple[Worker, Message | None]:
        sender, message = self._inbox.get()
        if message is not None and message["event"] == "refused":
            raise ParibusError(message["message"])
        if message is not None and message["event"] == "failed":
            error = ParibusError(
                f"a worker failed: {message['message']}; finished trials are kept. This is a "
                "defect of paribus or of an own module; PARIBUS_TRACEBACK=1 shows where"
            )
            if os.environ.get("PARIBUS_TRACEBACK"):
                error.add_note(message["trace"])
            raise error
        return sender, message


def code_of(setting: Setting) -> str:
    """The custom code of a setting, as what tells processes apart; empty where it has none."""
    return " ".join(own_parts(setting))


def default_workers(device: str, devices: int = 1) -> int:
    """Worker processes where the user names none: one per core of a CPU, and one per GPU."""
    if device != "cpu":
        return devices
    affinity = getattr(os, "sched_getaffinity", None)  # cores this process may use
    return len(affinity(0)) if affinity else os.cpu_count() or 1
