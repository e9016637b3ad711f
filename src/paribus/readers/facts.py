"""Facts about the runs other than scores, to check that all else is equal between the arms.

A fact is any column, configuration value or setting of a run that is not a score. Its kind is
inferred from its name, and CONCLUSIONS says what follows from its values.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, one_line
from paribus.numbers import plural, some
from paribus.readers.port import Run, Value, as_number, cell_text, is_number

MOST_VALUES = 4  # of a fact, and arms, that a message names
LONG_CLIMB = 3  # times the least value; the largest one of a curve's steps
SIZES = ("parameters", "training_flops")
KINDS = ("evaluation", "start", "seed", "environment", "setting", "identifier", "time")
_NAMES = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text())
PATTERNS = {key: re.compile(text, re.IGNORECASE) for key, text in _NAMES.pop("pattern").items()}
RATE, TIME, TOKENS, SHARE = map(PATTERNS.__getitem__, ("rate", "time", "tokens", "share"))
WORDS: dict[str, list[str]] = _NAMES
SETS = {key: {*words} for key, words in WORDS.items()}
# What facts of evaluations begin with; those of one task end with its name after a slash.
EVALUATION, HARNESS = "evaluation:", "harness:"
OF_CHOICE = ("evaluation_word", "evaluated_by", "evaluated_what", "of_thing")
PER_TOKEN, PER_BYTE, TOKENIZER = map(PATTERNS.__getitem__, ("per_token", "per_byte", "tokenizer"))
# By kind, what follows where only some arms state a fact, where it differs between arms, and where
# it differs within one; of other kinds it varies.
CONCLUSIONS = {
    "evaluation": ("incomparable", "incomparable", "incomparable"),
    "environment": ("equal", "confounded", "varies"),
    "start": ("defines", "defines", "varies"),
    "setting": ("defines", "defines", "sweep"),
    "along": ("equal", "defines", "varies"),
    "other": ("equal", "defines", "varies"),
}
SIZE_UNIT = re.compile(r"_(?:bytes|[kmgt]i?_?b|[mgtp]flops)$")

Arms = Mapping[str, Sequence[Run]]
Finding = tuple[str, str]  # a code and a sentence about the runs, for cautions and records


@dataclass(frozen=True)
class Fact:
    """A recorded property of the runs, such as a setting, and how it differs between arms."""

    name: str
    kind: str  # one of KINDS, `along` (such as steps), or `other`
    values: dict[str, list[Any]]  # distinct, in run order, keyed by arm; None: not stated
    conclusion: str  # equal, varies, defines, confounded, incomparable or sweep


def _parts(name: str) -> list[str]:
    """Split a fact's name at `.`, `/` and `:`. The parts are in snake case."""
    spelt = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[\s-]+", "_", name).lower()
    return [part.strip("_") for part in re.split(r"[./:]", spelt) if part] or [""]


def find_size(name: str) -> str:
    """Return the model size that a fact's name denotes, such as `parameters`, or "" if none."""
    last = SIZE_UNIT.sub("", _parts(name)[-1])
    return next((size for size in SIZES if last in WORDS[size]), "")


@cache
def find_kind(name: str) -> str:
    """Infer the kind of a fact from its name, such as `config/trainer.learningRate`.

    The kind is `option` if only a prefix of the name, such as `config`, marks it as a setting.
    """
    if RATE.fullmatch(name):
        return "time"
    if name.startswith((EVALUATION, HARNESS)):
        return "evaluation" if name.startswith(EVALUATION) else "environment"
    *above, last = _parts(name)
    last = SIZE_UNIT.sub("", last)
    words, around = ({*re.findall("[a-z]+", text)} for text in (last, " ".join(above)))
    is_option, is_evaluated = SETS["prefix"] & {*above}, (words | around) & SETS["evaluated_by"]
    is_evaluation = is_evaluated and (is_option or words & SETS["evaluated_what"])
    is_evaluation = is_evaluation and not (words | around) & SETS["evaluated_never"]
    kinds = [kind for kind in KINDS if last in SETS[kind]]
    if kinds and not (is_evaluation and around & SETS["evaluated_by"] and kinds[0] != "seed"):
        return kinds[0]
    if words & SETS["seed_word"]:  # that of the evaluation makes no replicates of the training
        return "identifier" if is_evaluated else "seed"
    if is_evaluation or words & SETS["evaluation_word"]:
        return "evaluation"
    things = words
    if words <= SETS["of_thing"]:  # such as `version`, which belongs to the part above
        things = words | {*re.findall("[a-z]+", "".join(above[-1:]))}
    if (rest := things - SETS["of_thing"] - SETS["prefix"]) and rest <= SETS["environment_word"]:
        return "environment"
    for kind in ("setting", "identifier", "time"):
        if words & SETS[f"{kind}_word"]:
            return "along" if kind == "time" and words & SETS["bound"] else kind
    if is_option:
        return "option"
    return "along" if words & SETS["along"] else "other"


