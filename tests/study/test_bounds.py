"""How large a study may be."""

import time
from pathlib import Path

import pytest

from paribus.errors import ParibusError
from paribus.study import load_study, parse_study


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("model.n_layer", 10**6, "must be less than or equal to 1000"),
        ("data.seq_len", 10**12, "must be less than or equal to 1048576"),
        ("training.iterations", 10**12, "must be less than or equal to 10000000"),
        ("training.tokens", 2048 * 10**8, "up to 200,000,000 steps; 10,000,000 are the most"),
        ("probes.every", {str(i): 1 for i in range(1001)}, "has 1,001 entries and may have 1,000"),
        ("seeds", list(range(100_001)), "has 100,001 entries and may have 100,000"),
        ("model.init.salt", int("9" * 4000), "must be less than or equal to 9223372036854775807"),
        ("training.optimizer.learning_rate", int("9" * 4000), "training.optimizer.learning_rate"),
        ("name", "x" * 300, "300 characters and may have 80"),
        ("a." * 50_000, 1, "unknown key 'a.a."),
    ],
)
def test_a_digit_too_many_is_refused_at_once(key, value, rule):
    began = time.monotonic()
    with pytest.raises(ParibusError) as caught:
        load_study("quickstart", {key: value})
    assert time.monotonic() - began < 1
    assert rule in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_arms_are_bounded_too():
    table = load_study("quickstart").model_dump()
    table["arms"] = {f"a{i}": {} for i in range(257)}
    with pytest.raises(ParibusError, match="arms has 257 entries and may have 256"):
        parse_study(table, folder=Path())
