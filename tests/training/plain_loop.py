"""PyTorch's own training loop under autocast, as anybody would write it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from paribus.engine.data import Dataset, batch
from paribus.engine.model import build_model, load_parameters, parameter_uses
from paribus.engine.setting import Setting
from paribus.engine.training import Trainer
from paribus.engine.training.groups import is_decayed


def train_plainly(
    setting: Setting, seed: int, dataset: Dataset, steps: int
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Train from the weights of the engine, with a GradScaler in float16.

    Returns [steps, 3] losses, scales and skipped steps so far, and the weights by name.
    """
    model = build_model(setting, dataset.vocab_size).train()
    load_parameters(model, Trainer(setting, [seed], dataset).parameters(0))
    training, spec = setting.training, setting.training.optimizer
    dtype = getattr(torch, training.precision)
    groups: dict[bool, list[torch.Tensor]] = {True: [], False: []}
    uses = parameter_uses(model)
    for name, parameter in model.named_parameters():
        groups[is_decayed(uses[name], spec.decay)].append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": groups[True]}, {"params": groups[False], "weight_decay": 0.0}],
        lr=spec.learning_rate,
        betas=spec.betas,
        eps=spec.eps,
        weight_decay=spec.weight_decay,
    )
    scaler = torch.amp.GradScaler(  # type: ignore[attr-defined]
        "cpu",
        init_scale=training.loss_scale.initial,
        growth_interval=training.loss_scale.growth_interval,
        enabled=dtype == torch.float16,
    )
    rows, skipped = [], 0
    for t in range(steps):
        windows = batch(dataset.train, seed, t, training.batch_size, setting.data.seq_len)
        inputs, targets = torch.from_numpy(windows[:, :-1]), torch.from_numpy(windows[:, 1:])
        with torch.autocast("cpu", dtype=dtype):
            logits = model(inputs)
        loss = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        scale = scaler.get_scale()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        assert training.grad_clip is not None
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.grad_clip)
        scaler.step(optimizer)
        scaler.update()
        skipped += scaler.get_scale() < scale
        rows.append((loss.item(), scale, skipped))
    return np.array(rows), {name: p.detach().numpy() for name, p in model.named_parameters()}
