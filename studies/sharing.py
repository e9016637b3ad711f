"""Does an effect differ between two studies of the same arms? By seed, the difference of effects.

    python studies/sharing.py studies/FIRST studies/SECOND

For every arm of both that is compared with the baseline: its effect on loss in the second study
minus that in the first, at the same seed; the mean over the seeds that both have with its 95% t
interval. Then the mean loss of every arm over these seeds. No study registered this: it describes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import paribus
from paribus.errors import ParibusError
from paribus.results import load_results, readable
from paribus.statistics import paired_t

METRIC = "validation_loss"  # the name of the endpoint: of the sealed test part where there is one


def main() -> int:
    """Print both; 2 where the studies share no arm or fewer than two seeds."""
    parser = argparse.ArgumentParser(description="The difference of effects, by seed")
    parser.add_argument("first", type=Path, help="a kept study, or a results folder")
    parser.add_argument("second", type=Path, help="another")
    given = parser.parse_args()
    try:
        _tell(losses_of(given.first), losses_of(given.second))
    except ParibusError as error:
        parser.error(str(error))
    return 0


def losses_of(study: Path) -> dict[str, dict[int, float]]:
    """{arm: {seed: loss}}: the baseline first, and arms that are compared with it."""
    with readable(study) as folder:
        results = load_results(folder)
        found: dict[str, dict[int, float]] = {}
        for one in paribus.analyse(results).contrasts:
            if one.metric == METRIC and one.reference == results.study.baseline and one.paired:
                pairs = dict(zip(one.seeds, one.paired.pairs, strict=True))
                found.setdefault("baseline", {s: pair.baseline for s, pair in pairs.items()})
                found[one.arm] = {seed: pair.treatment for seed, pair in pairs.items()}
        return found


def _tell(first: dict[str, dict[int, float]], second: dict[str, dict[int, float]]) -> None:
    arms = [arm for arm in first if arm in second]
    if len(arms) < 2:
        raise ParibusError("the studies have no arm in common; name two of the same arms")
    seeds = sorted(set.intersection(*(set(one[arm]) for one in (first, second) for arm in arms)))
    for arm in arms[1:]:
        effects = [[one[arm][s] - one["baseline"][s] for s in seeds] for one in (first, second)]
        says = paired_t(np.subtract(effects[1], effects[0]).tolist())
        low, high = says.interval(0.95).low, says.interval(0.95).high
        print(f"{arm:<16} {says.mean:+.4f} [{low:+.4f}, {high:+.4f}], {len(seeds)} seeds")
    for arm in arms:
        means = [np.mean([one[arm][seed] for seed in seeds]) for one in (first, second)]
        print(f"{arm:<16} loss {means[0]:.4f} in the first, {means[1]:.4f} in the second")


if __name__ == "__main__":
    raise SystemExit(main())
