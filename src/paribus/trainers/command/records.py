"""The records of a command's trials, and how those of two trials are compared."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from paribus.numbers import plural, some
from paribus.results import TrialFolder
from paribus.results.controls import (
    WORST,
    Check,
    Checks,
    Declared,
    Evidence,
    Finding,
    Labelled,
    State,
    declared_by,
    evidence,
    settings,
)
from paribus.results.record_format import TRAINER, RecordFormat
from paribus.results.records import Record, Table, TrialJson
from paribus.results.software import differences

LOG, REPORTED, MACHINE = "output.log", "trial.jsonl", "machine.json"
TRAIN_LOSS = "train_loss"


class ProgramEnvironment(Record):
    """machine.json of a trial of a command."""

    device: str
    processor: str
    python: str
    packages: dict[str, str]
    system: str = ""


class ProgramTrial(TrialJson):
    """trial.json of a trial of a command."""

    command: list[str]
    attempts: list[Table]
    failed: str = ""
    batches: list[Any]
    initial: dict[str, str]
    printed: Table


@dataclass(frozen=True)
class ProgramEvidence(Evidence):
    """The evidence of one trial, with its environment and its deciding score."""

    environment: Mapping[str, Any]
    score: float | None


class CommandRecords(RecordFormat):
    """The records of the trainer `command`."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return the comparisons of two trials."""
        pairs: dict[str, Check] = {"setting": settings}
        for name, keys in registered.get(TRAINER, {}).get("controls", {}).items():
            # A source is its commit, a patch and uncommitted changes, a digest each.
            own, other = COMPARISONS.get(name), evidence(name, tuple(keys), shown=100)
            pairs[name] = partial(_declarable, own, tuple(keys)) if own else other
        return Checks(pairs, among={"seed": _seeds})

    def evidence(
        self, folder: TrialFolder, trial: dict[str, Any], data: dict[str, Any]
    ) -> ProgramEvidence:
        """Return the evidence of a trial."""
        environment = ProgramEnvironment.model_validate(folder.read_json(MACHINE)).model_dump()
        score = folder.read_json("evaluation.json").get(trial.get("deciding", ""))
        return ProgramEvidence(folder.arm, folder.seed, trial, environment, score)


Comparison = Callable[[ProgramEvidence, ProgramEvidence, State], Finding]
"""Compares two trials; the state is that of a difference, declared or broken."""


def _declarable(
    compare: Comparison,
    keys: tuple[str, ...],
    own: ProgramEvidence,
    other: ProgramEvidence,
    declared: Declared,
) -> Finding:
    return compare(own, other, declared_by(declared, *keys))


