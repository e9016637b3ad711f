"""Facts of the runs besides their scores: is all else equal between the arms?

A fact is any other column, configuration value or setting of a run. Its kind is inferred from its
name. The conclusion depends on how its values differ within and between arms:

    setting       differs between arms: it may define them. Differs within one: a sweep, refused.
    environment   differs between arms exactly as the arm does: confounded, a caution.
    evaluation    differs anywhere: the scores cannot be compared, refused.
    seed, identifier, time, outcome: may differ.

Scores and curves may reveal more differences, such as other last steps or repeated steps.
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
from paribus.readers.port import Run, Value, is_number

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
# Facts of one task, as readers of evaluations name them.
OF_TASK = ("task_hash/", "n_shot/", "n_samples/", "task_version/")
# What a run measured of its speed: a rate, or the time of a step or of the whole.
_MEASURED = r"(?i)(?!.*(?:eval|val_|test|infer|generat|decod))(?:.*[/_.])?"
RATE = re.compile(
    _MEASURED + r"(?:(?:tok(?:en)?|sample|example|step|it(?:er(?:ation)?)?|sequence)s?"
    r"(?:_per_|/)s(?:ec(?:ond)?)?(?:[/_](?:per_)?(?:gpu|device))?|throughput|tps)"
)
TIME = re.compile(
    _MEASURED + r"(?:(?:step|iter(?:ation)?)_?time|time_per_(?:step|iter(?:ation)?)|runtime|seconds"
    r"|(?:s|sec|seconds|ms)_per_(?:step|iter(?:ation)?))(?:_(?:s|sec|seconds|ms))?"
)
OWN = {"arm", "seed", "planned_steps", "train_seconds", "cut", "unfinished", "crashed"}
OWN |= {"source_digest", "commit", "stage", "zeroed", "parent"}

Arms = Mapping[str, Sequence[Run]]
Finding = tuple[str, str]  # a code and a sentence about the runs, for cautions and records


@dataclass(frozen=True)
class Fact:
    """A fact of the runs, under its name in the files."""

    name: str
    kind: str
    """setting, environment, evaluation, seed, identifier, time or other"""
    values: dict[str, list[Value]]
    """its distinct values in the order of the runs, keyed by arm"""
    conclusion: str
    """equal, varies, defines, confounded, incomparable, sweep or curve"""


def split_words(name: str) -> set[str]:
    """Return the words of a name such as `training_iteration` or `totalSteps`, in lower case."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return set(re.split(r"[^a-z]+", apart.casefold()))


def find_kind(name: str) -> str:
    """Infer the kind of a fact from its name."""
    if RATE.fullmatch(name):
        return "time"
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
    """Return the distinct values of a fact, in the order of the runs."""
    return list(dict.fromkeys(run.facts[name] for run in runs if name in run.facts))


def speeds_of(runs: Sequence[Run]) -> list[float | None]:
    """Return each run's speed as it measured it, by the first rate, or else the first time, that a
    run has. The unit is that of the files."""
    names = list(dict.fromkeys(n for run in runs for n in (*run.curves, *run.facts)))
    for pattern, power in ((RATE, 1), (TIME, -1)):
        for name in filter(pattern.fullmatch, names):
            measured = [_measured(run, name) for run in runs]
            if any(measured):
                return [value and value**power for value in measured]
    return [None] * len(runs)


def _measured(run: Run, name: str) -> float | None:
    """Return the mean of a run's curve, or its last value if it only rises, as seconds do."""
    value = run.facts.get(name)
    if name in run.curves:
        values = run.curves[name][:, 1]
        is_total = len(values) > 2 and bool((np.diff(values) > 0).all())
        value = float(values[-1] if is_total else values.mean())
    return value if is_number(value) and 0 < value < math.inf else None


def find_seed(runs: Sequence[Run], name: str) -> str:
    """Return the name of the fact that holds seeds. If no run has `seed`, this is a similar fact,
    such as `config.trainer.seed` or `fold`."""
    names = dict.fromkeys(fact for run in runs for fact in run.facts)
    if name != "seed" or "seed" in names:
        return name
    seeds = [fact for fact in names if find_kind(fact) == "seed"]
    return max(seeds, key=lambda fact: len(values_of(runs, fact)), default=name)


