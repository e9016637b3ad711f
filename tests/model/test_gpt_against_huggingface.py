"""The baseline is GPT-2: same weights, same logits and same gradients as Hugging Face's."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
import transformers

from paribus.engine.model import GPT, build_model
from paribus.engine.setting import Data, Model, Setting, Training

SHAPES = [  # n_layer, n_head, d_model, seq_len, vocab_size
    (1, 1, 8, 5, 11),
    (2, 4, 32, 16, 65),
    (3, 2, 24, 33, 104),
    (8, 8, 128, 128, 65),
]


def twins(shape: tuple[int, ...]) -> tuple[GPT, torch.nn.Module, dict[str, str]]:
    """(our model, theirs of the same weights, their names of our parameters)."""
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
    return ours, theirs, names


def tokens_and_targets(shape: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    *_, seq_len, vocab_size = shape
    generator = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(0, vocab_size, (2, 3, seq_len), generator=generator)
    return tokens, targets


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_logits_and_gradients_equal_gpt2(shape: tuple[int, ...]) -> None:
    ours, theirs, names = twins(shape)
    their_parameters = dict(theirs.named_parameters())
    tokens, targets = tokens_and_targets(shape)
    our_logits, their_logits = ours(tokens), theirs(tokens).logits
    scale = their_logits.abs().max().item()
    torch.testing.assert_close(our_logits, their_logits, rtol=0, atol=3e-6 * scale)

    F.cross_entropy(our_logits.flatten(0, 1), targets.flatten()).backward()
    F.cross_entropy(their_logits.flatten(0, 1), targets.flatten()).backward()
    for name, parameter in ours.named_parameters():
        expected = _ours(name, their_parameters[names[name]].grad)
        scale = expected.abs().max().item()
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=3e-5 * scale, msg=name)


def test_bfloat16_stays_as_close_to_float32_as_gpt2_under_autocast() -> None:
    shape = SHAPES[1]
    ours, theirs, names = twins(shape)
    tokens, targets = tokens_and_targets(shape)

    def loss_and_gradients(mixed: bool) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """(loss, all gradients in one row) of each of the twins."""
        results = []
        for model, order in ((ours, names.keys()), (theirs, names.values())):
            parameters = dict(model.named_parameters())
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
                out = model(tokens)
            logits = out if model is ours else out.logits
            loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
            gradients = torch.autograd.grad(loss, [parameters[name] for name in order])
            results.append((loss.detach(), torch.cat([g.flatten() for g in gradients])))
        return results

    errors = [
        ((loss - exact_loss).abs().item(), ((row - exact).norm() / exact.norm()).item())
        for (loss, row), (exact_loss, exact) in zip(
            loss_and_gradients(True), loss_and_gradients(False), strict=True
        )
    ]
    (our_loss, our_gradient), (_, their_gradient) = errors
    assert 0 < our_loss < 0.01
    assert 0 < our_gradient < 1.2 * their_gradient < 0.05


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
