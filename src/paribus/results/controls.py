"""Controls: checks that two arms differ only in the settings that the arm overrides.

Each check compares the records of an arm and its reference at every seed that both have finished. A
difference is `declared` if the arm's overrides explain it, and `broken` otherwise; a contrast with
a broken control is not analysed. A control without records is `not proven`. For custom code, the
control `repeatable` is `not proven` until some training steps have been repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from paribus.digests import changes
from paribus.numbers import some
from paribus.study import Study
from paribus.study.trainer import STACKED

State = Literal["held", "declared", "broken", "not proven"]
Finding = tuple[State, str]
"""State of a control for one pair of trials, and a description of the evidence."""
Declared = Mapping[str, Any]
"""Settings that an arm changes relative to its reference, keyed by dotted name."""

WORST: tuple[State, ...] = ("broken", "not proven", "declared", "held")
SIGNS: dict[State, str] = {"held": "✓", "declared": "~", "not proven": "?", "broken": "✗"}
MOST_TEXTS = 2  # findings of one control that are shown


@dataclass(frozen=True)
class Evidence:
    """Records of one trial, as input to checks. Subclasses add records besides trial.json."""

    arm: str
    seed: int
    trial: dict[str, Any]

    @property
    def label(self) -> str:
        """Display label of the trial, `<arm>/seed-<seed>`."""
        return f"{self.arm}/seed-{self.seed}"


@dataclass(frozen=True)
class Control:
    """Result of one check of an arm against its reference, over all seeds that both finished.

    Attributes:
        detail: description of the evidence and the number of pairs. If it begins with a count, such
            as `24 of 28 parameters`, the control covers only these.
    """

    name: str
    arm: str
    reference: str
    state: State
    detail: str

    @property
    def sign(self) -> str:
        """Symbol that represents the state, such as "✓"."""
        return SIGNS[self.state]


Labelled = tuple[str, State, str]
Check = Callable[[Any, Any, Declared], Finding]


@dataclass(frozen=True)
class Checks:
    """Check functions for the records of one trainer, keyed by control.

    Attributes:
        pairs: checks of two trials with the same seed; they return None if the control does not
            apply to the study.
        across: checks of any two trials of the study; they return None if nothing differs.
        of_arm: keys of `across` whose checks compare only trials of the same arm.
        among: checks of all trials of an arm.
    """

    pairs: Mapping[str, Callable[[Any, Any, Declared], Finding | None]]
    across: Mapping[str, Callable[[Any, Any], Finding | None]] = field(default_factory=dict)
    of_arm: frozenset[str] = frozenset()
    among: Mapping[str, Callable[[Iterable[Any]], Iterator[Labelled]]] = field(default_factory=dict)


def check_controls(
    study: Study,
    records: Iterable[Evidence],
    checks: Checks,
    repeated: Mapping[str, Mapping[str, Any]],
) -> list[Control]:
    """Run all checks on every contrast with at least one finished pair, and return their results.

    Args:
        study: the study.
        records: records of all finished trials.
        checks: check functions of the study's trainer.
        repeated: entries of repeated.json, keyed by arm.
    """
    by_trial = {(record.arm, record.seed): record for record in records}
    across = _across_seeds(list(by_trial.values()), checks)
    controls = []
    for arm, reference in study.contrasts:
        pairs = [
            (by_trial[arm, seed], by_trial[reference, seed])
            for seed in study.seeds
            if (arm, seed) in by_trial and (reference, seed) in by_trial
        ]
        if not pairs:
            continue
        both, differences = (arm, reference), study.differences(arm)
        findings: dict[str, list[Labelled]] = {}
        for name, check in checks.pairs.items():
            of_pairs = [
                (own.label, check(own, counterpart, differences)) for own, counterpart in pairs
            ]
            of_control = [(label, *finding) for label, finding in of_pairs if finding]
            if of_control:
                findings[name] = of_control + across.get(name, [])
        for name, check_arm in checks.among.items():
            for each in both:
                findings[name] += check_arm(r for r in by_trial.values() if r.arm == each)
        custom = [each for each in both if study.setting(each).own_parts]
        if custom:
            findings["repeatable"] = [_repeatable(arm, repeated.get(arm)) for arm in custom]
        elif study.trainer != STACKED:
            findings["repeatable"] = [(arm, "not proven", "no trial was trained again")]
        controls += [Control(name, *both, *_summarise(seen)) for name, seen in findings.items()]
    return controls


def _repeatable(arm: str, repeated: Mapping[str, Any] | None) -> Labelled:
    if repeated is None:
        return arm, "not proven", "no trial was trained again yet"
    trial, steps = f"{arm}/seed-{repeated['seed']}", f"{repeated['steps']} trained again"
    if repeated["differs_at"] is None:
        return trial, "held", f"steps 1 to {steps} in a new process gave the same bits ({trial})"
    step = f"step {repeated['differs_at']} of {steps} gives a different result"
    return trial, "broken", f"{step}: {repeated['differs']}"


def _across_seeds(records: list[Any], checks: Checks) -> dict[str, list[Labelled]]:
    """Compare each trial with the first one, and return all differences, keyed by control.

    These checks are weaker than checks of pairs, because pairs may use different processors if
    both trials of a pair use the same one.
    """
    findings: dict[str, list[Labelled]] = {name: [] for name in checks.across}
    first_of: dict[str, Any] = {}
    for record in records:
        same_arm = first_of.setdefault(record.arm, record)
        for name, check in checks.across.items():
            first = same_arm if name in checks.of_arm else records[0]
            if finding := check(record, first):
                state, words = finding
                findings[name].append((record.label, state, f"{words}, unlike {first.label}"))
    return findings


def _summarise(findings: list[Labelled]) -> Finding:
    """Return the worst state, and a text that summarizes its findings and affected seeds."""
    states = {finding[1] for finding in findings}
    state: State = next(state for state in WORST if state in states)
    worst = [(label, text) for label, finding_state, text in findings if finding_state == state]
    labels, texts = (list(dict.fromkeys(column)) for column in zip(*worst, strict=True))
    # A digest is another one in every seed.
    shown = texts[: 1 if state in ("declared", "broken") else MOST_TEXTS]
    n_hidden = len(texts) - len(shown)
    if n_hidden and (state == "held" or state == "not proven"):
        shown.append(f"and {n_hidden} more")
    n, total = _seeds(labels), _seeds([label for label, _, _ in findings])
    # Of what is alike in all pairs no trial is named, so that two arms are told the same words.
    is_everywhere = n == total > 1 and len(texts) == 1
    where = [] if state == "held" or is_everywhere else [some(labels)]
    where += [f"{n} of {total} seeds"] if n and total > 1 else []
    return state, "; ".join(shown) + (f" ({': '.join(where)})" if where else "")


def _seeds(labels: Iterable[str]) -> int:
    return len({label.rpartition("/seed-")[2] for label in labels if "/seed-" in label})


def settings(own: Evidence, reference: Evidence, declared: Declared) -> Finding:
    """Check that the settings of two trials differ in exactly the keys that the arm overrides."""
    differing = changes(reference.trial["setting"], own.trial["setting"])
    undeclared = sorted(differing.keys() - declared.keys())
    if undeclared:
        return "broken", f"not declared by the arm: {', '.join(undeclared)}"
    absent = sorted(declared.keys() - differing.keys())
    if absent:
        return "broken", f"declared by the arm, yet equal: {', '.join(absent)}"
    return "held", f"differs in {', '.join(differing)}"


def evidence(name: str, keys: tuple[str, ...]) -> Check:
    """Return a function that checks whether both trials recorded the same value for a control.

    Args:
        name: name of the control.
        keys: prefixes of study keys; a difference is declared if the arm overrides one of them.
    """

    def check(own: Evidence, reference: Evidence, declared: Declared) -> Finding:
        pair = (own, reference)
        ours, theirs = (evidence.trial.get("controls", {}).get(name) for evidence in pair)
        if ours is None or theirs is None:
            return "not proven", "not recorded"
        if ours == theirs:
            return "held", f"{ours!s:.100} in each"
        return declared_by(declared, *keys), f"{ours!s:.100} against {theirs!s:.100}"

    return check


def not_recorded(own: Evidence, reference: Evidence, declared: Declared) -> Finding:
    """Return "not proven" as the state of a control without records."""
    return "not proven", "not recorded"


def as_logged(own: Evidence, reference: Evidence, declared: Declared) -> Finding:
    """Compare the logged step counts of two runs. The returned state is always "not proven"."""
    ours, theirs = (evidence.trial.get("facts", {}).get("steps") for evidence in (own, reference))
    if ours is None or theirs is None:
        return "not proven", "not recorded"
    counts = f"both logged {ours:,g} steps"
    if ours != theirs:
        counts = f"{ours:,g} and {theirs:,g} steps were logged"
    return "not proven", f"{counts}, and nothing else is known"


def declared_by(declared: Declared, *prefixes: str) -> State:
    """Return "declared" if the arm overrides a key with one of the prefixes, else "broken"."""
    is_declared = bool(prefixes) and any(key.startswith(prefixes) for key in declared)
    return "declared" if is_declared else "broken"
