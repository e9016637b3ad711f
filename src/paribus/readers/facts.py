"""All else equal: compare what the runs of the arms say besides their scores.

A fact is any other column, configuration value or setting of a run. Its name says its kind, and how
its values differ within and between arms says what follows:

    setting       differs between arms: it may define them. Differs within one: a sweep, refused.
    environment   differs between arms exactly as the arm does: confounded, a caution.
    evaluation    differs anywhere: the scores cannot be compared, refused.
    seed, identifier, time, outcome: may differ.

The scores and curves themselves may show that runs differ in more: last steps, repeated steps.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.readers.port import Run, Value

MOST_VALUES = 4  # of a fact that a message names
MOST_ARMS = 4
LEAST_EQUAL = 3  # values; fewer may be equal by chance
MORE_EQUAL = 3  # times as many as chance gives
LEAST_CLIMB = 3  # rows
KINDS = Path(__file__).with_name("kinds.toml")
WORDS = {kind: frozenset(words) for kind, words in tomllib.loads(KINDS.read_text()).items()}
NONE = frozenset[str]()
ACCUMULATION = re.compile(r"(?:.*_)?(?:accum|accumulation)(?:_steps)?|grad_accum.*")
TRAINING_LOSS = re.compile(r"(?:train[/_.]?)?loss|train/loss", re.IGNORECASE)
EVALUATED = re.compile(r"(?:.*[/_.])?(?:val|valid|validation|eval)[/_.]?loss$", re.IGNORECASE)
# Facts of one task, as readers of evaluations name them.
OF_TASK = ("task_hash/", "n_shot/", "n_samples/", "task_version/")
OWN = {"arm", "seed", "planned_steps", "train_seconds", "cut", "unfinished", "crashed"}
OWN |= {"source_digest", "commit", "stage", "zeroed", "parent"}
PROGRAM = {"source_digest": "programs", "commit": "commits"}  # facts that say which program ran

Arms = Mapping[str, Sequence[Run]]


@dataclass(frozen=True)
class Fact:
    """A fact of the runs.

    Attributes:
        name: as the files have it.
        kind: setting, environment, evaluation, seed, identifier, time or other.
        values: by arm, its different values, in the order of the runs.
        conclusion: equal, varies, defines, confounded, incomparable, sweep or curve.
    """

    name: str
    kind: str
    values: dict[str, list[Value]]
    conclusion: str


@dataclass(frozen=True)
class Finding:
    """A code and a sentence about the runs, for cautions and records."""

    code: str
    text: str


def split_words(name: str) -> set[str]:
    """Return the words of a name, `training_iteration` and `totalSteps` alike."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return set(re.split(r"[^a-z]+", apart.casefold()))


def find_kind(name: str) -> str:
    """Return the kind of a fact by its name."""
    parts = [part for part in re.split(r"[./:]", name) if part]
    spelt = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part).lower() for part in parts] or [""]
    spelt = [re.sub(r"[\s-]+", "_", part).strip("_") for part in spelt]
    last = spelt[-1]
    words = set(last.split("_"))
    if name.startswith(OF_TASK):
        return "evaluation"
    for kind in ("evaluation", "seed", "environment", "setting", "identifier", "time"):
        if {last} & WORDS.get(kind, NONE) or words & WORDS.get(f"{kind}_part", NONE):
            return kind
    if ACCUMULATION.fullmatch(last):
        return "setting"
    is_setting = len(spelt) > 1 and not WORDS["prefix"].isdisjoint(spelt[:-1])
    return "setting" if is_setting else "other"


def values_of(runs: Iterable[Run], name: str) -> list[Value]:
    """Return the different values of a fact, in the order of the runs."""
    return list(dict.fromkeys(run.facts[name] for run in runs if name in run.facts))


def find_seed(runs: Sequence[Run], name: str) -> str:
    """Return the name of the fact that holds seeds: `name`, or a nested setting such as
    `config.trainer.seed` if no run has `name`."""
    names = dict.fromkeys(fact for run in runs for fact in run.facts)
    if name != "seed" or "seed" in names:
        return name
    last = re.compile(r"(?:.*[./])?[^./]*(?:seed|random_state)[^./]*", re.IGNORECASE)
    nested = [fact for fact in names if last.fullmatch(fact)]
    return max(nested, key=lambda fact: len(values_of(runs, fact)), default=name)


