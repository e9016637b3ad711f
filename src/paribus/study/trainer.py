"""The port of trainers: what turns (arm, seed) into records, and what it declares of them.

A study names its trainer (`trainer = "stacked"`, the engine that ships, by default). What the
trainer reads of a study file is its own sections; what it measures and holds equal, it declares.
The judge knows both through a `TrainerFormat` alone, and runs nobody's code to read records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import ConfigDict

from paribus.errors import ParibusError, nearest
from paribus.metric import Metric
from paribus.study.base import Part, TrialSetting

if TYPE_CHECKING:
    from paribus.study.study import Study

STACKED, RUNS, COMMAND = "stacked", "runs", "command"
# The trainers that ship, and where what the judge must know of each is written.
SHIPPED = {
    STACKED: "paribus.engine.format:FORMAT",
    RUNS: "paribus.study.runs:FORMAT",
    COMMAND: "paribus.trainers.command.sections:FORMAT",
}

Trial = tuple[str, int]
"""(arm, seed)."""


@dataclass(frozen=True)
class TestText:
    """The text that a trainer's scores are of, by digest: what a ledger knows it by.

    Attributes:
        digest: SHA-256 of the text.
        corpus: of the text that it is cut from; left out where nobody says.
        start, stop: its place there, in bytes; a stop of None is the end.
        reuse: as `data.test_reuse` has it.
    """

    __test__ = False  # nothing for pytest, whatever its name

    digest: str
    corpus: str = ""
    start: int | None = None
    stop: int | None = None
    reuse: Literal["declare", "forbid"] = "declare"


@dataclass(frozen=True)
class Declaration:
    """What a trainer measures and holds equal: registered before its first trial.

    Attributes:
        metrics: what its trials have scores of.
        controls: by name of what must be equal in both trials of a pair, the beginnings of those
            keys of the study by which an arm declares that it differs there.
        by_item: those of them that are means over items, which every trial gives one by one.
        must_be_finite: the metric without which a trial has diverged; empty for none.
        test: the text that scores are of; None claims nothing of it.
        about: what else is registered, such as the commit of a program.
    """

    metrics: tuple[Metric, ...]
    controls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_item: frozenset[str] = frozenset()
    must_be_finite: str = ""
    test: TestText | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialRecord:
    """What a trainer gives of one trial.

    Attributes:
        scores: by metric; what is left out was not measured.
        items: by metric the score of each item, in one order in all trials, of equal weight.
        losses: training loss of each step: what events are counted in. None, or any number.
        controls: by control, the evidence: equal values hold. What is left out is not proven.
        diverged_at: the step, from 0, at which training stopped being finite; None of one that did
            not.
        seconds: of training.
        steps: of each of `losses`, where they are not 1, 2, 3 ...
        curves: by metric, its values along training as (step, value).
        about: what else trial.json says of it.
        files: further records that are sealed, by name; those that its format knows.
    """

    scores: Mapping[str, float]
    items: Mapping[str, Sequence[float]] = field(default_factory=dict)
    losses: Sequence[float] = ()
    controls: Mapping[str, str | int | float] = field(default_factory=dict)
    diverged_at: int | None = None
    seconds: float | None = None
    steps: Sequence[float] = ()
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


class Trainer(Protocol):
    """What runs trials: `declare` before anything, then `run` as often as trials are missing."""

    def declare(self, study: Study) -> Declaration:
        """Return what its trials measure and hold equal. Raises ParibusError on bad sections."""
        ...

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Train `trials`, and yield the record of each when it is finished.

        What a trial is trained with is `study.setting(arm)`.
        """
        ...


class Sections(TrialSetting, Part):
    """The sections of a study file that only a trainer of somebody's own reads, as they stand."""

    model_config = ConfigDict(extra="allow")


