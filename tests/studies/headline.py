"""The headline numbers of a study, computed a second time: from its records, with numpy and scipy.

Nothing of paribus is imported. A mistake in what computed them first is not made here again, unless
it was made twice.
"""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy.stats import t as student_t

LEAST_TUNING_SEEDS = 3  # with fewer the best candidate stands


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def columns(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    table = pq.read_table(path, columns=names)
    return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}


def arms_of(results: Path) -> dict[str, str | None]:
    """{arm: the arm it is compared with}."""
    study = read(results / "study.json")
    named = {arm: about["reference"] or study["baseline"] for arm, about in study["arms"].items()}
    return {arm: None if other == arm else other for arm, other in named.items()}


def folders(results: Path, arm: str) -> dict[int, Path]:
    """{seed: a finished trial}."""
    found = results.glob(f"trials/{arm}/seed-*/manifest.json")
    return {int(file.parent.name.removeprefix("seed-")): file.parent for file in found}


class Records:
    """The trials of a results folder, each read once."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._rule = read(results / "study.json")["stability"]

    @functools.cache  # noqa: B019 - as long as a test
    def _trials(self, arm: str) -> dict[int, tuple[Path, bool, bool]]:
        """{seed: (folder, diverged, spiked)}"""
        there = folders(self._results, arm)
        return {seed: (trial, *events(trial, self._rule)) for seed, trial in there.items()}

    @functools.cache  # noqa: B019
    def losses(self, arm: str) -> dict[int, float]:
        """Held-out loss in nats/token by seed: of the sealed test part where it was opened.

        Trials that diverged are left out.
        """
        found = {}
        for seed, (trial, diverged, _) in self._trials(arm).items():
            if not diverged:
                tested = self._results / "test" / arm / f"seed-{seed}"
                found[seed] = loss_of(tested if tested.is_dir() else trial)
        return found

    @functools.cache  # noqa: B019
    def accuracies(self, arm: str) -> dict[int, float]:
        """Macro accuracy by seed: the mean over tasks of the mean over numbers of shots."""
        found = {}
        for seed, (trial, diverged, _) in self._trials(arm).items():
            table = pq.read_table(trial / "items.parquet", columns=["task", "shots", "correct"])
            if diverged or not len(table):
                continue
            answers: dict[str, dict[int, list[bool]]] = {}
            for task, shots, correct in zip(*table.to_pydict().values(), strict=True):
                answers.setdefault(task, {}).setdefault(shots, []).append(correct)
            tasks = [np.mean([np.mean(of) for of in by.values()]) for by in answers.values()]
            found[seed] = float(np.mean(tasks))
        return found

    def event_counts(self, arm: str, reference: str) -> tuple[int, int, int, int]:
        """Seeds with an event in both, in the reference alone, in the arm alone, in neither."""
        ours, theirs = self._trials(arm), self._trials(reference)
        pairs = [
            (any(theirs[seed][1:]), any(ours[seed][1:])) for seed in sorted({*ours} & {*theirs})
        ]
        kinds = [(True, True), (True, False), (False, True), (False, False)]
        both, before, after, neither = (pairs.count(kind) for kind in kinds)
        return both, before, after, neither


def loss_of(trial: Path) -> float:
    """Nats per predicted token, from the blocks of a trial."""
    blocks = columns(trial / "blocks.parquet", ["loss_sum_nats", "predicted"])
    return float(blocks["loss_sum_nats"].sum() / blocks["predicted"].sum())


def events(trial: Path, rule: dict[str, Any]) -> tuple[bool, bool]:
    """(diverged, spiked): as the study registered what counts."""
    loss = columns(trial / "steps.parquet", ["train_loss"])["train_loss"].astype(float)
    finite = np.isfinite(loss)
    diverged = not finite.all() or loss[-rule["smoothing_steps"] :].mean() > loss[0]
    until = len(loss) if finite.all() else int(np.argmin(finite))
    window, in_a_row = rule["median_steps"], 0
    if until <= window:
        return bool(diverged), False
    before = np.lib.stride_tricks.sliding_window_view(loss[: until - 1], window)
    median = np.median(before, axis=1)
    mad = np.median(np.abs(before - median[:, None]), axis=1)
    for is_above in loss[window:until] > median + rule["mad_multiplier"] * mad:
        in_a_row = in_a_row + 1 if is_above else 0
        if in_a_row == rule["spike_steps"]:
            return bool(diverged), True
    return bool(diverged), False


def mcnemar(only_reference: int, only_arm: int) -> float:
    """Return the exact two-sided p of discordant pairs."""
    n, k = only_reference + only_arm, min(only_reference, only_arm)
    tail = sum(math.comb(n, i) for i in range(k + 1)) / 2**n
    return min(1.0, 2 * tail) if n else 1.0


def contrast(
    theirs: dict[int, float], ours: dict[int, float], choice: float = 0.0
) -> dict[str, float]:
    """Mean of the paired differences, its SD, n, t, two-sided p, and the 95% interval; `choice` is
    what choosing tuned values adds to the error."""
    seeds = sorted(theirs.keys() & ours.keys())
    delta = np.array([ours[seed] - theirs[seed] for seed in seeds])
    n, mean, sd = len(delta), float(delta.mean()), float(delta.std(ddof=1))
    error = math.hypot(sd / math.sqrt(n), choice)
    half = student_t.ppf(0.975, n - 1) * error
    t = mean / error
    p = 2 * student_t.sf(abs(t), n - 1)
    return {"n": n, "mean": mean, "sd": sd, "t": t, "p": p, "low": mean - half, "high": mean + half}


def tuning_loss(trial: Path) -> float:
    """Of a trial of tuning, whose blocks a kept study is without."""
    if not (trial / "blocks.parquet").is_file():
        return float(read(trial / "evaluation.json")["validation_loss"])
    return loss_of(trial)


def best_values(results: Path) -> dict[str, Any]:
    """{arm: the value with the least mean validation loss over tuning seeds}, from the trials.

    A candidate that diverged on a seed comes after those that diverged on fewer. Where the error of
    the choice is propagated from enough seeds, it is the vertex of the parabola, in the logarithm
    of the one value that is tuned, through the best candidate and its neighbours, to four digits.
    """
    study = read(results / "study.json")
    keys = study["tuning"]["grid"] or study["tuning"]["combinations"][0]
    found: dict[str, list[tuple[int, float, Any]]] = {arm: [] for arm in study["arms"]}
    tuning = read(results / "tuning/study.json")
    for name, about in tuning["arms"].items():
        arm = name.rpartition("-")[0]
        trials = folders(results / "tuning", name).values()
        diverged = [trial for trial in trials if events(trial, tuning["stability"])[0]]
        scores = [tuning_loss(trial) for trial in trials if trial not in diverged]
        values = {key: about["set"][key] for key in keys}
        mean = float(np.mean(scores)) if scores else math.inf
        found[arm].append((len(diverged), mean, values))
    best = {arm: min(tried, key=lambda one: one[:2])[2] for arm, tried in found.items()}
    choice = study.get("inference", {}).get("choice")
    if (
        choice not in ("with_lack_of_fit", "propagated")
        or len(keys) > 1
        or len(study["tuning"]["seeds"]) < LEAST_TUNING_SEEDS
    ):
        return best
    (key,) = keys
    return {arm: {key: vertex(found[arm], of[key], key)} for arm, of in best.items()}


def vertex(tried: list[tuple[int, float, Any]], best: float, key: str) -> float:
    """Where the parabola through the best value and its neighbours is least between them.

    At the edge of what was tried both neighbours are on one side.
    """
    ordered = sorted((values[key], mean) for _, mean, values in tried)
    at = [value for value, _ in ordered].index(best)
    first = min(max(at - 1, 0), len(ordered) - 3)
    x, y = np.array(ordered[first : first + 3]).T
    middle = np.log(x[1])
    a, b, _ = np.polyfit(np.log(x) - middle, y, 2)
    place = middle - b / (2 * a) if a > 0 else np.log(best)
    return float(f"{np.clip(np.exp(place), x[0], x[2]):.4g}")
