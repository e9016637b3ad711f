"""Whoever starts workers knows of a backend only what its protocol says."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.cli import main
from paribus.declared import declared
from paribus.engine.execution.backends import WORKER, Backend, End, Hear, Options, find_backend
from paribus.engine.execution.backends.local import Local, count_cores
from paribus.engine.execution.backends.protocol import BackendClass
from paribus.engine.execution.workers.messages import (
    Check,
    Findings,
    Hello,
    Ready,
    Refused,
    decode,
    encode,
)
from paribus.engine.execution.workers.pool import Pool
from paribus.errors import ParibusError
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
            self.hear(encode(Findings([f"{message.arm} is odd"])))

    def stop(self) -> None:
        self.hear(None)

    def close(self) -> None:
        self.is_open = False

    def end(self) -> End:
        return End("exit code 3", "no space left")


@pytest.fixture
def check(small_study: Callable[..., Study], tmp_path: Path) -> Callable[[Scripted], list[str]]:
    """Let the workers of a backend check every arm; what they warn of."""

    def make(backend: Backend) -> list[str]:
        study, warnings = small_study(arms=ARMS), list[str]()
        with Pool(study, tmp_path, device="auto", backend=backend) as pool:
            ready = pool.start_for(len(study.arms))
            assert (ready.device, len(pool.workers)) == ("cpu", 4)  # not six: there are four tasks
            pool.work(
                [Check(arm, 1) for arm in study.arms],
                lambda task, message: warnings.extend(message.lines),
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
    assert find_backend("local").name == "local"
    assert declared("paribus.engine.execution.backends", BackendClass).keys() == {
        "local",
        "ray",
        "slurm",
    }
    with pytest.raises(ParibusError, match=r"no backend 'locla': did you mean 'local'.*backends/"):
        find_backend("locla")


def test_what_local_starts_by_itself() -> None:
    local = Local(Options())
    assert local.default_workers("cpu", 1) == count_cores() >= 1
    assert local.default_workers("cuda", 4) == 4


def test_no_other_file_starts_processes() -> None:
    """Or asks what only holds on the machine of the one who starts them."""
    room = Path(paribus.engine.execution.__file__).parent
    found = {
        path.relative_to(room).as_posix()
        for path in room.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import)
        and {name.name for name in node.names} & {"subprocess", "multiprocessing", "shutil"}
    }
    assert found == {
        "backends/local.py",
        "backends/slurm.py",
        "jobs/folder.py",  # which removes a folder
        "trial/suite.py",  # which removes a folder
        "workers/processes.py",
        "workers/ranks.py",  # which starts the other ranks of a trial, on its worker's machine
    }


OWN = """
from paribus.engine.execution.backends import Backend, Options, backend

class Wanted(Options):
    partition: str
    nodes: int = 1

@backend("cluster", options=Wanted)
class Cluster(Backend):
    def start(self, hear):
        raise OSError(f"no partition {self.options.partition}")
    def default_workers(self, device, devices):
        return 1

@backend("unfinished")
class Unfinished(Backend):
    def default_workers(self, device, devices):
        return 1

@backend("mute")
class Mute(Unfinished):
    def start(self, hear):
        hear("hello" + chr(10))
        return self
    def send(self, line): pass
    def stop(self): pass
    def close(self): pass
    def end(self): pass

class Undeclared(Backend):
    pass

class NoBackend:
    pass
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a user's own backends, in the current folder."""
    monkeypatch.chdir(tmp_path)
    Path("cluster.py").write_text(OWN)
    return "cluster.py:"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("Clustr", {}, "no backend of that name: did you mean 'Cluster'"),
        ("Cluster", {}, "--backend-option of 'cluster.py:Cluster': 'partition' is missing"),
        ("Cluster", {"partition": "a", "node": 2}, "unknown key 'node': did you mean 'nodes'"),
        ("Cluster", {"partition": "a", "nodes": "x"}, "nodes = 'x' must be a whole number"),
        ("Unfinished", {}, "abstract method"),
        ("Undeclared", {}, "Undeclared is no backend: it must be a subclass of paribus"),
        ("NoBackend", {}, "NoBackend is no backend"),
    ],
)
def test_a_backend_that_is_none_is_told_in_one_line(
    own: str, name: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParibusError) as told:
        find_backend(own + name, options)
    assert f"--backend {own}{name}" in str(told.value) or "--backend-option" in str(told.value)
    assert words in str(told.value)


