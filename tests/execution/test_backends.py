"""Whoever starts workers knows of a backend only what its protocol says."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path

import pytest

import paribus
from paribus.declared import declared
from paribus.errors import ParibusError
from paribus.execution.backends import Backend, End, Hear, find_backend
from paribus.execution.backends.local import Local, count_cores
from paribus.execution.messages import Check, Checked, Hello, Ready, Refused, decode, encode
from paribus.execution.pool import Pool
from paribus.study import Study

ARMS = {"baseline": {}} | {
    name: {"set": {"model.embedding.norm": norm}}
    for name, norm in {"b": "layernorm", "c": "rmsnorm", "d": "center"}.items()
}


class Scripted(Backend):
    """Workers that are no processes: each answers at once, and dies at the arm `fatal`."""

    name = "scripted"

    def __init__(self, fatal: str = "", refused: str = "") -> None:
        self.fatal, self.refused = fatal, refused
        self.started: list[ScriptedProcess] = []

    def start(self, hear: Hear) -> ScriptedProcess:
        self.started.append(ScriptedProcess(self, hear))
        return self.started[-1]

    def default_workers(self, device: str, devices: int) -> int:
        return 3 * devices

    def is_surely_cpu(self, device: str) -> bool:
        return False


class ScriptedProcess:
    def __init__(self, backend: Scripted, hear: Hear) -> None:
        self.backend, self.hear = backend, hear
        self.done: list[str] = []
        self.is_open = True

    def send(self, line: str) -> None:
        message = decode(line)
        if isinstance(message, Hello):
            self.hear(encode(Ready("cpu", 2, "float32")))
        elif message.arm == self.backend.fatal:
            self.hear('{"message": "Chec')  # in the middle of a line
            self.hear(None)
        elif message.arm == self.backend.refused:
            self.hear(encode(Refused("the text is gone")))
        else:
            self.done.append(message.arm)
            self.hear(encode(Checked([f"{message.arm} is odd"])))

    def stop(self) -> None:
        self.hear(None)

    def close(self) -> None:
        self.is_open = False

    def end(self) -> End:
        return End("exit code 3", "no space left")


@pytest.fixture
def check(small_study: Callable[..., Study], tmp_path: Path) -> Callable[[Scripted], list[str]]:
    """Let the workers of a backend check every arm; what they warn of."""

    def make(backend: Scripted) -> list[str]:
        study, warnings = small_study(arms=ARMS), list[str]()
        with Pool(study, tmp_path, device="auto", backend=backend) as pool:
            ready = pool.start_for(len(study.arms))
            assert (ready.device, len(pool.workers)) == ("cpu", 4)  # not six: there are four tasks
            pool.work(
                [Check(arm, 1) for arm in study.arms],
                lambda task: f"in the dry run of arm '{task.arm}'",
                lambda task, message: warnings.extend(message.warnings),
            )
        return warnings

    return make


def test_work_goes_wherever_workers_are(check: Callable[[Scripted], list[str]]) -> None:
    backend = Scripted()
    assert sorted(check(backend)) == sorted(f"{arm} is odd" for arm in ARMS)
    assert sorted(arm for one in backend.started for arm in one.done) == sorted(ARMS)
    assert not any(one.is_open for one in backend.started)


def test_a_worker_that_dies_is_told_in_its_own_words(
    check: Callable[[Scripted], list[str]],
) -> None:
    backend = Scripted(fatal="c")
    with pytest.raises(ParibusError) as caught:
        check(backend)
    assert str(caught.value) == (
        "a worker died with exit code 3 in the dry run of arm 'c': no space left; finished trials "
        "are kept: run again to continue"
    )
    assert not any(one.is_open for one in backend.started)
    with pytest.raises(ParibusError, match="the text is gone"):
        check(Scripted(refused="b"))


def test_backends_are_found_by_name() -> None:
    assert isinstance(find_backend("local"), Local)
    assert declared("paribus.execution.backends", Backend).keys() == {"local"}
    with pytest.raises(ParibusError, match=r"no backend 'locla': did you mean 'local'.*backends/"):
        find_backend("locla")


def test_what_local_starts_by_itself() -> None:
    local = Local()
    assert local.default_workers("cpu", 1) == count_cores() >= 1
    assert local.default_workers("cuda", 4) == 4
    assert local.is_surely_cpu("cpu") and not local.is_surely_cpu("cuda")


def test_no_other_file_starts_processes() -> None:
    """Or asks what only holds on the machine of the one who starts them."""
    room = Path(paribus.execution.__file__).parent
    found = {
        path.relative_to(room).as_posix()
        for path in room.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        and {name.name for name in node.names} & {"subprocess", "multiprocessing", "shutil"}
    }
    assert found == {"backends/local.py", "suite.py"}  # the latter removes a folder
