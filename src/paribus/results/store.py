"""The results folder of a study: layout, writing, and the integrity of what was written.

<results>/
  registration.json             what was fixed before the first run
  study.json                    the study as resolved
  sources/                      what it names: custom code, tokenizer, a small text
  tasks/                        the questions, as anybody's lm_eval runs them
  live.json                     only while a run is under way: what `paribus watch` shows
  data.json                     token classes, duplicates and leakage of the corpus
  throughput.parquet            speed of the arms, measured in turn; differs between equal runs
  repeated.json                 first steps of arms with custom code, trained again and compared
  manifest.json                 SHA-256 of these two
  checkpoints/                  only while trials are unfinished; see `paribus.results.checkpoints`
  trials/<arm>/seed-<n>/
    trial.json                  setting, data and batch digests, budget, outcome
    initial.json                shape, rule and digest of every parameter at step 0
    steps.parquet               loss, gradient norm and learning rate of every step
    probes.parquet              what probes measured, a column for each part and statistic
    evaluation.parquet          every held-out measure, by token class, position, temperature ...
    tasks.parquet, items.parquet  zero- and few-shot tasks: accuracy, and every question's answer
    windows.parquet             loss and hits of every window of the validation split
    evaluation.json             those of the whole validation split: what endpoints are read from
    weights.safetensors         the trained weights; weights-<step>.safetensors those kept before
    environment.json            software and machine
    manifest.json               SHA-256 of the eleven above; written last: the trial is finished
    timing.json                 seconds; differs between equal runs
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import safetensors
import safetensors.numpy
from filelock import FileLock, Timeout

from paribus.errors import ParibusError
from paribus.files import fence, file_digest, sweep, unfence, write_bytes
from paribus.foreign import (
    TABLE_BYTES,
    TABLE_COLUMNS,
    TABLE_MEMORY,
    TABLE_ROWS,
    WEIGHTS_BYTES,
    is_regular,
    open_regular,
)
from paribus.results.expected import require_columns, require_values
from paribus.results.files import read_json, write_json, write_table
from paribus.results.layout import secure
from paribus.study import Study, parse_study
from paribus.study.canonical import changes
from paribus.study.own import sources_folder
from paribus.study.study import substance

THROUGHPUT = "throughput.parquet"
REPEATED = "repeated.json"
# Records of a whole study, which `manifest.json` of the results folder seals.
OF_THE_STUDY = (REPEATED, THROUGHPUT)
CANONICAL = (
    "trial.json",
    "initial.json",
    "steps.parquet",
    "probes.parquet",
    "evaluation.parquet",
    "windows.parquet",
    "tasks.parquet",
    "items.parquet",
    "evaluation.json",
    "weights.safetensors",
    "environment.json",
)

KEPT = re.compile(r"weights-([1-9][0-9]{0,11})\.safetensors")
MANIFEST = "manifest.json"
LOCK, RUN = ".lock", ".run"  # while a run is under way: whose it is


def weights_file(step: int | None = None) -> str:
    """Where a trial's weights are: the trained ones, or those after an earlier step."""
    return "weights.safetensors" if step is None else f"weights-{step}.safetensors"


