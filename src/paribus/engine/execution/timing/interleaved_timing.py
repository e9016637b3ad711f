"""The speed of each arm, measured in turn so that the comparison is paired.

Trials are trained at different times, and what else the machine does is in their clock. Here all
arms take turns within seconds: reading a batch of full windows (prefill), writing token by token
with a key-value cache (decoding), and a training step without probes. An arm with custom modules
takes its turns in a process of its own, as its code could slow down whoever shares one; one process
computes at a time, and the others wait for their turn.
"""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np

from paribus.engine.execution.workers.messages import Answer, ArmTask, CountModel, Prepare, TakeTurn
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.machine.measurements import LARGEST_STATE_BYTES
from paribus.results import ResultsFolder
from paribus.study import Study

# Of each arm and kind, over all seeds. Where a seed has several the fastest counts: what else the
# machine does only ever slows down.
LEAST_TURNS = 5
UNITS = {
    "arm": "1",
    "seed": "1",
    "kind": "1",
    "tokens": "tokens",
    "seconds": "s",
    "bytes": "B",
}
DOING = "while the arms were timed in turn"


def time_in_turn(
    pool: Pool, study: Study, results: ResultsFolder, trials: Collection[tuple[str, int]]
) -> None:
    """Time every arm with the weights of every seed of `trials`, and write `throughput.parquet`.

    One row per (arm, seed, kind): tokens and seconds, of the fastest of its turns; of training the
    bytes as well that its tensors take at most, which is no matter of turns. Arms go in
    another order for every seed. A kind that an arm cannot do (decoding, with a module of one's
    own) has no row; nor has training where the optimizer states of all arms do not fit into
    LARGEST_STATE_BYTES.
    """
    arms = list(study.arms)
    workers = {arm: pool.worker_for(study.setting(arm)) for arm in arms}

    def ask(task: ArmTask[Answer]) -> Answer:
        return pool.ask(workers[task.arm], task, DOING)

    state_bytes = sum(ask(CountModel(arm)).state_bytes for arm in arms)
    trains = state_bytes <= LARGEST_STATE_BYTES
    seeds = [seed for seed in study.seeds if any((arm, seed) in trials for arm in arms)]
    turns = math.ceil(LEAST_TURNS / len(seeds))
    rows: list[tuple[str, int, str, int, float, float]] = []
    for turn, seed in enumerate(seeds):
        there = [arm for arm in arms if (arm, seed) in trials]
        kinds = {arm: ask(Prepare(arm, seed, trains)).kinds for arm in there}
        for kind in dict.fromkeys(kind for of_arm in kinds.values() for kind in of_arm):
            able = [arm for arm in there if kind in kinds[arm]]
            order = able[turn % len(able) :] + able[: turn % len(able)]
            rounds = [[ask(TakeTurn(arm, kind)) for arm in order] for _ in range(turns)]
            for arm, times in zip(order, zip(*rounds, strict=True), strict=True):
                best = min(times, key=lambda timed: timed.seconds)
                held = math.nan if best.held_bytes is None else float(best.held_bytes)
                rows.append((arm, seed, kind, best.tokens, best.seconds, held))
    columns = (np.array(column) for column in zip(*rows, strict=True))
    results.write_throughput(dict(zip(UNITS, columns, strict=True)), UNITS)
