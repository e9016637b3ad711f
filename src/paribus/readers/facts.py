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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.readers.port import Run, Value

MOST_VALUES = 4  # of a fact, and arms, that a message names
LEAST_EQUAL = 3  # values; fewer may be equal by chance
MORE_EQUAL = 3  # times as many as chance gives
LEAST_CLIMB = 3  # rows
KINDS = Path(__file__).with_name("kinds.toml")
WORDS = {kind: frozenset(words) for kind, words in tomllib.loads(KINDS.read_text()).items()}
NONE = frozenset[str]()
ACCUMULATION = re.compile(r"(?:.*_)?(?:accum|accumulation)(?:_steps)?|grad_accum.*")
TRAINING_LOSS = re.compile(r"(?:train[/_.]?)?loss|train/loss", re.IGNORECASE)
EVALUATED = re.compile(r"(?:.*[/_.])?(?:val|valid|validation|eval)[/_.]?loss$", re.IGNORECASE)
SEEDS = re.compile(r"(?:.*[./])?[^./]*(?:seed|random_state)[^./]*", re.IGNORECASE)
# Facts of one task, as readers of evaluations name them.
OF_TASK = ("task_hash/", "n_shot/", "n_samples/", "task_version/")
OWN = {"arm", "seed", "planned_steps", "train_seconds", "cut", "unfinished", "crashed"}
OWN |= {"source_digest", "commit", "stage", "zeroed", "parent"}

Arms = Mapping[str, Sequence[Run]]
Finding = tuple[str, str]  # a code and a sentence about the runs, for cautions and records


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
    is_nested = len(spelt) > 1 and not WORDS["prefix"].isdisjoint(spelt[:-1])
    return "setting" if is_nested or ACCUMULATION.fullmatch(last) else "other"


def values_of(runs: Iterable[Run], name: str) -> list[Value]:
    """Return the different values of a fact, in the order of the runs."""
    return list(dict.fromkeys(run.facts[name] for run in runs if name in run.facts))


def find_seed(runs: Sequence[Run], name: str) -> str:
    """Return the name of the fact that holds seeds: `name`, or a nested setting such as
    `config.trainer.seed` if no run has `name`."""
    names = dict.fromkeys(fact for run in runs for fact in run.facts)
    if name != "seed" or "seed" in names:
        return name
    nested = filter(SEEDS.fullmatch, names)
    return max(nested, key=lambda fact: len(values_of(runs, fact)), default=name)


def list_facts(arms: Arms, known: Iterable[str], *, is_replicated: bool) -> list[Fact]:
    """Return the facts of the runs with what follows from each.

    Args:
        arms: the runs that are compared, by arm.
        known: names of scores and of columns whose meaning is stated; they are no facts.
        is_replicated: whether seeds tell the runs of every arm apart.
    """
    facts, every = [], list(chain(*arms.values()))
    are_rows = not is_replicated and not any(run.curves for run in every)
    names = dict.fromkeys(name for run in every for name in run.facts)
    for name in [name for name in names if name not in OWN.union(known)]:
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
        stated = {"setting": "defines", "evaluation": "confounded"}
        is_one_sided = any(sets) and not all(sets)  # as where a cell is empty, or null
        return stated.get(kind, "equal") if is_one_sided else "equal"
    if kind == "evaluation":
        return "incomparable"
    if kind in ("seed", "identifier", "time"):
        return "varies"
    if any(len(arm) > 1 for arm in sets):
        # Not known by name: the same values in each arm, and no seeds that make replicates.
        is_crossed = all(arm == sets[0] for arm in sets) and len(sets) > 1
        is_sweep = kind == "other" and is_crossed and not is_replicated
        return "sweep" if kind == "setting" or is_sweep else "varies"
    if kind == "environment" and all(sets):
        return "confounded"
    # A number that one run has is most likely an outcome.
    is_setting = kind == "setting" or all(len(runs) > 1 for runs in arms.values())
    return "defines" if is_setting and all(sets) else "varies"


def check_facts(arms: Arms, facts: Sequence[Fact], score: str) -> Iterator[Finding]:
    """Yield what the facts of runs say of their comparison by `score`.

    Raises ParibusError for a sweep, and for scores that cannot be compared.
    """
    by_conclusion: dict[str, list[Fact]] = {}
    for fact in facts:
        by_conclusion.setdefault(fact.conclusion, []).append(fact)
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
    defines = by_conclusion.get("defines", [])
    if TRAINING_LOSS.fullmatch(score):
        _refuse_multiplied(arms, defines, score)
    for fact in by_conclusion.get("confounded", [])[:MOST_VALUES]:
        each = ", ".join(
            f"{_as_text(own[0]) if own else 'not stated'} in {arm}"
            for arm, own in fact.values.items()
        )
        text = f"The arm and {fact.name} cannot be told apart: {each}."
        yield "confounded", f"{text} The change may come from either."
    if defines:
        yield "arms_differ", f"Arms differ in {some([fact.name for fact in defines], 6)}."
    every = list(chain(*arms.values()))
    for name in sorted(WORDS["start"]):
        starts = {run.facts.get(name) for run in every}
        if len(every) > 1 and len(starts) == 1 and not starts & {None, 0.0, ""}:
            text = (
                f"All runs start from one checkpoint ({name} {_as_text(starts.pop())}): the spread "
                "of seeds leaves out what came before it."
            )
            yield "one_start", text
    if zeroed := [run for run in every if run.facts.get("zeroed") == score]:
        text = (
            f"{plural(len(zeroed), 'run')} logged a {score} of 0 beside a gradient norm of NaN, "
            f"such as {zeroed[0].source}: a filter wrote it in place of NaN, and it counts as "
            "diverged."
        )
        yield "nan_as_zero", text


