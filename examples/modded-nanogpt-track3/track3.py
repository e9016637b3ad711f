"""The public history of modded-nanogpt's Track 3, judged from its logs.

    git clone https://github.com/KellerJordan/modded-nanogpt
    python track3.py modded-nanogpt > track3.md

What is read: the table of results in records/track_3_optimization/README.md, and the logs that it
links. A result is read at its stated step. Runs are those of the folder that holds the linked log,
each trial once; where the folder holds more than the table counts, those of the linked log's own
source. What does not fit the table is listed and judged as the logs have it.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy import stats

from paribus.decision.published import PublishedAnswer, find_published
from paribus.numbers import NONE
from paribus.readers import Run, read
from paribus.statistics import holm

TRACK = Path("records", "track_3_optimization")
RESULT = re.compile(
    r"\| (?P<number>\d+) \| (?P<step>\d+)(?P<record>\(!\))? \| (?P<mean>[\d.]+) \(n=(?P<runs>\d+)\)"
    r".*\| \[log\]\((?P<log>\S+)\) \|"
)
BAR = find_published("modded-nanogpt-track3")
PAIR = find_published("modded-nanogpt-track3-pairwise")
# The one result whose claim is of another score than val_loss; its folder's README says so.
SCORES = {46: "val_ema_loss"}
LISTED = 41  # the one whose logs are missing, and whose folder's README lists the values
LOOK = 25  # steps between two looks, as the rules have it


@dataclass
class Result:
    """A row of the table, and what its logs say at its step."""

    number: int
    step: int
    is_record: bool
    mean_claimed: str
    runs_claimed: int
    score: str
    losses: list[float]
    notes: list[str]

    @property
    def answer(self) -> PublishedAnswer:
        return BAR.answer(self.losses)

    @property
    def sd(self) -> float:
        return float(np.std(self.losses, ddof=1)) if len(self.losses) > 1 else math.nan

    @property
    def as_claimed(self) -> bool:
        near = abs(self.answer.mean - float(self.mean_claimed)) < 0.0001  # rounded, or cut off
        return near and len(self.losses) == self.runs_claimed


def results(clone: Path) -> list[Result]:
    """Return the results of the table, with their losses from the logs."""
    text = (clone / TRACK / "README.md").read_text("utf-8")
    return [_result(clone, match) for match in map(RESULT.match, text.splitlines()) if match]


def _result(clone: Path, row: re.Match[str]) -> Result:
    number, step, counted = int(row["number"]), int(row["step"]), int(row["runs"])
    score = SCORES.get(number, "val_loss")
    log = clone / TRACK / row["log"]
    place = log if log.parent.name == "results" else log.parent
    reading = read(place)
    notes = [f"{score} is what is claimed"] if score != "val_loss" else []
    there = [run for run in reading.runs if run.at(score, step) is not None]
    if reading.copies:
        notes.append(
            f"{len(reading.copies)} {'copy' if len(reading.copies) == 1 else 'copies'} of trials"
        )
    if len(there) > counted:
        source = _source_of(log, reading.runs)
        same = [run for run in there if run.facts.get("source_digest") == source]
        notes.append(f"{len(there) - len(same)} runs of another source left out")
        there = same
    if len(there) < counted:
        notes.append(
            f"of {counted} logs {len(there)} is there"
            if len(there) == 1
            else f"{len(there)} of {counted} logs"
        )
    beyond = sum(run.facts["steps"] != step for run in there)
    if beyond:
        notes.append(
            f"{beyond} {'log goes' if beyond == 1 else 'logs go'} on beyond the stated step"
        )
    losses = [loss for run in there if (loss := run.at(score, step)) is not None]
    found = Result(
        number, step, row["record"] is not None, row["mean"], counted, score, losses, notes
    )
    if len(losses) == counted and not found.as_claimed:
        notes.append(f"the table says {found.mean_claimed}")
    return found


def _source_of(log: Path, runs: list[Run]) -> object:
    for run in runs:
        if Path(run.source.partition("#")[0]) == log:
            return run.facts.get("source_digest")
    return None


def t_test(losses: list[float]) -> float:
    """Return the one-sided p of Student's t against 3.28; NaN of one run."""
    if len(losses) < 2:
        return math.nan
    return float(stats.ttest_1samp(losses, BAR.target, alternative="less").pvalue)


