"""Comparison of a study's loss curves with nanoGPT trained on the same batches.

    python benchmarks/nanogpt_curve.py RESULTS OUT.json --nanogpt PATH [--arm baseline]

For each seed, an unmodified nanoGPT with PyTorch's AdamW is trained on the trial's batches, with
the recorded learning rates and precision, and evaluated on the study's validation text. Only the
random initial values differ, so differences should be as large as those between seeds. Each seed
is saved to OUT.json after training, and an interrupted run resumes from that file. Only arms that
use AdamW are supported; training runs on a CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paribus.engine.data import Dataset, batch, load_dataset
from paribus.engine.setting import Setting
from paribus.results import Results, load_results
from paribus.statistics import paired_contrast

WINDOWS_AT_ONCE = 64
SMOOTHED = 10  # steps that a point of the curve is the mean of
POINTS = 10  # of the curve, that are printed


def train(
    nanogpt: Path, setting: Setting, dataset: Dataset, seed: int, rates: list[float]
) -> dict[str, Any]:
    """Train nanoGPT; return the training loss of each step and the final held-out loss.

    `rates` contains the learning rate of each step.
    """
    sys.path.insert(0, str(nanogpt))
    from model import GPT, GPTConfig  # type: ignore[import-not-found]

    torch.manual_seed(seed)
    training, length = setting.training, setting.data.seq_len
    config = GPTConfig(
        block_size=length,
        vocab_size=dataset.vocab_size,
        n_layer=setting.model.n_layer,
        n_head=setting.model.n_head,
        n_embd=setting.model.d_model,
        dropout=0.0,
        bias=True,
    )
    model = GPT(config)
    adamw = training.optimizer
    optimizer = model.configure_optimizers(
        adamw.weight_decay, adamw.learning_rate, adamw.betas, "cpu"
    )
    losses = []
    half = torch.autocast("cpu", torch.bfloat16, enabled=training.precision == "bfloat16")
    for t, rate in enumerate(rates):
        for group in optimizer.param_groups:
            group["lr"] = rate
        windows = batch(dataset.train, seed, t, training.batch_size, length, dataset.windows)
        tokens = torch.from_numpy(windows)
        with half:
            _, loss = model(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), training.grad_clip or math.inf)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    with half:
        held_out = held_out_loss(model, dataset, length)
    return {"train_loss": losses, "validation_loss": held_out}


@torch.no_grad()
def held_out_loss(model: Any, dataset: Dataset, length: int) -> float:
    """Return the mean loss per token on the held-out text, in non-overlapping windows."""
    model.eval()
    tokens = torch.from_numpy(np.asarray(dataset.validation).astype(np.int64))
    n = (len(tokens) - 1) // length
    inputs = tokens[: n * length].view(n, length)
    targets = tokens[1 : n * length + 1].view(n, length)
    total = 0.0
    pairs = zip(inputs.split(WINDOWS_AT_ONCE), targets.split(WINDOWS_AT_ONCE), strict=True)
    for x, y in pairs:
        total += model(x, y.contiguous())[1].item() * y.numel()
    count = n * length
    if rest := len(tokens) - 1 - count:
        x, y = tokens[count:-1][None], tokens[count + 1 :][None]
        total, count = total + model(x, y.contiguous())[1].item() * rest, count + rest
    return total / count


def compare(results: Results, arm: str, theirs: dict[int, dict[str, Any]]) -> None:
    """Print both training curves, and the paired difference in held-out loss."""
    rows = results.scores.to_pylist()
    ours = {row["seed"]: row["validation_loss"] for row in rows if row["arm"] == arm}
    seeds = sorted(ours.keys() & theirs.keys())
    if len(seeds) < 2:
        print(f"{len(seeds)} seeds of {arm} are finished on both sides; at least two are needed")
        return
    curves = np.array(
        [
            (results.trial_steps[arm, s]["train_loss"].to_numpy(), theirs[s]["train_loss"])
            for s in seeds
        ]
    )  # [seeds, 2, steps]
    n = curves.shape[2] // SMOOTHED
    smooth = curves[:, :, : n * SMOOTHED].reshape(len(seeds), 2, n, SMOOTHED).mean(axis=3)
    between = smooth[:, 0].std(axis=0, ddof=1)  # over seeds: other batches, other initial values
    gap = (smooth[:, 1] - smooth[:, 0]).mean(axis=0)
    print(f"training loss, mean over seeds {seeds} and {SMOOTHED} steps")
    print("| steps to | paribus | nanoGPT | difference | SD over seeds |")
    print("| --- | --- | --- | --- | --- |")
    for i in np.unique(np.linspace(0, n - 1, POINTS).round().astype(int)):
        a, b = smooth[:, 0, i].mean(), smooth[:, 1, i].mean()
        print(f"| {(i + 1) * SMOOTHED} | {a:.4f} | {b:.4f} | {gap[i]:+.4f} | {between[i]:.4f} |")
    a, b = ([side[s] for s in seeds] for side in (ours, _final(theirs)))
    print(f"held-out loss: paribus {np.mean(a):.4f} (SD {np.std(a, ddof=1):.4f})", end=", ")
    print(f"nanoGPT {np.mean(b):.4f} (SD {np.std(b, ddof=1):.4f})")
    found = paired_contrast(a, b, seed=0)
    low, high = found.decided.interval.low, found.decided.interval.high
    print(f"difference at the same batches: {found.mean:+.4f} [{low:+.4f}, {high:+.4f}]")


def _final(trained: dict[int, dict[str, Any]]) -> dict[int, float]:
    return {seed: one["validation_loss"] for seed, one in trained.items()}


def main() -> None:
    """Train nanoGPT on missing seeds, then compare the curves."""
    parser = argparse.ArgumentParser(description="Train nanoGPT on the batches of a study")
    parser.add_argument("results", type=Path, help="the results folder of a study")
    parser.add_argument("out", type=Path, help="JSON file for nanoGPT's losses")
    parser.add_argument("--nanogpt", type=Path, required=True, help="unmodified nanoGPT checkout")
    parser.add_argument("--arm", default="baseline", help="arm to compare with")
    parser.add_argument("--seeds", type=int, nargs="+", help="by default all seeds of the study")
    given = parser.parse_args()
    if not (given.nanogpt / "model.py").is_file():
        parser.error(f"{given.nanogpt} has no model.py; pass a nanoGPT checkout")
    results = load_results(given.results)
    setting = results.study.setting(given.arm)
    dataset = load_dataset(setting.data, results.study.folder)
    trained = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {}
    for seed in given.seeds or results.study.seeds:
        if str(seed) not in trained:
            rates = results.trial_steps[given.arm, seed]["learning_rate"].to_pylist()
            trained[str(seed)] = train(given.nanogpt.resolve(), setting, dataset, seed, rates)
            given.out.write_text(json.dumps(trained), encoding="utf-8")
    compare(results, given.arm, {int(seed): one for seed, one in trained.items()})


if __name__ == "__main__":
    main()
