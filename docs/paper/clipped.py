"""In how many steps the gradient is clipped, by arm and cell, in both halves of the factorial.

    python docs/paper/clipped.py studies/embedding-factorial studies/embedding-factorial-long

prints, for each half, the share of all steps and the number of the first 30 whose gradient norm was
above the threshold, means over the verdict seeds; cells are as in effects.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from effects import ARMS, CELLS

from paribus import load_results
from paribus.results import readable

FIRST = 30


def main() -> None:
    """Print a line for each arm."""
    for study in map(Path, sys.argv[1:]):
        with readable(study) as folder:
            results = load_results(folder)
            steps, seeds = results.trial_steps, results.study.seeds
            for arm in ("none", *ARMS):
                told = []
                for cell in CELLS:
                    limit = results.study.setting(arm + cell).training.grad_clip
                    norms = [np.asarray(steps[arm + cell, s]["grad_norm"]) for s in seeds]
                    clipped = np.array(norms) > limit
                    first = clipped[:, :FIRST].sum(1).mean()
                    told.append(f"{clipped.mean():6.1%} ({first:4.1f})")
                print(f"{study.name:26} {arm:10} {'  '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
