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
    "paired": {"mean": 0.0312345, "sd": 0.02, "n": 3, "correlation": 0.5, "d_z": 1.5},
    "decided": {"test": "paired_t", "interval": {"low": 1e-13, "high": 0.06}},
    "tested": True,
}


def changed(path: str, value: Any) -> dict[str, Any]:
    whole = copy.deepcopy(CONTRAST)
    *tables, key = path.split(".")
    node = whole
    for table in tables:
        node = node[table]
    node[key] = value
    return whole


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("arm", "rmsnorm"),
        ("seeds", [1, 2]),
        ("paired.n", 4),
        ("tested", 1),  # JSON's true is not a number
        ("holm_p", None),
        ("decided.test", "welch_t"),
        ("paired.mean", 0.0312346),  # the sixth digit, which could be printed
        ("paired.mean", math.nan),
        ("holm_p", 0.01234561),
        ("decided.interval.low", 1e-9),  # beside an SD of 0.02
    ],
)
def test_what_a_reader_could_see_is_found(path, value):
    assert next(differences(CONTRAST, changed(path, value))).startswith(path)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("paired.mean", 0.0312345 * (1 + 2.6e-13)),  # the most that kept studies differ by
        ("paired.correlation", 0.5 + 4e-10),
        ("paired.d_z", 1.5 - 1e-12),
        ("decided.interval.low", -1e-13),  # nothing, beside an SD of 0.02
        ("holm_p", 0.0123456 + 1e-13),
    ],
)
def test_rounding_is_not(path, value):
    assert agree(CONTRAST, changed(path, value))


def test_sentences_are_not_compared():
    words = ("why_not", "caveats")
    assert not list(differences(changed("why_not", "one seed is missing"), CONTRAST, words))
    assert not list(differences({"caveats": ["a"]}, {"caveats": ["b", "c"]}, words))
    # What stands where a sentence does, and is none: an arm may be called so.
    assert list(differences({"why_not": 1e-5}, {"why_not": ""}, words)) == ["why_not"]
    tables = ({"caveats": {"sd": 1.0}}, {"caveats": {"sd": 2.0}})
    assert list(differences(*tables, words)) == ["caveats.sd"]


def test_a_key_that_is_missing_differs():
    less = {key: value for key, value in CONTRAST.items() if key != "tested"}
    assert list(differences(less, CONTRAST)) == ["tested"]


@pytest.mark.parametrize("value", [math.inf, math.nan, -(10**400), "1", True])
@pytest.mark.parametrize("path", ["paired.mean", "paired.n"])
def test_no_odd_number_agrees_with_anything(path, value):
    assert list(differences(changed(path, value), CONTRAST)) == [path]
    assert list(differences(CONTRAST, changed(path, value)))
