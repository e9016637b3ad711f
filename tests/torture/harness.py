"""Commands that are killed, and what they must leave behind."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics

from paribus.engine.execution.trial.checkpoints import begun_stacks

CHARACTERS = 150_000  # of English, so that tasks can be made of it
COMMANDS = Path(__file__).with_name("commands.py")
STUDY = """
name = "small"
seeds = [1, 2]
data = {corpus = "text", path = TEXT, seq_len = 64}
model = {n_layer = 1, n_head = 2, d_model = 16}
training = {iterations = 12, batch_size = 4, dropout = 0.1}
stability = {smoothing_steps = 2, median_steps = 3, spike_steps = 2}
tasks = {names = []}
[arms.baseline]
[arms.layernorm]
set."model.embedding.norm" = "layernorm"
"""
ORPHAN_SECONDS = 10  # a busy machine takes its time to reap

# What each verb writes that is the same whenever it is written from the same records.
RECORDS = ("trials/", "tasks/", "study.json", "data.json", "registration.json")
WRITES = {
    "run": RECORDS,
    "register": RECORDS,
    "evaluate": ("evaluations/",),
    "report": ("report.html", "report.pdf", "tables/", "analysis.json", "verdict.json"),
    "export": ("out/",),
}
ARGUMENTS = {
    "run": ("run", "study.toml", "--results", "r", "--workers", "1", "--device", "cpu"),
    "register": ("register", "study.toml", "--results", "r", "--device", "cpu"),
    "evaluate": ("evaluate", "r", "--fewshot", "0", "--items", "4"),
    "report": ("report", "r"),
    "export": ("export", "r", "out", "--trial", "layernorm/seed-2"),
}


def new_study(folder: Path, text: Path, study: str = STUDY) -> Path:
    """A folder with the study and nothing else; its text lies elsewhere, once for all."""
    if not text.exists():
        text.write_text("\n\n".join(topics.values())[:CHARACTERS], encoding="utf-8")
    folder.mkdir(parents=True)
    (folder / "study.toml").write_text(study.replace("TEXT", json.dumps(str(text))))
    return folder


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The command line in `folder`, in a session of its own so that orphans can be told."""
    return subprocess.Popen(
        [sys.executable, str(COMMANDS), *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(folder: Path, *arguments: str) -> tuple[int, str]:
    """(exit code, what it said on standard error) of a command that nobody disturbs."""
    process = start(folder, *arguments)
    _, said = process.communicate(timeout=600)
    return process.returncode, said


def written(folder: Path, verb: str) -> dict[str, bytes]:
    """{path: content} of what must be the same as in an undisturbed run."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix().removeprefix("r/")
        if name.startswith(WRITES[verb]) and path.name != "timing.json":
            found[name] = path.read_bytes()
    if content := found.get("registration.json"):
        known = json.loads(content)
        del known["registered_at"]
        found["registration.json"] = json.dumps(known).encode()
    return found


def litter(folder: Path) -> list[str]:
    """Files that are there only while something is under way."""
    return [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.name.startswith(".") or path.name == "checkpoints"
    ]


def alive(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def kill_and_go_on(
    folder: Path, verb: str, reference: Undisturbed, kills: int, rng: random.Random
) -> int:
    """Kill `verb` in `folder` at random moments, `kills` times; then let it end.

    Only the command is killed, by SIGKILL; its workers have to notice. Returns the kills made.
    """
    made = 0
    for _ in range(kills):
        process = start(folder, *ARGUMENTS[verb], *_stack(folder, verb, rng))
        try:
            _, said = process.communicate(timeout=rng.uniform(0.02, reference.seconds[verb]))
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            made += 1
        else:
            assert process.returncode == 0, said
        _require_quiet(said)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while left := alive(process.pid):
            assert time.monotonic() < deadline, f"orphans after a killed {verb}: {left}"
            time.sleep(0.05)
        if verb == "export" and (folder / "out").exists():
            # Whole before it could be killed; no export is written to what has something in it.
            return made
    code, said = finish(folder, *ARGUMENTS[verb], *_stack(folder, verb, rng))
    assert code == 0, said
    _require_quiet(said)
    return made


def _require_quiet(said: str) -> None:
    """No kill damages a checkpoint: what was begun is gone on with, not started again."""
    assert "cannot be used" not in said and "Traceback" not in said, said


def _stack(folder: Path, verb: str, rng: random.Random) -> Sequence[str]:
    """Two side by side; where something is begun, any other number must not matter."""
    if verb != "run":
        return ()
    results = folder / "r"
    begun = bool(begun_stacks(results)) or any(results.glob("trials/*/*/manifest.json"))
    return ("--stack", rng.choice(["1", "2", "2", "3"]) if begun else "2")


@dataclass(frozen=True)
class Undisturbed:
    """What every verb leaves when nothing happens to it, and how long it takes."""

    folder: Path
    text: Path
    writes: dict[str, dict[str, bytes]]
    seconds: dict[str, float]

    def copy_for(self, verb: str, folder: Path) -> Path:
        """A folder in which `verb` has its work still to do."""
        if verb in ("run", "register"):
            return new_study(folder, self.text)
        shutil.copytree(self.folder, folder)
        for path in _paths(folder, verb):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return folder


def _paths(folder: Path, verb: str) -> Iterator[Path]:
    for name in WRITES[verb]:
        path = folder / name if verb == "export" else folder / "r" / name
        if path.exists():
            yield path


def undisturbed(folder: Path, verbs: Sequence[str]) -> Undisturbed:
    """Every verb once, in one folder; what finds its work done there in one of its own."""
    text = folder.with_name("text.txt")
    whole = Undisturbed(folder, text, {}, {})
    whole.copy_for("run", folder)
    for verb in verbs:
        at = whole.copy_for(verb, folder.with_name("alone")) if verb == "register" else folder
        began = time.monotonic()
        code, said = finish(at, *ARGUMENTS[verb], *(("--stack", "2") if verb == "run" else ()))
        assert code == 0, said
        whole.seconds[verb] = time.monotonic() - began
        whole.writes[verb] = written(at, verb)
        assert whole.writes[verb] and not litter(at), litter(at)
    return whole
