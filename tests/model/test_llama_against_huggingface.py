"""The preset `llama` is Llama: same weights, same logits and same gradients as Hugging Face's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers

from paribus.engine.model import GPT, build_model
from paribus.engine.setting import Data, Model, Setting, Training

SHAPES = [  # n_layer, n_head, n_kv_head, d_model, seq_len, vocab_size, matched, theta
    (1, 2, 1, 8, 5, 11, True, 10_000.0),
    (2, 4, 2, 32, 16, 65, False, 10_000.0),
    (3, 3, 3, 24, 33, 104, True, 500.0),
    (2, 8, 2, 128, 128, 65, True, 500_000.0),
]
NAMES = {
    "embedding.tokens": "model.embed_tokens",
    "blocks.": "model.layers.",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attention.out": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "final_norm": "model.norm",
    "head.weight": "lm_head.weight",
}


def twins(shape: tuple) -> tuple[GPT, torch.nn.Module]:
    """(our model, theirs of the same weights)."""
    n_layer, n_head, n_kv_head, d_model, seq_len, vocab_size, matched, theta = shape
    setting = Setting(
        data=Data(seq_len=seq_len),
        model=Model.model_validate(
            {
                "preset": "llama",
                "n_layer": n_layer,
                "n_head": n_head,
                "d_model": d_model,
                "attention": {"n_kv_head": n_kv_head},
                "mlp": {"match_parameters": matched},
                "positions": {"theta": theta},
            }
        ),
        training=Training(iterations=1),
    )
    ours = build_model(setting, vocab_size)
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=d_model,
            intermediate_size=ours.blocks[0].mlp.up.out_features,
            num_hidden_layers=n_layer,
            num_attention_heads=n_head,
            num_key_value_heads=n_kv_head,
            max_position_embeddings=seq_len,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            attn_implementation="eager",
            pad_token_id=None,  # one would have no gradient
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.2, generator=generator)
    taken = as_ours(ours, {name: p.detach() for name, p in theirs.named_parameters()})
    ours.load_state_dict(taken)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    return ours, theirs


def as_ours(ours: GPT, theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Their tensors by our names: queries, keys and values are one matrix here."""
    found = {}
    for name, _ in ours.named_parameters():
        other = name
        for our, their in NAMES.items():
            other = other.replace(our, their)
        if "qkv" in name:
            parts = [other.replace("attention.qkv", f"self_attn.{x}_proj") for x in "qkv"]
            found[name] = torch.cat([theirs[part] for part in parts])
        else:
            found[name] = theirs[other]
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits_and_gradients_equal_llama(shape: tuple) -> None:
    ours, theirs = twins(shape)
    generator = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(0, shape[5], (2, 3, shape[4]), generator=generator)
    our_logits, their_logits = ours(tokens), theirs(tokens).logits
    scale = their_logits.abs().max().item()
    torch.testing.assert_close(our_logits, their_logits, rtol=0, atol=3e-6 * scale)

    F.cross_entropy(our_logits.flatten(0, 1), targets.flatten()).backward()
    F.cross_entropy(their_logits.flatten(0, 1), targets.flatten()).backward()
    expected = as_ours(ours, {name: p.grad for name, p in theirs.named_parameters()})
    for name, parameter in ours.named_parameters():
        scale = expected[name].abs().max().item()
        torch.testing.assert_close(
            parameter.grad, expected[name], rtol=0, atol=3e-5 * scale, msg=name
        )
