"""All else equal: compare what the runs of the arms say besides their scores.

A fact is any other column, configuration value or setting of a run. Its name says its kind, and how
its values differ within and between arms says what follows:

    setting       differs between arms: it may define them. Differs within one: a sweep, refused.
    environment   differs between arms exactly as the arm does: confounded, a caution.
    evaluation    differs anywhere: the scores cannot be compared, refused.
    seed, identifier, time, outcome: may differ.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.readers.port import Run, Value

MOST_VALUES = 4  # of a fact that a message names
KINDS = Path(__file__).with_name("kinds.toml")
WORDS = {kind: frozenset(words) for kind, words in tomllib.loads(KINDS.read_text()).items()}
ACCUMULATION = re.compile(r"(?:.*_)?(?:accum|accumulation)(?:_steps)?|grad_accum.*")
TRAINING_LOSS = re.compile(r"(?:train[/_.]?)?loss|train/loss", re.IGNORECASE)
EVALUATED = re.compile(r"(?:.*[/_.])?(?:val|valid|validation|eval)[/_.]?loss$", re.IGNORECASE)
# Facts that a reader made for the judge.
MADE = ("empty_at/", "task_hash/", "n_shot/", "n_samples/", "task_version/")
OWN = {"arm", "seed", "steps", "planned_steps", "train_seconds", "cut", "unfinished", "crashed"}
OWN |= {"source_digest", "commit", "stage", "zeroed", "parent"}
PROGRAM = {"source_digest": "programs", "commit": "commits"}  # facts that say which program ran


@dataclass(frozen=True)
class Fact:
    """A fact of the runs.

    Attributes:
        name: as the files have it.
        kind: setting, environment, evaluation, seed, identifier, time or other.
        values: by arm, its different values, in the order of the runs.
        conclusion: equal, varies, defines, confounded, incomparable or sweep.
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


