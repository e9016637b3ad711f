"""How the records of a command's trials are read, and what two of them are compared in."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paribus.numbers import plural, some
from paribus.results import TrialFolder
from paribus.results.controls import (
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
from paribus.study import Study
from paribus.study.trainer import COMMAND
from paribus.trainers.command.sections import CommandMetric

LOG, REPORTED, MACHINE = "output.log", "trial.jsonl", "machine.json"
DATA, INITIAL, SEED = "data", "initial weights", "seed"
TRAIN_LOSS = "train_loss"
SOFTWARE, DEVICE, STEPS = "software", "device", "steps"
SEEDS_TOLD = 3
EFFECTS: tuple[State, ...] = ("broken", "not proven", "declared")


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
    """What checks look at of one trial: also its environment, and what decides."""

    environment: Mapping[str, Any]
    score: float | None


class CommandRecords(RecordFormat):
    """The records of the trainer `command`."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return what two trials are compared in."""
        stated = registered.get(TRAINER, {}).get("controls", {})
        pairs: dict[str, Check] = {"setting": settings}
        among = {}
        for name, keys in stated.items():
            if name == DATA:
                pairs[name] = _data(tuple(keys))
            elif name == INITIAL:
                pairs[name] = _initial(tuple(keys))
            elif name in (SOFTWARE, DEVICE):
                pairs[name] = _environment(name, tuple(keys))
            elif name == SEED:
                pairs[name], among[name] = _seed, _seeds
            elif name == STEPS:
                pairs[name] = _steps(tuple(keys))
            elif name == COMMAND:
                pairs[name] = _command(tuple(keys))
            else:  # a source is its commit, a patch and what is uncommitted, a digest each
                pairs[name] = evidence(name, tuple(keys), shown=100)
        return Checks(pairs, among=among)

    def evidence(
        self, folder: TrialFolder, trial: dict[str, Any], data: dict[str, Any]
    ) -> ProgramEvidence:
        """Return what checks look at of a trial."""
        scores, about = folder.read_json("evaluation.json"), folder.read_json(MACHINE)
        environment = ProgramEnvironment.model_validate(about).model_dump()
        deciding = trial.get("deciding", "")
        return ProgramEvidence(folder.arm, folder.seed, trial, environment, scores.get(deciding))


RECORDS = CommandRecords(
    required=("trial.json", "evaluation.json", MACHINE, LOG),
    possible=("steps.parquet", "series.parquet", REPORTED),
    models={MACHINE: ProgramEnvironment},
    trial_form=ProgramTrial,
)


def _command(keys: tuple[str, ...]) -> Check:
    def check(own: ProgramEvidence, other: ProgramEvidence, declared: Declared) -> Finding:
        ours, theirs = (str(one.trial["controls"].get(COMMAND, "")) for one in (own, other))
        if ours == theirs:
            return "held", "alike but for the seed"
        own_words, other_words = (shlex.split(one) for one in (ours, theirs))
        added = [word for word in own_words if word not in other_words]
        left_out = [word for word in other_words if word not in own_words]
        words, others = (" ".join(one)[:60] or "nothing" for one in (added, left_out))
        return declared_by(declared, *keys), f"{words} against {others}"

    return check


def _data(keys: tuple[str, ...]) -> Check:
    def check(own: ProgramEvidence, other: ProgramEvidence, declared: Declared) -> Finding:
        ours, theirs = (dict(one.trial.get("batches", ())) for one in (own, other))
        if not ours or not theirs:
            return "not proven", "the program does not say which batches it saw (paribus.trial)"
        n, m = max(ours), max(theirs)
        shared = [k for k in sorted(ours.keys() & theirs.keys()) if ours[k] == theirs[k]]
        if n == m and ours[n] == theirs[n]:
            return "held", f"{n:,} batches alike"
        alike = max(shared, default=0)
        if alike and alike == max(ours.keys() & theirs.keys()):
            return "not proven", f"the first {alike:,} batches alike, of {n:,} and {m:,}"
        return declared_by(declared, *keys), f"batches differ after {alike:,} of {n:,} and {m:,}"

    return check