def pooled(found: list[Result]) -> tuple[float, int]:
    """Return the standard deviation between the runs of a result, pooled, and its df."""
    several = [one for one in found if len(one.losses) > 1]
    df = sum(len(one.losses) - 1 for one in several)
    return math.sqrt(sum(one.sd**2 * (len(one.losses) - 1) for one in several) / df), df


def welch(old: Result, new: Result) -> float:
    """Return the one-sided p of Welch's t, the steps saved counted as the pairwise rule does."""
    if min(len(old.losses), len(new.losses)) < 2:
        return math.nan
    assert PAIR.per_step is not None
    worth = (old.step - new.step) * PAIR.per_step
    shifted = np.asarray(new.losses) - worth
    test = stats.ttest_ind(shifted, old.losses, equal_var=False, alternative="less")
    return float(test.pvalue)


def p_text(p: float) -> str:
    """Return a p-value as it is printed."""
    if math.isnan(p):
        return NONE
    return "< .0001" if p < 0.0001 else f"{p:.4f}".lstrip("0")


def adjusted(p_values: list[float]) -> list[float]:
    """Return Holm's p-values; those that are NaN are no tests, and stay NaN."""
    p = np.asarray(p_values)
    tested = ~np.isnan(p)
    out = np.full(len(p), math.nan)
    out[tested] = holm(p[tested])
    return out.tolist()


