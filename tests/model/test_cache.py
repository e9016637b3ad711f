"""Reading piece by piece with a cache gives the logits of reading all at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from paribus.engine.data import Dataset
from paribus.engine.model import (
    GPT,
    KeyValueCache,
    build_model,
    initial_parameters,
    load_parameters,
)
from paribus.study import Study


@pytest.fixture
def model(small_study: Callable[..., Study], small_dataset: Dataset) -> GPT:
    # Large weights: differences between positions are then not lost in rounding.
    setting = small_study({"model.init.std": 0.5}).setting("layernorm")
    model = build_model(setting, small_dataset.vocab_size).eval()
    drawn = initial_parameters(model, setting, seed=3)
    load_parameters(model, {name: one.value for name, one in drawn.items()})
    return model


def tokens_of(model: GPT) -> torch.Tensor:
    return torch.randint(0, 10, (3, 16), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("pieces", [[16], [1] * 16, [5, 1, 1, 9], [1, 15], [8, 8]])
@torch.no_grad()
def test_pieces_give_the_logits_of_the_whole(model: GPT, pieces: list[int]) -> None:
    tokens = tokens_of(model)
    cache = KeyValueCache(n_layer=2, room=16)
    read = [model(piece, cache) for piece in tokens.split(pieces, dim=1)]
    torch.testing.assert_close(torch.cat(read, dim=1), model(tokens), rtol=1e-4, atol=1e-5)
    assert cache.length == 16


@torch.no_grad()
def test_a_cached_token_depends_on_what_was_read_before(model: GPT) -> None:
    tokens, other = tokens_of(model), tokens_of(model)
    other[:, 2] = (other[:, 2] + 1) % 10
    last = []
    for text in (tokens, other):
        cache = KeyValueCache(n_layer=2, room=16)
        model(text[:, :15], cache)
        last.append(model(text[:, 15:], cache))
    assert not torch.equal(*last)


def test_an_own_attention_cannot_cache(
    without_attention: Study, small_dataset: Dataset, model: GPT
) -> None:
    setting, folder = without_attention.setting("baseline"), without_attention.folder
    own = build_model(setting, small_dataset.vocab_size, folder)
    assert not own.can_cache
    assert model.can_cache
