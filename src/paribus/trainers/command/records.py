"""Trial records of the trainer `command`, and the checks that compare two trials."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from paribus.numbers import some
from paribus.results import TrialFolder, controls as checked
from paribus.results.controls import Check, Finding, State
from paribus.results.records import TRAINER, Record, RecordFormat, TrialJson
from paribus.results.software import differences

LOG, REPORTED, MACHINE = "output.log", "trial.jsonl", "machine.json"
TRAIN_LOSS = "train_loss"


class ProgramEnvironment(Record):
    """Schema of machine.json in trials of the trainer `command`."""

    device: str
    processor: str
    python: str
    packages: dict[str, str]
    system: str = ""


class ProgramTrial(TrialJson):
    """Schema of trial.json in trials of the trainer `command`."""

    command: list[str]
    failed: str = ""
    batches: list[Any]
    initial: dict[str, str]
    left_out: int
    attempts: int


@dataclass(frozen=True)
class ProgramEvidence(checked.Evidence):
    """Trial data for comparisons, including the environment and the primary score."""

    environment: Mapping[str, Any]
    score: float | None


class CommandRecords(RecordFormat):
    """Record format of the trainer `command`."""

    def checks(self, registered: Mapping[str, Any]) -> checked.Checks:
        """Return the registered checks that compare two trials."""
        pairs: dict[str, Check] = {"setting": checked.settings}
        for name, keys in registered.get(TRAINER, {}).get("controls", {}).items():
            # A source is its commit and uncommitted changes, a digest each.
            if name in COMPARISONS:
                pairs[name] = partial(_compare, name, tuple(keys))
            else:
                pairs[name] = checked.evidence(name, tuple(keys))
        return checked.Checks(pairs, among={"seed": _seeds})

    def evidence(
        self,
        folder: TrialFolder,
        trial: dict[str, Any],
        data: dict[str, Any],
        opened: dict[str, str],
    ) -> ProgramEvidence:
        """Read a trial's data for comparisons with other trials."""
        environment = ProgramEnvironment.model_validate(folder.read_json(MACHINE)).model_dump()
        score = folder.read_json("evaluation.json").get(trial.get("deciding", ""))
        return ProgramEvidence(folder.arm, folder.seed, trial, environment, score)


def _compare(
    name: str,
    keys: tuple[str, ...],
    own: ProgramEvidence,
    other: ProgramEvidence,
    declared: checked.Declared,
) -> Finding:
    """Check the control `name`, which an undeclared difference between two trials breaks."""
    return COMPARISONS[name](own, other, checked.declared_by(declared, *keys))


def _data(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    ours, theirs = (dict(record.trial["batches"]) for record in (own, other))
    if not ours or not theirs:
        return "not proven", "the program does not report its batches (see paribus.trial)"
    n, m, both = max(ours), max(theirs), ours.keys() & theirs.keys()
    alike = max((k for k in both if ours[k] == theirs[k]), default=0)
    if n == m == alike:
        return "held", f"{n:,} identical batches"
    if alike and alike == max(both):
        return "not proven", f"first {alike:,} of {n:,} and {m:,} batches identical"
    where = f"after the first {alike:,}" if alike else "from the first batch on"
    return difference, f"batches differ {where} (of {n:,} and {m:,})"


def _initial(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    ours, theirs = own.trial["initial"], other.trial["initial"]
    if not ours or not theirs:
        return "not proven", "the program does not report its initial weights (see paribus.trial)"
    n, alike = len(ours.keys() | theirs.keys()), len(ours.items() & theirs.items())
    state: State = "held" if alike == n else difference
    return state, f"{alike:,} of {n:,} parameters have identical initial values"


def _environment(
    own: ProgramEvidence, other: ProgramEvidence, difference: State, *, is_device: bool
) -> Finding:
    ours, theirs = own.environment, other.environment
    if not is_device and not (ours["packages"] and theirs["packages"]):
        return "not proven", "not recorded, because the program's interpreter lists no packages"
    findings = [
        finding
        for name, finding in differences(ours, theirs, pair=True).items()
        if (name in ("device", "processor")) == is_device
    ]
    if findings:
        if difference != "declared":
            effects = {effect for effect, _ in findings}
            difference = next(state for state in checked.WORST if state in effects)
        return difference, some([text for _, text in findings])
    if is_device:
        return "held", ours["processor"] if ours["device"] == "cpu" else ours["device"]
    return "held", f"same Python {ours['python']} and {len(ours['packages'])} packages"


def _steps(own: ProgramEvidence, other: ProgramEvidence, difference: State) -> Finding:
    """Compare the steps of the scores, or those of the last training losses as a fallback."""
    metric = own.trial["deciding"]
    steps = [record.trial.get("last_steps", {}) for record in (own, other)]
    name = metric if any(metric in known for known in steps) else TRAIN_LOSS
    step, other_step = (known.get(name) for known in steps)
    if step is None or other_step is None:
        return "not proven", f"not recorded, because {metric} is read without steps"
    if step == other_step:
        return "held", f"step {step:g} in both"
    state: State = "not proven" if difference == "broken" else difference
    return state, f"step {step:g} versus step {other_step:g}"


COMPARISONS: dict[str, Callable[[ProgramEvidence, ProgramEvidence, State], Finding]] = {
    "data": _data,
    "initial weights": _initial,
    "software": partial(_environment, is_device=False),
    "device": partial(_environment, is_device=True),
    "steps": _steps,
    "seed": lambda *_: ("held", "scores differ between seeds"),
}


def _seeds(records: Iterable[ProgramEvidence]) -> Iterator[checked.Labelled]:
    """Yield a finding if an arm has only one seed, or the same score for all seeds."""
    scored = [record for record in records if record.score is not None]
    for record in scored[:1]:
        if len(scored) == 1:
            yield record.label, "not proven", "only one seed"
        elif len({record.score for record in scored}) == 1:
            question = "does the program read its seed, or print too few digits?"
            text = f"all {len(scored)} seeds of {record.arm} scored {record.score!r}: {question}"
            yield record.arm, "broken", text


RECORDS = CommandRecords(
    required=("trial.json", "evaluation.json", MACHINE, LOG),
    trial_form=ProgramTrial,
)