class TrainerFormat:
    """How studies and records are read of a trainer that declares them, whoever wrote it."""

    defaults: Mapping[str, Any] = MappingProxyType({})
    """What a study file may leave out of the judge's sections, by name."""
    loss: str = ""
    """The held-out loss of its trials in nats per token; empty where it has no such metric."""
    asks: bool = False
    """Whether its trials may answer questions, which claims can be about."""

    free: Sequence[tuple[str, ...]] = ()
    """Tables whose keys the user chooses, by their path."""
    left_out: Mapping[str, Any] = MappingProxyType({})
    """Values that a dump leaves out where they are as by default, by dotted key."""
    alternatives: Mapping[str, str] = MappingProxyType({})
    """Two ways to state one thing: an override of one takes the place of the other."""

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return a study file's table with what the trainer lets be written shortly written out."""
        return table

    def absent(self, study: Study, arm: str) -> tuple[int, ...]:
        """Return the seeds of the study that `arm` has no trial of."""
        return ()

    def expanded(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return dotted overrides in the order of setting, named defaults written out."""
        return list(overrides.items())

    def why_not_together(self, overrides: Mapping[str, Any]) -> str:
        """Return why an arm cannot set all of these; empty where it can."""
        return ""

    def sections(self, table: dict[str, Any], others: Sequence[str]) -> dict[str, Any]:
        """Return the trainer's sections of a study's table; `others` are the judge's keys."""
        for name, section in table.items():
            if not isinstance(section, dict):
                raise ParibusError(f"unknown key '{name}': {nearest(name, others)}")
        return table

    def setting(self, shared: dict[str, Any]) -> Any:
        """Return what a trial is trained with, of dumped sections with an arm's overrides."""
        return Sections.model_validate(shared)

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the dumped sections that arms override."""
        return study.model_dump(include=set(study.model_extra or ()))

    def require_comparable(self, study: Study) -> None:
        """Raise ParibusError where arms cannot be compared, whatever they give."""

    def why_incomparable(self, study: Study, metric: Metric, arm: str, reference: str) -> str:
        """Return why a metric does not mean the same in both arms; empty where it does."""
        return ""

    def share_tokens(self, study: Study, arm: str, reference: str) -> bool:
        """Return whether losses per token can be compared."""
        return True

    def resolution(self, study: Study, metric: str) -> float | None:
        """Return the smallest difference that a metric can show, where the study says it."""
        return None

    def why_not_tuned(self, key: str) -> str:
        """Return why a key cannot be tuned; empty where it can."""
        return ""

    def tuning_tables(self, study: Study, *, asks: bool) -> dict[str, Any]:
        """Return the sections of the study that tunes `study`."""
        return {}

    def tuning_overrides(self, study: Study, arm: str) -> dict[str, Any]:
        """Return what a tuning trial of `arm` sets besides the arm's own."""
        return {}

    def require_tunable(self, study: Study) -> None:
        """Raise ParibusError where tuning trials would be unfair."""

    def require_equal_budgets(self, study: Study, made: Study, arms: Sequence[str]) -> None:
        """Raise ParibusError where candidates of one arm, `arms` of `made`, cost differently."""

    def at_rates(self, study: Study, arm: str, reference: str) -> str:
        """Return at which values of what is usually tuned two arms were compared."""
        return ""

    def registered_tasks(self, study: Study, folder: Path) -> dict[str, Any]:
        """Return what is registered of the tasks that are written in `folder`."""
        return {}

    def lowers_rates(self, study: Study) -> bool:
        """Return whether learning rates fall, so that a shorter run is not a part of a longer."""
        return False

    def steps(self, study: Study, arm: str) -> int | None:
        """Return how many steps a trial of `arm` has; None where nobody says."""
        return None

    def rates(self, study: Study) -> set[float]:
        """Return the learning rates of all arms; none where nobody says."""
        return set()

    def sizes(self, study: Study) -> dict[str, str]:
        """Return how large the baseline is and how long it is trained, in words by what it is."""
        return {}

    def flops(self, study: Study) -> float | None:
        """Return about how many FLOPs all trials of training take; None where nobody says."""
        return None

    def downloads(self, study: Study) -> bool:
        """Return whether its text comes from the network, where it is not here yet."""
        return False

    def tokens(self, study: Study, arm: str) -> int | None:
        """Return how many tokens a trial of `arm` is trained on; None where nobody says."""
        return None

    def tokens_after(self, study: Study, arm: str, step: int) -> int | None:
        """Return how many tokens a trial has learned from after so many steps; None where nobody
        says, and all steps are taken to be of as many."""
        return None

    def target(self, study: Study) -> float | None:
        """Return the loss to which budgets are counted; None without one."""
        return None

    def curve_steps(self, study: Study, arm: str) -> tuple[int, ...]:
        """Return the steps of the held-out curve; empty where none is measured."""
        return ()

    def seals_test(self, study: Study) -> bool:
        """Return whether the study seals a part of its text for the verdict."""
        return False

    def texts(self, study: Study) -> list[Path]:
        """Return the files of text and vocabulary that the study names, as absolute paths."""
        return []

    def salted(self, study: Study, number: int) -> dict[str, Any]:
        """Return overrides by which the baseline is trained once more, otherwise alike."""
        raise ParibusError(
            f"the trainer '{study.trainer}' of '{study.name}' states no way to train an arm again "
            "with other random numbers; null studies are of the trainer 'stacked'"
        )


DECLARED = TrainerFormat()


def require_stacked(study: Study, what: str) -> None:
    """Raise ParibusError where a study is not of the trainer that alone can do `what`."""
    if study.trainer != STACKED:
        raise ParibusError(
            f"'{study.name}' is run by trainer '{study.trainer}'; {what} is of the trainer "
            f"'{STACKED}' alone"
        )


def format_of(trainer: object) -> TrainerFormat:
    """Return the format of a trainer's studies and records. Raises ParibusError."""
    if isinstance(trainer, dict):  # as a study file may say it, with its options
        kind = trainer.get("kind")
        if kind != COMMAND:
            raise ParibusError(
                f"[trainer] kind = {kind!r:.40} takes no table; it is kind = '{COMMAND}', or "
                f"trainer = '{STACKED}'"
            )
        trainer = kind
    if isinstance(trainer, str) and trainer in SHIPPED:
        return resolve_name(SHIPPED[trainer])
    if isinstance(trainer, str) and ":" in trainer:
        return DECLARED
    raise ParibusError(
        f"trainer = {trainer!r} is unknown: {nearest(str(trainer), SHIPPED)}; your own is "
        "'package.module:name' or 'file.py:name'"
    )
