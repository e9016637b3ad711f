"""One file of a results folder damaged, and every verb that reads it: one line or a right answer.

In the ordinary suite a few damages of a folder without trained models, and a thousand with
`-m torture`. Verbs run in this process: an exception of any kind but ours fails the test.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from paribus.cli import main
from paribus.engine.execution.throughput import UNITS
from paribus.files import file_digest
from paribus.results import ResultsFolder

from ..conftest import Fabricate, Maker
from .fuzzing import damage_folder

SLOWEST_SECONDS = 30.0  # of the processor, for one verb
# Verbs with their options, where they have some.
CALLED = {"judged": ["report", "--no-page"], "followed": ["status", "--follow"]}
# In an order in which none is given what another one has repaired.
VERBS: dict[str, tuple[str, ...]] = {
    "status": ("{folder}",),
    "followed": ("{folder}",),
    "verify": ("{folder}",),
    "judged": ("{folder}",),
    "export": ("{folder}", "{out}/model", "--trial", "layernorm/seed-2"),
}
# What a verb leaves that must be what it leaves of the undamaged folder.
ANSWERS: dict[str, tuple[str, ...]] = {
    "judged": ("analysis.json", "verdict.json"),
    "export": ("../out/model/*",),
}


def digests(folder: Path, *patterns: str) -> dict[str, str]:
    """SHA-256 of files by path."""
    found = {}
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            if path.is_file() and not path.is_symlink():
                found[os.path.relpath(path, folder)] = file_digest(path)
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

    def __init__(self, whole: Path, box: Path) -> None:
        self.whole, self.box = whole, box
        self.folder, self.out = box / "damaged", box / "out"
        shutil.copytree(whole, box / "other")
        self.fresh()
        self.codes = {verb: self.said(verb)[0] for verb in VERBS}
        self.right = {verb: digests(self.folder, *ANSWERS.get(verb, ())) for verb in VERBS}
        self.around = outside(box)

    def fresh(self) -> None:
        for path in (self.folder, self.out):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self.whole, self.folder)
        self.out.mkdir()

    def said(self, verb: str) -> tuple[int, str]:
        """(exit code, what it said to errors)."""
        places = {"folder": self.folder, "out": self.out}
        arguments = [argument.format(**places) for argument in VERBS[verb]]
        began = time.process_time()
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors:
            code = main([*CALLED.get(verb, [verb]), *arguments])
        assert time.process_time() - began < SLOWEST_SECONDS, verb
        return code, errors.getvalue()

    def meet(self, number: int) -> list[str]:
        """Make damage `number`, and return the answers that changed without a word."""
        self.fresh()
        done, resealed = damage_folder(number, self.folder)
        codes, others = {}, []
        for verb in VERBS:
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
        said = f"{number} {done}: {codes}"
        # Sealed again by intent; or INVALID, which names the trial that is missing.
        is_told = resealed or codes["judged"] == 3
        return [] if is_told else [f"{said}: {other}" for other in others]


def may_differ(line: str) -> bool:
    """Of what no seal is over, or of a study whose own seals are gone: README.md here."""
    done = line.split(":")[0]
    return "timing.json" in done or done.split()[-1] == "manifest.json"


@pytest.mark.parametrize("n", [15, pytest.param(1000, marks=pytest.mark.torture)])
def test_damaged_folders(n: int, tmp_path: Path, small_study: Maker, fabricate: Fabricate) -> None:
    change = {"set": {"model.embedding.norm": "layernorm"}}
    study = small_study(arms={"baseline": {}, "layernorm": change}, seeds=[1, 2, 3])
    whole = fabricate(study, lambda arm, seed: 3 + seed / 50 + (arm != "baseline") * seed / 99).path
    rows = [(arm, seed, "training", 100, 1 + seed / 9, 8.0) for arm, seed in study.trials]
    columns = dict(zip(UNITS, map(np.array, zip(*rows, strict=True)), strict=True))
    ResultsFolder(whole).write_throughput(columns, UNITS)
    (tmp_path / "box").mkdir()
    box = Box(whole, tmp_path / "box")
    assert box.codes["judged"] == 0
    silent = [line for number in range(n) for line in box.meet(number) if not may_differ(line)]
    assert not silent, "\n".join(silent)