def find_kind(name: str) -> str:
    """Return the kind of a fact by its name."""
    parts = [part for part in re.split(r"[./:]", name) if part]
    spelt = [re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", part).lower() for part in parts] or [""]
    spelt = [re.sub(r"[\s-]+", "_", part).strip("_") for part in spelt]
    last = spelt[-1]
    words = set(last.split("_"))
    if name.startswith(MADE[1:]) or last in WORDS["evaluation"] or words & WORDS["evaluation_part"]:
        return "evaluation"
    if last in WORDS["seed"] or words & {"seed", "seeds"}:
        return "seed"
    if last in WORDS["environment"]:
        return "environment"
    if last in WORDS["setting"] or ACCUMULATION.fullmatch(last) or words & {"lr"}:
        return "setting"
    if last in WORDS["identifier"] or words & WORDS["identifier_part"]:
        return "identifier"
    if words & WORDS["time"]:
        return "time"
    is_setting = len(spelt) > 1 and not WORDS["prefix"].isdisjoint(spelt[:-1])
    return "setting" if is_setting else "other"


def find_seed(runs: Sequence[Run], name: str) -> str:
    """Return the name of the fact that holds seeds: `name`, or a nested setting such as
    `config.trainer.seed` if no run has `name`."""
    if any(name in run.facts or "seed" in run.facts for run in runs) or name != "seed":
        return name
    nested: dict[str, set[Value]] = {}
    for run in runs:
        for fact, value in run.facts.items():
            if re.search("seed|random_state", re.split(r"[./]", fact)[-1].casefold()):
                nested.setdefault(fact, set()).add(value)
    return max(nested, key=lambda fact: len(nested[fact]), default=name)


def list_facts(
    arms: Mapping[str, Sequence[Run]], known: Iterable[str], seed: str, *, is_replicated: bool
) -> list[Fact]:
    """Return the facts of the runs with what follows from each.

    Args:
        arms: the runs that are compared, by arm.
        known: names of scores and of columns whose meaning is stated; they are no facts.
        seed: the fact that is the seed.
        is_replicated: whether seeds tell the runs of every arm apart.
    """
    every = [run for runs in arms.values() for run in runs]
    left_out = {*known, seed} | OWN
    names = dict.fromkeys(name for run in every for name in run.facts)
    facts = []
    for name in names:
        if name in left_out or name.startswith(MADE[0]):
            continue
        values = {
            arm: list(dict.fromkeys(run.facts[name] for run in runs if name in run.facts))
            for arm, runs in arms.items()
        }
        kind = find_kind(name)
        facts.append(Fact(name, kind, values, _conclude(kind, values, arms, is_replicated)))
    return facts


def _conclude(
    kind: str,
    values: Mapping[str, list[Value]],
    arms: Mapping[str, Sequence[Run]],
    is_replicated: bool,
) -> str:
    """Return what follows from the values that a fact has in each arm."""
    all_values = {value for arm in values.values() for value in arm}
    sets = [set(arm) for arm in values.values()]
    if len(all_values) < 2:
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
    if any(not arm for arm in sets):
        return "varies"
    if kind == "environment":
        return "confounded"
    # A number that one run has is most likely an outcome.
    return (
        "defines" if kind == "setting" or all(len(runs) > 1 for runs in arms.values()) else "varies"
    )


def check_facts(
    arms: Mapping[str, Sequence[Run]],
    facts: Sequence[Fact],
    score: str,
) -> list[Finding]:
    """Return what the facts of runs say of their comparison by `score`.

    Raises ParibusError for a sweep, and for scores that cannot be compared.
    """
    findings = []
    for fact in facts:
        if fact.conclusion == "incomparable":
            _refuse_incomparable(fact, arms, score)
        elif fact.conclusion == "sweep":
            _refuse_sweep(fact, arms)
    _refuse_multiplied(arms, facts, score)
    confounded = [fact for fact in facts if fact.conclusion == "confounded"]
    for fact in confounded[:MOST_VALUES]:
        each = ", ".join(
            f"{_as_text(own[0]) if own else 'not stated'} in {arm}"
            for arm, own in fact.values.items()
        )
        findings.append(
            Finding(
                "confounded",
                f"The arm and {fact.name} cannot be told apart: {each}. The change may come from "
                "either.",
            )
        )
    if defines := [fact.name for fact in facts if fact.conclusion == "defines"]:
        findings.append(Finding("arms_differ", f"Arms differ in {some(defines, 6)}."))
    findings += _check_programs(arms)
    findings += _check_start(arms)
    findings += _check_zeros(arms, score)
    return findings


def _refuse_incomparable(fact: Fact, arms: Mapping[str, Sequence[Run]], score: str) -> None:
    task, _, of_task = fact.name.partition("/")
    if f"{task}/" in MADE and of_task != score.rpartition("/")[0]:
        return  # of another task than the score is of
    runs = [run for own in arms.values() for run in own if fact.name in run.facts]
    first = runs[0]
    differing = next(run for run in runs if run.facts[fact.name] != first.facts[fact.name])
    values = [_as_text(run.facts[fact.name]) for run in (first, differing)]
    raise ParibusError(
        f"runs of {score} were not evaluated alike: {fact.name} is {values[0]} in "
        f"{first.source or 'one'} and {values[1]} in {differing.source or 'another'}; evaluate "
        f"them alike, or judge those that were with --where '{fact.name}={values[0]}'"
    )


def _refuse_sweep(fact: Fact, arms: Mapping[str, Sequence[Run]]) -> None:
    arm, values = max(fact.values.items(), key=lambda item: len(item[1]))
    shown = some([_as_text(value) for value in values], MOST_VALUES)
    raise ParibusError(
        f"the {plural(len(arms[arm]), 'run')} of {arm} differ in {fact.name} ({shown}), and are no "
        f"replicates; judge one value with --where '{fact.name}={_as_text(values[0])}', the best "
        f"run of each seed with --best-of '{fact.name}'; if it numbers replicates, name it with "
        f"--seed '{fact.name}', and if it is an outcome, as a further --score '{fact.name}'"
    )


def _refuse_multiplied(
    arms: Mapping[str, Sequence[Run]], facts: Iterable[Fact], score: str
) -> None:
    """Raise ParibusError if a training loss seems to be summed over accumulated batches.

    The sign is a loss that is a whole multiple of the evaluation loss in one arm only, or a loss
    that is equal in the arms once it is divided by the number of accumulated batches."""
    if not TRAINING_LOSS.fullmatch(score):
        return
    means = {arm: _middle(run.scores.get(score) for run in runs) for arm, runs in arms.items()}
    evaluated = {
        arm: _middle(
            run.scores[name] for run in runs for name in run.scores if EVALUATED.match(name)
        )
        for arm, runs in arms.items()
    }
    accumulated = {
        arm: value[0]
        for fact in facts
        if ACCUMULATION.fullmatch(re.split(r"[./]", fact.name)[-1].lower())
        for arm, value in fact.values.items()
        if len(value) == 1 and isinstance(value[0], float)
    }
    for unit_name, parts in (("evaluation loss", evaluated), ("accumulated batches", accumulated)):
        units = {arm: means[arm] / parts[arm] for arm in parts if means[arm] and parts[arm]}
        if unit_name == "accumulated batches":
            # A loss that is summed over batches is equal in the arms once it is divided by them.
            is_summed = len(units) > 1 and len(set(accumulated.values())) > 1
            is_summed = is_summed and max(units.values()) < 1.2 * min(units.values())
        else:
            times = {arm: round(unit) for arm, unit in units.items()}
            is_summed = (
                any(n > 1 and abs(units[arm] / n - 1) < 0.15 for arm, n in times.items())
                and min(units.values()) < 1.4
            )
        if is_summed:
            raise ParibusError(
                f"{score} differs between arms by a whole factor, as does its ratio to the "
                f"{unit_name}: it may be summed over accumulated batches; judge by the evaluation "
                "loss, or divide it"
            )


def _middle(values: Iterable[float | None]) -> float:
    """Return the median of the finite values; 0 without any."""
    finite = [value for value in values if value is not None and math.isfinite(value)]
    return median(finite) if finite else 0.0


def _check_programs(arms: Mapping[str, Sequence[Run]]) -> list[Finding]:
    """Warn about arms whose runs are of several programs or commits."""
    findings = []
    for arm, runs in arms.items():
        for name, noun in PROGRAM.items():
            counts: dict[str, int] = {}
            for run in runs:
                if name in run.facts:
                    value = str(run.facts[name])[:12]
                    counts[value] = counts.get(value, 0) + 1
            if len(counts) > 1:
                ordered = sorted(counts.items(), key=lambda item: -item[1])
                each = some([f"{value} ({n})" for value, n in ordered], 3)
                text = f"The runs of {arm} are of {len(counts)} {noun}, {each}: is it one arm?"
                findings.append(Finding("programs", text))
                break
    return findings


def _check_start(arms: Mapping[str, Sequence[Run]]) -> list[Finding]:
    """Warn if all runs start from one checkpoint."""
    every = [run for runs in arms.values() for run in runs]
    for name in sorted(WORDS["start"]):
        values = {run.facts.get(name) for run in every}
        if len(every) > 1 and len(values) == 1 and not values & {None, 0.0, ""}:
            text = (
                f"All runs start from one checkpoint ({name} {_as_text(values.pop())}): the spread "
                "of seeds leaves out what came before it."
            )
            return [Finding("one_start", text)]
    return []


def _check_zeros(arms: Mapping[str, Sequence[Run]], score: str) -> list[Finding]:
    """Warn about losses of 0 beside a gradient norm of NaN, which count as NaN."""
    zeroed = [run for runs in arms.values() for run in runs if run.facts.get("zeroed") == score]
    if not zeroed:
        return []
    text = (
        f"{plural(len(zeroed), 'run')} logged a {score} of 0 beside a gradient norm of NaN, such "
        f"as {zeroed[0].source or 'a row'}: a filter wrote it in place of NaN, and it counts as "
        "diverged."
    )
    return [Finding("nan_as_zero", text)]


def _as_text(value: Value | None) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value!s:.40}"
