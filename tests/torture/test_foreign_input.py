"""Fuzzed input: one line or a right answer; no traceback, hang or other number.

Reduced in the ordinary suite; whole with `pytest -m torture`. Counts are in README.md here.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .fuzzing import counted, fuzzed_study, fuzzed_tokenizer

STUDIES, TOKENIZERS = 100_000, 500
SOME = {STUDIES: 500, TOKENIZERS: 25}
SLOWEST_SECONDS = 10.0  # of one input, on a busy machine


def sizes(whole: int) -> pytest.MarkDecorator:
    """The whole suite, and a part of it that is always run."""
    return pytest.mark.parametrize(
        "n", [SOME[whole], pytest.param(whole, marks=pytest.mark.torture)]
    )


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
