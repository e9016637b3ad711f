"""Bits per byte: closed forms, tokenizers that must agree, and what windows cost."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.data.tokenizer import train_tokenizer
from paribus.engine.evaluation import evaluate_on
from paribus.engine.evaluation.code_length import code_length
from paribus.engine.setting import Data


class Fixed(nn.Module):
    """Predicts the same everywhere."""

    def __init__(self, logits_V: np.ndarray) -> None:
        super().__init__()
        self.logits_V = nn.Parameter(torch.tensor(logits_V, dtype=torch.float32))
        self.dropout = nn.Dropout(0.5)

    def forward(self, ids_WT: Tensor) -> Tensor:
        return self.dropout(torch.ones(*ids_WT.shape, 1)) * self.logits_V


class ByContext(nn.Module):
    """Prefers some tokens once as many are seen as `needed`, else none."""

    def __init__(self, V: int, needed: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))
        self.V, self.needed = V, needed

    def forward(self, ids_WT: Tensor) -> Tensor:
        logits = torch.zeros(*ids_WT.shape, self.V)
        logits[:, self.needed - 1 :] += 1.0
        return logits * torch.linspace(0, 1, self.V)


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "all").mkdir()
    for i in range(12):
        words = rng.choice(["the", "quick", "brown", "fox", "and"], size=int(rng.integers(30, 90)))
        (tmp_path / "all" / f"{i:02}").write_text(" ".join(words), encoding="utf-8")
    (tmp_path / "one").write_text("the quick brown fox " * 100, encoding="utf-8")
    (tmp_path / "utf8").write_text("Où ça? 東京 était là. " * 90, encoding="utf-8")
    train_tokenizer(Data(corpus="text", path="all"), tmp_path, 280, tmp_path / "bpe.json")
    return tmp_path


def dataset(folder: Path, path: str, tokenizer: str, **keys: object) -> Dataset:
    given = {"corpus": "text", "path": path, "seq_len": 8, "validation_fraction": 0.3}
    return load_dataset(Data(**(given | {"tokenizer": tokenizer} | keys)), folder)


TOKENIZERS = ("character", "byte", "bpe.json")


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize(("path", "seq_len"), [("all", 1), ("all", 1000), ("one", 8), ("utf8", 8)])
def test_a_unigram_model_takes_its_own_bits(tokenizer, path, seq_len, folder):
    data = dataset(folder, path, tokenizer)
    p = np.random.default_rng(1).dirichlet(np.ones(data.vocab_size))
    bits = -np.log2(p)[data.validation[:]]
    if path != "all":  # nothing tells of the first token
        bits[0] = math.log2(data.vocab_size)
    found, _ = code_length(Fixed(np.log(p)), data, seq_len, 0.5)
    assert found["bits"] == pytest.approx(bits.sum(), rel=1e-5)
    assert found["overlapped_bits"] == pytest.approx(bits.sum(), rel=1e-5)
    assert found["n_tokens"] == len(data.validation)
    assert found["n_bytes"] == data.held_out.n_bytes
    assert found["n_documents"] == data.held_out.n_documents
    assert (found["n_documents"] > 1) == (path == "all")


def test_characters_and_bytes_agree_where_they_are_the_same(folder):
    """Of ASCII a character is a byte: the same probabilities give the same bits."""
    character, byte = (dataset(folder, "all", name) for name in ("character", "byte"))
    p = np.random.default_rng(2).dirichlet(np.ones(character.vocab_size))
    spread = np.full(257, -np.inf)
    for text, one in zip(character.tokenizer.vocabulary, p, strict=True):
        spread[256 if len(text) > 1 else ord(text)] = np.log(one)
    spread = np.maximum(spread, -1e9)
    first, second = (
        code_length(Fixed(logits), data, 8, 0.5)[0]
        for logits, data in ((np.log(p), character), (spread, byte))
    )
    assert first["bits"] == pytest.approx(second["bits"], rel=1e-6)
    for key in ("n_bytes", "n_tokens", "n_documents"):
        assert first[key] == second[key]
    # Of other characters they need not: three bytes are told of one.
    wide = [dataset(folder, "utf8", name) for name in ("character", "byte")]
    lengths = [code_length(Fixed(np.zeros(one.vocab_size)), one, 8)[0] for one in wide]
    assert lengths[0]["n_bytes"] == lengths[1]["n_bytes"]
    assert lengths[0]["n_tokens"] < lengths[1]["n_tokens"]


def by_hand(data: Dataset, model: nn.Module, seq_len: int, stride: int) -> float:
    """Bits, token by token."""
    ids, end = data.validation[:].astype(int), data.tokenizer.end_of_document
    assert end is not None
    documents = np.split(ids, np.flatnonzero(ids == end) + 1)
    bits = 0.0
    for document in documents:
        text = [end, *document.tolist()]
        for place in range(1, len(text)):
            number = 0 if place <= seq_len else -(-(place - seq_len) // stride)
            context = text[number * stride : place]
            with torch.no_grad():
                logits = model(torch.tensor([context]))[0, -1]
            bits -= float(torch.log_softmax(logits, -1)[text[place]]) / math.log(2)
    return bits


@pytest.mark.parametrize(("seq_len", "overlap"), [(8, 0.0), (8, 0.5), (7, 0.75), (64, 0.25)])
def test_windows_begin_with_documents(seq_len, overlap, folder):
    data = dataset(folder, "all", "bpe.json")
    model = ByContext(data.vocab_size, min(seq_len, 6))
    found, _ = code_length(model, data, seq_len, overlap)
    bits = by_hand(data, model, seq_len, seq_len)
    assert found["bits"] == pytest.approx(bits, rel=1e-5)
    if overlap:
        stride = seq_len - round(seq_len * overlap)
        assert found["overlapped_bits"] == pytest.approx(
            by_hand(data, model, seq_len, stride), rel=1e-5
        )


def test_a_single_held_out_text_has_no_end_to_tell(folder):
    many, one = (dataset(folder, path, "byte", validation_path="utf8") for path in ("all", "one"))
    assert many.has_ends and not one.has_ends
    found = [code_length(Fixed(np.zeros(257)), d, 8)[0] for d in (many, one)]
    assert found[0]["n_tokens"] == found[1]["n_tokens"] == found[0]["n_bytes"]
    assert found[0]["bits"] == pytest.approx(found[1]["bits"])
    # Nor is it in what losses are of: both arms are scored on the same tokens.
    assert many.validation.tolist() == one.validation.tolist()
    assert many.digests["validation"] == one.digests["validation"]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("path", ["all", "utf8"])
def test_blocks_of_losses_hold_bits_and_bytes(tokenizer, path, folder):
    data = dataset(folder, path, tokenizer, validation_fraction=0.6)
    p = np.random.default_rng(3).dirichlet(np.ones(data.vocab_size))
    found, blocks = code_length(Fixed(np.log(p)), data, 8)
    losses = evaluate_on(Fixed(np.log(p)), data, data.validation, 8)
    bits, sizes = (blocks[name] for name in ("bits", "bytes"))
    assert losses.division.kind == ("document" if path == "all" else "window")
    assert len(bits) == len(sizes) == len(losses.blocks["predicted"])
    assert bits.sum() == pytest.approx(found["bits"]) and sizes.sum() == found["n_bytes"]
    # A model of single tokens gives both the same, but for the first token, which only one counts.
    apart = bits - losses.blocks["loss_sum_nats"] / math.log(2)
    first = -np.log2(p)[int(data.validation[0])] if path == "all" else math.log2(data.vocab_size)
    assert apart == pytest.approx([first, *[0.0] * (len(bits) - 1)], abs=1e-3)
