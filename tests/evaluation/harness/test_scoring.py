"""The fast scorer against one forward pass per request."""

import numpy as np
import pytest
import torch
from torch import nn

from paribus.engine.evaluation.harness import scoring
from paribus.engine.evaluation.harness.scoring import Pair, Scored, score
from paribus.engine.model import GPT, KeyValueCache
from paribus.rng import stream

VOCABULARY = 11
TOLERANCE_NATS = 2e-4  # sums of up to 60 float32 log-probabilities


@torch.no_grad()
def naive(model: nn.Module, pair: Pair) -> Scored:
    """The definition: one row, no padding, no sharing."""
    tokens = torch.from_numpy(np.concatenate([pair.context, pair.continuation[:-1]]))[None]
    log_probs = model.eval()(tokens)[0].double().log_softmax(-1)[-len(pair.continuation) :]
    chosen = log_probs.gather(-1, torch.from_numpy(pair.continuation)[:, None])
    greedy = (log_probs.argmax(-1).numpy() == pair.continuation).all()
    return Scored(float(chosen.sum()), bool(greedy))


def some_pairs(seed: int = 0) -> list[Pair]:
    """Items with several choices, with and without a long common beginning, of all lengths."""
    rng = stream(seed, "pairs")
    draw = lambda n: rng.integers(0, VOCABULARY, size=n)  # noqa: E731
    pairs = []
    for root in (draw(0), draw(40), draw(60)):
        for _ in range(20):
            context = np.concatenate([root, draw(rng.integers(1, 20))])
            pairs += [Pair(context, draw(rng.integers(1, 40))) for _ in range(rng.integers(1, 5))]
    pairs.append(Pair(draw(1), draw(128)))  # as long as the window allows
    pairs.append(Pair(draw(128), draw(1)))
    return [pairs[i] for i in rng.permutation(len(pairs))]


@pytest.mark.parametrize("can_cache", [True, False])
def test_scores_of_one_pass(make_model, can_cache):
    model, pairs = make_model(VOCABULARY), some_pairs()
    model.can_cache = can_cache
    for fast, pair in zip(score(model, pairs), pairs, strict=True):
        slow = naive(model, pair)
        assert fast.loglikelihood == pytest.approx(slow.loglikelihood, abs=TOLERANCE_NATS)
        assert fast.greedy == slow.greedy


def test_no_batch_holds_more_than_it_may(make_model, monkeypatch):
    model, rng = make_model(VOCABULARY), stream(0, "limits")
    root = rng.integers(0, VOCABULARY, size=60)
    pairs = [
        Pair(np.concatenate([root, [n % 7, n // 7], np.full(n % 5, 3)]), np.array([1, 2]))
        for n in range(40)
    ]
    few = score(model, pairs)
    sizes: list[tuple[int, int]] = []
    whole = GPT.hidden

    def counted(model: GPT, tokens: torch.Tensor, cache: KeyValueCache) -> torch.Tensor:
        sizes.append(tuple(tokens.shape))
        return whole(model, tokens, cache)

    monkeypatch.setattr(GPT, "hidden", counted)
    monkeypatch.setattr(scoring, "BATCH_TOKENS", 400)
    again = score(model, pairs)
    assert sizes[0] == (1, 60)  # the common beginning
    for rows, new in sizes[1:]:
        assert rows * (60 + new) <= 400
    assert len(sizes) > 7
    for one, other in zip(again, few, strict=True):
        assert one.loglikelihood == pytest.approx(other.loglikelihood, abs=TOLERANCE_NATS)
