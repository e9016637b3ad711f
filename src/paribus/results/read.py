"""Loading of a results folder, with its records as tidy tables.

Records are verified against the digests in their manifests, except for timing.json, which has none.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.drawing import Drawing, drawings_from_records, together
from paribus.metric import Metric, find, from_records, readable
from paribus.results.controls import Control, check_controls
from paribus.results.curves import AXES, LossCurve, curve_values, read_curves
from paribus.results.formats import COLUMNS, as_model, read_as
from paribus.results.heldout_part import Tested, on_heldout_part, read_heldout
from paribus.results.look_record import Entry, needed_trials, read_looks
from paribus.results.records import Timing, Trial, distinct, records_of
from paribus.results.registration import edited_words, read_registration, with_words
from paribus.results.store import (
    DATA,
    TEST_PART,
    THROUGHPUT,
    ResultsFolder,
    root_digest,
)
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study

ITEMS = "items.parquet"
PROBES = pa.schema(
    [("step", pa.int32())]
    + [(name, pa.string()) for name in ("probe", "part", "statistic")]
    + [("value", pa.float32()), ("unit", pa.string())]
)


@dataclass(frozen=True, repr=False)
class Results:
    """Contents of a results folder: the study, and the records of its finished trials.

    Attributes:
        finished: folders of all finished trials.
        unfinished: folders of unfinished trials that are needed for the next analysis.
        trials: content of trial.json, keyed by (arm, seed).
        root: root digest of the records (`paribus.results.store.root_digest`).
        looks: records of the completed interim analyses; () if none are planned.
        tested: folders of test scores, keyed by (arm, seed); {} before the test split is read.
        held: folders of held-out scores that replace those in the trials' records (`judged`).
        edited: keys of descriptive texts in study.json that were edited after registration;
            `study` has the registered texts.
    """

    path: Path
    study: Study
    finished: tuple[TrialFolder, ...]
    unfinished: tuple[TrialFolder, ...]
    trials: dict[Trial, dict[str, Any]]
    root: str
    looks: tuple[Entry, ...] = ()
    tested: Tested = field(default_factory=dict)
    held: Tested = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    _tables: dict[str, dict[Trial, pa.Table]] = field(
        default_factory=dict, init=False, compare=False
    )

    @cached_property
    def judged(self) -> Results:
        """Results with the held-out scores that the verdict uses.

        These are the scores on the test split if all trials have them, and otherwise those on
        validation text (`paribus.results.heldout_part`).
        """
        if not self.tested or self.tested.keys() != self.trials.keys():
            return self
        blocks = {trial: home.read_json("tested.json") for trial, home in self.tested.items()}
        trials = {
            trial: record | {"blocks": blocks[trial]["blocks"]}
            for trial, record in self.trials.items()
        }
        return replace(self, trials=trials, held=self.tested)

    @property
    def awaits_test(self) -> bool:
        """True if some trials have not been evaluated on the study's withheld test split."""
        return self.study.facts.seals_test and not self.judged.held

    @property
    def why_not_tested(self) -> str:
        """Reason why a finished study lacks scores on its test split, or "" for other studies.

        The value is "" if the scores exist, trials are missing, or the study has no test split.
        """
        if self.unfinished or not self.awaits_test:
            return ""
        return "not every trial was evaluated on the withheld test split; run the study again"

    def held_out(self, trial: TrialFolder) -> TrialFolder:
        """Return the folder that contains a trial's held-out scores."""
        return self.held.get((trial.arm, trial.seed), trial)

    @property
    def n_trials(self) -> int:
        """Number of trials that are finished or still needed."""
        return len(self.finished) + len(self.unfinished)

    def __repr__(self) -> str:
        done = f"{len(self.finished)} of {self.n_trials} trials"
        return f"Results('{self.path}': {done} of '{self.study.name}')"

    @cached_property
    def controls(self) -> list[Control]:
        """Results of all checks that arms differ only in their declared settings."""
        return self.controls_among(self.trials)

    def controls_among(self, trials: Collection[Trial]) -> list[Control]:
        """Return the results of all controls for a subset of the trials."""
        form, folder = records_of(self.study), ResultsFolder(self.path)
        opened = folder.read_sealed(TEST_PART)
        records = [
            form.evidence(trial, self.trials[trial.arm, trial.seed], self.data, opened)
            for trial in self.finished
            if (trial.arm, trial.seed) in trials
        ]
        repeated = folder.read_repeated(self.study.arms)
        return check_controls(self.study, records, form.checks(self.registered), repeated)

    @cached_property
    def registered(self) -> dict[str, Any]:
        """Content of the current registration.json, or {} if it does not exist."""
        return read_registration(ResultsFolder(self.path)) or {}

    @cached_property
    def must_be_finite(self) -> str:
        """Name of the metric that is not finite if a trial has diverged, or "" if undefined."""
        return records_of(self.study).must_be_finite(self.registered)

    @cached_property
    def tuning_trials(self) -> Results | None:
        """Results of the tuning study, or None if it does not exist.

        Raises ParibusError if the results cannot be read (see `load_results`).
        """
        folder = ResultsFolder(self.path).tuning_trials
        return load_results(folder.path, trust=not self.study.is_foreign) if folder.exists else None

    # Records by (arm, seed)

    def read_each(self, name: str) -> dict[Trial, pa.Table]:
        """Read the Parquet file `name` of every trial, keyed by (arm, seed).

        The table of a trial without this file is empty. Tables are cached.
        """
        if name not in self._tables:
            is_held_out = name in ("evaluation.parquet", records_of(self.study).blocks)
            self._tables[name] = {
                (folder.arm, folder.seed): (
                    self.held_out(folder) if is_held_out else folder
                ).read_columns(name)
                for folder in self.finished
            }
        return self._tables[name]

    @property
    def trial_steps(self) -> dict[Trial, pa.Table]:
        """Measurements at every training step, keyed by (arm, seed)."""
        return self.read_each("steps.parquet")

    @property
    def trial_blocks(self) -> dict[Trial, pa.Table]:
        """Per-block sums over held-out text, or per-item scores, keyed by (arm, seed)."""
        return self.read_each(records_of(self.study).blocks)

    @cached_property
    def trial_curves(self) -> dict[Trial, LossCurve]:
        """Recorded curves of held-out loss, keyed by (arm, seed)."""
        return read_curves(self.study, self.finished, self.trials, self.turns)

    @cached_property
    def trial_accuracy(self) -> dict[Trial, dict[str, float]]:
        """Task accuracy, averaged over numbers of shots, keyed by (arm, seed) and task."""
        accuracy: dict[Trial, dict[str, float]] = {}
        for trial, table in self.read_each("tasks.parquet").items():
            by_task: dict[str, list[float]] = {}
            for row in table.select(["task", "accuracy"]).to_pylist():
                by_task.setdefault(row["task"], []).append(row["accuracy"])
            accuracy[trial] = {task: math.fsum(own) / len(own) for task, own in by_task.items()}
        return accuracy

    @cached_property
    def trial_answers(self) -> dict[Trial, dict[str, Answers]]:
        """Answers to task questions, keyed by (arm, seed) and task."""
        return {trial: answers_in(table) for trial, table in self.read_each(ITEMS).items()}

    @cached_property
    def timing(self) -> dict[Trial, dict[str, float]]:
        """Content of timing.json, keyed by (arm, seed), for trials that have this file."""
        paths = {(f.arm, f.seed): f.path / "timing.json" for f in self.finished}
        return {
            trial: read_as(Timing, path).model_dump()
            for trial, path in paths.items()
            if os.path.lexists(path)
        }

    @cached_property
    def turns(self) -> dict[Trial, dict[str, float]]:
        """Speed (tokens/s) and memory (MiB) from interleaved timing of arms, by (arm, seed)."""
        by_trial: dict[Trial, dict[str, float]] = {}
        for row in self.throughput.to_pylist():
            scores = by_trial.setdefault((row["arm"], row["seed"]), {})
            scores[f"{row['kind']}/tokens per second"] = row["tokens"] / row["seconds"]
            if n_bytes := row.get("bytes"):
                scores[f"{row['kind']}/MiB"] = n_bytes / 2**20
        return by_trial

    @cached_property
    def data(self) -> dict[str, Any]:
        """Content of data.json (duplicates and leakage in the corpus), or {} before a run."""
        return ResultsFolder(self.path).read_sealed(DATA)

    # Tidy tables: a row for each value, with its arm and seed

    @cached_property
    def steps(self) -> pa.Table:
        """Table of training steps: arm, seed, step, and the measurements at each step."""
        return joined(self.trial_steps, "step")

    @cached_property
    def probes(self) -> pa.Table:
        """Table of probe measurements: arm, seed, step, probe, part, statistic, value, unit."""
        tables = {t: tidy_probes(table) for t, table in self.read_each("probes.parquet").items()}
        return joined(tables, "step", "probe", "part", "statistic", "value", "unit")

    @cached_property
    def evaluation(self) -> pa.Table:
        """Table of held-out measures: arm, seed, measure, part, value, total, count, unit.

        A value that is a ratio of sums equals total / count. Unmeasured parts have no row.
        """
        name = "evaluation.parquet"
        return joined(self.read_each(name), *COLUMNS[name])

    @cached_property
    def tasks(self) -> pa.Table:
        """Table of task accuracy: arm, seed, task, shots, chance, items, correct, accuracy."""
        return joined(self.read_each("tasks.parquet"), "task", "shots", "accuracy")

    @cached_property
    def items(self) -> pa.Table:
        """Table of answers to task questions: arm, seed, task, shots, item, answer, predicted."""
        return joined(self.read_each(ITEMS), "task", "shots", "item")

    @cached_property
    def curve(self) -> pa.Table:
        """Table of held-out loss curves: arm, seed, step, tokens, flops, seconds, loss."""
        columns = ("step", *AXES, "loss")
        tables = {}
        for trial, curve in self.trial_curves.items():
            values, empty = vars(curve), pa.nulls(len(curve.step), pa.float64())
            table = {name: empty if values[name] is None else values[name] for name in columns}
            tables[trial] = pa.table(table)
        return joined(tables, *columns)

    @cached_property
    def sampling(self) -> pa.Table:
        """Table of consumed training data: arm, seed, source, windows, tokens, bytes."""
        rows = [
            {"arm": arm, "seed": seed, "source": source, **counts}
            for (arm, seed), trial in self.trials.items()
            for source, counts in trial.get("consumed", {}).get("sources", {}).items()
        ]
        kinds = {"arm": pa.string(), "seed": pa.int64(), "source": pa.string()}
        totals = dict.fromkeys(("windows", "tokens", "bytes"), pa.int64())
        return pa.Table.from_pylist(rows, schema=pa.schema(kinds | totals))

    @cached_property
    def throughput(self) -> pa.Table:
        """Table of speed and memory measurements: arm, seed, kind, tokens, seconds, bytes."""
        folder = ResultsFolder(self.path)
        if not folder.has_timed(self.trials):
            return joined({}, "kind", "tokens", "seconds")
        return folder.read_columns(THROUGHPUT)

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Metric definitions for the columns of `scores`, keyed by column name.

        Definitions of compared metrics come from the registration, others from the trials.
        """
        declared: dict[str, Metric] = {}
        for (arm, seed), metrics in distinct(self.trials, "metrics"):
            declared = from_records(metrics, f"trial {arm}/seed-{seed}") | declared
        fixed = from_records(self.registered.get("metrics", {}), "the registration")
        measured = {name: metric for name, metric in declared.items() if metric.record != "probes"}
        compared = {
            name: fixed.get(name)
            or find(name, declared)
            or Metric(name, readable(name), "", "neither", "evaluation")
            for name in self.study.metrics
        }
        metrics = measured | compared
        return on_heldout_part(metrics, self.held) if self.held else metrics

    @cached_property
    def drawings(self) -> list[Drawing]:
        """Figure specifications for the measurements that trials recorded during training."""
        return together(
            drawing
            for (arm, seed), drawings in distinct(self.trials, "drawings")
            for drawing in drawings_from_records(drawings, f"trial {arm}/seed-{seed}")
        )

    @cached_property
    def score_rows(self) -> list[dict[str, Any]]:
        """Rows of `scores` as dicts.

        Building them avoids Arrow, whose import of pandas takes as long as a small analysis.
        """
        rows, columns = [], set(self.study.metrics)
        for folder in self.finished:
            diverged = self.trials[folder.arm, folder.seed]["diverged_at"] is not None
            row = {"arm": folder.arm, "seed": folder.seed, "diverged": diverged}
            values = self._values(folder)
            for metric in self.metrics.values():
                value = values[metric.record].get(metric.key)
                row[metric.name] = math.nan if value is None else float(value)  # type: ignore
                columns |= {metric.name} if metric.key in values[metric.record] else set()
            rows.append(row)
        # A measure may have parts alone, and no value of the whole text.
        empty = self.metrics.keys() - columns
        return [{name: row[name] for name in row if name not in empty} for row in rows]

    @cached_property
    def scores(self) -> pa.Table:
        """Table of scores, one row per finished trial: arm, seed, diverged, metrics (or NaN)."""
        kinds = {"arm": pa.string(), "seed": pa.int64(), "diverged": pa.bool_()}
        names = self.score_rows[0] if self.score_rows else [*kinds, *self.study.metrics]
        fields = [(name, kinds.get(name, pa.float64())) for name in names]
        return pa.Table.from_pylist(self.score_rows, schema=pa.schema(fields))

    def _values(self, folder: TrialFolder) -> dict[str, dict[str, Any]]:
        """Return a trial's recorded values, keyed by `Metric.record` and `Metric.key`."""
        trial, home = (folder.arm, folder.seed), self.held_out(folder)
        wanted: dict[str, list[str]] = {}
        for metric in self.metrics.values():
            wanted.setdefault(metric.record, []).append(metric.key)
        values: dict[str, dict[str, Any]] = {
            "evaluation": home.read_json("evaluation.json"),
            "steps": last_row(self.trial_steps[trial]),
            "turns": self.turns.get(trial, {}),
        }
        if "parts" in wanted:
            rows = self.read_each("evaluation.parquet")[trial].to_pylist()
            values["parts"] = {f"{row['measure']}/{row['part']}": row["value"] for row in rows}
        if "tasks" in wanted:
            values["tasks"] = self.trial_accuracy[trial]
        if "probes" in wanted:
            values["probes"] = last_row(folder.read_columns("probes.parquet", wanted["probes"]))
        if "curve" in wanted:
            values["curve"] = curve_values(self.study, self.trial_curves, *trial)
        return values


