"""One file of a results folder damaged, and every verb that reads it: one line or a right answer.

In the ordinary suite a few damages of a folder without trained models; `-m torture` damages a
thousand times a study that was trained, and asks every reading verb each time. Verbs run in this
process, and so do the workers of `evaluate`: an exception of any kind but ours fails the test.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

import paribus
from paribus.cli import main
from paribus.engine.data import Dataset, load_dataset
from paribus.engine.execution.throughput import UNITS
from paribus.results import Results, ResultsFolder
from paribus.study import Study, parse_study

from ..conftest import small_text
from .fuzzing import damage_folder, told

FOLDERS = int(os.environ.get("PARIBUS_FOLDERS", "1000"))
FIRST = int(os.environ.get("PARIBUS_FIRST_FOLDER", "0"))
SLOWEST_SECONDS = 30.0  # of the processor, for one verb
# Drawing takes more than all other verbs together: asked of every so many folders.
REPORT_EVERY = int(os.environ.get("PARIBUS_REPORT_EVERY", "20"))
# Verbs with their options, where they have some.
CALLED = {"judged": ["report", "--no-page"], "followed": ["status", "--follow"]}
# In an order in which none is given what another one has repaired.
VERBS: dict[str, tuple[str, ...]] = {
    "status": ("{folder}",),
    "followed": ("{folder}",),
    "verify": ("{folder}",),
    "judged": ("{folder}",),
    "export": ("{folder}", "{out}/model", "--trial", "layernorm/seed-2"),
    "evaluate": ("{folder}", "--tasks", "next_word", "--fewshot", "0", "--items", "4"),
    "report": ("{folder}",),
}
FEW = ("status", "followed", "verify", "judged", "export")
# What a verb leaves that must be what it leaves of the undamaged folder.
ANSWERS: dict[str, tuple[str, ...]] = {
    "judged": ("analysis.json", "verdict.json"),
    "report": ("analysis.json", "verdict.json", "tables/*", "paper/*.csv", "report.html"),
    "evaluate": ("evaluations/*/*.parquet",),
    "export": ("../out/model/*",),
}
ROOT = re.compile(rb"\b[0-9a-f]{12,64}\b")  # page and card quote digests of registrations and seals


def digests(folder: Path, *patterns: str) -> dict[str, str]:
    """SHA-256 of files by path; digests that pages quote are left out."""
    found = {}
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                if path.suffix in (".html", ".md"):
                    content = ROOT.sub(b"", content)
                name = os.path.relpath(path, folder)
                found[name] = hashlib.sha256(content).hexdigest()
    return found


def outside(box: Path) -> dict[str, tuple[int, int]]:
    """What lies beside the damaged folder and where verbs may write: (size, time) by path."""
    names = ("damaged", "out")
    kept = [path for top in box.iterdir() if top.name not in names for path in (top, *_below(top))]
    stats = {str(path): path.lstat() for path in kept}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}


def _below(path: Path) -> Iterator[Path]:
    return (found for found in path.rglob("*") if found.is_file())


class Box:
    """A folder with `damaged`, a copy of `whole`, and what verbs leave."""

    def __init__(self, whole: Path, box: Path, verbs: tuple[str, ...]) -> None:
        self.whole, self.box, self.verbs = whole, box, verbs
        self.folder, self.out = box / "damaged", box / "out"
        self.other = shutil.copytree(whole, box / "other")
        self.seconds: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.fresh()
        self.codes = {verb: self.said(verb)[0] for verb in verbs}
        self.right = {verb: digests(self.folder, *ANSWERS.get(verb, ())) for verb in verbs}
        self.around = outside(box)

    def fresh(self) -> None:
        for path in (self.folder, self.out):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.whole, self.folder)
        self.out.mkdir()

    def said(self, verb: str) -> tuple[int, str]:
        """(exit code, what it said to errors)."""
        places = {"folder": self.folder, "out": self.out, "other": self.other}
        arguments = [argument.format(**places) for argument in VERBS[verb]]
        began = time.process_time()
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors:
            code = main([*CALLED.get(verb, [verb]), *arguments])
        seconds = time.process_time() - began
        self.seconds[verb] += seconds
        assert seconds < SLOWEST_SECONDS, (verb, seconds)
        return code, errors.getvalue()

    def meet(self, number: int) -> tuple[str, list[str]]:
        """Damage number `number`: what came of it, and which answers are others than before."""
        self.fresh()
        done, resealed = damage_folder(number, self.folder)
        codes, others = {}, []
        for verb in self.verbs:
            if verb == "report" and number % REPORT_EVERY:
                continue
            self.asked[verb] += 1
            try:
                codes[verb], said = self.said(verb)
            except Exception as error:
                words = f"{number} ({done}), {verb}: {type(error).__name__}: {error}"
                raise AssertionError(words) from error
            where = (number, done, verb, said)
            assert codes[verb] in (0, 2, 3), where
            assert codes[verb] != 2 or said.count("\n") == 1, where
            assert "Traceback" not in said, where
            if codes[verb] == 2:
                continue
            found = digests(self.folder, *ANSWERS.get(verb, ()))
            changed = [n for n, digest in self.right[verb].items() if found.get(n) != digest]
            others += [f"{verb}: {', '.join(changed)}"] if changed else []
        assert outside(self.box) == self.around, (number, done)
        told_by = "refused by some verb, in one line" if 2 in codes.values() else ""
        told_by = told_by or ("a finding of verify" if codes["verify"] == 3 else "")
        told_by = told_by or ("an arm that cannot be judged" if codes["judged"] == 3 else "")
        said = f"{number} {done}: {codes}"
        # Sealed again by intent; or INVALID, which names the trial that is missing.
        is_told = resealed or codes["judged"] == 3
        return told_by or "of no consequence", [] if is_told else [f"{said}: {o}" for o in others]


def may_differ(line: str) -> bool:
    """Of what no seal is over, or of a study whose own seals are gone: README.md here."""
    done = line.split(":")[0]
    return "timing.json" in done or done.split()[-1] == "manifest.json"


def damage(box: Box, numbers: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    silent = []
    for number in numbers:
        outcome, others = box.meet(number)
        counts[outcome] += 1
        silent += [line for line in others if not may_differ(line)]
        if number % 50 == 49:
            spent = {verb: round(seconds) for verb, seconds in box.seconds.items()}
            print(number + 1, dict(counts), spent, dict(box.asked), *silent, sep="\n", flush=True)
    assert not silent, "\n".join(silent)
    return counts


def test_damaged_folders(
    tmp_path: Path, small_study: Callable[..., Study], fabricate: Callable[..., Results]
) -> None:
    change = {"set": {"model.embedding.norm": "layernorm"}}
    study = small_study(arms={"baseline": {}, "layernorm": change}, seeds=[1, 2, 3])
    whole = fabricate(study, lambda arm, seed: 3 + seed / 50 + (arm != "baseline") * seed / 99).path
    rows = [(arm, seed, "training", 100, 1 + seed / 9, 8.0) for arm, seed in study.trials]
    columns = dict(zip(UNITS, map(np.array, zip(*rows, strict=True)), strict=True))
    ResultsFolder(whole).write_throughput(columns, UNITS)
    (tmp_path / "box").mkdir()
    box = Box(whole, tmp_path / "box", FEW)
    assert box.codes["judged"] == 0
    damage(box, range(15))


class InThisProcess:
    """What `evaluate` asks of a pool of workers, here."""

    def __init__(self, study: Study, results: Path, **_: Any) -> None:
        self._study, self._results = study, ResultsFolder(results)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def start_for(self, n_tasks: int, workers: int | None) -> None: ...

    def work(self, tasks: list[Any]) -> None:
        import torch

        from paribus.engine.execution.evaluate import answer_tasks

        for task in tasks:
            data = self._study.setting(task.arm).data
            dataset: Dataset = load_dataset(data, self._study.folder)
            answer_tasks(self._study, self._results, dataset, torch.device("cpu"), task)


@contextmanager
def workers_here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(import_module("paribus.engine.execution.evaluate"), "Pool", InThisProcess)
        yield


@pytest.mark.torture
def test_damaged_folders_of_a_trained_study(tmp_path: Path) -> None:
    """Every verb; all trials but one have answered already what `evaluate` asks."""
    (tmp_path / "text.txt").write_text(small_text(12_000), encoding="utf-8")
    table = {
        "name": "small",
        "seeds": [1, 2, 3, 4, 5],
        "data": {"corpus": "text", "path": "text.txt", "seq_len": 32},
        "model": {"n_layer": 1, "n_head": 2, "d_model": 16},
        "training": {"iterations": 10, "batch_size": 4},
        "stability": {"smoothing_steps": 2, "median_steps": 3, "spike_steps": 2},
        "tasks": {"items": 8, "shots": [0]},
        "arms": {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
    }
    whole = tmp_path / "whole"
    paribus.run(parse_study(table, folder=tmp_path), whole, workers=1, stack=5)
    (tmp_path / "box").mkdir()
    with workers_here():
        assert main(["evaluate", str(whole), *VERBS["evaluate"][1:]]) == 0
        (answered,) = (whole / "evaluations").iterdir()
        shutil.rmtree(random.Random(1).choice(sorted(answered.glob("trials/*/*"))))
        box = Box(whole, tmp_path / "box", tuple(VERBS))
        assert set(box.codes.values()) == {0}, box.codes
        counts = damage(box, range(FIRST, FIRST + FOLDERS))
    told("folders", counts)
