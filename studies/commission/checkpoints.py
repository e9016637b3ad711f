"""Export seed 1 of each arm of a finished final protocol as a bfloat16 checkpoint.

    paribus run studies/embedding-norm.toml --results results/embedding-norm
    python studies/commission/checkpoints.py results/embedding-norm

writes checkpoints/ARM beside this file: the folder that `paribus export` writes, with its weights
rounded to bfloat16.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from paribus import export_trial

HERE = Path(__file__).resolve().parent
ARMS = ("baseline", "layernorm", "rmsnorm")
SEED = 1


def export(results: Path, arm: str) -> None:
    """Write checkpoints/ARM from the trained weights of a results folder."""
    out = HERE / "checkpoints" / arm
    out.parent.mkdir(exist_ok=True)
    export_trial(results, arm, SEED, out)
    weights = load_file(out / "model.safetensors")
    rounded = {name: tensor.to(torch.bfloat16) for name, tensor in weights.items()}
    save_file(rounded, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((out / "config.json").read_text())
    config["dtype"] = "bfloat16"
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    for arm in ARMS:
        export(Path(sys.argv[1]), arm)
