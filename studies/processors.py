"""How far a trial ends from the same trial on another processor, of 60 of the factorial's tuning.

    python studies/processors.py studies/embedding-factorial-long

Six arms of the half of 1,500 iterations were begun as a study of their own, `embedding-budget`, on
two cores; its blocks have 60 trials of tuning with the arms, rates, seeds, batches and initial
weights of trials that the half has on an H200. Prints how their validation losses differ, and
writes processors.json beside this file.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import numpy as np
from blocks import blocks_of

from paribus.files import write_bytes
from paribus.results import readable

BEGUN = "embedding-budget"
MARGIN = 0.02
RATE = "training.optimizer.learning_rate"


def on_the_processor() -> dict[tuple[str, float, int], float]:
    """Return validation losses by arm, rate and seed."""
    texts: dict[str, str] = {}
    for block in blocks_of(BEGUN):
        with tarfile.open(block) as archive:
            for file in archive:
                if file.name.endswith(("study.json", "evaluation.json")):
                    texts[file.name] = archive.extractfile(file).read().decode()
    return losses_in(texts)


def on_the_gpu(study: Path) -> dict[tuple[str, float, int], float]:
    """Return validation losses by arm, rate and seed."""
    with readable(study) as folder:
        tuning = (folder / "tuning").rglob("*.json")
        files = [file for file in tuning if file.name in ("study.json", "evaluation.json")]
        return losses_in({file.relative_to(folder).as_posix(): file.read_text() for file in files})


def losses_in(texts: dict[str, str]) -> dict[tuple[str, float, int], float]:
    """Return validation losses by arm, rate and seed, of the files of rounds of tuning."""
    found = {}
    for name, text in texts.items():
        if not name.endswith("/evaluation.json"):
            continue
        round_, _, candidate, seed, _ = name.removeprefix("tuning/").split("/")
        of = json.loads(texts[f"tuning/{round_}/study.json"])["arms"][candidate]["set"]
        arm = candidate.rpartition("-")[0]
        loss = json.loads(text)["validation_loss"]
        found[arm, of[RATE], int(seed.removeprefix("seed-"))] = loss
    return found


def differences(study: Path) -> dict[tuple[str, float, int], float]:
    """Return the loss here minus that there by arm, rate and seed, the largest last."""
    here, there = on_the_processor(), on_the_gpu(study)
    deltas = {one: here[one] - there[one] for one in here.keys() & there.keys()}
    return dict(sorted(deltas.items(), key=lambda one: abs(one[1])))


def summary(deltas: dict[tuple[str, float, int], float]) -> dict[str, float]:
    """Return what is said of them."""
    sizes = np.abs(list(deltas.values()))
    return {
        "trials": len(deltas),
        "mean difference": float(np.mean(list(deltas.values()))),
        "median of sizes": float(np.median(sizes)),
        "mean of sizes": float(sizes.mean()),
        "largest size": float(sizes.max()),
        f"above {MARGIN}": int((sizes > MARGIN).sum()),
    }


if __name__ == "__main__":
    deltas = differences(Path(sys.argv[1]))
    for (arm, rate, seed), delta in deltas.items():
        print(f"{arm:20} {rate:<10g} {seed}  {delta:+.4f}")
    told = summary(deltas)
    write_bytes(Path(__file__).with_suffix(".json"), f"{json.dumps(told, indent=1)}\n".encode())
    for name, value in told.items():
        print(f"{name:20} {value:+.4g}")
