"""A trial's records and weights, and the manifest that seals them."""

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
    """Return whether a file holds weights: the final ones, or those of an earlier step."""
    return name == weights_file() or KEPT.fullmatch(name) is not None


def weights_file(step: int | None = None) -> str:
    """Return the file name of a trial's weights: the final ones, or those after `step`."""
    return "weights.safetensors" if step is None else f"weights-{step}.safetensors"


@dataclass(frozen=True)
class TrialFolder(Folder):
    """Folder with the records of one trial."""

    arm: str
    seed: int
    has_weights: bool = True
    """Whether weights are kept. Archives and tuning trials keep only their digests, in the
    manifest."""

    @property
    def label(self) -> str:
        """Label `<arm>/seed-<seed>` in errors and tables."""
        return f"{self.arm}/seed-{self.seed}"

    @property
    def is_finished(self) -> bool:
        """True if the manifest, which is written last, exists."""
        return is_regular(self.path / MANIFEST)

    @property
    def seal(self) -> str | None:
        """Digest of the manifest, which depends on every sealed record; None if not finished."""
        return file_digest(self.path / MANIFEST) if self.is_finished else None

    def write_json(self, name: str, value: Any) -> None:
        """Write the record `name` atomically, with sorted keys."""
        write_json(self.path / name, value)

    def read_json(self, name: str) -> Any:
        """Return the record `name`. Raises ParibusError if it is missing or damaged."""
        return read_json(self.path / name)

    def read_columns(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Read a Parquet file; it is empty if a finished trial did not record it.

        Raises ParibusError if the file is damaged, or missing although it is sealed. `columns` are
        as in `Folder.read_columns`.
        """
        is_absent = self.is_finished and name not in self.sealed
        if is_absent and not is_regular(self.path / name):
            return pa.table({column: pa.nulls(0, pa.float64()) for column in COLUMNS[name]})
        return super().read_columns(name, columns)

    def write_weights(self, weights: Mapping[str, np.ndarray], step: int | None = None) -> None:
        """Write weights, keyed by parameter name: the final ones, or those after `step`."""
        import safetensors.numpy  # of the engine: what reads a finished study does without

        content = safetensors.numpy.save(dict(weights), metadata={"format": "pt"})
        write_bytes(self.path / weights_file(step), content)

    def read_weights(self, step: int | None = None) -> dict[str, np.ndarray]:
        """Return weights, keyed by parameter name: the final ones, or those after `step`.

        Raises ParibusError if they were not kept (`training.keep`, `training.keep_every`).
        """
        import safetensors.numpy  # of the engine: what reads a finished study does without

        path = self.path / weights_file(self.require_weights(step))
        return safetensors.numpy.load_file(regular_path(path))

    def require_weights(self, step: int | None) -> int | None:
        """Return the step whose weights `read_weights` reads; None stands for the last step.

        Raises ParibusError if they were not kept.
        """
        if not self.has_weights:
            raise ParibusError(
                f"trial {self.label} has no weights, because it is archived or a tuning trial; use "
                "the results folder of the run, or run the study again",
                code="missing",
            )
        if step is None or step == self.read_json("trial.json").get("iterations"):
            return None
        if step not in self.kept_steps:
            known = ", ".join(map(str, self.kept_steps)) or "none"
            raise ParibusError(
                f"trial {self.label} has no weights for step {step} (earlier steps that were kept: "
                f"{known}); add the step to training.keep before the study is run",
                code="missing",
            )
        return step

    @property
    def kept_steps(self) -> list[int]:
        """Steps with weights in the folder, excluding the last step."""
        names = (path.name for path in self.path.glob("weights-*.safetensors"))
        return sorted(int(match[1]) for match in map(KEPT.fullmatch, names) if match)

    @property
    def sealed(self) -> dict[str, str]:
        """SHA-256 of every sealed record, by name."""
        return read_seals(self.path / MANIFEST)

    def _lacks(self, name: str) -> bool:
        return not self.has_weights and is_weights(name)

    def finish(self, names: Sequence[str] = CANONICAL) -> None:
        """Seal the records, which marks the trial as finished."""
        names = (*names, *map(weights_file, self.kept_steps))
        digests = {name: file_digest(self.path / name) for name in names}
        write_json(self.path / MANIFEST, digests)
        for name in filter(self._lacks, names):
            (self.path / name).unlink(missing_ok=True)

    def verify(self, required: Sequence[str] = REQUIRED) -> None:
        """Raise ParibusError if a record is missing or differs from its seal."""
        sealed = self.sealed
        if not sealed.keys() >= {*required, *map(weights_file, self.kept_steps)}:
            raise self.error("manifest.json does not seal every record")
        for name in sorted(itertools.filterfalse(self._lacks, sealed)):
            if problem := seal_problem(self.path / name, sealed[name]):
                raise self.error(problem)

    def error(self, why: str) -> ParibusError:
        """Return a ParibusError for a trial whose records are missing, changed or foreign."""
        return ParibusError(
            f"trial {self.label}: {why}; delete {self.path} and run again", code="changed"
        )