def list_facts(arms: Arms, known: Iterable[str], *, is_replicated: bool) -> list[Fact]:
    """Return the facts of the runs, each with its conclusion. Columns in `known` are excluded.
    `is_replicated` means that the runs of every arm have different seeds."""
    facts, every = [], list(chain(*arms.values()))
    are_rows = not is_replicated and not any(run.curves for run in every)
    names = dict.fromkeys(name for run in every for name in run.facts)
    excluded = OWN.union(known)
    for name in [name for name in names if name not in excluded]:
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
    """Return whether the values look like the steps of curves. They increase strictly, apart from
    restarts at the first value, or they are equally spaced in any order."""
    values = np.array([step for step in steps if isinstance(step, float)])
    if len(values) < max(len(steps), LEAST_CLIMB):
        return False
    pieces = np.split(values, np.flatnonzero(np.diff(values) <= 0) + 1)
    if all(len(piece) >= LEAST_CLIMB and piece[0] == values[0] for piece in pieces):
        return True
    gaps = np.diff(np.sort(values))
    return bool(gaps[0] > 0 and (gaps == gaps[0]).all())


def _conclude(kind: str, values: Mapping[str, list[Value]], arms: Arms, is_replicated: bool) -> str:
    """Return the conclusion from a fact's values in each arm."""
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
    """Yield findings about the runs' facts that affect a comparison by `score`.

    Raises ParibusError for a sweep, and for scores that cannot be compared.
    """
    by_conclusion: dict[str, list[Fact]] = {}
    every = list(chain(*arms.values()))
    for fact in facts:
        by_conclusion.setdefault(fact.conclusion, []).append(fact)
        _refuse_unequal(fact, arms, score)
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
    for name in sorted(WORDS["start"]):
        starts = {run.facts.get(name) for run in every}
        if len(every) > 1 and len(starts) == 1 and not starts & {None, 0.0, ""}:
            text = f"All runs start from one checkpoint ({name} {_as_text(starts.pop())}): the"
            yield "one_start", f"{text} spread of seeds leaves out what came before it."
    if zeroed := [run for run in every if run.facts.get("zeroed") == score]:
        text = (
            f"{plural(len(zeroed), 'run')} logged a {score} of 0 beside a gradient norm of NaN, "
            f"such as {zeroed[0].source}: a filter wrote it in place of NaN, and it counts as "
            "diverged."
        )
        yield "nan_as_zero", text


def _refuse_unequal(fact: Fact, arms: Arms, score: str) -> None:
    """Raise ParibusError if a fact makes the runs incomparable, and suggest ways out."""
    name, code, why = fact.name, "incomparable", ""
    if fact.conclusion == "curve":
        code = "ambiguous"
        why = (
            f"there is a row for each '{name}', as of a curve or of items: name it with --step "
            f"{name} or --item {name}; if each row is a run, name the column of seeds (--seed)"
        )
    elif fact.conclusion == "sweep":
        arm, values = max(fact.values.items(), key=lambda item: len(item[1]))
        shown = some([_as_text(value) for value in values], MOST_VALUES)
        why = (
            f"the {plural(len(arms[arm]), 'run')} of {arm} differ in {name} ({shown}), so they "
            f"are not replicates; judge one value (--where '{name}={_as_text(values[0])}'), or the "
            f"best of each seed (--best-of '{name}'); if it numbers replicates, pass --seed "
            f"'{name}'; if it is an outcome, pass --score '{name}' too"
        )
    elif fact.conclusion == "incomparable":
        if name.startswith(OF_TASK) and name.partition("/")[2] != score.rpartition("/")[0]:
            return  # of another task than the score is of
        first, *rest = [run for run in chain(*arms.values()) if name in run.facts]
        other = next(run for run in rest if run.facts[name] != first.facts[name])
        values = [_as_text(run.facts[name]) for run in (first, other)]
        why = (
            f"runs of {score} were not evaluated alike: {name} is {values[0]} in {first.source} "
            f"and {values[1]} in {other.source}; evaluate them alike, or judge those that were "
            f"with --where '{name}={values[0]}'"
        )
    if why:
        raise ParibusError(why, code=code)


