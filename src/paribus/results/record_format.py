"""How the records of a trainer are read: which files its trials have, and what they are held to.

`RecordFormat` is that of any trainer that declares what it records (`paribus.study.trainer`): its
folders are read without its code. Trainers that ship may record more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from paribus.ledger import TextPart
from paribus.metric import Metric
from paribus.results.controls import (
    Checks,
    Evidence,
    as_logged,
    evidence,
    not_recorded,
    settings,
)
from paribus.results.records import RECORDS, TrialJson
from paribus.study import Study
from paribus.study.trainer import COMMAND, RUNS, STACKED

if TYPE_CHECKING:
    from paribus.results.trial_folder import TrialFolder

TRAINER = "trainer"
"""What a registration calls the declaration of a trainer of the user's own."""


class RecordFormat:
    """How the records are read of a trainer that declares them, whoever wrote it."""

    required: tuple[str, ...] = ("trial.json", "evaluation.json")
    """Files that every finished trial has sealed."""
    possible: tuple[str, ...] = ("item_scores.parquet", "steps.parquet", "series.parquet")
    """Files that it may have besides."""
    models: Mapping[str, type[BaseModel]] = MappingProxyType({})
    """What JSON files of its own must hold, by name."""
    trial_form: type[BaseModel] = TrialJson
    """What trial.json must hold."""
    packages: tuple[str, ...] = ("paribus", "numpy", "scipy", "pyarrow")
    """Whose versions are registered."""
    blocks: str = "item_scores.parquet"
    """Sums over items, or blocks of them."""
    aligned_by: str = "item"
    """Its column that is equal where two arms have the same items."""
    is_timed: bool = False
    """Whether every finished trial has timing.json, which is not sealed; others may have it."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return what two trials are compared in."""
        stated = registered.get(TRAINER, {}).get("controls", {})
        pairs = {name: evidence(name, tuple(keys)) for name, keys in stated.items()}
        return Checks({"setting": settings} | pairs)

    def evidence(
        self, folder: TrialFolder, trial: dict[str, Any], data: dict[str, Any]
    ) -> Evidence:
        """Return what checks look at of a trial; `data` is data.json."""
        return Evidence(folder.arm, folder.seed, trial)

    def must_be_finite(self, registered: Mapping[str, Any]) -> str:
        """Return the metric without which a trial has diverged; empty for none."""
        return str(registered.get(TRAINER, {}).get("must_be_finite", ""))

    def why_failed(self, trial: Mapping[str, Any]) -> str:
        """Return how a trial failed that the study leaves out; empty where it did not."""
        return ""

    def parameters(self, trial: Mapping[str, Any]) -> float | None:
        """Return how many parameters a trial trained; None where that is not recorded."""
        return None

    def flops(self, trial: Mapping[str, Any]) -> float | None:
        """Return the FLOPs of a trial's training; None where they are not recorded."""
        return None

    def guess(self, metric: Metric, trial: Mapping[str, Any]) -> float | None:
        """Return what a trial that learned nothing scores; None where that is not known."""
        return None

    def code(self) -> str:
        """Return the digest of the source that trains; empty where that is not ours."""
        return ""

    def held_out_parts(self, study: Study, registered: Mapping[str, Any]) -> list[TextPart]:
        """Return the texts that are held out, as a ledger has them; none that nobody declares."""
        stated = registered.get(TRAINER, {}).get("test")
        return [TextPart(role="test", **stated["text"])] if stated else []

    def forbids_reuse(self, study: Study, registered: Mapping[str, Any]) -> bool:
        """Return whether a test text that was opened before must not be tested on again."""
        return registered.get(TRAINER, {}).get("test", {}).get("reuse") == "forbid"

    def kept_steps(self, setting: Any) -> Sequence[int]:
        """Return the steps whose weights a trial keeps besides its last."""
        return ()

    def registered(self, study: Study) -> dict[str, Any]:
        """Return what is registered of the trainer's sections besides the study's digest."""
        return {}

    def repeated_steps(self, setting: Any) -> int:
        """Return how many first steps of a trial are trained again."""
        return 0


DECLARED = RecordFormat()


class RunsRecords(RecordFormat):
    """How the records are read of runs that other programs made: nothing shows what they share."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return what would have to be equal, of which nothing is recorded but what logs tell."""
        return Checks({"data": not_recorded, "initial weights": not_recorded, "budget": as_logged})


SHIPPED = {
    STACKED: "paribus.engine.records:RECORDS",
    RUNS: "paribus.results.record_format:RUNS_RECORDS",
    COMMAND: "paribus.trainers.command.records:RECORDS",
}
RUNS_RECORDS = RunsRecords()


def records_of(study: Study) -> RecordFormat:
    """Return how the records of a study's trainer are read."""
    return resolve_name(SHIPPED[study.trainer]) if study.trainer in SHIPPED else DECLARED


@cache
def known_records() -> dict[str, type[BaseModel]]:
    """Return what JSON files must hold, by name: the judge's, and of the trainers that ship."""
    shipped = map(resolve_name, SHIPPED.values())
    return RECORDS | {name: form for one in shipped for name, form in one.models.items()}
