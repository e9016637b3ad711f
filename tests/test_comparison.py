"""What counts as equal on another machine: discrete values exactly, numbers up to rounding."""

import copy
import math
from typing import Any

import pytest

from paribus.comparison import agree, differences

CONTRAST: dict[str, Any] = {
    "arm": "layernorm",
    "seeds": [1, 2, 3],
    "holm_p": 0.0123456,
    "why_not": "",
    "paired": {"mean": 0.0312345, "sd": 0.02, "n": 3, "correlation": 0.5},
    "decided": {"test": "paired_t", "interval": {"low": 1e-13, "high": 0.06}},
    "tested": True,
}
MISSING = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(CONTRAST)
    *tables, key = path.split(".")
    node = whole
    for table in tables:
        node = node[table]
    node[key] = value
    if value is MISSING:
        del node[key]
    return whole


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("arm", "rmsnorm"),
        ("seeds", [1, 2]),
        ("paired.n", 4),
        ("paired.n", -(10**400)),
        ("tested", 1),  # JSON's true is not a number
        ("tested", MISSING),
        ("holm_p", None),
        ("decided.test", "welch_t"),
        ("paired.mean", 0.0312346),  # the sixth digit, which could be printed
        ("paired.mean", math.nan),
        ("paired.mean", math.inf),
        ("paired.mean", 10**400),
        ("paired.mean", "1"),
        ("holm_p", 0.01234561),
        ("decided.interval.low", 2e-9),
    ],
)
def test_what_a_reader_could_see_is_found(path, value):
    assert next(differences(CONTRAST, changed(path, value))).startswith(path)
    assert next(differences(changed(path, value), CONTRAST)).startswith(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("paired.mean", 0.0312345 * (1 + 2.6e-13)),  # the most that kept studies differ by
        ("paired.correlation", 0.5 + 4e-10),
        ("decided.interval.low", -1e-13),
    ],
)
def test_rounding_is_not(path, value):
    assert agree(CONTRAST, changed(path, value))


def test_ignored_keys_are_not_compared():
    assert not list(differences(changed("why_not", "one seed is missing"), CONTRAST, {"why_not"}))