def find_quantities(name: str, values: Iterable[Any]) -> set[str] | None:
    """Return the quantities whose unit or scale a fact states, or None if it states none.

    The set is empty if the unit may be that of any score. A scale that is a number is not a unit,
    and neither is the `loss_scale` of mixed precision.
    """
    if name.startswith((EVALUATION, HARNESS)):
        return None
    *above, last = _parts(name)
    words = {*re.findall("[a-z]+", last)}
    if words <= SETS["unit_word"]:  # such as `time.unit`
        words |= {*re.findall("[a-z]+", "".join(above[-1:]))} & SETS["quantity"]
    texts = {str(value).strip().casefold() for value in values}
    rest = words - SETS["unit_word"] - SETS["scale_word"]
    named = quantities_in(rest)
    is_stated = bool(words & SETS["unit_word"])
    if words & SETS["scale_word"] and not (named == {"loss"} and words & {"scale", "scaling"}):
        is_text = not any(is_number(as_number(text)) or text in ("true", "false") for text in texts)
        is_stated |= is_text and bool(named or rest & SETS["any_score"])
    if is_stated and rest <= SETS["quantity"] | SETS["any_score"] | SETS["of_score"]:
        return named
    if texts and texts <= SETS["time_unit"]:
        return {"time"}
    return set() if texts and texts <= SETS["score_unit"] else None


def quantities_in(words: Iterable[str]) -> set[str]:
    """Return the canonical names of the quantities in `words`, such as `time` for `latency`."""
    return {"time" if w in SETS["timed"] else w[:4] for w in words if w in SETS["quantity"]}


def end_of(run: Run, score: str) -> float:
    """Return the last step of a run's score curve, or of the run if it has no curve, or NaN."""
    if score in run.curves:
        return float(run.curves[score][-1, 0])
    steps = run.facts.get("steps")
    return steps if is_number(steps) else math.nan


def common_step(runs: Iterable[Run], score: str) -> str:
    """Return the option to compare runs at their last common step, or "" if none exists."""
    steps = [{*run.curves[score][:, 0]} if score in run.curves else set() for run in runs]
    shared = set.intersection(*steps) if steps else set[float]()
    return f"--at-step {max(shared):g}" if shared else ""


def values_of(runs: Iterable[Run], name: str) -> list[Value]:
    """Return the distinct values of a fact, in run order. NaN is excluded."""
    values = dict.fromkeys(run.facts[name] for run in runs if name in run.facts)
    return [value for value in values if value == value]


def list_facts(arms: Arms, known: Iterable[str], *, is_replicated: bool) -> list[Fact]:
    """Return the facts about the runs, except the columns `known`, each with its conclusion."""
    every, excluded = list(chain(*arms.values())), set(known).union(WORDS["own"])
    may_be_rows = not is_replicated and not any(run.curves for run in every)
    facts = []
    for name in dict.fromkeys(n for run in every for n in run.facts if n not in excluded):
        values: dict[str, list[Any]] = {arm: values_of(runs, name) for arm, runs in arms.items()}
        kind = find_kind(name)
        if _is_outcome(name, kind, arms, is_replicated=is_replicated):
            kind = "other"
        own = values_of(every, name)  # a value of each run's own is a name of the run
        is_own = is_replicated and len(own) == len(every)
        is_output = is_own and len(own) > len(arms) and not is_number(own[0])
        if kind == "option" or (
            kind == "evaluation" and is_output and not name.startswith(EVALUATION)
        ):
            kind = "identifier" if is_own else "setting"
        if find_quantities(name, chain(*values.values())) is not None:
            kind = "evaluation"
        conclusion = _conclude(kind, list(values.values()), arms, may_be_rows=may_be_rows)
        gaps = [arm for arm, runs in arms.items() if any(name not in run.facts for run in runs)]
        is_setting = name.startswith((EVALUATION, HARNESS))
        if is_setting and conclusion == "equal" and 0 < len(gaps) < len(arms):
            conclusion, values = "confounded", values | {arm: [*values[arm], None] for arm in gaps}
        if name != "steps" or conclusion == "sweep":
            facts.append(Fact(name, kind, values, conclusion))
    return facts


def _is_outcome(name: str, kind: str, arms: Arms, *, is_replicated: bool) -> bool:
    """Return whether a fact is most likely a measurement, although its name suggests otherwise.

    It is a number that varies within every arm. A choice would take the same values in every arm.
    If all words of the name are those of a choice, it must have at least three digits and differ in
    every run, although all arms have the same seeds, or the name has a word such as `final`.
    """
    sets = [values_of(runs, name) for runs in arms.values()]
    every, last = list(chain(*sets)), _parts(name)[-1]
    is_varied = all(len(own) > 1 for own in sets) and all(map(is_number, every))
    is_chosen = kind not in ("evaluation", "setting") or name.startswith(EVALUATION)
    if is_chosen or not is_varied or last in SETS["evaluation"]:
        return False
    words = {*re.findall("[a-z]+", last)}
    if kind == "evaluation" and words - set().union(*map(SETS.__getitem__, OF_CHOICE)):
        return len(sets) == 1 or len({*map(frozenset, sets)}) > 1
    seeds = {frozenset(run.facts.get("seed") for run in runs) for runs in arms.values()}
    is_paired = is_replicated and len(seeds) == 1 < len(sets)
    is_own = len({*every}) == sum(map(len, arms.values()))
    is_long = all(float(f"{value:.2g}") != value for value in every)
    return is_own and is_long and (is_paired or bool(words & (SETS["named"] | SETS["measured"])))