def list_facts(arms: Arms, known: Iterable[str], *, is_replicated: bool) -> list[Fact]:
    """Return the facts of the runs with what follows from each.

    Args:
        arms: the runs that are compared, by arm.
        known: names of scores and of columns whose meaning is stated; they are no facts.
        is_replicated: whether seeds tell the runs of every arm apart.
    """
    facts, left_out = [], {*known} | OWN
    are_rows = not is_replicated and not any(run.curves for runs in arms.values() for run in runs)
    names = dict.fromkeys(name for runs in arms.values() for run in runs for name in run.facts)
    for name in names:
        if name in left_out:
            continue
        values = {arm: values_of(runs, name) for arm, runs in arms.items()}
        kind = find_kind(name)
        conclusion = _conclude(kind, values, arms, is_replicated)
        if are_rows and kind == "other" and split_words(name) & WORDS["along"]:
            columns = [[run.facts.get(name) for run in runs] for runs in arms.values()]
            if any(_is_along(column) or _is_along(column[::-1]) for column in columns):
                conclusion = "curve"
        if name != "steps" or conclusion == "curve":
            facts.append(Fact(name, kind, values, conclusion))
    return facts


def _is_along(steps: Sequence[Value | None]) -> bool:
    """Return whether numbers go up strictly, in pieces of the same beginning, or are, in any order,
    each as far from the next, as steps of one curve."""
    values = np.array([step for step in steps if isinstance(step, float)])
    if len(values) < max(len(steps), LEAST_CLIMB):
        return False
    pieces = np.split(values, np.flatnonzero(np.diff(values) <= 0) + 1)
    if all(len(piece) >= LEAST_CLIMB and piece[0] == values[0] for piece in pieces):
        return True
    gaps = np.diff(np.sort(values))
    return bool(gaps[0] > 0 and (gaps == gaps[0]).all())


def _conclude(kind: str, values: Mapping[str, list[Value]], arms: Arms, is_replicated: bool) -> str:
    """Return what follows from the values that a fact has in each arm."""
    sets = [set(arm) for arm in values.values()]
    if len(set().union(*sets)) < 2:
        is_one_sided = any(sets) and not all(sets)  # as where a cell is empty, or null
        stated = {"setting": "defines", "evaluation": "confounded"}
        return stated.get(kind, "equal") if is_one_sided else "equal"
    if kind == "evaluation":
        return "incomparable"
    if kind in ("seed", "identifier", "time"):
        return "varies"
    if any(len(arm) > 1 for arm in sets):
        if kind == "setting":
            return "sweep"
        # Not known by name: the same values in each arm, and no seeds that make replicates.
        is_crossed = all(arm == sets[0] for arm in sets) and len(sets) > 1
        return "sweep" if kind == "other" and is_crossed and not is_replicated else "varies"
    if not all(sets):
        return "varies"
    if kind == "environment":
        return "confounded"
    # A number that one run has is most likely an outcome.
    is_setting = kind == "setting" or all(len(runs) > 1 for runs in arms.values())
    return "defines" if is_setting else "varies"


