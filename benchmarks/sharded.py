"""One rank of FSDP2 beside the stacked path: seconds of a step in turn, losses, memory, MFU.

    python benchmarks/sharded.py                     # 10 million parameters, on a CPU: wanted 1.10
    python benchmarks/sharded.py --device cuda       # 1.2 billion, bfloat16: on one H100, minutes

Both train the same rows of the same text from the same initial values. Rounds go in turn, and the
ratio is of the median of each, of seconds and of the processor's, which tells where a machine is
busy. Losses are compared over the first steps: later a last bit has grown. On CUDA the stacked path
is launched as a graph, as it trains, and blocks of the sharded one are compiled. MFU is of the
formula's FLOPs (docs/how-to/large.md) and of the card's peak; `--peak` states that of another card
than an H100's 989.4 TFLOP/s. Memory is the most that tensors held; each path is built and dropped
alone for it where a card does not hold both (`--apart`).
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
from functools import partial
from typing import Any

import torch

from paribus.engine.data import load_dataset
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.environment import environment, prepare
from paribus.engine.machine.memory import most_held
from paribus.engine.machine.on_paper import CARDS, flops_per_token, memory, sizes
from paribus.engine.machine.speed import timed
from paribus.engine.training import Trainer
from paribus.engine.training.ranks import Ranks, leave
from paribus.study import Study, load_study

WARM_UP, COMPARED, ALLOWED = 4, 8, {"float32": 1e-4, "bfloat16": 2e-2}
PROBES = (
    *("attention_logits", "position_similarity", "embedding_similarity", "embedding_gain"),
    *("embedding_norm", "gradient_norm", "logits", "optimizer_slots", "below_eps"),
    *("residual_norm", "update_ratio"),
)
SHAPES: dict[str, dict[str, Any]] = {
    "cpu": {
        "data": {"corpus": "pydoc", "tokenizer": "pydoc-512", "seq_len": 128},
        "model": {"n_layer": 12, "n_head": 4, "d_model": 256},
        "training": {"iterations": 1000, "batch_size": 8, "precision": "float32"},
    },
    "cuda": {
        "data": {"corpus": "pydoc", "tokenizer": "pydoc-512", "seq_len": 2048},
        "model": {"n_layer": 24, "n_head": 16, "d_model": 2048},
        "training": {
            "iterations": 1000,
            "batch_size": 16,
            "micro_batch": 4,
            "precision": "bfloat16",
        },
    },
}


def study_of(device: str, *, checkpointing: bool) -> Study:
    table = {
        "name": "sharded",
        "seeds": [1],
        **SHAPES[device],
        "probes": {"every": dict.fromkeys(PROBES, 0)},
        "resources": {"devices_per_trial": 1, "checkpoint_activations": checkpointing},
        "arms": {"baseline": {}},
    }
    return load_study(table)


def walk(trainer: Trainer, steps: int) -> None:
    for _ in range(steps):
        trainer.step()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=2, help="of a round")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--apart", action="store_true", help="hold one path at a time")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--peak", type=float, default=CARDS["h100"].flops["bfloat16"])
    parser.add_argument("--json")
    given = parser.parse_args()
    if given.device == "cuda" and not torch.cuda.is_available():
        print("there is no GPU here; nothing was measured", file=sys.stderr)
        return 2
    device = torch.device(given.device, 0) if given.device == "cuda" else torch.device("cpu")
    prepare(device)
    study = study_of(given.device, checkpointing=given.checkpointing)
    setting = study.setting("baseline")
    dataset = load_dataset(setting.data, study.folder)
    ranks = Ranks.alone(device)

    def build(name: str) -> Trainer:
        if name == "stacked":
            return build_stack(study, setting, [1], dataset, device)
        about = {"checkpointing": given.checkpointing}
        compiles = False if given.no_compile else None
        return Trainer(
            setting, [1], dataset, device=device, ranks=ranks, compiles=compiles, **about
        )

    names, seconds, held = ("stacked", "sharded"), {}, {}
    losses: dict[str, list[float]] = {}
    processor: dict[str, list[float]] = {}
    rounds = [names] * given.rounds if not given.apart else [(name,) for name in names]
    there: dict[str, Trainer] = {}
    for now in rounds:
        for name in now:
            if name not in there:
                there.clear() if given.apart else None
                gc.collect()

                def begin(name: str = name) -> Trainer:
                    made = build(name)
                    walk(made, WARM_UP)
                    return made

                there[name], held[name] = most_held(begin, device)
            repeats = given.rounds if given.apart else 1
            for _ in range(repeats):  # nothing but `there` holds it: another may need the memory
                busy = time.process_time()
                walked = timed(partial(walk, there[name], given.steps), device)
                processor.setdefault(name, []).append(time.process_time() - busy)
                seconds.setdefault(name, []).append(walked[1] / given.steps)
            losses[name] = there[name].history(0).measured[:, 0].tolist()
    parameters = sizes(setting, dataset.vocab_size).all
    per_step = flops_per_token(setting, dataset.vocab_size) * setting.tokens_per_step
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    first = zip(losses["stacked"][:COMPARED], losses["sharded"][:COMPARED], strict=True)
    apart = max(abs(a - b) for a, b in first)
    busier = statistics.median(processor["sharded"]) / statistics.median(processor["stacked"])
    ratio = medians["sharded"] / medians["stacked"]
    where = environment(device, 1)["device"]
    print(f"{parameters:,} parameters, {setting.training.precision}, {where}")
    for name in names:
        line = f"{name}: {medians[name] * 1e3:,.1f} ms a step"
        line += f" ({min(seconds[name]) * 1e3:,.1f} to {max(seconds[name]) * 1e3:,.1f})"
        line += f", {setting.tokens_per_step / medians[name]:,.0f} tokens/s"
        if held[name]:
            line += f", {held[name] / 2**30:.2f} GiB"
        if given.device == "cuda":
            line += f", MFU {per_step / medians[name] / given.peak:.1%}"
        print(line)
    for name in names:
        about = {"sharded": name == "sharded", "checkpointing": given.checkpointing}
        about["checkpointing"] &= name == "sharded"
        paper = memory(setting, dataset.vocab_size, **about).total
        print(f"on paper, {name}: {paper / 2**30:.2f} GiB")
    allowed = ALLOWED[setting.training.precision]
    print(f"sharded takes {ratio:.3f} times the stacked step (at most 1.10 wanted on a CPU)")
    print(f"and {busier:.3f} times its processor time")
    print(f"losses differ by {apart:.2g} nats at most over {COMPARED} steps", end="")
    print(f" ({'within' if apart <= allowed else 'BEYOND'} {allowed:g})")
    if given.json:
        found = {"seconds": seconds, "held": held, "losses": losses, "parameters": parameters}
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(
                found | {"ratio": ratio, "processor": processor, "machine": environment(device, 1)},
                file,
            )
    leave()
    return 0 if apart <= allowed else 1


if __name__ == "__main__":
    raise SystemExit(main())