def _initial(keys: tuple[str, ...]) -> Check:
    def check(own: ProgramEvidence, other: ProgramEvidence, declared: Declared) -> Finding:
        ours, theirs = (one.trial.get("initial", {}) for one in (own, other))
        if not ours or not theirs:
            return "not proven", "the program does not say where it began (paribus.trial)"
        names = ours.keys() | theirs.keys()
        alike = [name for name in names if ours.get(name) == theirs.get(name)]
        text = f"{len(alike):,} of {len(names):,} parameters begin alike"
        if len(alike) == len(names):
            return "held", text
        return declared_by(declared, *keys), text

    return check


def _environment(name: str, keys: tuple[str, ...]) -> Check:
    def check(own: ProgramEvidence, other: ProgramEvidence, declared: Declared) -> Finding:
        ours, theirs = (one.environment for one in (own, other))
        if name == SOFTWARE and not (ours["packages"] and theirs["packages"]):
            return "not proven", "what the program runs in tells no packages"
        differing = differences(ours, theirs, pair=True)
        of_device = {"device", "processor"}
        relevant = {k: of for k, of in differing.items() if (k in of_device) == (name == DEVICE)}
        if not relevant:
            device = ours["device"] if ours["device"] != "cpu" else ours["processor"]
            if name == DEVICE:
                return "held", device
            return "held", f"Python {ours['python']} and {len(ours['packages'])} packages alike"
        effects = {effect for effect, _ in relevant.values()}
        worst: State = next(one for one in EFFECTS if one in effects)
        if any(key.startswith(keys) for key in declared):
            return "declared", ", ".join(words for _, words in relevant.values())[:200]
        return worst, some([words for _, words in relevant.values()], SEEDS_TOLD)

    return check


def _steps(keys: tuple[str, ...]) -> Check:
    """Return the check of the step that scores are of: where they have none, that of the last
    training loss, or how many values there were."""

    def check(own: ProgramEvidence, other: ProgramEvidence, declared: Declared) -> Finding:
        if own.score is None or other.score is None:
            return "not proven", "not recorded of trials without a score"
        metric = own.trial.get("deciding", "")
        read = [one.trial.get("labels", {}).get(metric, [""]) for one in (own, other)]
        if read[0][0] != read[1][0] and all(of[0] for of in read):
            return "not proven", f"'{read[0][0]}' was read against '{read[1][0]}'"
        counts, *every = max(read, key=len)
        if len(every) > 1:
            names = " and ".join(f"'{name}'" for name in every)
            return "not proven", f"the pattern reads {names}, of which '{counts}' counts"
        last = [one.trial.get("last_steps", {}) for one in (own, other)]
        of = metric if any(metric in steps for steps in last) else TRAIN_LOSS
        ours, theirs = (steps.get(of) for steps in last)
        n, m = (one.trial.get("counts", {}).get(metric) for one in (own, other))
        if ours is not None and ours == theirs:
            return "held", f"step {ours:,g} in each"
        if ours is None and theirs is None and n == m:
            return "not proven", f"not recorded: {metric} is read without steps"
        state = declared_by(declared, *keys)
        text = (
            f"one of {plural(n, 'value')} against one of {m}, whose steps are not recorded"
            if ours is None or theirs is None
            else f"step {ours:,g} against step {theirs:,g}"
        )
        return ("not proven" if state == "broken" else state), text

    return check


def _seed(own: ProgramEvidence, other: ProgramEvidence, declared: Declared) -> Finding:
    for trial in (own, other):
        used = trial.trial.get("seed_used")
        if used is not None and used != trial.seed:
            return "broken", f"{trial.arm} says that its seed is {used}"
    return "held", "seeds give other scores"


def _seeds(records: Iterable[ProgramEvidence]) -> Iterator[Labelled]:
    """Ask whether an arm reads its seed: of several, not all give one score."""
    scored = [one for one in records if one.score is not None]
    if len(scored) == 1:
        yield scored[0].label, "not proven", "one seed alone"
    elif scored and len({one.score for one in scored}) == 1:
        words = ask_about_seed(scored[0].arm, [one.seed for one in scored], scored[0].score)
        yield scored[0].label, "broken", words


def ask_about_seed(arm: str, seeds: list[int], score: float | None) -> str:
    """Return the question to an arm whose seeds all give one score."""
    return (
        f"all {len(seeds)} seeds of {arm} give {score!r}: does the program read its seed, or print "
        "too few digits?"
    )


def metrics_of(study: Study) -> dict[str, CommandMetric]:
    """Return the metrics of a command's study."""
    return (study.model_extra or {})["metrics"]