def load_results(path: str | os.PathLike[str], *, trust: bool = False) -> Results:
    """Read and verify a results folder, without running custom code.

    The study may still be running; only trials that are already finished are included.

    Args:
        path: path of the results folder.
        trust: whether the loaded study may run its custom code later.

    Raises:
        ParibusError: if a record is missing, damaged or changed.
    """
    folder = ResultsFolder(Path(path))
    root, written = root_digest(folder.path), folder.read_study(trust=trust)
    registered = read_registration(folder)
    study = with_words(written, registered) if registered else written
    form, trials = records_of(study), [folder.trial(*trial) for trial in study.trials]
    finished = tuple(trial for trial in trials if trial.is_finished)
    records: dict[Trial, dict[str, Any]] = {}
    for trial in finished:
        trial.verify(form.required)
        record = trial.read_json("trial.json")
        as_model(form.trial_form, record, trial.path / "trial.json")
        owner, setting = (record["arm"], record["seed"]), study.setting_records[trial.arm]
        if owner != (trial.arm, trial.seed) or record["setting"] != setting:
            raise trial.error("arm, seed or settings in trial.json do not match the study")
        records[trial.arm, trial.seed] = record
    looks = tuple(read_looks(folder))
    needed = [trial for trial in needed_trials(study, looks) if trial not in records]
    return Results(
        path=folder.path,
        study=study,
        finished=finished,
        unfinished=tuple(folder.trial(*trial) for trial in needed),
        trials=records,
        root=root,
        looks=looks,
        tested=read_heldout(folder, finished),
        edited=edited_words(written, registered) if registered else (),
    )


