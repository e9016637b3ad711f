"""Damaged and fuzzed input: one line or a right answer; no traceback, hang or other number.

Reduced in the ordinary suite; whole with `pytest -m torture`. Counts are in docs/reliability.md.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest

from paribus.cli import main
from paribus.execution.turns import UNITS
from paribus.results import Results, ResultsFolder
from paribus.study import Study

from .fuzzing import counted, damage_folder, fuzzed_study, fuzzed_tokenizer

STUDIES, TOKENIZERS, FOLDERS = 100_000, 500, 1_000
SOME = {STUDIES: 500, TOKENIZERS: 25, FOLDERS: 15}
SLOWEST_SECONDS = 10.0  # of one input, on a busy machine
VERBS = ("status", "watch", "analyse", "decide", "verify", "compare")


def sizes(whole: int) -> pytest.MarkDecorator:
    """The whole suite, and a part of it that is always run."""
    return pytest.mark.parametrize(
        "n", [SOME[whole], pytest.param(whole, marks=pytest.mark.torture)]
    )


def told(name: str, counts: dict[str, int]) -> None:
    """Leave the counts where the environment asks for them."""
    if where := os.environ.get("PARIBUS_TORTURE_COUNTS"):
        with Path(where).open("a") as file:
            file.write(f"{name}: {json.dumps(counts)}\n")


@sizes(STUDIES)
def test_fuzzed_studies(n: int) -> None:
    def outcome(number: int) -> str:
        began = time.monotonic()
        try:
            found = fuzzed_study(number)
        except Exception as error:
            raise AssertionError(f"study {number}: {type(error).__name__}: {error}") from error
        assert time.monotonic() - began < SLOWEST_SECONDS, number
        return found

    counts = counted(map(outcome, range(n)))
    assert counts.keys() == {"read", "refused"}
    told("studies", counts)


@sizes(TOKENIZERS)
def test_fuzzed_tokenizers(n: int, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=280, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"]
    )
    trained.train_from_iterator(["the quick brown fox jumps over the lazy dog"] * 9, trainer)
    original = trained.to_str().encode()

    def outcome(number: int) -> str:
        began = time.monotonic()
        try:
            found = fuzzed_tokenizer(number, original, tmp_path / "t.json")
        except BaseException as error:
            raise AssertionError(f"tokenizer {number}: {type(error).__name__}: {error}") from error
        assert time.monotonic() - began < SLOWEST_SECONDS, number
        return found

    counts = counted(map(outcome, range(n)))
    assert counts.keys() == {"read", "refused"}
    told("tokenizers", counts)


@sizes(FOLDERS)
def test_damaged_folders(
    n: int,
    tmp_path: Path,
    small_study: Callable[..., Study],
    fabricate: Callable[..., Results],
) -> None:
    change = {"set": {"model.embedding.norm": "layernorm"}}
    study = small_study(arms={"baseline": {}, "layernorm": change}, seeds=[1, 2, 3])
    whole = fabricate(study, lambda arm, seed: 3 + seed / 50 + (arm != "baseline") * seed / 99).path
    rows = [(arm, seed, "training", 100, 1 + seed / 9) for arm, seed in study.trials]
    columns = dict(zip(UNITS, map(np.array, zip(*rows, strict=True)), strict=True))
    ResultsFolder(whole).write_throughput(columns, UNITS)
    (whole / "data.json").write_text('{"token_classes": {"corpus": {"alphabetic": 3}}}')
    assert said("decide", whole, whole) == 0
    right = (whole / "verdict.json").read_bytes()
    other = shutil.copytree(whole, tmp_path / "other")
    said("compare", whole, other)  # the first page takes seconds to prepare

    def outcome(number: int) -> str:
        folder = shutil.copytree(whole, tmp_path / "damaged")
        done, resealed = damage_folder(number, folder)
        codes = {}
        for verb in VERBS:
            began = time.monotonic()
            try:
                codes[verb] = said(verb, folder, other)
            except Exception as error:
                words = f"{number} ({done}), {verb}: {type(error).__name__}: {error}"
                raise AssertionError(words) from error
            assert time.monotonic() - began < SLOWEST_SECONDS, (number, done, verb)
            assert codes[verb] in (0, 1, 2, 3), (number, done, verb, codes)
        # Nothing silent: another verdict only where somebody sealed it so, or of what no seal is
        # over (a study that is not timed in turn is judged by the time of its training).
        unsealed = "timing.json" in done or done.split()[1] == "manifest.json"
        if codes["decide"] == 0 and not resealed and not unsealed:
            assert (folder / "verdict.json").read_bytes() == right, (number, done)
        shutil.rmtree(folder)
        if 2 in codes.values():
            return "refused by some verb, in one line"
        return "a finding of verify" if codes["verify"] == 3 else "of no consequence"

    told("folders", counted(map(outcome, range(n))))


def said(verb: str, folder: Path, other: Path) -> int:
    """The exit code of a verb; what it says to errors is one line."""
    out = folder.parent / "compare.html"
    more = ["--output", str(out), str(other)] if verb == "compare" else []
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()) as errors:
        code = main([verb, *more, str(folder)])
    assert code != 2 or errors.getvalue().count("\n") == 1, errors.getvalue()
    return code
