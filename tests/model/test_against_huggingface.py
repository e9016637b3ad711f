"""The presets are GPT-2 and Llama: same weights, same logits, same gradients as Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from paribus.engine.model import GPT, build_model
from paribus.engine.setting import Data, Model, Setting, Training

# n_layer, n_head, d_model, seq_len, vocab_size
GPT2 = [(1, 1, 8, 5, 11), (2, 4, 32, 16, 65), (3, 2, 24, 33, 104), (8, 8, 128, 128, 65)]
# n_layer, n_head, d_model, seq_len, vocab_size, n_kv_head, matched, theta
LLAMA = [
    (1, 2, 8, 5, 11, 1, True, 10_000.0),
    (2, 4, 32, 16, 65, 2, False, 10_000.0),
    (3, 3, 24, 33, 104, 3, True, 500.0),
    (2, 8, 128, 128, 65, 2, True, 500_000.0),
]
# Our names of modules, and theirs.
GPT2_NAMES = {
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
LLAMA_NAMES = {
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
# Ids of their own vocabularies do not exist in these small ones; a padding id has no gradient.
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0}


def renamed(name: str, names: dict[str, str]) -> str:
    for ours, theirs in names.items():
        name = name.replace(ours, theirs)
    return name


def gpt2_tensor(name: str, theirs: dict[str, Tensor]) -> Tensor:
    """Linear layers are `Conv1D` there: their matrices are stored transposed."""
    tensor = theirs[f"transformer.{renamed(name, GPT2_NAMES)}"]
    is_linear = name.startswith("blocks.") and "norm" not in name and name.endswith("weight")
    return tensor.T if is_linear else tensor


def llama_tensor(name: str, theirs: dict[str, Tensor]) -> Tensor:
    """Queries, keys and values are one matrix here."""
    other = renamed(name, LLAMA_NAMES)
    if "qkv" not in name:
        return theirs[other]
    parts = [other.replace("attention.qkv", f"self_attn.{x}_proj") for x in "qkv"]
    return torch.cat([theirs[part] for part in parts])


def built(shape: tuple, **model: Any) -> GPT:
    n_layer, n_head, d_model, seq_len, vocab_size = shape[:5]
    table = {"n_layer": n_layer, "n_head": n_head, "d_model": d_model} | model
    setting = Setting(
        data=Data(seq_len=seq_len),
        model=Model.model_validate(table),
        training=Training(iterations=1),
    )
    return build_model(setting, vocab_size)


def twins(shape: tuple) -> tuple[GPT, torch.nn.Module, Callable[[str, dict[str, Tensor]], Tensor]]:
    """Return our model, theirs of the same weights, and how a tensor of ours is made of theirs."""
    n_layer, n_head, d_model, seq_len, vocab_size = shape[:5]
    if shape in GPT2:
        ours, tensor_of = built(shape), gpt2_tensor
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
                **SPECIAL,
            )
        )
    else:
        n_kv_head, matched, theta = shape[5:]
        ours = built(
            shape,
            preset="llama",
            attention={"n_kv_head": n_kv_head},
            mlp={"match_parameters": matched},
            positions={"theta": theta},
        )
        tensor_of = llama_tensor
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
                pad_token_id=None,
                **SPECIAL,
            )
        )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.2, generator=generator)
    known = {name: parameter.detach() for name, parameter in theirs.named_parameters()}
    ours.load_state_dict({name: tensor_of(name, known) for name, _ in ours.named_parameters()})
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    return ours, theirs, tensor_of


def tokens_and_targets(shape: tuple) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(0, shape[4], (2, 3, shape[3]), generator=generator)
    return tokens, targets


@pytest.mark.parametrize("shape", [*GPT2, *LLAMA], ids=str)
def test_logits_and_gradients_equal_those_of_hugging_face(shape: tuple) -> None:
    ours, theirs, tensor_of = twins(shape)
    tokens, targets = tokens_and_targets(shape)
    our_logits, their_logits = ours(tokens), theirs(tokens).logits
    scale = their_logits.abs().max().item()
    torch.testing.assert_close(our_logits, their_logits, rtol=0, atol=3e-6 * scale)

    F.cross_entropy(our_logits.flatten(0, 1), targets.flatten()).backward()
    F.cross_entropy(their_logits.flatten(0, 1), targets.flatten()).backward()
    gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, parameter in ours.named_parameters():
        expected = tensor_of(name, gradients)
        scale = expected.abs().max().item()
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=3e-5 * scale, msg=name)


def test_bfloat16_stays_as_close_to_float32_as_gpt2_under_autocast() -> None:
    shape = GPT2[1]
    ours, theirs, _ = twins(shape)
    tokens, targets = tokens_and_targets(shape)

    def loss_and_gradient(model: torch.nn.Module, mixed: bool) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            out = model(tokens)
        logits = out if model is ours else out.logits
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        return loss.detach(), torch.cat([gradient.flatten() for gradient in gradients])

    errors = []
    for model in (ours, theirs):
        (loss, row), (exact_loss, exact) = (loss_and_gradient(model, on) for on in (True, False))
        errors.append(
            ((loss - exact_loss).abs().item(), ((row - exact).norm() / exact.norm()).item())
        )
    (our_loss, our_gradient), (_, their_gradient) = errors
    assert 0 < our_loss < 0.01
    assert 0 < our_gradient < 1.2 * their_gradient < 0.05
