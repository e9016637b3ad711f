"""Judge the public results of modded-nanogpt's Track 3 from their logs.

    git clone https://github.com/KellerJordan/modded-nanogpt
    python track3.py modded-nanogpt

Prints two Markdown tables: every result against the target loss, and every record against the
record before it. The losses are those at the stated step, from the folder of the linked log. If the
folder has more runs than the results table counts, only runs of the linked log's program count.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.stats import norm

from paribus.readers import read
from paribus.statistics import holm, paired_t, welch

TRACK = Path("records", "track_3_optimization")
ROW = re.compile(
    r"\| (?P<number>\d+) \| (?P<step>\d+)(?P<record>\(!\))? \| [\d.]+ \(n=(?P<runs>\d+)\)"
    r".*\| \[log\]\((?P<log>\S+)\) \|"
)
TARGET, BAR, SIGMA = 3.28, 0.004, 0.0013  # validation loss; threshold; the rule's known SD
LOSS_PER_STEP = 0.0045 / 100  # the README's value of a saved step
SCORES = {46: "val_ema_loss"}  # the README of that result claims this loss
NONE = "-"  # not tested


@dataclass
class Entry:
    """A row of the results table, with the losses from its logs."""

    number: int
    step: int
    is_record: bool
    losses: list[float]


def load_entry(clone: Path, row: re.Match[str]) -> Entry:
    """Return the entry of one row of the table."""
    number, step, log = int(row["number"]), int(row["step"]), clone / TRACK / row["log"]
    score = SCORES.get(number, "val_loss")
    runs = read(log if log.parent.name == "results" else log.parent).runs
    at_step = [run for run in runs if run.at(score, step) is not None]
    if len(at_step) > int(row["runs"]):
        linked = next(run for run in runs if Path(run.source.partition("#")[0]) == log)
        program = linked.facts["source_digest"]
        at_step = [run for run in at_step if run.facts.get("source_digest") == program]
    losses = [loss for run in at_step if (loss := run.at(score, step)) is not None]
    return Entry(number, step, row["record"] is not None, losses)


def adjusted(p_values: list[float]) -> list[str]:
    """Return Holm's p-values as text. NaN marks an entry that cannot be tested."""
    p = np.array(p_values)
    p[~np.isnan(p)] = holm(p[~np.isnan(p)])
    print(f"p-values by Holm: {sum(p < 0.05)} below .05, {sum(p < 0.001)} below .001")
    return [NONE if math.isnan(x) else f"{x:.4f}" for x in p]


def print_results(entries: list[Entry]) -> None:
    """Print each entry against the target: `(3.28 - mean) sqrt(n)`, and Student's t."""
    tests = [paired_t(entry.losses) if len(entry.losses) > 1 else None for entry in entries]
    df = sum(test.df for test in tests if test)
    pooled = math.sqrt(sum(test.df * test.spread**2 for test in tests if test) / df)
    total = sum(len(entry.losses) for entry in entries)
    print(f"{len(entries)} results, {total} losses; pooled SD {pooled:.5f}, {df} df")
    one_sided = [test.one_sided_p(TARGET, greater=False) if test else math.nan for test in tests]
    holm_p = adjusted(one_sided)
    print("\n| # | step | runs | mean | SD | (3.28 - mean) sqrt(n) | passes | p of t, Holm |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for entry, test, p in zip(entries, tests, holm_p, strict=True):
        n, mean = len(entry.losses), fmean(entry.losses)
        statistic = (TARGET - mean) * math.sqrt(n)
        passes = "yes" if round(statistic, 12) >= BAR else "no"
        sd = f"{test.spread:.5f}" if test else NONE
        name = f"{entry.number}(!)" if entry.is_record else entry.number
        print(f"| {name} | {entry.step} | {n} | {mean:.5f} | {sd} | {statistic:.6f} | ", end="")
        print(f"{passes} | {p} |")


def print_chain(entries: list[Entry]) -> None:
    """Print each record against the one before it. Saved steps count as a lower loss."""
    rows, z_tests, welch_tests = [], [], []
    for old, new in pairwise(entry for entry in entries if entry.is_record):
        n_old, n_new = len(old.losses), len(new.losses)
        saved = (old.step - new.step) * LOSS_PER_STEP
        gain = fmean(old.losses) - fmean(new.losses) + saved
        statistic = gain / math.sqrt(1 / n_new + 1 / n_old)
        z_tests.append(float(norm.sf(statistic / SIGMA)))
        test = welch(old.losses, new.losses) if min(n_old, n_new) > 1 else None
        welch_tests.append(test.one_sided_p(saved, greater=False) if test else math.nan)
        needed = math.ceil(2 * (BAR / gain) ** 2) if gain > 0 else NONE
        passes = "yes" if statistic >= BAR else "no"
        row = f"{new.number} | {old.number} | {n_new}, {n_old} | {gain:.5f} | {statistic:.6f}"
        rows.append(f"{row} | {passes} | {needed}")
    holm_z, holm_welch = adjusted(z_tests), adjusted(welch_tests)
    print("\n| record | after | runs | gain | statistic | passes | runs to pass | z | Welch |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row, z, t in zip(rows, holm_z, holm_welch, strict=True):
        print(f"| {row} | {z} | {t} |")


if __name__ == "__main__":
    clone = Path(sys.argv[1])
    lines = (clone / TRACK / "README.md").read_text("utf-8").splitlines()
    table = [load_entry(clone, row) for row in map(ROW.match, lines) if row]
    print_results(table)
    print_chain(table)
