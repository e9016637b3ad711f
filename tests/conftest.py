"""Fixtures that many tests share: a small study on a small text, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paribus.data import Dataset, load_dataset
from paribus.study import Study, parse_study
from paribus.study.study import override

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "a",
    "lazy",
    "dog",
    "mixing",
    "bold",
    "ink",
]


def small_text(n_words: int = 2000) -> str:
    """Text with some structure: words in an order that a linear congruence decides."""
    state, words = 1, []
    for i in range(n_words):
        state = (1103515245 * state + 12345) % 2**31
        words.append(WORDS[state // 65536 % len(WORDS)] + (".\n" if i % 11 == 10 else " "))
    return "".join(words)


SMALL: dict[str, Any] = {
    "name": "small",
    "seeds": [1, 2],
    "data": {"corpus": "text", "path": "text.txt", "seq_len": 16},
    "model": {"n_layer": 2, "n_head": 2, "d_model": 16},
    "training": {"iterations": 8, "batch_size": 4},
    "stability": {"smoothing_steps": 2, "median_steps": 3, "spike_steps": 2},
    "arms": {
        "baseline": {},
        "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
        "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}},
    },
}


@pytest.fixture
def small_study(tmp_path: Path) -> Callable[..., Study]:
    """`small_study({"training.iterations": 3}, arms=...)`: SMALL with overrides, in `tmp_path`."""
    (tmp_path / "text.txt").write_text(small_text(), encoding="utf-8")

    def make(overrides: dict[str, Any] | None = None, **tables: Any) -> Study:
        table = parse_study(SMALL | tables, folder=tmp_path).model_dump()
        for key, value in (overrides or {}).items():
            override(table, key, value)
        return parse_study(table, folder=tmp_path)

    return make


@pytest.fixture
def small_dataset(small_study: Callable[..., Study]) -> Dataset:
    study = small_study()
    return load_dataset(study.data, study.folder)