def _conclude(kind: str, values: Sequence[list[Value]], arms: Arms, *, may_be_rows: bool) -> str:
    """Classify a fact by its values in each arm; see `Fact.conclusion`.

    Runs without distinct seeds may be rows of one run: points of a curve, or the same items.
    """
    sets = [set(own) for own in values]
    partly, between, within = CONCLUSIONS.get(kind, ("equal", "varies", "varies"))
    if len(set().union(*sets)) < 2 or (kind == "start" and not all(sets)):
        return partly if any(sets) and not all(sets) else "equal"  # an empty cell, or null
    is_known = kind not in ("other", "along")
    if any(len(own) > 1 for own in sets):
        numbers = [list(filter(is_number, own)) or [1.0] for own in sets if kind == "along"]
        is_curve = any(LONG_CLIMB * min(own) <= max(own) for own in numbers)
        is_crossed = not is_known and len(sets) > 1 and all(own == sets[0] for own in sets)
        return "sweep" if may_be_rows and (is_curve or is_crossed) else within
    # A number that one run has is most likely an outcome.
    is_clear = is_known or all(len(runs) > 1 for runs in arms.values())
    return between if kind == "evaluation" or (all(sets) and is_clear) else "varies"


def refuse_unequal(fact: Fact, arms: Arms, score: str) -> None:
    """Raise ParibusError, with suggestions, if a fact makes the runs incomparable."""
    name = fact.name
    if fact.conclusion == "sweep":
        arm, values = max(fact.values.items(), key=lambda item: len(item[1]))
        why = f"the {plural(len(arms[arm]), 'run')} of {arm} differ in {name} "
        why += f"({some(list(map(fact_text, values)), MOST_VALUES)}), so they are not replicates"
        ways = f"judge one value (--where '{name}={cell_text(values[0])}') or the best of each seed"
        ways += f" (--best-of '{name}')"
        if fact.kind != "setting":
            ways = f"pass --step '{name}' or --item '{name}' if rows are points of a curve or items"
        ways += f"; pass --seed '{name}' if it numbers replicates, --score '{name}' if an outcome"
        raise ParibusError(f"{why}; {ways}", code="incomparable")
    if PER_TOKEN.search(score) and not PER_BYTE.search(score) and are_other_tokenizers(fact):
        ways = [s for run in chain(*arms.values()) for s in run.scores if PER_BYTE.search(s)]
        why = f"{score} is a loss per token, but {name} is {values_by_arm(fact)}; judge by bits per"
        why += f" byte (--score {ways[0]})" if ways else " byte: loss / ln 2 * tokens / bytes"
        raise ParibusError(why, code="incomparable")
    if fact.conclusion == "incomparable":
        by_value = {(values_of([run], name) or [None])[0]: run for run in chain(*arms.values())}
        *_, second, first = sorted(by_value, key=lambda value: value is not None)
        why = f"runs of {score} were not evaluated alike: {name} is {fact_text(first)} in "
        why += f"{by_value[first].source} and {fact_text(second)} in {by_value[second].source}"
        why += "; evaluate them alike"
        if any(len(own) > 1 for own in fact.values.values()):
            why += f", select some with --where '{name}={cell_text(first)}', or pass --arm '{name}'"
            why += f" if it is the change, or --item '{name}' if each run has one row per value"
        raise ParibusError(why, code="incomparable")


def are_other_tokenizers(fact: Fact) -> bool:
    """Return whether arms have other tokenizers, or vocabularies whose sizes differ by over 1%.

    Smaller differences come from the padding of embeddings.
    """
    texts = [[cell_text(value).rstrip("/") for value in own] for own in fact.values.values()]
    sets = [{text.rpartition("/")[2] for text in own} for own in texts]
    sizes = [as_number(text) or math.nan for text in chain(*sets)]
    is_padded = max(sizes, default=0) < 1.01 * min(sizes, default=0)
    is_named = TOKENIZER.fullmatch(fact.name) and all(sets) and not is_padded
    return bool(is_named) and any(own != sets[0] for own in sets)


def is_budget(fact: Fact) -> bool:
    """Return whether a fact is a budget of a run, such as `max_steps` or the size of batches."""
    words = {*re.findall("[a-z]+", _parts(fact.name)[-1])}
    of_budget = SETS["along"] | {"bs", "temperature"}
    return not words & SETS["no_budget"] and (fact.kind == "along" or bool(words & of_budget))


def values_by_arm(fact: Fact) -> str:
    """Format the values of a fact in each arm for a message."""
    parts = {arm: " or ".join(map(fact_text, own)) for arm, own in fact.values.items() if own}
    return ", ".join(f"{text} in {arm}" for arm, text in parts.items())


def fact_text(value: Value | None) -> str:
    """Format the value of a fact for a message."""
    if value is None:
        return "not stated"
    return f"{value:g}" if isinstance(value, float) else one_line(value, 40)
