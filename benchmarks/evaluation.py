"""Held-out evaluation, before and now: processor seconds in turn, and what is printed.

    git worktree add /tmp/before c3b540b
    python benchmarks/evaluation.py --before /tmp/before/src

The model is that of `quickstart` with each vocabulary, its weights drawn and not trained; the text
is drawn too. A round is one evaluation each way, in processes of their own, after one that is not
counted. "loss" is the largest difference of a validation loss. Processor time is compared, since
the machine may be shared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CHILD = """
import json, resource, sys, time
import numpy as np, torch
from paribus import load_study
from paribus.engine.evaluation import evaluate_heldout
from paribus.engine.model import build_model

torch.set_num_threads(1)
V, n = int(sys.argv[1]), int(sys.argv[2])
study = load_study("quickstart")
setting = study.setting("baseline")
model = build_model(setting, V, study.folder)
torch.manual_seed(1)
for parameter in model.parameters():
    torch.nn.init.normal_(parameter, std=0.05)
tokens = np.random.default_rng(1).integers(V, size=n + 1).astype(np.uint16)
knows = {"token_classes": np.zeros(V, np.int64), "characters": np.ones(V, np.int64)}
if sys.argv[3] != "float32":
    knows["precision"] = sys.argv[3]
evaluate_heldout(model, tokens[:2049], 128, **knows)
print("ready", flush=True)
for line in sys.stdin:
    began = time.process_time()
    scores = evaluate_heldout(model, tokens, 128, **knows).scores
    seconds = time.process_time() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": seconds, "mib": memory, "loss": scores["validation_loss"],
                      "ece": scores["calibration_error"], "best": scores["best_temperature"]}),
          flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, required=True, help="src of an older checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab", type=int, nargs="+", default=[100, 8000, 50257])
    parser.add_argument("--tokens", type=int, nargs="+", default=[65536, 49152, 8192])
    parser.add_argument("--precision", default="float32", help="of the evaluation now")
    given = parser.parse_args()
    here = Path(__file__).resolve().parents[1] / "src"
    print(f"{'V':>6}{'tokens':>8}{'before s':>10}{'now s':>8}{'now/before':>12}{'loss':>10}"
          f"{'MiB before':>12}{'MiB now':>9}")  # fmt: skip
    for V, n in zip(given.vocab, given.tokens, strict=True):
        ways = (("old", given.before, "float32"), ("new", here, given.precision))
        children = {way: start(src, V, n, precision) for way, src, precision in ways}
        found = {way: [ask(child)] for way, child in children.items()}
        for _ in range(given.rounds - 1):
            for way, child in children.items():
                found[way].append(ask(child))
        for child in children.values():
            child.stdin.close()
            child.wait()
        cpu = {way: statistics.median(one["cpu"] for one in of) for way, of in found.items()}
        apart = abs(found["old"][0]["loss"] - found["new"][0]["loss"])
        mib = {way: max(one["mib"] for one in of) for way, of in found.items()}
        print(f"{V:>6}{n:>8}{cpu['old']:>10.2f}{cpu['new']:>8.2f}{cpu['new'] / cpu['old']:>12.2f}"
              f"{apart:>10.1e}{mib['old']:>12.0f}{mib['new']:>9.0f}", flush=True)  # fmt: skip
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {time.ctime()}")


def start(source: Path, vocab_size: int, n_tokens: int, precision: str) -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, str(vocab_size), str(n_tokens), precision]
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


def ask(child: subprocess.Popen[str]) -> dict[str, float]:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.write("again\n")
    child.stdin.flush()
    return json.loads(child.stdout.readline())


if __name__ == "__main__":
    main()
