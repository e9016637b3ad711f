"""The folder of a trial, with records, weights, and a manifest of their digests."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.errors import ParibusError
from paribus.files import file_digest, write_bytes
from paribus.results.formats import COLUMNS, Folder, read_json, read_seals, seal_problem, write_json
from paribus.untrusted_io import is_regular, regular_path

REQUIRED = (
    *("trial.json", "initial.json", "steps.parquet", "tasks.parquet", "items.parquet"),
    *("evaluation.json", "weights.safetensors", "environment.json"),
)
CANONICAL = (
    *REQUIRED,
    *("probes.parquet", "curve.parquet", "evaluation.parquet", "blocks.parquet"),
)

KEPT = re.compile(r"weights-([1-9][0-9]{0,11})\.safetensors")
MANIFEST = "manifest.json"


def is_weights(name: str) -> bool:
    """Return whether `name` is the file name of final or intermediate weights."""
    return name == weights_file() or KEPT.fullmatch(name) is not None


def weights_file(step: int | None = None) -> str:
    """Return the file name of a trial's final weights, or of its weights after `step`."""
    return "weights.safetensors" if step is None else f"weights-{step}.safetensors"


@dataclass(frozen=True)
class TrialFolder(Folder):
    """The folder that contains the records of one trial."""

    arm: str
    seed: int
    has_weights: bool = True
    """Whether the folder contains weights. Archives and tuning trials have only their digests."""

    @property
    def label(self) -> str:
        """Display label of the trial, `<arm>/seed-<seed>`."""
        return f"{self.arm}/seed-{self.seed}"

    @property
    def is_finished(self) -> bool:
        """True if the trial is finished, that is, if its manifest exists."""
        return is_regular(self.path / MANIFEST)

    @property
    def seal(self) -> str | None:
        """SHA-256 of the manifest, which identifies all records, or None if unfinished."""
        return file_digest(self.path / MANIFEST) if self.is_finished else None

    def write_json(self, name: str, value: Any) -> None:
        """Write the record `name` atomically, with sorted keys."""
        write_json(self.path / name, value)

    def read_json(self, name: str) -> Any:
        """Read the JSON record `name`. Raises ParibusError if it is missing or damaged."""
        return read_json(self.path / name)

    def read_columns(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read a Parquet file, or return an empty table if a finished trial did not record it.

        Raises ParibusError if the file is damaged, or missing although it is in the manifest. See
        `Folder.read_columns` for `columns`.
        """
        is_absent = self.is_finished and name not in self.sealed
        if is_absent and not is_regular(self.path / name):
            return pa.table({column: pa.nulls(0, pa.float64()) for column in COLUMNS[name]})
        return super().read_columns(name, columns)

    def write_weights(self, weights: Mapping[str, np.ndarray], step: int | None = None) -> None:
        """Write final weights, or weights after `step`, keyed by parameter name."""
        import safetensors.numpy  # of the engine: what reads a finished study does without

        content = safetensors.numpy.save(dict(weights), metadata={"format": "pt"})
        write_bytes(self.path / weights_file(step), content)

    def read_weights(self, step: int | None = None) -> dict[str, np.ndarray]:
        """Read final weights, or weights after `step`, keyed by parameter name.

        Raises ParibusError if they were not kept (`training.keep`, `training.keep_every`).
        """
        import safetensors.numpy  # of the engine: what reads a finished study does without

        path = self.path / weights_file(self.require_weights(step))
        return safetensors.numpy.load_file(regular_path(path))

    def require_weights(self, step: int | None) -> int | None:
        """Return `step`, or None if it is the last step, after checking that its weights exist.

        Raises ParibusError if the weights were not kept.
        """
        if not self.has_weights:
            raise ParibusError(
                f"trial {self.label} has no weights, because archives and tuning trials do not "
                "keep them; use the original results folder, or run the study again",
                code="missing",
            )
        if step is None or step == self.read_json("trial.json").get("iterations"):
            return None
        if step not in self.kept_steps:
            known = ", ".join(map(str, self.kept_steps)) or "none"
            raise ParibusError(
                f"trial {self.label} has no weights for step {step} (available steps: {known}); "
                "add the step to training.keep and run the study in a new folder",
                code="missing",
            )
        return step

    @property
    def kept_steps(self) -> list[int]:
        """Sorted steps of the intermediate weights in the folder."""
        names = (path.name for path in self.path.glob("weights-*.safetensors"))
        return sorted(int(match[1]) for match in map(KEPT.fullmatch, names) if match)

    @property
    def sealed(self) -> dict[str, str]:
        """SHA-256 digests of all records in the manifest, keyed by file name."""
        return read_seals(self.path / MANIFEST)

    def _lacks(self, name: str) -> bool:
        return not self.has_weights and is_weights(name)

    def finish(self, names: Sequence[str] = CANONICAL) -> None:
        """Write the manifest with the records' digests, which marks the trial as finished."""
        names = (*names, *map(weights_file, self.kept_steps))
        digests = {name: file_digest(self.path / name) for name in names}
        write_json(self.path / MANIFEST, digests)
        for name in filter(self._lacks, names):
            (self.path / name).unlink(missing_ok=True)

    def verify(self, required: Sequence[str] = REQUIRED) -> None:
        """Raise ParibusError if a record is missing or differs from its digest in the manifest."""
        sealed = self.sealed
        if not sealed.keys() >= {*required, *map(weights_file, self.kept_steps)}:
            raise self.error("manifest.json does not list every record")
        for name in sorted(itertools.filterfalse(self._lacks, sealed)):
            if problem := seal_problem(self.path / name, sealed[name]):
                raise self.error(problem)

    def error(self, why: str) -> ParibusError:
        """Return a ParibusError for a trial with missing, changed or mismatched records."""
        return ParibusError(
            f"trial {self.label}: {why}; delete {self.path} and run again", code="changed"
        )