def _refuse_multiplied(arms: Arms, defines: Iterable[Fact], score: str) -> None:
    """Raise ParibusError if a training loss seems to be summed over accumulated batches. The signs
    are an integer multiple of the evaluation loss in only one arm, or losses that are equal between
    arms after division by the number of batches."""
    losses = {arm: _middle(runs, score) for arm, runs in arms.items()}
    ratios = []
    for arm, runs in arms.items():
        evaluated = _middle(runs, *{n for run in runs for n in run.scores if EVALUATED.match(n)})
        ratios += [losses[arm] / evaluated] if losses[arm] and evaluated else []
    is_whole = any(round(ratio) > 1 and abs(ratio / round(ratio) - 1) < 0.15 for ratio in ratios)
    is_summed = is_whole and min(ratios) < 1.4
    for fact in defines:
        numbers = {arm: own[0] for arm, own in fact.values.items() if own and is_number(own[0])}
        parts = [losses[arm] / number for arm, number in numbers.items() if number]
        is_accumulation = ACCUMULATION.fullmatch(re.split(r"[./]", fact.name)[-1].lower())
        is_equal = len(parts) > 1 and 0 < max(parts) < 1.2 * min(parts)
        is_summed |= bool(is_accumulation and is_equal)
    if is_summed:
        why = f"{score} differs between arms by a whole factor, as if summed over accumulated"
        why += " batches; judge by the evaluation loss, or divide it"
        raise ParibusError(why, code="incomparable")


def _middle(runs: Iterable[Run], *names: str) -> float:
    """Return the median of the finite values of the named scores, or 0 without any."""
    values = [run.scores.get(name, math.nan) for run in runs for name in names]
    finite = [value for value in values if math.isfinite(value)]
    return float(np.median(finite)) if finite else 0.0


def _as_text(value: Value | None) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value!s:.40}"


def check_values(arms: Arms, score: str, at_step: float | None) -> Iterator[Finding]:
    """Yield findings about the compared runs from their values and curves of `score`."""
    every = list(chain(*arms.values()))
    n_runs = plural(len(every), "run")
    values = {
        arm: Counter(run.scores[score] for run in runs if _is_fine(run.scores.get(score, math.nan)))
        for arm, runs in arms.items()
    }
    for first, second in combinations(arms, 2):
        equal = list(values[first].keys() & values[second].keys())
        # By chance about as many values are in both arms as are in one of them again.
        repeats = sum(own.total() - len(own) for own in (values[first], values[second]))
        if len(equal) >= max(LEAST_EQUAL, MORE_EQUAL * repeats):
            text = f"{first} and {second} have {len(equal)} values of {score} in common, such as"
            yield "equal_arms", f"{text} {equal[0]:g}: did the change take effect?"
            break
    repeated = []
    for run in every:
        if len(curve := run.curves.get(score, ())):
            step = curve[-1, 0] if at_step is None else at_step
            n = len(set(map(repr, curve[curve[:, 0] == step, 1].tolist())))
            repeated += [f"{run.source} with {n} at step {step:g}"] if n > 1 else []
    if repeated:
        text = (
            f"{len(repeated)} of {n_runs} have several values of {score} at the step that counts, "
            f"such as {repeated[0]}: the last in the file is taken. Do steps begin again in each "
            "epoch or after a restart, are rows of several kinds, or is the best checkpoint "
            "evaluated at the end?"
        )
        yield "repeated_steps", text
    # Tables are warned about when they are read.
    if cut := [run for run in every if "cut" in run.facts and not run.is_row]:
        text = f"{len(cut)} of {n_runs} are of logs that are cut, such as {cut[0].source}"
        yield "cut", f"{text} ({cut[0].facts['cut']})."
    if at_step is not None:
        return
    ends = [(run, *(run.facts.get(k) for k in ("steps", "planned_steps"))) for run in every]
    if early := [(r, a, b) for r, a, b in ends if is_number(a) and is_number(b) and a < b]:
        run, end, planned = early[0]
        text = f"{len(early)} of {n_runs} stopped before the last step that was planned, such as"
        yield "stopped_early", f"{text} {run.source} at {end:,g} of {planned:,g}."
    for name in (score, ""):  # of runs without its curve, where they ended
        spans = {arm: _ends_of(runs, name) for arm, runs in arms.items()}
        if len(set().union(*spans.values())) > 1:
            text = "; ".join(
                f"{arm} {min(own):,g}" + f" to {max(own):,g}" * (len({*own}) > 1)
                for arm, own in list(spans.items())[:MOST_VALUES]
                if own
            )
            text = f"Scores are those of the last step logged, which differs: {text}. A history"
            text += " that was sampled lacks its end: export all of it, or state --at-step."
            yield "other_lengths", text
            break


def _ends_of(runs: Iterable[Run], name: str) -> list[Any]:
    """Return the last step of each run's score curve, or of the run if it has no such curve."""
    last = [
        run.curves[name][-1, 0] if name in run.curves else run.facts.get("steps") for run in runs
    ]
    return [step for step in last if step is not None]


def _is_fine(value: float) -> bool:
    """Return whether a value has more than three digits, so that it rarely repeats by chance."""
    return math.isfinite(value) and float(f"{value:.3g}") != value
