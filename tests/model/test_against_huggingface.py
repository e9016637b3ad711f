"""The presets are GPT-2 and Llama: same weights, same logits, same gradients as Hugging Face's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

from paribus.engine.export.hugging_face import hugging_face_model
from paribus.engine.model import GPT, build_model
from paribus.engine.setting import Data, Setting, Training
from paribus.engine.setting.architecture import Model

# n_layer, n_head, d_model, seq_len, vocab_size
GPT2 = [(1, 1, 8, 5, 11), (3, 2, 24, 33, 104)]
# n_layer, n_head, d_model, seq_len, vocab_size, n_kv_head, matched, theta
LLAMA = [
    (2, 4, 32, 16, 65, 2, False, 10_000.0),
    (2, 8, 128, 128, 65, 2, True, 500_000.0),
]
# Ids of their own vocabularies do not exist in these small ones; a padding id has no gradient.
SPECIAL = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": None}


def setting_of(shape: tuple) -> Setting:
    n_layer, n_head, d_model, seq_len, _ = shape[:5]
    table: dict[str, Any] = {"n_layer": n_layer, "n_head": n_head, "d_model": d_model}
    if shape in LLAMA:
        n_kv_head, matched, theta = shape[5:]
        table |= {
            "preset": "llama",
            "attention": {"n_kv_head": n_kv_head},
            "mlp": {"match_parameters": matched},
            "positions": {"theta": theta},
        }
    model = Model.model_validate(table)
    return Setting(data=Data(seq_len=seq_len), model=model, training=Training(iterations=1))


def exported(setting: Setting, tensors: dict[str, Tensor]) -> tuple[dict, dict[str, Tensor]]:
    """(their configuration, tensors by their names)."""
    arrays = {name: tensor.numpy() for name, tensor in tensors.items()}
    config, renamed = hugging_face_model(setting, len(arrays["embedding.tokens.weight"]), arrays)
    return config, {name: torch.from_numpy(array) for name, array in renamed.items()}


def twins(shape: tuple) -> tuple[GPT, torch.nn.Module, Setting]:
    """Our model, and theirs of the same weights."""
    setting = setting_of(shape)
    ours, generator = build_model(setting, shape[4]), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.normal_(0, 0.2, generator=generator)
    config, weights = exported(setting, dict(ours.state_dict()))
    theirs = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config | SPECIAL), attn_implementation="eager"
    )
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    return ours, theirs, setting


def tokens_and_targets(shape: tuple) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(0, shape[4], (2, 3, shape[3]), generator=generator)
    return tokens, targets


@pytest.mark.parametrize("shape", [*GPT2, *LLAMA], ids=str)
def test_logits_and_gradients_equal_those_of_hugging_face(shape):
    ours, theirs, setting = twins(shape)
    tokens, targets = tokens_and_targets(shape)
    our_logits, their_logits = ours(tokens), theirs(tokens).logits
    scale = their_logits.abs().max().item()
    torch.testing.assert_close(our_logits, their_logits, rtol=0, atol=3e-6 * scale)

    F.cross_entropy(our_logits.flatten(0, 1), targets.flatten()).backward()
    F.cross_entropy(their_logits.flatten(0, 1), targets.flatten()).backward()
    gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    _, gradients = exported(setting, gradients)
    for name, parameter in theirs.named_parameters():
        scale = parameter.grad.abs().max().item()
        torch.testing.assert_close(
            gradients[name], parameter.grad, rtol=0, atol=3e-5 * scale, msg=name
        )


def test_bfloat16_stays_as_close_to_float32_as_gpt2_under_autocast():
    shape = (2, 4, 32, 16, 65)
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
