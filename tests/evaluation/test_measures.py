"""Every registered measure: its declaration, a known answer, and what it owes on awkward texts."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import nn

from paribus.engine.data import TOKEN_CLASSES
from paribus.engine.evaluation import Predictions, all_measures
from paribus.engine.evaluation.measures import equal_width, gap_sum, tally
from paribus.engine.evaluation.predictions import TEMPERATURES, predict

from .conftest import of_token, rows_of

each = pytest.mark.parametrize("measure", all_measures(), ids=lambda measure: measure.name)

# The known case. Of the tokens "a", "1", "  " and end of document, each is followed by the next one
# with probability 3/4 (logit ln 9 against 0), and 7 of 10 predictions are right.
TOKENS = [0, 1, 2, 3, 0, 1, 2, 0, 1, 3, 2]
SUCCESSOR = np.roll(np.eye(4), 1, axis=1) * math.log(9)
KNOWS = {
    "token_class": np.array([0, 1, 3, 4]),
    "characters": np.array([1, 1, 2, 0]),
    "n_bytes": np.array([2, 1, 2, 0]),
}
HIT, MISS = math.log(4 / 3), math.log(12)  # nats
# (hits, misses) of each part; no punctuation comes.
COUNTS = {
    "all": (7, 3),
    "alphabetic": (1, 1),
    "numeric": (3, 0),
    "whitespace": (2, 1),
    "end-of-document": (1, 1),
    "position 1": (2, 1),
    "position 2": (2, 1),
    "position 3": (1, 1),
    "position 4": (2, 0),
}
LOSS = {part: (h * HIT + m * MISS) / (h + m) for part, (h, m) in COUNTS.items()}
BITS = 10 * LOSS["all"] / math.log(2)


def at(temperature: float) -> float:
    """The probability of the most probable token."""
    weight = 9 ** (1 / temperature)
    return weight / (weight + 3)


def loss_at(temperature: float) -> float:
    p = at(temperature)
    return -0.7 * math.log(p) - 0.3 * math.log((1 - p) / 3)


KNOWN: dict[str, dict[str, float]] = {
    "validation_loss": LOSS,
    "validation_perplexity": {"all": math.exp(LOSS["all"])},
    "validation_accuracy": {part: h / (h + m) for part, (h, m) in COUNTS.items()},
    "bits_per_character": {"all": BITS / 11},
    "bits_per_byte": {"all": BITS / 13},
    # Right: 1/16 + 3/144. Wrong: 81/144 + 121/144 + 2/144.
    "brier_score": {"all": (7 * 1 / 12 + 3 * 17 / 12) / 10},
    "calibration_error": {"all": 0.05},
    "reliability_confidence": {"bin 12": 0.75},  # (11/15, 12/15]
    "reliability_accuracy": {"bin 12": 0.7},
    "temperature_loss": {f"T={t:.3g}": loss_at(t) for t in TEMPERATURES},
    "temperature_calibration_error": {f"T={t:.3g}": abs(0.7 - at(t)) for t in TEMPERATURES},
    "context_loss": {"context 4": LOSS["all"]},
}


def test_every_measure_has_a_known_answer():
    assert {measure.name for measure in all_measures()} == KNOWN.keys()


@each
def test_the_known_answer(measure, predicted):
    rows = rows_of(measure, predicted(SUCCESSOR, TOKENS, 4, **KNOWS))
    within = 1e-6  # float32
    expected = pytest.approx(KNOWN[measure.name], rel=within, abs=1e-6)
    assert {row.part: row.value for row in rows} == expected


@pytest.fixture
def rich(predicted):
    """Every class, position and bin of confidence: row r is confident as bin r % 15 wants."""
    rng = np.random.default_rng(3)
    confidence = (np.arange(40) % 15 + 0.5) / 15
    table = np.eye(40) * np.log(confidence * 39 / (1 - confidence))
    tokens = rng.integers(40, size=3000)
    return predicted(table, tokens, 20, token_class=np.arange(40) % len(TOKEN_CLASSES))


@each
def test_every_measure_declares_its_parts_and_gives_ratios_of_sums(measure, rich):
    assert measure.function.__doc__
    names, rows = measure.part_names(20), rows_of(measure, rich)
    assert len(set(names)) == len(names)
    assert tuple(row.part for row in rows) == names
    for row in rows:
        assert math.isfinite(row.value)
        assert (row.total is None) == (row.count is None)
        if row.total is not None and row.count is not None:
            assert row.count > 0
            assert row.value == row.total / row.count


@each
@pytest.mark.parametrize("seq_len", [1, 4, 50])
@pytest.mark.parametrize("token_class", range(len(TOKEN_CLASSES)))
def test_one_class(measure, predicted, token_class, seq_len):
    arrays = {
        "token_class": np.full(4, token_class),
        "characters": np.full(4, int(TOKEN_CLASSES[token_class] != "end-of-document")),
    }
    rows = rows_of(measure, predicted(SUCCESSOR, TOKENS, seq_len, **arrays))
    assert all(math.isfinite(row.value) for row in rows)
    parts = [row.part for row in rows]
    assert parts == [name for name in measure.part_names(seq_len) if name in parts]
    assert not set(parts) & (set(TOKEN_CLASSES) - {TOKEN_CLASSES[token_class]})


@each
def test_a_model_that_is_not_finite(measure, predicted):
    for broken in (math.nan, math.inf, -math.inf):
        for row in rows_of(measure, predicted(np.full((4, 4), broken), TOKENS, 4, **KNOWS)):
            accuracy = measure.name in ("validation_accuracy", "reliability_accuracy")
            assert row.value == 0 if accuracy else math.isnan(row.value)


def by_name(predictions: Predictions) -> dict[str, dict[str, tuple]]:
    return {
        measure.name: {row.part: (row.value, row.total, row.count) for row in rows}
        for measure in all_measures()
        for rows in [rows_of(measure, predictions)]
    }


@given(
    seed=st.integers(0, 2**32),
    n=st.integers(1, 120),
    seq_len=st.integers(1, 40),
    scale=st.floats(0, 6),
)
def test_what_holds_of_any_text(seed, n, seq_len, scale):
    seen = by_name(fabricated(seed, n, seq_len, scale))
    for name in ("validation_loss", "validation_accuracy"):
        rows = seen[name]
        for family in (TOKEN_CLASSES, [f"position {p}" for p in range(1, seq_len + 1)]):
            parts = [rows[part] for part in family if part in rows]
            assert sum(count for _, _, count in parts) == rows["all"][2]
            total = math.fsum(total for _, total, _ in parts)
            exact = name == "validation_accuracy"
            assert total == pytest.approx(rows["all"][1], rel=0 if exact else 1e-12)
    contexts = seen["context_loss"].values()
    assert sum(count for _, _, count in contexts) == n
    perplexity = seen["validation_perplexity"]["all"][0]
    assert 1 <= perplexity == pytest.approx(math.exp(seen["validation_loss"]["all"][0]))
    assert 0 <= seen["brier_score"]["all"][0] <= 2
    assert 0 <= seen["calibration_error"]["all"][0] <= 1
    for plain, swept in (
        ("validation_loss", "temperature_loss"),
        ("calibration_error", "temperature_calibration_error"),
    ):
        expected = seen[plain]["all"][0]
        assert seen[swept]["T=1"][0] == pytest.approx(expected, rel=1e-12, abs=1e-15)


def fabricated(seed: int, n: int, seq_len: int, scale: float) -> Predictions:
    """A random text of at least one character, and a random bigram."""
    rng = np.random.default_rng(seed)
    table = torch.tensor(rng.normal(scale=scale, size=(9, 9)), dtype=torch.float32)
    model = nn.Embedding.from_pretrained(table)
    characters = rng.integers(0, 4, size=9)
    (chunk,) = predict(
        model,
        rng.integers(9, size=n + 1),
        seq_len,
        of_token(9, token_class=rng.integers(len(TOKEN_CLASSES), size=9), characters=characters),
    )
    return chunk


@pytest.mark.parametrize(
    ("seq_len", "names"),
    [
        (1, ["context 1"]),
        (8, ["context 8"]),
        (20, ["context 8", "context 16", "context 20"]),
        (24, ["context 8", "context 16", "context 24"]),
    ],
)
def test_context_lengths(predicted, seq_len, names):
    (measure,) = (m for m in all_measures() if m.name == "context_loss")
    seen = predicted(np.zeros((3, 3)), np.zeros(10 * seq_len + 1), seq_len)
    losses = (seen.position + 1).astype(np.float32)  # a loss that is the length of the context
    rows = rows_of(measure, replace(seen, loss_nats=losses))
    assert [row.part for row in rows] == names
    ends = [int(name.split()[1]) for name in names]
    spans = zip([0, *ends], ends, strict=False)
    for row, (start, end) in zip(rows, spans, strict=True):
        assert row.value == (start + 1 + end) / 2


# Bins of confidence: against a loop in plain Python, and ties.


@pytest.mark.parametrize("n", [1, 14, 15, 16, 1000, 1003])
def test_against_a_loop(n):
    """sum_b n_b / n |accuracy_b - confidence_b|, as Guo et al. 2017 write it."""
    rng = np.random.default_rng(n)
    confidence = rng.permutation(n) / n + 1e-4
    hits = rng.uniform(size=n) < confidence**2
    sizes, error = [], 0.0
    for b in range(15):
        members = [i for i, c in enumerate(confidence) if b / 15 < c <= (b + 1) / 15]
        sizes.append(len(members))
        error += abs(sum(hits[i] for i in members) - sum(confidence[i] for i in members)) / n
    found = tally(equal_width(confidence), confidence, hits)
    assert gap_sum(found) / n == pytest.approx(error, abs=1e-12)
    assert found[0].tolist() == sizes


def test_the_edges_of_equal_widths():
    confidence = np.array([1e-9, 1 / 15, 0.0667, 14 / 15, 0.9334, 1.0, math.nan])
    assert equal_width(confidence).tolist() == [0, 0, 1, 13, 14, 14, 0]
