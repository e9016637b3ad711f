"""Every number of docs/explanation/modded-nanogpt-track3.md, recomputed without paribus.

    python benchmarks/track3_recount.py MODDED_NANOGPT [PAGE]

Reads the logs of a clone of github.com/KellerJordan/modded-nanogpt by itself, with numpy and scipy
alone, and compares each row and each count of the page. Exits with 1 where a number differs.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import optimize, stats

PAGE = Path(__file__).parent.parent / "docs" / "explanation" / "modded-nanogpt-track3.md"
SIGMA, TARGET, BAR, PER_STEP = 0.0013, 3.28, 0.004, 0.000045
ROW = re.compile(r"\| (\d+) \| (\d+)(\(!\))? \| ([\d.]+) \(n=(\d+)\).*\[log\]\((\S+?)\)")
DECIMAL = r"-?\d*\.\d+"
# karpathy/nanochat, dev/LEADERBOARD.md, Run 4.
CORE, CORE_BAR = [0.25373, 0.2584, 0.25489, 0.2568, 0.25732, 0.26765, 0.25119], 0.256525


def trials(file: Path) -> list[tuple[str, dict[tuple[str, int], float]]]:
    """Return the trials of a log: its source, and {(score, step): value} of each."""
    text = file.read_text("utf-8", errors="replace")
    source = re.split(r"^={50,}$", text, maxsplit=1, flags=re.M)[0] if "\n====" in text else ""
    found: list[dict[tuple[str, int], float]] = []
    last = math.inf
    for step, rest in re.findall(r"^step:(\d+)/\d+ (val_loss:.*)$", text, re.M):
        if int(step) < last and (last == math.inf or int(step) <= min(s for _, s in found[-1])):
            found.append({})
        last = int(step)
        for score, value in re.findall(r"(val_\w+):([\d.]+)", rest):
            found[-1][score, last] = float(value)
    return [(source, one) for one in found]


def losses_of(
    clone: Path, number: int, step: int, counted: int, log: str
) -> tuple[list[float], list[float]]:
    """Return the losses of a result at its step, and 25 steps before it where all have one."""
    track = clone / "records" / "track_3_optimization"
    linked = track / log
    alone = linked.parent.name == "results"
    files = [linked] if alone else sorted(one for one in linked.parent.rglob("*") if one.is_file())
    files = [one for one in files if one.suffix in (".txt", ".stdout", ".log", ".out")]
    score = "val_ema_loss" if number == 46 else "val_loss"
    all_trials = [trial for file in files for trial in trials(file)]
    distinct: list[tuple[str, dict[tuple[str, int], float]]] = []
    for source, values in all_trials:
        for at, (other_source, other) in enumerate(distinct):
            if values == other:
                distinct[at] = (other_source or source, other)
                break
        else:
            distinct.append((source, values))
    there = [(source, values) for source, values in distinct if (score, step) in values]
    if len(there) > counted:
        own = trials(linked)[0][0]
        there = [one for one in there if one[0] == own]
    before = [values.get((score, step - 25), math.nan) for _, values in there]
    return [values[score, step] for _, values in there], [] if np.isnan(before).any() else before


def holm(p_values: list[float]) -> list[float]:
    """Return Holm's p-values."""
    order = np.argsort(p_values)
    steps = np.asarray(p_values)[order] * np.arange(len(p_values), 0, -1)
    out = np.empty(len(p_values))
    out[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return out.tolist()


def needed(gain: float, arms: int) -> tuple[int, int]:
    """Return the trials of each arm that do at this gain, and that do in 80% of attempts."""
    often = BAR + stats.norm.ppf(0.8) * SIGMA
    return tuple(math.ceil(arms * (one / gain) ** 2 - 1e-9) for one in (BAR, often))  # type: ignore[return-value]


def word(statistic: float, gain: float, runs: int, arms: int) -> str:
    """Return what the rule says."""
    if statistic >= BAR - 1e-12:
        return "supported"
    if gain <= 0:
        return "not supported"
    same, often = needed(gain, arms)
    return f"too few runs: {runs}, and {same} would do at this mean ({often} in 80% of attempts)"


def p_text(p: float | None) -> str:
    """Return a p-value as the page prints it."""
    if p is None:
        return "\u2013"
    return "< .0001" if p < 0.0001 else f"{p:.4f}".removeprefix("0")


def adjusted(p_values: list[float | None]) -> list[float | None]:
    """Return Holm's p-values of those that are there."""
    tested = iter(holm([p for p in p_values if p is not None]))
    return [None if p is None else next(tested) for p in p_values]


def expected(clone: Path) -> tuple[list[str], list[str]]:
    """Return the rows and the counts that the page must have."""
    readme = (clone / "records" / "track_3_optimization" / "README.md").read_text("utf-8")
    table = [match.groups() for match in map(ROW.match, readme.splitlines()) if match]
    results, looks = [], []
    for number, step, record, mean, counted, log in table:
        values, before = losses_of(clone, int(number), int(step), int(counted), log)
        if len(before) >= 4:
            looks.append((before, values))
        results.append((int(number), int(step), bool(record), float(mean), int(counted), values))
    rows, words, tests = [], [], []
    for *_, values in results:
        several = len(values) > 1
        tests.append(
            float(stats.ttest_1samp(values, TARGET, alternative="less").pvalue) if several else None
        )
    t_holm = adjusted(tests)
    for (number, step, record, _, _, values), p in zip(results, t_holm, strict=True):
        gain = TARGET - math.fsum(values) / len(values)
        statistic = gain * math.sqrt(len(values))
        words.append(word(statistic, gain, len(values), 1))
        sd = f"{np.std(values, ddof=1):.5f}" if len(values) > 1 else "\u2013"
        rows.append(
            f"| {number}{'(!)' if record else ''} | {step} | {len(values)} | {TARGET - gain:.5f} | "
            f"{sd} | {statistic:.6f} | {words[-1]} | {p_text(p)} |"
        )
    pairs = [one for one in results if one[2]]
    gains, z_tests, welch = [], [], []
    for old, new in pairwise(pairs):
        worth = (old[1] - new[1]) * PER_STEP
        a, b = np.asarray(old[5]), np.asarray(new[5])
        gain = a.mean() - b.mean() + worth
        statistic = gain / math.sqrt(1 / len(a) + 1 / len(b))
        gains.append((old, new, gain, statistic))
        z_tests.append(float(stats.norm.sf(statistic / SIGMA)))
        welch.append(_welch(a, b - worth) if min(len(a), len(b)) > 1 else None)
    z_holm, w_holm = holm(z_tests), adjusted(welch)
    chain_words = []
    for (old, new, gain, statistic), z, w in zip(gains, z_holm, w_holm, strict=True):
        chain_words.append(word(statistic, gain, len(new[5]), 2))
        rows.append(
            f"| {new[0]} | {old[0]} | {len(new[5])}, {len(old[5])} | {gain:.5f} | "
            f"{statistic:.6f} | {chain_words[-1]} | {p_text(z)} | {p_text(w)} |"
        )
    counts = _counts(clone, results, words, t_holm, chain_words, z_holm, w_holm)
    alike = [float(stats.pearsonr(*pair).statistic) for pair in looks]
    drops = [float(np.mean(before) - np.mean(values)) for before, values in looks]
    counts.append(
        f"Losses 25 steps apart, of {len(looks)} results whose logs have both: correlated by "
        f"{np.median(alike):.4f} (median; the least {min(alike):.4f}), and lower by "
        f"{np.median(drops):.5f} (median; {min(drops):.5f} to {max(drops):.5f})."
    )
    return rows, counts


def _welch(old: np.ndarray, new: np.ndarray) -> float:
    """Return the one-sided p of Welch's t, written out."""
    a, b = old.var(ddof=1) / len(old), new.var(ddof=1) / len(new)
    df = (a + b) ** 2 / (a**2 / (len(old) - 1) + b**2 / (len(new) - 1))
    return float(stats.t.sf((old.mean() - new.mean()) / math.sqrt(a + b), df))


def _counts(
    clone: Path,
    results: list[Any],
    words: list[str],
    t_holm: list[float | None],
    chain_words: list[str],
    z_holm: list[float],
    w_holm: list[float | None],
) -> list[str]:
    """Return the sentences that count."""
    several = [values for *_, values in results if len(values) > 1]
    df = sum(len(values) - 1 for values in several)
    sd = math.sqrt(sum(np.var(values, ddof=1) * (len(values) - 1) for values in several) / df)
    low, high = (sd * math.sqrt(df / stats.chi2.ppf(q, df)) for q in (0.975, 0.025))
    passed = [
        values for said, (*_, values) in zip(words, results, strict=True) if said == "supported"
    ]
    worth = 25 * PER_STEP
    close = sum(
        (TARGET - np.mean(values) - worth) * math.sqrt(len(values)) < BAR for values in passed
    )
    as_table = sum(
        abs(np.mean(values) - mean) < 0.0001 and len(values) == counted
        for _, _, _, mean, counted, values in results
    )
    z_all = holm(
        [
            float(stats.norm.sf((TARGET - np.mean(values)) * math.sqrt(len(values)) / SIGMA))
            for *_, values in results
        ]
    )
    total = sum(len(values) for *_, values in results)
    tested = [p for p in t_holm if p is not None]
    ratio = holm(
        [
            float(stats.chi2.sf((len(v) - 1) * np.var(v, ddof=1) / SIGMA**2, len(v) - 1))
            for v in several
        ]
    )
    listed = [float(row.split("|")[3]) for row in _rows_of_41(clone)]
    core = np.asarray(CORE)
    core_p = float(stats.ttest_1samp(core, CORE_BAR, alternative="greater").pvalue)
    runs = _core_runs(core)
    return [
        f"{len(results)} results, {total} final losses in the logs: {_said(words)}.",
        f"Runs and mean as in the table, to within 0.0001: {as_table}.",
        f"Supported, and would not be with the loss of 25 steps earlier ({worth:.5f} more): "
        f"{close}.",
        f"The rule's own z, Holm over all {len(results)}: {_below(z_all)} below .05.",
        f"Student's t, Holm over the {len(tested)} results with several runs: "
        f"{sum(p < 0.05 for p in tested)} below .05, {sum(p < 0.001 for p in tested)} below .001.",
        f"Standard deviation between runs, pooled over {len(several)} results: {sd:.5f} "
        f"[{low:.5f}, {high:.5f}], {df} df; the rule takes {SIGMA}.",
        f"Results whose own is shown to be larger, chi-squared, Holm: {_below(ratio)}.",
        f"{len(chain_words)} pairs: {_said(chain_words)}.",
        f"By Holm over the chain, p of z below .05: {sum(p < 0.05 for p in z_holm)}.",
        "By Holm over the chain, p of Welch's t below .05: "
        f"{sum(p is not None and p < 0.05 for p in w_holm)}.",
        f"lists {len(listed)} values at step 2875, of mean {np.mean(listed):.5f}",
        f"mean {core.mean():.5f}, standard deviation {core.std(ddof=1):.5f}",
        f"p = {p_text(core_p)}",
        f"{runs[0]} runs",
        f"{runs[1]} runs",
    ]


def _said(words: list[str]) -> str:
    """Return how often each answer was given, the most frequent first."""
    counts = Counter(said.partition(":")[0] for said in words)
    return ", ".join(f"{n} {said}" for said, n in counts.most_common())


def _below(p_values: list[float]) -> int:
    return sum(p < 0.05 for p in p_values)


def _rows_of_41(clone: Path) -> list[str]:
    folder = clone / "records" / "track_3_optimization" / "results" / "20260523_circuit_muon"
    text = (folder / "README.md").read_text("utf-8")
    return re.findall(r"^\|\s+\d+ \|.*$", text, re.M)


def _core_runs(core: np.ndarray) -> tuple[int, int]:
    """Return the runs at which this mean has p below .05, and at which 80% of attempts have."""
    effect = (core.mean() - CORE_BAR) / core.std(ddof=1)

    def short(n: float, power: float | None) -> float:
        critical = stats.t.ppf(0.95, n - 1)
        if power is None:
            return critical - effect * math.sqrt(n)
        return power - stats.nct.sf(critical, n - 1, effect * math.sqrt(n))

    return tuple(math.ceil(optimize.brentq(short, 2, 5000, args=(one,))) for one in (None, 0.8))  # type: ignore[return-value]


def _equal(row: str, line: str) -> bool:
    """Return whether two rows are the same, numbers to one unit of their last digit: of what ends
    in a 5, either neighbour is printed."""
    cells = [[cell.strip() for cell in one.split("|")] for one in (row, line)]
    if len(cells[0]) != len(cells[1]):
        return False
    for ours, theirs in zip(*cells, strict=True):
        if ours == theirs:
            continue
        if not (re.fullmatch(DECIMAL, ours) and re.fullmatch(DECIMAL, theirs)):
            return False
        unit = 10.0 ** -len(ours.partition(".")[2])
        if abs(float(ours) - float(theirs)) > 1.01 * unit:
            return False
    return True


def main() -> int:
    """Compare, print what differs, and return the exit code."""
    page = Path(sys.argv[2]) if len(sys.argv) > 2 else PAGE
    text = page.read_text("utf-8")
    rows, counts = expected(Path(sys.argv[1]))
    lines = text.splitlines()
    flat = " ".join(text.split())
    missing = [row for row in rows if not any(_equal(row, line) for line in lines)]
    missing += [count for count in counts if count not in flat]
    for one in missing:
        print(f"not on the page: {one}")
    print(f"{len(rows)} rows and {len(counts)} counts recomputed, {len(missing)} differ")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
