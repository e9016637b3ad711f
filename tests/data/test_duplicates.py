"""Duplicates against similarities known by construction, and against brute force."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paribus.engine.data import Duplicates, count_duplicates, near_duplicate_pairs, passages


def oracle_jaccard(a: str, b: str, k: int = 9) -> float:
    sets = [{t[i : i + k] for i in range(len(t) - k + 1)} or {t} for t in (a, b)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def noise(rng: np.random.Generator, n: int) -> str:
    """Of 20,000 ideographs, so that no run of 9 comes twice."""
    return "".join(map(chr, rng.integers(0x4E00, 0x9C00, size=n)))


def pair(rng: np.random.Generator, n: int, shared: int) -> tuple[str, str]:
    """Two texts of `n` shingles each that share `shared`: Jaccard shared / (2 n - shared)."""
    prefix = noise(rng, shared + 8)
    return prefix + noise(rng, n - shared), prefix + noise(rng, n - shared)


@pytest.mark.parametrize(
    ("n", "shared", "similarity", "near"),
    [
        (1000, 883, 0.7905, 0),
        (1000, 895, 0.80995, 1),
        (90, 80, 0.8, 1),  # 80 of 100: at the threshold
        (180, 159, 159 / 201, 0),
    ],
)
def test_known_similarities(n: int, shared: int, similarity: float, near: int) -> None:
    a, b = pair(np.random.default_rng(1), n, shared)
    assert oracle_jaccard(a, b) == pytest.approx(similarity, abs=1e-4)
    assert len(near_duplicate_pairs([a, b])) == near
    assert count_duplicates([a, b], [False, True]) == Duplicates(2, 0, near, 1, 0, near)


def test_one_changed_character_of_89_is_a_near_duplicate_and_of_88_is_not() -> None:
    for length, near in ((89, 1), (88, 0)):
        text = noise(np.random.default_rng(2), length)
        changed = text[:40] + "x" + text[41:]
        assert count_duplicates([text, changed], [False, False]).near == near


def test_case_and_whitespace_are_not_seen_but_are_not_exact() -> None:
    text = "The  quick\nbrown fox jumps over the lazy dog. " * 3
    other = " ".join(text.upper().split())
    three = count_duplicates([text, other, text], [False, False, True])
    assert three == Duplicates(3, 1, 2, 1, 1, 1)
    assert count_duplicates([text, other], [False, True]) == Duplicates(2, 0, 1, 1, 0, 1)


def test_a_chain_is_one_cluster_but_leaks_only_to_its_neighbours() -> None:
    rng = np.random.default_rng(3)
    text = noise(rng, 1000)
    a, b, c = text[:800], text[70:870], text[140:940]  # neighbours .84, ends .70
    assert oracle_jaccard(a, b) > 0.8 > oracle_jaccard(a, c)
    for order in itertools.permutations([(a, False), (b, True), (c, True)]):
        found = count_duplicates([u for u, _ in order], [held for _, held in order])
        assert found == Duplicates(3, 0, 2, 2, 0, 1)


def corpus_of_copies(seed: int) -> list[str]:
    """Originals on four letters, and copies with a few letters changed: every similarity."""
    rng = np.random.default_rng(seed)
    texts = []
    for _ in range(8):
        original = rng.choice(list("abcd"), size=int(rng.integers(60, 400)))
        for _ in range(8):
            copy = original.copy()
            where = rng.integers(len(copy), size=int(rng.integers(len(copy) // 50 + 2)))
            copy[where] = rng.choice(list("abcd"), size=len(where))
            texts.append("".join(copy))
    return list(dict.fromkeys(texts))


def test_all_pairs_of_brute_force_are_found_and_no_other() -> None:
    found, true = set(), set()
    for seed in range(20):
        texts = corpus_of_copies(seed)
        found |= {(seed, int(i), int(j)) for i, j in near_duplicate_pairs(texts)}
        true |= {
            (seed, i, j)
            for i, j in itertools.combinations(range(len(texts)), 2)
            if oracle_jaccard(texts[i], texts[j]) >= 0.8
        }
    assert len(true) > 800
    assert found == true  # a miss of the bands is 1 in 13,000 at the threshold, fewer above it


def test_the_bands_find_what_they_are_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """At Jaccard 1/2, 1 - (1 - 1/32)^24 = 0.533 of the pairs are candidates."""
    monkeypatch.setattr("paribus.engine.data.duplicates.NEAR_DUPLICATE_JACCARD", 0.0)
    rng = np.random.default_rng(4)
    texts = [text for _ in range(1000) for text in pair(rng, 120, 80)]
    twins = [(i, j) for i, j in near_duplicate_pairs(texts) if i // 2 == j // 2]
    expected = 1 - (1 - 0.5**5) ** 24
    assert abs(len(twins) / 1000 - expected) < 4 * np.sqrt(expected * (1 - expected) / 1000)


def brute_force(units: list[str], held: list[bool]) -> Duplicates:
    """The definition, word by word; for texts without case or whitespace."""
    n = len(units)
    exact = [[units[i] == units[j] for j in range(n)] for i in range(n)]
    near = [[oracle_jaccard(units[i], units[j]) >= 0.8 for j in range(n)] for i in range(n)]
    reach = np.array(near)
    for _ in range(n):
        reach = reach @ reach
    clusters = len({tuple(row) for row in reach.tolist()})
    pairs = [[(i, j) for j in range(n) if not held[j]] for i in range(n) if held[i]]
    return Duplicates(
        units=n,
        exact=sum(any(exact[i][:i]) for i in range(n)),
        near=n - clusters,
        validation_units=sum(held),
        leaked_exact=sum(any(exact[i][j] for i, j in row) for row in pairs),
        leaked_near=sum(any(near[i][j] for i, j in row) for row in pairs),
    )


@pytest.mark.parametrize("seed", range(12))
def test_counts_are_the_definition_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    texts = corpus_of_copies(seed)[:24]
    units = [*texts, *rng.choice(texts, size=6).tolist()]
    held = (rng.random(len(units)) < 0.3).tolist()
    expected = brute_force(units, held)
    assert expected.near > expected.exact > 0
    for _ in range(3):
        order = rng.permutation(len(units))
        assert count_duplicates([units[i] for i in order], [held[i] for i in order]) == expected


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.text(), st.booleans())))
def test_any_text_is_counted(units: list[tuple[str, bool]]) -> None:
    found = count_duplicates([text for text, _ in units], [held for _, held in units])
    assert 0 <= found.exact <= found.near <= max(found.units - 1, 0)
    assert 0 <= found.leaked_exact <= found.leaked_near <= found.validation_units


def test_edges() -> None:
    assert count_duplicates([], []) == Duplicates(0, 0, 0, 0, 0, 0)
    assert count_duplicates(["one"], [False]) == Duplicates(1, 0, 0, 0, 0, 0)
    assert count_duplicates(["same"] * 5, [False] * 3 + [True] * 2) == Duplicates(5, 4, 4, 2, 2, 2)
    assert count_duplicates(["", " ", "ab", "cd"], [False] * 4) == Duplicates(4, 0, 1, 0, 0, 0)
    assert count_duplicates(["\ud800", "\ud800"], [False, True]) == Duplicates(2, 1, 1, 1, 1, 1)


def test_another_process_finds_the_same() -> None:
    """String hashing is salted in each Python process; the answer must not be."""
    code = (
        "import numpy as np; from paribus.engine.data import near_duplicate_pairs as f;"
        "r = np.random.default_rng(0); b = r.integers(97, 101, size=200);"
        "t = [''.join(map(chr, np.where(r.random(200) < .01, 101, b))) for _ in range(60)];"
        "print(f(t).tolist())"
    )
    answers: set[bytes] = set(_outputs(code))
    assert len(answers) == 1
    assert len(answers.pop()) > 1000


def _outputs(code: str) -> Iterator[bytes]:
    for salt in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": salt}
        yield subprocess.check_output([sys.executable, "-c", code], env=environment)


def test_passages_by_hand() -> None:
    a, b, c = "a" * 100, "b" * 60 + "\n" + "b" * 60, "c" * 120
    document = f"{a}\r\n \t\r\n\n  {b}\n\nshort\n\n\n{c}\n"
    found = list(passages(document))
    assert [text for _, text in found] == [a, b, c]
    assert all(document[start:].startswith(text) for start, text in found)
    assert list(passages("")) == list(passages("\n\n \n")) == list(passages("x" * 99)) == []