@dataclass(frozen=True)
class Folder:
    """Tables in a folder at `path`."""

    path: Path

    def write_columns(
        self,
        name: str,
        columns: Mapping[str, np.ndarray],
        units: Mapping[str, str],
        labels: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """A Parquet file of columns of equal length; NaN is written as absent (null).

        The `units` of columns, and further `labels` of some of them, are metadata of its schema.
        """
        fields, arrays = [], []
        for key, values in columns.items():
            about = {"unit": units[key], **((labels or {}).get(key, {}))}
            arrays.append(pa.array(values, mask=values != values))
            fields.append(pa.field(key, arrays[-1].type, metadata=about))
        write_table(self.path / name, pa.table(arrays, schema=pa.schema(fields)))

    def read_columns(self, name: str, columns: list[str] | None = None) -> pa.Table:
        """Those of `columns` that the file has; all by default."""
        path = self.path / name
        with open_regular(path, TABLE_BYTES) as handle:
            try:
                file = pq.ParquetFile(handle)
                _require_bounded(path, file.metadata)
                there = file.schema_arrow.names
                require_columns(path, there)
                found = file.read(columns and [column for column in columns if column in there])
                require_values(path, found)
                return found
            except (pa.ArrowException, OSError, MemoryError) as error:
                raise ParibusError(
                    f"{path} is not the Parquet file that was written ({error}); restore it, or "
                    "delete it and run again"
                ) from None


def _require_bounded(path: Path, about: pq.FileMetaData) -> None:
    """Raise ParibusError where a table, by its own footer, is larger in memory than any of ours.

    A file of a few megabytes may hold gigabytes of one value.
    """
    encoded = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    size = max(encoded, 8 * about.num_rows * about.num_columns)  # equal values take no room there
    if about.num_rows > TABLE_ROWS or size > TABLE_MEMORY or about.num_columns > TABLE_COLUMNS:
        raise ParibusError(
            f"{path} has {about.num_rows:,} rows, {about.num_columns:,} columns and {size:,} bytes "
            f"of values; a table may have {TABLE_ROWS:,}, {TABLE_COLUMNS:,} and {TABLE_MEMORY:,}; "
            "restore it, or delete it and run again"
        )


@dataclass(frozen=True)
class TrialFolder(Folder):
    """One trial's records; `arm` and `seed` say which."""

    arm: str
    seed: int

    @property
    def label(self) -> str:
        return f"{self.arm}/seed-{self.seed}"

    @property
    def is_finished(self) -> bool:
        return is_regular(self.path / MANIFEST)

    @property
    def seal(self) -> str | None:
        """The digest of its manifest, which follows from every sealed record; None before."""
        return file_digest(self.path / MANIFEST) if self.is_finished else None

    def write_json(self, name: str, value: Any) -> None:
        write_json(self.path / name, value)

    def read_json(self, name: str) -> Any:
        return read_json(self.path / name)

    def write_weights(self, weights: Mapping[str, np.ndarray], step: int | None = None) -> None:
        """The trained weights by parameter name; or those after `step`, which are kept beside."""
        content = safetensors.numpy.save(dict(weights), metadata={"format": "pt"})
        write_bytes(self.path / weights_file(step), content)

    def read_weights(
        self, step: int | None = None, *, average_last: int = 1
    ) -> dict[str, np.ndarray]:
        """The trained weights by parameter name.

        Args:
            step: those after this step instead, if it was kept (`training.keep`, `keep_every`).
            average_last: the mean of so many sets: that one, and the kept ones before it. It is
                taken in float64 and rounded once to the type of the weights.

        Raises ParibusError where a step was not kept, or fewer than `average_last` were.
        """
        chosen = self.require_weights(step, average_last)
        if len(chosen) == 1:
            return self._read_weights(chosen[0])
        total: dict[str, np.ndarray] = {}
        for one in chosen:  # one at a time is in memory, besides the sum
            for name, values in self._read_weights(one).items():
                total[name] = total.get(name, 0.0) + values.astype(np.float64)
        like = self._read_weights(chosen[-1])
        return {name: (total[name] / len(chosen)).astype(like[name].dtype) for name in like}

    def require_weights(self, step: int | None, average_last: int) -> list[int | None]:
        """The steps whose weights `read_weights` takes, None for the last; raises as it does."""
        kept = [*self.kept_steps, None]
        if step is not None and step == self.read_json("trial.json").get("iterations"):
            step = None
        if step is not None and step not in kept:
            known = ", ".join(map(str, kept[:-1])) or "none"
            raise ParibusError(
                f"trial {self.label} has no weights of step {step}; kept before the last: {known}. "
                "Name steps in training.keep before the study is run"
            )
        sets = kept[: kept.index(step) + 1]
        if not 1 <= average_last <= len(sets):
            raise ParibusError(
                f"trial {self.label} has {len(sets)} sets of weights up to there, not "
                f"{average_last}, to average; state a number from 1 to {len(sets)}"
            )
        return sets[-average_last:]

    @property
    def kept_steps(self) -> list[int]:
        """Steps before the last whose weights are in the folder."""
        found = (KEPT.fullmatch(path.name) for path in self.path.glob("weights-*.safetensors"))
        return sorted(int(match[1]) for match in found if match)

    def read_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the trained weights by parameter name, from the header of their file."""
        path = self.path / weights_file()
        try:
            open_regular(path, WEIGHTS_BYTES).close()  # the library opens it by its path
            with safetensors.safe_open(path, framework="np") as file:
                return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, OSError) as error:
            raise ParibusError(f"{path} does not hold weights ({error})") from None

    def _read_weights(self, step: int | None) -> dict[str, np.ndarray]:
        path = self.path / weights_file(step)
        try:
            open_regular(path, WEIGHTS_BYTES).close()  # the library opens it by its path
            return safetensors.numpy.load_file(path)
        except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
            raise ParibusError(
                f"{path} does not hold weights ({error}); delete {self.path} and run again"
            ) from None

    def finish(self) -> None:
        """Seal the records: from here on the trial is kept, and checked whenever it is read."""
        names = (*CANONICAL, *map(weights_file, self.kept_steps))
        digests = {name: file_digest(self.path / name) for name in names}
        write_json(self.path / MANIFEST, digests)

    def verify(self) -> None:
        """Raise ParibusError where a record is missing or differs from what was sealed."""
        sealed = self.read_json("manifest.json")
        kept = set(map(weights_file, self.kept_steps))
        if not isinstance(sealed, dict) or sealed.keys() != set(CANONICAL) | kept:
            raise ParibusError(
                f"trial {self.label}: manifest.json does not seal every record; "
                f"delete {self.path} and run again"
            )
        for name, expected in sealed.items():
            path = self.path / name
            if not is_regular(path):
                raise ParibusError(
                    f"trial {self.label}: {name} is missing; delete {self.path} and run again"
                )
            if file_digest(path) != expected:
                raise ParibusError(
                    f"trial {self.label}: {name} was changed after it was written; "
                    f"delete {self.path} and run again"
                )


@dataclass(frozen=True)
class ResultsFolder(Folder):
    """A study's results folder."""

    def trial(self, arm: str, seed: int) -> TrialFolder:
        return TrialFolder(self.path / "trials" / arm / f"seed-{seed}", arm, seed)

    @property
    def exists(self) -> bool:
        return is_regular(self.path / "study.json")

    @property
    def has_throughput(self) -> bool:
        """Whether all trials of the study have been timed in turn.

        Raises ParibusError where a table was sealed and is not there.
        """
        if not self.has_sealed(THROUGHPUT):
            return False
        table = self.read_columns(THROUGHPUT, ["arm", "seed"])
        timed = set(zip(table["arm"].to_pylist(), table["seed"].to_pylist(), strict=True))
        return set(self.read_study().trials) <= timed

    def write_throughput(self, columns: Mapping[str, np.ndarray], units: Mapping[str, str]) -> None:
        """Write and seal throughput.parquet, a row per arm, seed and kind."""
        with self._sealing(THROUGHPUT):
            self.write_columns(THROUGHPUT, columns, units)

    def has_sealed(self, name: str) -> bool:
        """Whether a record of the whole study was written.

        Raises ParibusError where one was sealed and is not there, or is not what was sealed.
        """
        path, digest = self.path / name, self._sealed().get(name)
        if digest is None:
            return False  # it is sealed last: what is there without it is half of a pair
        if not is_regular(path) or digest != file_digest(path):
            raise ParibusError(
                f"{path} is missing or was changed after it was written; delete it and "
                f"{self.path / MANIFEST}, and run again"
            )
        return True

    def write_repeated(self, repeated: Mapping[str, Any]) -> None:
        """Write and seal repeated.json: by arm, what training it again gave."""
        with self._sealing(REPEATED):
            write_json(self.path / REPEATED, repeated)

    def read_repeated(self, arms: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The same of `arms`, where a trial is still the one that was trained again."""
        if not self.has_sealed(REPEATED):
            return {}
        there = read_json(self.path / REPEATED)
        return {
            arm: there[arm]
            for arm in arms
            if arm in there and there[arm]["trial"] == self.trial(arm, there[arm]["seed"]).seal
        }

    def _sealed(self) -> dict[str, str]:
        """{record of the study: its SHA-256}."""
        path = self.path / MANIFEST
        return read_json(path) if os.path.lexists(path) else {}

    @contextlib.contextmanager
    def _sealing(self, name: str) -> Iterator[None]:
        """Seal the record `name` once the body has written it; until then it is not sealed."""
        sealed = self._sealed()
        others = {key: value for key, value in sealed.items() if key != name}
        if others != sealed:
            write_json(self.path / MANIFEST, others)
        yield
        write_json(self.path / MANIFEST, others | {name: file_digest(self.path / name)})

    def read_study(self, *, trust: bool = False) -> Study:
        """The study whose results these are. Raises ParibusError where there is none."""
        if not self.exists:
            raise ParibusError(f"{self.path} is no results folder: it has no study.json")
        return parse_study(
            read_json(self.path / "study.json"),
            folder=sources_folder(self.path),
            label="study.json",
            foreign=not trust,
        )

    def require_same(self, study: Study) -> None:
        """Raise ParibusError where the folder cannot hold `study`: it holds something else."""
        if self.path.exists() and not self.path.is_dir():
            raise ParibusError(f"{self.path} is a file; choose another folder with --results")
        if not self.exists:
            # Hidden files are a lock, or what an interrupted first write has left.
            if self.path.is_dir() and any(p.name[0] != "." for p in self.path.iterdir()):
                raise ParibusError(
                    f"{self.path} holds something that is no study; choose another with --results"
                )
            return
        there = self.read_study()
        if there.digest == study.digest:
            return
        differing = changes(
            substance(there.model_dump(mode="json")), substance(study.model_dump(mode="json"))
        )
        if differing.keys() == {"seeds"} and set(there.seeds) <= set(study.seeds):
            return  # more seeds of the same study: the registration says when they came
        named = "; ".join(f"{key}: {a} there, {b} here" for key, (a, b) in differing.items())
        short = named if len(named) <= 200 else f"{named[:200]}..."
        raise ParibusError(
            f"{self.path} holds a different study ({short}); choose another folder with --results"
        )

    def create(self, study: Study) -> None:
        """Make the folder the home of `study`; what only describes a study may have changed."""
        self.require_same(study)
        # Arms are read back, and shown, in the order of the study file.
        write_json(self.path / "study.json", study.model_dump(mode="json"), sort_keys=False)

    @contextlib.contextmanager
    def lock(self) -> Iterator[str]:
        """Keep every other run out of this folder; one that stays empty is removed again.

        Gives the run's identifier, which `is_held_by` knows until the end. What killed runs left
        half-written is removed first. Raises ParibusError where the folder is locked, cannot be
        written to or has links in it; errors of the body keep their own words.
        """
        new, run = not self.path.exists(), secrets.token_hex(8)
        lock = FileLock(self.path / LOCK)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0)
        except Timeout:
            raise ParibusError(
                f"another run is writing to {self.path}; wait for it, or choose --results"
            ) from None
        except OSError as error:
            raise ParibusError(
                f"cannot write to {self.path}: {error.strerror or error}; choose another with "
                "--results"
            ) from None
        try:
            secure(self.path)
            sweep(self.path)
            write_bytes(self.path / RUN, run.encode())
            fence(self.path, lambda: self.is_held_by(run))
            yield run
        finally:
            unfence(self.path)
            with contextlib.suppress(OSError):  # the folder may have been deleted meanwhile
                (self.path / RUN).unlink(missing_ok=True)
                if new and [path.name for path in self.path.iterdir()] == [LOCK]:
                    (self.path / LOCK).unlink()
                    self.path.rmdir()
            lock.release()

    def is_held_by(self, run: str) -> bool:
        """Whether `run`, an identifier that `lock` gave, still holds this folder."""
        try:
            return (self.path / RUN).read_text() == run
        except OSError:
            return False
