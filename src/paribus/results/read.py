"""Reading a study back: every record but timing checked against its seal, then as tidy tables."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from paribus.errors import ParibusError
from paribus.results.controls import Control, TrialRecord, check_controls
from paribus.results.files import write_bytes, write_table
from paribus.results.store import ResultsFolder, TrialFolder
from paribus.study import METRICS, Study


@dataclass(frozen=True)
class Results:
    """What a results folder holds: the study, and the records of its finished trials.

    Attributes:
        trials: trial.json of every finished trial, by (arm, seed).
    """

    path: Path
    study: Study
    finished: tuple[TrialFolder, ...]
    unfinished: tuple[TrialFolder, ...]
    trials: dict[tuple[str, int], dict[str, Any]]

    @cached_property
    def controls(self) -> list[Control]:
        records = [
            TrialRecord(
                folder.arm,
                folder.seed,
                self.trials[folder.arm, folder.seed],
                folder.read_json("initial.json"),
                folder.read_json("environment.json"),
            )
            for folder in self.finished
        ]
        return check_controls(self.study, records)

    @cached_property
    def trial_steps(self) -> dict[tuple[str, int], pa.Table]:
        """What was measured at every step, by (arm, seed)."""
        return {(f.arm, f.seed): f.read_columns("steps.parquet") for f in self.finished}

    @cached_property
    def steps(self) -> pa.Table:
        """Every step of every finished trial: arm, seed, step and what was measured."""
        tables = []
        for (arm, seed), table in self.trial_steps.items():
            n = len(table)
            table = table.add_column(0, "seed", pa.array([seed] * n, pa.int64()))
            tables.append(table.add_column(0, "arm", pa.array([arm] * n, pa.string())))
        return pa.concat_tables(tables) if tables else pa.table({"arm": [], "seed": [], "step": []})

    @cached_property
    def scores(self) -> pa.Table:
        """One row per finished trial: arm, seed, diverged, and every metric (NaN where absent)."""
        rows = []
        for folder in self.finished:
            diverged = self.trials[folder.arm, folder.seed]["diverged_at"] is not None
            row = {"arm": folder.arm, "seed": folder.seed, "diverged": diverged}
            steps = self.trial_steps[folder.arm, folder.seed]
            found = {
                "evaluation": folder.read_json("evaluation.json"),
                "steps": steps.slice(len(steps) - 1).to_pylist()[0],
            }
            for metric in METRICS.values():
                value = found[metric.record].get(metric.name)
                row[metric.name] = math.nan if value is None else float(value)
            rows.append(row)
        fields = [("arm", pa.string()), ("seed", pa.int64()), ("diverged", pa.bool_())]
        fields += [(name, pa.float64()) for name in METRICS]
        return pa.Table.from_pylist(rows, schema=pa.schema(fields))

    @cached_property
    def windows(self) -> dict[tuple[str, int], pa.Table]:
        """Loss and hits of every window of the validation split, by (arm, seed)."""
        return {(f.arm, f.seed): f.read_columns("windows.parquet") for f in self.finished}

    @cached_property
    def timing(self) -> dict[tuple[str, int], dict[str, float]]:
        """timing.json by (arm, seed)."""
        return {(f.arm, f.seed): f.read_json("timing.json") for f in self.finished}


def load_results(path: str | os.PathLike[str]) -> Results:
    """Read and verify the results folder at `path`.

    Raises ParibusError where it is no results folder, or a record is missing or was changed.
    """
    folder = ResultsFolder(Path(path))
    study = folder.read_study()
    trials = [folder.trial(arm, seed) for arm, seed in study.trials]
    finished = tuple(trial for trial in trials if trial.is_finished)
    for trial in finished:
        trial.verify()
    records = {(trial.arm, trial.seed): trial.read_json("trial.json") for trial in finished}
    for trial in finished:
        _require_own(study, trial, records[trial.arm, trial.seed])
    _require_distinct(finished, records)
    unfinished = tuple(trial for trial in trials if not trial.is_finished)
    return Results(folder.path, study, finished, unfinished, records)


def _require_own(study: Study, folder: TrialFolder, trial: dict[str, Any]) -> None:
    """Raise ParibusError where a trial's records are those of another arm, seed or setting."""
    expected = {
        "arm": folder.arm,
        "seed": folder.seed,
        "setting": study.setting(folder.arm).model_dump(mode="json"),
    }
    for name, value in expected.items():
        if trial.get(name) != value:
            raise ParibusError(
                f"trial {folder.label}: its records are of another {name}; "
                f"delete {folder.path} and run again"
            )


def _require_distinct(
    finished: Iterable[TrialFolder], records: dict[tuple[str, int], dict[str, Any]]
) -> None:
    """Raise ParibusError where one arm has the same trial under two seeds, or code that changed."""
    batches: dict[tuple[str, str], TrialFolder] = {}
    code: dict[str, dict[str, str]] = {}
    for folder in finished:
        trial = records[folder.arm, folder.seed]
        twin = batches.setdefault((folder.arm, trial["batch_digest"]), folder)
        if twin is not folder:
            raise ParibusError(
                f"trials {twin.label} and {folder.label} saw the same batches: one is a copy; "
                f"delete {folder.path} and run again"
            )
        if code.setdefault(folder.arm, trial["own_modules"]) != trial["own_modules"]:
            raise ParibusError(
                f"trial {folder.label}: the source of its own modules is not that of other seeds; "
                f"delete {folder.path} and run again"
            )


def write_tables(results: Results) -> None:
    """Write `tables/scores.csv`, `tables/scores.parquet` and `tables/steps.parquet`."""
    import pyarrow.csv

    tables = results.path / "tables"
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(results.scores, sink)
    write_bytes(tables / "scores.csv", sink.getvalue().to_pybytes())
    write_table(tables / "scores.parquet", results.scores)
    write_table(tables / "steps.parquet", results.steps)
