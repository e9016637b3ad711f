"""The baseline is GPT-2: same weights, same logits and same gradients as Hugging Face's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers

from paribus.model import build_model
from paribus.study import Data, Model, Setting, Training

SHAPES = [  # n_layer, n_head, d_model, seq_len, vocab_size
    (1, 1, 8, 5, 11),
    (2, 4, 32, 16, 65),
    (3, 2, 24, 33, 104),
    (8, 8, 128, 128, 65),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits_and_gradients_equal_gpt2(shape: tuple[int, ...]) -> None:
    n_layer, n_head, d_model, seq_len, vocab_size = shape
    theirs = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=vocab_size,
            n_positions=seq_len,
            n_embd=d_model,
            n_layer=n_layer,
            n_head=n_head,
            activation_function="gelu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            attn_implementation="eager",
            # Ids of GPT-2's own vocabulary do not exist in these small ones.
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.2, generator=generator)
    setting = Setting(
        data=Data(seq_len=seq_len),
        model=Model(n_layer=n_layer, n_head=n_head, d_model=d_model),
        training=Training(iterations=1),
    )
    ours = build_model(setting, vocab_size)
    names = {name: _huggingface_name(name) for name, _ in ours.named_parameters()}
    their_parameters = dict(theirs.named_parameters())
    assert set(names.values()) == their_parameters.keys()
    ours.load_state_dict(
        {name: _ours(name, their_parameters[other].detach()) for name, other in names.items()}
    )

    tokens = torch.randint(0, vocab_size, (3, seq_len), generator=generator)
    targets = torch.randint(0, vocab_size, (3, seq_len), generator=generator)
    our_logits, their_logits = ours(tokens), theirs(tokens).logits
    scale = their_logits.abs().max().item()
    torch.testing.assert_close(our_logits, their_logits, rtol=0, atol=3e-6 * scale)

    F.cross_entropy(our_logits.flatten(0, 1), targets.flatten()).backward()
    F.cross_entropy(their_logits.flatten(0, 1), targets.flatten()).backward()
    for name, parameter in ours.named_parameters():
        expected = _ours(name, their_parameters[names[name]].grad)
        scale = expected.abs().max().item()
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=3e-5 * scale, msg=name)


def _huggingface_name(name: str) -> str:
    replacements = {
        "embedding.tokens": "wte",
        "embedding.positions": "wpe",
        "blocks.": "h.",
        "attention_norm": "ln_1",
        "mlp_norm": "ln_2",
        "attention.qkv": "attn.c_attn",
        "attention.out": "attn.c_proj",
        "mlp.up": "mlp.c_fc",
        "mlp.down": "mlp.c_proj",
        "final_norm": "ln_f",
    }
    for ours, theirs in replacements.items():
        name = name.replace(ours, theirs)
    return f"transformer.{name}"


def _ours(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """GPT-2's linear layers are `Conv1D`: their matrices are stored transposed."""
    is_linear = name.startswith("blocks.") and "norm" not in name and name.endswith("weight")
    return tensor.T if is_linear else tensor