def check_facts(arms: Arms, facts: Sequence[Fact], score: str) -> list[Finding]:
    """Return what the facts of runs say of their comparison by `score`.

    Raises ParibusError for a sweep, and for scores that cannot be compared.
    """
    for fact in facts:
        if fact.conclusion == "incomparable":
            _refuse_incomparable(fact, arms, score)
        elif fact.conclusion == "sweep":
            _refuse_sweep(fact, arms)
        elif fact.conclusion == "curve":
            raise ParibusError(
                f"there is a row for each '{fact.name}', as of a curve or of items: name it as the "
                f"column of steps (--step {fact.name}) or of items (--item {fact.name}); if each "
                "row is a run, name the column of seeds (--seed)",
                code="ambiguous",
            )
    _refuse_multiplied(arms, facts, score)
    findings = []
    for fact in [fact for fact in facts if fact.conclusion == "confounded"][:MOST_VALUES]:
        each = ", ".join(
            f"{_as_text(own[0]) if own else 'not stated'} in {arm}"
            for arm, own in fact.values.items()
        )
        text = f"The arm and {fact.name} cannot be told apart: {each}."
        findings.append(Finding("confounded", f"{text} The change may come from either."))
    if defines := [fact.name for fact in facts if fact.conclusion == "defines"]:
        findings.append(Finding("arms_differ", f"Arms differ in {some(defines, 6)}."))
    for arm, runs in arms.items():
        for name, noun in PROGRAM.items():
            if len(values := values_of(runs, name)) > 1:
                each = some([str(value)[:12] for value in values], 3)
                text = f"The runs of {arm} are of {len(values)} {noun}, {each}: is it one arm?"
                findings.append(Finding("programs", text))
                break
    every = [run for runs in arms.values() for run in runs]
    for name in sorted(WORDS["start"]):
        starts = {run.facts.get(name) for run in every}
        if len(every) > 1 and len(starts) == 1 and not starts & {None, 0.0, ""}:
            text = (
                f"All runs start from one checkpoint ({name} {_as_text(starts.pop())}): the spread "
                "of seeds leaves out what came before it."
            )
            findings.append(Finding("one_start", text))
    if zeroed := [run for run in every if run.facts.get("zeroed") == score]:
        text = (
            f"{plural(len(zeroed), 'run')} logged a {score} of 0 beside a gradient norm of NaN, "
            f"such as {zeroed[0].name}: a filter wrote it in place of NaN, and it counts as "
            "diverged."
        )
        findings.append(Finding("nan_as_zero", text))
    return findings


def _refuse_incomparable(fact: Fact, arms: Arms, score: str) -> None:
    if fact.name.startswith(OF_TASK) and fact.name.partition("/")[2] != score.rpartition("/")[0]:
        return  # of another task than the score is of
    runs = [run for own in arms.values() for run in own if fact.name in run.facts]
    first = runs[0]
    other = next(run for run in runs if run.facts[fact.name] != first.facts[fact.name])
    values = [_as_text(run.facts[fact.name]) for run in (first, other)]
    raise ParibusError(
        f"runs of {score} were not evaluated alike: {fact.name} is {values[0]} in {first.name} and "
        f"{values[1]} in {other.name}; evaluate them alike, or judge those that were with --where "
        f"'{fact.name}={values[0]}'",
        code="incomparable",
    )


def _refuse_sweep(fact: Fact, arms: Arms) -> None:
    arm, values = max(fact.values.items(), key=lambda item: len(item[1]))
    shown = some([_as_text(value) for value in values], MOST_VALUES)
    raise ParibusError(
        f"the {plural(len(arms[arm]), 'run')} of {arm} differ in {fact.name} ({shown}), and are no "
        f"replicates; judge one value with --where '{fact.name}={_as_text(values[0])}', the best "
        f"run of each seed with --best-of '{fact.name}'; if it numbers replicates, name it with "
        f"--seed '{fact.name}', and if it is an outcome, as a further --score '{fact.name}'",
        code="incomparable",
    )


def _refuse_multiplied(arms: Arms, facts: Iterable[Fact], score: str) -> None:
    """Raise ParibusError if a training loss seems to be summed over accumulated batches.

    The sign is a loss that is a whole multiple of the evaluation loss in one arm only, or a loss
    that is equal in the arms once it is divided by the number of accumulated batches."""
    if not TRAINING_LOSS.fullmatch(score):
        return
    means = {arm: _middle(run.scores.get(score) for run in runs) for arm, runs in arms.items()}
    evaluated = {
        arm: _middle(v for run in runs for name, v in run.scores.items() if EVALUATED.match(name))
        for arm, runs in arms.items()
    }
    ratios = [means[arm] / evaluated[arm] for arm in arms if means[arm] and evaluated[arm]]
    is_summed = any(round(r) > 1 and abs(r / round(r) - 1) < 0.15 for r in ratios)
    is_summed = is_summed and min(ratios) < 1.4
    for fact in facts:
        last = re.split(r"[./]", fact.name)[-1].lower()
        if ACCUMULATION.fullmatch(last) and fact.conclusion == "defines":
            numbers = {a: v[0] for a, v in fact.values.items() if v and isinstance(v[0], float)}
            parts = [means[arm] / number for arm, number in numbers.items() if number]
            is_summed |= len(parts) > 1 and 0 < max(parts) < 1.2 * min(parts)
    if is_summed:
        raise ParibusError(
            f"{score} differs between arms by a whole factor, as does its ratio to the evaluation "
            "loss or to the accumulated batches: it may be summed over accumulated batches; judge "
            "by the evaluation loss, or divide it",
            code="incomparable",
        )