def _refuse_incomparable(fact: Fact, arms: Arms, score: str) -> None:
    if fact.name.startswith(OF_TASK) and fact.name.partition("/")[2] != score.rpartition("/")[0]:
        return  # of another task than the score is of
    first, *rest = [run for run in chain(*arms.values()) if fact.name in run.facts]
    other = next(run for run in rest if run.facts[fact.name] != first.facts[fact.name])
    values = [_as_text(run.facts[fact.name]) for run in (first, other)]
    raise ParibusError(
        f"runs of {score} were not evaluated alike: {fact.name} is {values[0]} in {first.source} "
        f"and {values[1]} in {other.source}; evaluate them alike, or judge those that were with "
        f"--where '{fact.name}={values[0]}'",
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


def _refuse_multiplied(arms: Arms, defines: Iterable[Fact], score: str) -> None:
    """Raise ParibusError if a training loss seems to be summed over accumulated batches.

    The sign is a loss that is a whole multiple of the evaluation loss in one arm only, or a loss
    that is equal in the arms once it is divided by the number of accumulated batches."""
    losses = {arm: _middle(runs, score) for arm, runs in arms.items()}
    evaluated = {
        arm: _middle(
            runs, *filter(EVALUATED.match, dict.fromkeys(chain(*(r.scores for r in runs))))
        )
        for arm, runs in arms.items()
    }
    ratios = [loss / evaluated[arm] for arm, loss in losses.items() if loss and evaluated[arm]]
    is_whole = any(round(ratio) > 1 and abs(ratio / round(ratio) - 1) < 0.15 for ratio in ratios)
    is_summed = is_whole and min(ratios) < 1.4
    for fact in defines:
        if ACCUMULATION.fullmatch(re.split(r"[./]", fact.name)[-1].lower()):
            parts = [
                losses[arm] / own[0]
                for arm, own in fact.values.items()
                if own and isinstance(own[0], float) and own[0]
            ]
            is_summed |= len(parts) > 1 and 0 < max(parts) < 1.2 * min(parts)
    if is_summed:
        raise ParibusError(
            f"{score} differs between arms by a whole factor, as does its ratio to the evaluation "
            "loss or to the accumulated batches: it may be summed over accumulated batches; judge "
            "by the evaluation loss, or divide it",
            code="incomparable",
        )


def _middle(runs: Iterable[Run], *names: str) -> float:
    """Return the median of the finite values of some scores; 0 without any."""
    values = [run.scores.get(name, math.nan) for run in runs for name in names]
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else 0.0


def _as_text(value: Value | None) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value!s:.40}"


def check_values(arms: Arms, score: str, at_step: float | None) -> Iterator[Finding]:
    """Yield what the curves of `score` show of runs that are compared, by arm."""
    every = list(chain(*arms.values()))
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
            yield "equal_arms", text
            break
    repeated = []
    for run in every:
        if len(curve := run.curves.get(score, ())):
            step = curve[-1, 0] if at_step is None else at_step
            n = len(set(map(repr, curve[curve[:, 0] == step, 1].tolist())))
            repeated += [(run.source, step, n)] if n > 1 else []
    if repeated:
        source, step, n = repeated[0]
        text = (
            f"{len(repeated)} of {plural(len(every), 'run')} have several values of {score} at the "
            f"step that counts, such as {source} with {n} at step {step:g}: the last in the file "
            "is taken. Do steps begin again in each epoch or after a restart, are rows of several "
            "kinds, or is the best checkpoint evaluated at the end?"
        )
        yield "repeated_steps", text
    # Tables are warned about when they are read.
    if cut := [run for run in every if "cut" in run.facts and not run.is_row]:
        text = f"{len(cut)} of {plural(len(every), 'run')} are of logs that are cut, such as"
        yield "cut", f"{text} {cut[0].source} ({cut[0].facts['cut']})."
    ends = _different_ends(arms, score) if at_step is None else {}
    if ends:
        spans = [(arm, min(own), max(own)) for arm, own in ends.items()]
        each = [f"{arm} {low:,g}" + f" to {high:,g}" * bool(high > low) for arm, low, high in spans]
        shown = ", ".join(each[:MOST_VALUES]) + " ..." * (len(each) > MOST_VALUES)
        text = (
            f"Scores are those of the last step logged, which differs: {shown}. A history that was "
            "sampled lacks its end: export all of it, or state --at-step."
        )
        yield "other_lengths", text


def _different_ends(arms: Arms, score: str) -> dict[str, list[Any]]:
    """Return by arm where the scores, or else the runs, ended, if at different steps."""
    for name in (score, ""):  # of runs without its curve, where they ended
        ends: dict[str, list[Any]] = {}
        for arm, run in ((arm, run) for arm, runs in arms.items() for run in runs):
            end = run.curves[name][-1, 0] if name in run.curves else run.facts.get("steps")
            if end is not None:
                ends.setdefault(arm, []).append(end)
        if len(set().union(*ends.values())) > 1:
            return ends
    return {}


def _is_fine(value: float) -> bool:
    """Return whether a value has more than three digits, so that it hardly repeats by chance."""
    return math.isfinite(value) and float(f"{value:.3g}") != value