def last_row(table: pa.Table) -> dict[str, Any]:
    """Return the last row of a table as a dict, or {} if the table is empty."""
    return table.slice(len(table) - 1).to_pylist()[0] if len(table) else {}


def trial_rows(arm: str, seed: int, table: pa.Table) -> pa.Table:
    """Prepend the columns arm and seed to a trial's table."""
    n = len(table)
    table = table.add_column(0, "seed", pa.repeat(pa.scalar(seed, pa.int64()), n))
    return table.add_column(0, "arm", pa.repeat(pa.scalar(arm, pa.string()), n))


def joined(tables: Mapping[Trial, pa.Table], *columns: str) -> pa.Table:
    """Concatenate the tables of trials, prepending the columns arm and seed.

    If all tables are empty, return an empty table with the columns arm, seed and `columns`.
    """
    rows = [trial_rows(*trial, table) for trial, table in tables.items() if len(table)]
    if not rows:
        return pa.table({name: pa.nulls(0) for name in ("arm", "seed", *columns)})
    # Null is what a trial does not measure, such as a probe of another arm's module.
    return pa.concat_tables(rows, promote_options="default")


def tidy_probes(table: pa.Table) -> pa.Table:
    """Convert a table of probes to long format: step, probe, part, statistic, value, unit."""
    rows, steps = [], table["step"].to_pylist()
    for name in table.column_names[1:]:
        labels = {
            key.decode(): word.decode() for key, word in table.schema.field(name).metadata.items()
        }
        points = zip(steps, table[name].to_pylist(), strict=True)
        rows += [labels | {"step": t, "value": value} for t, value in points if value is not None]
    return pa.Table.from_pylist(rows, PROBES)


@dataclass(frozen=True)
class Answers:
    """Answers of one trial to the I questions of one task.

    Attributes:
        right: [I] fraction of few-shot settings with a correct answer to each question, in order
            of first occurrence.
        asked: total number of answers, over all few-shot settings.
    """

    right: np.ndarray
    asked: int


def answers_in(table: pa.Table) -> dict[str, Answers]:
    """Convert a trial's items.parquet to answers, keyed by task."""
    tasks = table["task"].combine_chunks().dictionary_encode()
    codes, words = tasks.indices.to_numpy(), tasks.dictionary.to_pylist()
    items = table["item"].to_numpy()
    correct = table["correct"].to_numpy(zero_copy_only=False).astype(np.float64)
    by_code = {}
    for code, word in enumerate(words):
        rows = codes == code
        _, first, place = np.unique(items[rows], return_index=True, return_inverse=True)
        right = np.bincount(place, correct[rows]) / np.bincount(place)
        by_code[word] = Answers(right[np.argsort(first)], int(rows.sum()))
    return by_code