def _middle(values: Iterable[float | None]) -> float:
    """Return the median of the finite values; 0 without any."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return median(finite) if finite else 0.0


def _as_text(value: Value | None) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value!s:.40}"


def check_values(arms: Arms, score: str, at_step: float | None) -> list[Finding]:
    """Return what the curves of `score` show of runs that are compared, by arm."""
    every = [run for runs in arms.values() for run in runs]
    findings = []
    values = {
        arm: Counter(run.scores[score] for run in runs if _is_fine(run.scores.get(score, math.nan)))
        for arm, runs in arms.items()
    }
    for first, second in combinations(arms, 2):
        equal = list(values[first].keys() & values[second].keys())
        # By chance about as many values are in both arms as are in one of them again.
        repeats = sum(own.total() - len(own) for own in (values[first], values[second]))
        if len(equal) >= max(LEAST_EQUAL, MORE_EQUAL * repeats):
            text = (
                f"{first} and {second} have {len(equal)} values of {score} in common, such as "
                f"{equal[0]:g}: did the change take effect?"
            )
            findings.append(Finding("equal_arms", text))
            break
    for arm, runs in arms.items():
        ends = [(run.facts.get("steps"), run.facts.get("planned_steps")) for run in runs]
        early = [(a, b) for a, b in ends if isinstance(a, float) and isinstance(b, float) and a < b]
        if early:
            text = (
                f"{len(early)} of {plural(len(runs), 'run')} of {arm} stopped before the last step "
                "that was planned, such as at {:,g} of {:,g}: the score there counts."
            )
            findings.append(Finding("stopped_early", text.format(*early[0])))
    repeated = []
    for run in every:
        if len(curve := run.curves.get(score, ())):
            step = curve[-1, 0] if at_step is None else at_step
            values = set(map(repr, curve[curve[:, 0] == step, 1].tolist()))
            repeated += [(run.name, step, len(values))] if len(values) > 1 else []
    if repeated:
        source, step, n = repeated[0]
        text = (
            f"{len(repeated)} of {plural(len(every), 'run')} have several values of {score} at the "
            f"step that counts, such as {source} with {n} at step {step:g}: the last in the file "
            "is taken. Do steps begin again in each epoch or after a restart, are rows of several "
            "kinds, or is the best checkpoint evaluated at the end?"
        )
        findings.append(Finding("repeated_steps", text))
    # Tables are warned about when they are read.
    if cut := [run for run in every if "cut" in run.facts and run.reader != "table"]:
        named = some([f"{run.source} ({run.facts['cut']})" for run in cut], 1)
        text = f"{len(cut)} of {plural(len(every), 'run')} are of logs that are cut, such as"
        findings.append(Finding("cut", f"{text} {named}."))
    return findings + (_check_lengths(arms, score) if at_step is None else [])


def _check_lengths(arms: Arms, score: str) -> list[Finding]:
    """Warn if the scores, or else the runs, ended at different steps."""
    every = [(arm, run) for arm, runs in arms.items() for run in runs]
    for name in (score, ""):  # of runs without its curve, where they ended
        ends: dict[str, list[Any]] = {}
        for arm, run in every:
            end = run.curves[name][-1, 0] if name in run.curves else run.facts.get("steps")
            if end is not None:
                ends.setdefault(arm, []).append(end)
        if len(set().union(*ends.values())) > 1:
            break
    else:
        return []
    spans = [(arm, min(own), max(own)) for arm, own in ends.items()]
    each = [f"{arm} {low:,g}" + f" to {high:,g}" * bool(high > low) for arm, low, high in spans]
    shown = ", ".join(each[:MOST_ARMS]) + (" ..." if len(each) > MOST_ARMS else "")
    text = (
        f"Scores are those of the last step logged, which differs: {shown}. A history that was "
        "sampled lacks its end: export all of it, or state --at-step."
    )
    return [Finding("other_lengths", text)]


def _is_fine(value: float) -> bool:
    """Return whether a value has more than three digits, so that it hardly repeats by chance."""
    return math.isfinite(value) and float(f"{value:.3g}") != value