def test_what_is_wrong_in_a_file_is_said_of_the_file(own: str) -> None:
    for text, words in (
        ('kind = "slurm"\ntiem = 3', "unknown key 'tiem': did you mean 'time'"),
        ('kind = "slrum"', "there is no backend 'slrum': did you mean 'slurm'"),
        ('kind = "slurm', "not valid TOML"),
        ("time = 3", "it has no kind"),
    ):
        Path("t.toml").write_text(text)
        with pytest.raises(ParibusError) as told:
            find_backend("t.toml")
        assert "t.toml" in str(told.value) and words in str(told.value)
        assert "--backend-option" not in str(told.value) and "\n" not in str(told.value)


def test_what_an_own_backend_does_wrong_is_said_in_its_name(
    own: str, check: Callable[[Backend], list[str]]
) -> None:
    wrong = {
        "Cluster": "backend 'cluster': start failed: OSError: no partition a",
        "Mute": r"backend 'mute' heard what is no message of a worker: 'hello\n'",
    }
    for name, words in wrong.items():
        options = {"partition": "a"} if name == "Cluster" else {}
        with pytest.raises(ParibusError, match=re.escape(words)):
            check(find_backend(own + name, options))


def test_no_backend_is_taken_from_a_results_folder(own: str, tmp_path: Path) -> None:
    """Nor does a study name one: that would let a stranger's folder run code."""
    held = tmp_path / "theirs" / "sources"
    held.mkdir(parents=True)
    (tmp_path / "cluster.py").unlink()
    (held / "cluster.py").write_text("open('ran', 'w')")
    (held.parent / "study.json").write_text("{}")
    with pytest.raises(ParibusError, match=r"lies in the results folder .*theirs, which is data"):
        find_backend("theirs/sources/cluster.py:Cluster", {"partition": "a"})
    with pytest.raises(ParibusError, match=r"no file .*cluster\.py.*start at the current folder"):
        find_backend(own + "Cluster")
    assert not Path("ran").exists()


@pytest.mark.parametrize(
    "verb",
    [
        "plan quickstart",
        "register quickstart",
        "run quickstart",
        "run quickstart --null 2",
        "evaluate r",
        "verify r --trials",
    ],
)
def test_every_verb_that_starts_workers_takes_a_backend(
    verb: str, own: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb.split(), "--backend", f"{own}Cluster", "--backend-option", "nodes=2"]) == 2
    told = capsys.readouterr().err
    assert told.endswith("of 'cluster.py:Cluster': 'partition' is missing; it must be given\n")
    assert told.count("\n") == 1 or verb.startswith(("run", "register"))
    assert not Path("r").exists() and not Path("results").exists()


def test_the_backend_of_the_docs_starts_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_study: Callable[..., Study]
) -> None:
    """With an `ssh` that says what it was asked, and then what a worker of four GPUs says."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "cluster.md").read_text()
    monkeypatch.chdir(tmp_path)
    Path("pipes.py").write_text(page.split("```python\n# pipes.py\n")[1].split("```")[0])
    said = encode(Ready("cuda", 4, "bfloat16")).strip()
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho \"$@\" > asked\nread hello\necho '{said}'\ncat > /dev/null\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    pipes = find_backend("pipes.py:Pipes", {"host": "node1"})
    with Pool(small_study(), tmp_path, device="auto", backend=pipes) as pool:
        ready = pool.start_for(9)
        assert (ready.device, ready.devices, len(pool.workers)) == ("cuda", 4, 4)
    assert Path("asked").read_text() == " ".join(("node1", *WORKER)) + "\n"