def _command(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    ours, theirs = (shlex.split(str(e.trial["controls"].get("command", ""))) for e in (own, other))
    if ours == theirs:
        return "held", "alike but for the seed"
    added = " ".join(word for word in ours if word not in theirs)
    removed = " ".join(word for word in theirs if word not in ours)
    return difference, f"{added[:60] or 'nothing'} against {removed[:60] or 'nothing'}"


def _data(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    ours, theirs = (dict(record.trial.get("batches", ())) for record in (own, other))
    if not ours or not theirs:
        return "not proven", "the program does not say which batches it saw (paribus.trial)"
    n, m, both = max(ours), max(theirs), ours.keys() & theirs.keys()
    alike = max((k for k in both if ours[k] == theirs[k]), default=0)
    if n == m == alike:
        return "held", f"{n:,} batches alike"
    if alike and alike == max(both):
        return "not proven", f"the first {alike:,} batches alike, of {n:,} and {m:,}"
    return difference, f"batches differ after {alike:,} of {n:,} and {m:,}"


def _initial(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    ours, theirs = (record.trial.get("initial", {}) for record in (own, other))
    if not ours or not theirs:
        return "not proven", "the program does not say where it began (paribus.trial)"
    n, alike = len(ours.keys() | theirs.keys()), len(ours.items() & theirs.items())
    state: State = "held" if alike == n else difference
    return state, f"{alike:,} of {n:,} parameters begin alike"


def _environment(
    own: ProgramEvidence, other: ProgramEvidence, difference: State, *, is_device: bool
) -> Finding:
    ours, theirs = own.environment, other.environment
    if not is_device and not (ours["packages"] and theirs["packages"]):
        return "not proven", "the interpreter of the program tells no packages"
    seen = [
        finding
        for name, finding in differences(ours, theirs, pair=True).items()
        if (name in ("device", "processor")) == is_device
    ]
    if not seen and is_device:
        return "held", ours["processor"] if ours["device"] == "cpu" else ours["device"]
    if not seen:
        return "held", f"Python {ours['python']} and {len(ours['packages'])} packages alike"
    texts = [words for _, words in seen]
    if difference == "declared":
        return difference, ", ".join(texts)[:200]
    return min((effect for effect, _ in seen), key=WORST.index), some(texts)


def _steps(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    """Compare the steps that scores are of; without any, those of the last training loss."""
    if own.score is None or other.score is None:
        return "not proven", "not recorded of trials without a score"
    trials, metric = (own.trial, other.trial), own.trial.get("deciding", "")
    ours, theirs = (trial.get("labels", {}).get(metric, [""]) for trial in trials)
    if ours[0] and theirs[0] and ours[0] != theirs[0]:
        return "not proven", f"'{ours[0]}' was read against '{theirs[0]}'"
    counts, *labels = max(ours, theirs, key=len)
    if len(labels) > 1:
        names = " and ".join(f"'{label}'" for label in labels)
        return "not proven", f"the pattern reads {names}, of which '{counts}' counts"
    steps = [trial.get("last_steps", {}) for trial in trials]
    name = metric if any(metric in known for known in steps) else TRAIN_LOSS
    step, other_step = (known.get(name) for known in steps)
    n, m = (trial.get("counts", {}).get(metric) for trial in trials)
    if step is not None and step == other_step:
        return "held", f"step {step:g} in each"
    if step is None and other_step is None and n == m:
        return "not proven", f"not recorded: {metric} is read without steps"
    state: State = "not proven" if difference == "broken" else difference
    if step is None or other_step is None:
        return (
            state,
            f"one of {plural(n, 'value')} against one of {m}, whose steps are not recorded",
        )
    return state, f"step {step:g} against step {other_step:g}"


def _seed(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    for record in (own, other):
        used = record.trial.get("seed_used")
        if used is not None and used != record.seed:
            return "broken", f"{record.arm} says that its seed is {used}"
    return "held", "seeds give other scores"


COMPARISONS: dict[str, Comparison] = {
    "command": _command,
    "data": _data,
    "initial weights": _initial,
    "software": partial(_environment, is_device=False),
    "device": partial(_environment, is_device=True),
    "steps": _steps,
    "seed": _seed,
}


def _seeds(records: Iterable[ProgramEvidence]) -> Iterator[Labelled]:
    """Report an arm whose seeds all give one score."""
    scored = {record.seed: record for record in records if record.score is not None}
    for record in list(scored.values())[:1]:
        if len(scored) == 1:
            yield record.label, "not proven", "one seed alone"
        elif words := seed_question(record.arm, {n: r.score for n, r in scored.items()}):
            yield record.label, "broken", words


def seed_question(arm: str, scores: Mapping[int, float | None]) -> str:
    """Return the question to an arm whose seeds all give one score; empty for others."""
    known = [score for score in scores.values() if score is not None]
    if len(known) < 2 or len(set(known)) > 1:
        return ""
    return (
        f"all {len(known)} seeds of {arm} give {known[0]!r}: does the program read its seed, or "
        "print too few digits?"
    )


RECORDS = CommandRecords(
    required=("trial.json", "evaluation.json", MACHINE, LOG),
    possible=("steps.parquet", "series.parquet", REPORTED),
    models={MACHINE: ProgramEnvironment},
    trial_form=ProgramTrial,
)
