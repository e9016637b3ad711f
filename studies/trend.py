"""Does an effect shrink or grow with the size of the model? The sign at every size, then a trend.

    python studies/trend.py studies/embedding-norm-sizes

The trend is the one that the study file states: by seed, the least-squares slope of the effect
against log10 of the parameters; its mean over seeds with the 95% t interval. It is about the sizes
that were run and promises nothing beyond them.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

import paribus
from paribus.errors import ParibusError
from paribus.results import load_results, readable
from paribus.statistics import trend


def main() -> int:
    """Print the effect at every size, then the trend; 2 where the study has no sizes."""
    parser = argparse.ArgumentParser(description="The effect at every size, and its trend")
    parser.add_argument("study", type=Path, help="a kept study, or a results folder")
    parser.add_argument("--metric", default="validation_loss")
    given = parser.parse_args()
    try:
        with readable(given.study) as folder:
            results = load_results(folder)
            return _told(results, given.metric)
    except ParibusError as error:
        parser.error(str(error))


def _told(results: paribus.Results, metric: str) -> int:
    found = []
    for one in paribus.analyse(results).contrasts:
        if one.metric != metric or one.paired is None:
            continue
        size = results.trials[one.reference, one.seeds[0]]["parameters"]
        found.append((size, one, dict(zip(one.seeds, one.paired.pairs, strict=True))))
    if len({size for size, _, _ in found}) < 3:
        raise ParibusError(f"{metric} is compared at fewer than three sizes; a trend needs three")
    found.sort(key=lambda each: each[0])
    for size, one, _ in found:
        says = one.paired.t_interval
        print(
            f"{size:>10,}  {one.arm:<20} {one.paired.mean:+.4f} [{says.low:+.4f}, {says.high:+.4f}]"
        )
    seeds = sorted(set.intersection(*(set(pairs) for _, _, pairs in found)))
    effects = np.array([[pairs[seed].delta for seed in seeds] for _, _, pairs in found])
    says = trend([size for size, _, _ in found], effects)
    low, high = says.t_interval.low, says.t_interval.high
    print(f"per factor of ten: {says.mean:+.4f} [{low:+.4f}, {high:+.4f}], {len(seeds)} seeds")
    return 0 if math.isfinite(says.mean) else 3


if __name__ == "__main__":
    raise SystemExit(main())