def print_results(found: list[Result]) -> None:
    """Print a row for each result."""
    t_p = adjusted([t_test(one.losses) for one in found])
    print("| # | step | runs | mean | SD | (3.28 - mean) sqrt(n) | the rule says | p of t, Holm |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for one, p in zip(found, t_p, strict=True):
        answer, sd = one.answer, NONE if math.isnan(one.sd) else f"{one.sd:.5f}"
        mark = "(!)" if one.is_record else ""
        print(
            f"| {one.number}{mark} | {one.step} | {answer.runs} | {answer.mean:.5f} | {sd} | "
            f"{answer.statistic:.5f} | {answer.sentence} | {p_text(p)} |"
        )


def print_chain(found: list[Result]) -> None:
    """Print a row for each record after the first, against the record before it."""
    records = [one for one in found if one.is_record]
    pairs = list(pairwise(records))
    answers = [
        PAIR.answer(new.losses, steps=new.step, baseline=old.losses, baseline_steps=old.step)
        for old, new in pairs
    ]
    rule_p = adjusted([answer.p_value or 0.0 for answer in answers])
    welch_p = adjusted([welch(old, new) for old, new in pairs])
    print(
        "| record | before it | runs | gain | statistic | the rule says | z, Holm | Welch, Holm |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for (old, new), answer, z, t in zip(pairs, answers, rule_p, welch_p, strict=True):
        print(
            f"| {new.number} | {old.number} | {len(new.losses)}, {len(old.losses)} | "
            f"{answer.gain:.5f} | {answer.statistic:.5f} | {answer.sentence} | {p_text(z)} | "
            f"{p_text(t)} |"
        )
    words = Counter(answer.word for answer in answers)
    print(f"\n{len(pairs)} pairs: {_counts(words)}.")
    for name, p_values in (("z", rule_p), ("Welch's t", welch_p)):
        print(f"By Holm over the chain, p of {name} below .05: {sum(p < 0.05 for p in p_values)}.")


def print_summary(found: list[Result]) -> None:
    """Print the counts, and what the logs say of the rule's assumption."""
    answers = [one.answer for one in found]
    words = Counter(answer.word for answer in answers)
    total = sum(len(one.losses) for one in found)
    sd, df = pooled(found)
    low, high = (sd * math.sqrt(df / stats.chi2.isf(q, df)) for q in (0.025, 0.975))
    ratio = [
        stats.chi2.sf((len(one.losses) - 1) * (one.sd / BAR.sigma) ** 2, len(one.losses) - 1)
        for one in found
        if len(one.losses) > 1
    ]
    supported = [one for one in found if one.answer.word == "supported"]
    worth = LOOK * (PAIR.per_step or 0)
    earlier = [BAR.answer([loss + worth for loss in one.losses]) for one in supported]
    close = sum(answer.word != "supported" for answer in earlier)
    z_p = holm([answer.p_value or 0.0 for answer in answers])
    t_p = adjusted([t_test(one.losses) for one in found])
    beyond = sum(any("beyond" in note for note in one.notes) for one in found)
    print(f"{len(found)} results, {total} final losses in the logs: {_counts(words)}.")
    print(
        f"Runs and mean as in the table, to within 0.0001: {sum(one.as_claimed for one in found)}."
    )
    print(f"Read before the last logged step: {beyond}.")
    print(
        f"Supported, and would not be with the loss of {LOOK} steps earlier ({worth:.5f} more): "
        f"{close}."
    )
    print(f"The rule's own z, Holm over all {len(found)}: {sum(p < 0.05 for p in z_p)} below .05.")
    tested = sum(not math.isnan(p) for p in t_p)
    print(
        f"Student's t, Holm over the {tested} results with several runs: "
        f"{sum(p < 0.05 for p in t_p)} below .05, {sum(p < 0.001 for p in t_p)} below .001."
    )
    print(
        f"Standard deviation between runs, pooled over {len(ratio)} results: {sd:.5f} "
        f"[{low:.5f}, {high:.5f}], {df} df; the rule takes {BAR.sigma}."
    )
    larger = sum(p < 0.05 for p in holm(ratio))
    print(f"Results whose own is shown to be larger, chi-squared, Holm: {larger}.")


def print_listed(clone: Path, found: list[Result]) -> None:
    """Print the pairs of a record whose logs are missing by the values that its README lists."""
    by_number = {one.number: one for one in found}
    new = by_number[LISTED]
    folder = clone / TRACK / "results" / "20260523_circuit_muon"
    values = listed(folder / "README.md", new.step)
    print(
        f"#{LISTED}: the README of its folder lists {len(values)} values at step {new.step}, "
        f"of mean {np.mean(values):.5f}; by them the rule says: {BAR.answer(values).sentence}."
    )
    records = [one for one in found if one.is_record]
    at = records.index(new)
    for old, later in ((records[at - 1], new), (new, records[at + 1])):
        losses = [values if one is new else one.losses for one in (old, later)]
        answer = PAIR.answer(
            losses[1], steps=later.step, baseline=losses[0], baseline_steps=old.step
        )
        print(f"#{later.number} after #{old.number}: {answer.statistic:.5f}, {answer.sentence}.")


def listed(readme: Path, step: int) -> list[float]:
    """Return the values at a step in a table of seeds by steps, in a README."""
    rows = [line.strip("| \n").split("|") for line in readme.read_text("utf-8").splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows]
    header = next(row for row in cells if row[0] == "seed")
    column = header.index(f"step {step}")
    return [float(row[column]) for row in cells if len(row) == len(header) and row[0].isdecimal()]


def print_notes(found: list[Result]) -> None:
    """Print what of the table and the logs does not simply agree."""
    for one in found:
        if one.notes:
            print(f"- #{one.number}: {'; '.join(one.notes)}")


def _counts(words: Counter[str]) -> str:
    return ", ".join(f"{n} {word}" for word, n in words.most_common())


def main() -> None:
    """Print the whole of it as Markdown."""
    clone = Path(sys.argv[1])
    found = results(clone)
    for title, part in (
        ("Counts", print_summary),
        ("Results", print_results),
        ("The chain of records", print_chain),
        ("Notes", print_notes),
    ):
        print(f"## {title}\n")
        part(found)
        print()
    print_listed(clone, found)


if __name__ == "__main__":
    main()
