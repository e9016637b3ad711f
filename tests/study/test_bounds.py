"""How large a study may be."""

import time
from pathlib import Path

import pytest

from paribus.errors import ParibusError
from paribus.study import load_study, parse_study

from ..tools import refused


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("model.n_layer", 10**6, "to 1000"),
        ("data.seq_len", 10**12, "1048576"),
        ("training.iterations", 10**12, "10000000"),
        ("training.tokens", 2048 * 10**8, "200,000,000"),
        ("seeds", list(range(100_001)), "at most 100000 items"),
        ("model.init.salt", int("9" * 4000), "9223372036854775807"),
        ("training.optimizer.learning_rate", int("9" * 4000), "training.optimizer.learning_rate"),
        ("name", "x" * 300, "at most 60 characters"),
        ("a." * 50_000, 1, "key 'a'"),
        ("training" + 50_000 * ".a", 1, "'training.a'"),
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
    with refused("value", match="at most 256 items"):
        parse_study(table, folder=Path())
