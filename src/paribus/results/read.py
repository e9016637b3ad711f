"""Reading a study back: every record but timing checked against its seal, then as tidy tables."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from paribus.digests import canonical_json
from paribus.drawing import Drawing, drawings_from_records, together
from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.metric import Metric, find, from_records, readable
from paribus.results.controls import Control, Evidence, check_controls
from paribus.results.curves import (
    LossCurve,
    curve_table,
    curve_values,
    read_curves,
    timed_in_turn,
)
from paribus.results.formats import (
    COLUMNS,
    joined,
    not_what_was_written,
    require,
    write_tables_in_turn,
)
from paribus.results.heldout_part import Tested, judged, read_heldout
from paribus.results.look_record import Entry, needed_trials, read_looks
from paribus.results.records import Trial, distinct, records_of
from paribus.results.registration import as_registered, edited_words, read_registration
from paribus.results.store import (
    CAMPAIGN,
    DATA,
    IDEAS,
    THROUGHPUT,
    ResultsFolder,
    root_digest,
)
from paribus.results.trial_folder import TrialFolder
from paribus.shown import Shown
from paribus.study import Study, changed_sources, first_stage
from paribus.study.custom_code import Sources
from paribus.untrusted_io import is_regular

SERIES = "series.parquet"

# The tidy tables of `Results`: those that are small, and those that are written trial by trial.
WHOLE = ("scores", "steps", "curve", "tasks", "sampling", "throughput")
BY_TRIAL = ("probes", "evaluation", "blocks", "items")
TABLES = (*WHOLE, *BY_TRIAL)
READINGS = 5  # of a folder that changes meanwhile, before that is said


if TYPE_CHECKING:
    shared_property = cached_property
else:

    class shared_property(cached_property):  # noqa: N801 - it stands where `cached_property` does
        """A cached property that a view takes from what it is a view of."""

        def __get__(self, instance, owner=None):
            """Return the value; of a view (its `source` is not None) its source's."""
            if instance is None or instance.source is None:
                return super().__get__(instance, owner)
            return getattr(instance.source, self.attrname)


@dataclass(frozen=True, repr=False)
class Results(Shown):
    """A results folder: the study, and the records of its finished trials.

    Attributes:
        finished: every finished trial.
        unfinished: trials that are still needed (after the looks that were taken).
        trials: trial.json of every finished trial, by (arm, seed).
        root: the root digest of the records that were read (`paribus.results.store`).
        looks: those that were taken, of a study that has some.
        tested: where what trials gave on the sealed test part is; empty before it was opened.
        held: where held-out scores are read, if not in a trial's own records (`judged`).
        source: of a view of other held-out scores, what it is a view of (`judged`).
        later_stage: of the first stage alone, why the second one does not count; else empty.
        edited: keys of texts in study.json that are not the registered ones, which `study` has.
    """

    path: Path
    study: Study
    finished: tuple[TrialFolder, ...]
    unfinished: tuple[TrialFolder, ...]
    trials: dict[tuple[str, int], dict[str, Any]]
    root: str
    looks: tuple[Entry, ...] = ()
    tested: Tested = field(default_factory=dict)
    held: Tested = field(default_factory=dict)
    source: Results | None = None
    later_stage: str = ""
    edited: tuple[str, ...] = ()

    @cached_property
    def judged(self) -> Results:
        """View with the held-out scores that the verdict is of: those of the sealed test part, once
        all trials have them (`paribus.results.heldout_part`)."""
        return judged(self)

    @cached_property
    def standing(self) -> Results:
        """View for the verdict: one stage if the second is unfinished or broke a control."""
        return standing(self)

    def held_out(self, trial: TrialFolder) -> TrialFolder:
        """Return where the held-out scores of a trial are."""
        return self.held.get((trial.arm, trial.seed), trial)

    @property
    def n_trials(self) -> int:
        """Trials that are finished, or still needed."""
        return len(self.finished) + len(self.unfinished)

    def __repr__(self) -> str:
        done, total = len(self.finished), self.n_trials
        return f"Results('{self.path}': {done} of {total} trials of '{self.study.name}')"

    def plot(self, name: str = "forest") -> Any:
        """Return a figure as an Altair chart: `loss`, an endpoint, or any that the page has."""
        return import_module("paribus.figures").plot(self, name)

    @shared_property
    def controls(self) -> list[Control]:
        """Return what had to be equal between arms, and whether the records show that it was."""
        return self.controls_among(self.trials)

    def controls_among(self, trials: Collection[tuple[str, int]]) -> list[Control]:
        """Return the controls as far as these trials show."""
        records = [record for record in self._records if (record.arm, record.seed) in trials]
        repeated = ResultsFolder(self.path).read_repeated(self.study.arms)
        opened = ResultsFolder(self.path).read_opened()
        checks = records_of(self.study).checks(self._registered)
        return check_controls(self.study, records, checks, repeated, opened)

    @cached_property
    def _registered(self) -> dict[str, Any]:
        """The current registration, or {}."""
        return read_registration(ResultsFolder(self.path)) or {}

    @cached_property
    def must_be_finite(self) -> str:
        """The metric without which a trial has diverged; empty for none."""
        return records_of(self.study).must_be_finite(self._registered)

    @cached_property
    def _records(self) -> list[Evidence]:
        records = records_of(self.study)
        return [records.evidence(f, self.trials[f.arm, f.seed], self.data) for f in self.finished]

    @shared_property
    def tuning_trials(self) -> Results | None:
        """Return the tuning trials, a study of their own; None if none was begun. Raises as
        `load_results` does."""
        folder = ResultsFolder(self.path).tuning_trials
        return load_results(folder.path, trust=not self.study.is_foreign) if folder.exists else None

    @shared_property
    def trial_steps(self) -> dict[tuple[str, int], pa.Table]:
        """Measurements of every step, by (arm, seed)."""
        return all_rows(lambda folder: folder.read_columns("steps.parquet"), self.finished)

    @cached_property
    def trial_series(self) -> dict[tuple[str, int], pa.Table]:
        """Curves of other programs by (arm, seed): metric, step and value."""
        folders = [folder for folder in self.finished if is_regular(folder.path / SERIES)]
        return all_rows(lambda folder: folder.read_columns(SERIES), folders)

    @cached_property
    def steps(self) -> pa.Table:
        """Every step of every finished trial: arm, seed, step and what was measured.

        Null is what a trial does not measure, such as the loss scale where none is float16.
        """
        tables = [trial_rows(f, self.trial_steps[f.arm, f.seed]) for f in self.finished]
        return pa.concat_tables(tables or [empty_rows("step")], promote_options="default")

    @shared_property
    def trial_probes(self) -> dict[tuple[str, int], pa.Table]:
        """Measurements of probes, by (arm, seed)."""
        return all_rows(read_probes, self.finished)

    @cached_property
    def probes(self) -> pa.Table:
        """Measurements of probes, tidy: arm, seed, step, probe, part, statistic, value, unit."""
        return self._whole("probes", "step", "probe", "part", "statistic", "value", "unit")

    def parts(self, name: str) -> Iterator[pa.Table]:
        """Yield the tidy table "probes", "evaluation", "items" or "blocks", trial by trial.

        They may be larger than memory, all together.
        """
        for folder in self.finished:
            trial = folder.arm, folder.seed
            if name == "probes":
                table = tidy_probes(self.trial_probes[trial])
            elif name == "blocks":
                table = self.trial_blocks[trial]
                table = table.add_column(0, "block", pa.array(range(len(table)), pa.int32()))
            else:
                home = self.held_out(folder) if name == "evaluation" else folder
                table = home.read_columns(f"{name}.parquet")
            yield trial_rows(folder, table)

    def _whole(self, name: str, *columns: str) -> pa.Table:
        return joined(list(self.parts(name)) or [empty_rows(*columns)])

    @cached_property
    def evaluation(self) -> pa.Table:
        """Held-out measures, tidy: arm, seed, measure, part, value, total, count, unit.

        Where a value is a ratio of sums, it is total / count; an absent part has no row.
        """
        return self._whole("evaluation", "measure", "part", "value", "total", "count", "unit")

    @shared_property
    def trial_curves(self) -> dict[tuple[str, int], LossCurve]:
        """Held-out loss along training, by (arm, seed); of trials that measured it."""
        if not any("iterations" in trial for trial in self.trials.values()):
            return {}
        return read_curves(self.study, self.finished, self.trials, self.timing, self._turns)

    @cached_property
    def curves_in_turn(self) -> bool:
        """True if the seconds of curves come from the timing of arms."""
        return timed_in_turn(self.trials, self._turns)

    @cached_property
    def curve(self) -> pa.Table:
        """Held-out loss along training: arm, seed, step, tokens, flops, seconds, loss."""
        return curve_table(self.trial_curves)

    @cached_property
    def sampling(self) -> pa.Table:
        """Consumption of trials: arm, seed, kind, part, tokens.

        Of the kind "token class" targets by class; of the kind "times seen" training tokens that
        were a target 0, 1, 2, ... times.
        """
        rows = [
            {"arm": arm, "seed": seed, "kind": kind, "part": str(part), "tokens": tokens}
            for (arm, seed), trial in self.trials.items()
            if "consumed" in trial
            for kind, counts in (
                ("token class", trial["consumed"]["token_classes"].items()),
                ("times seen", enumerate(trial["consumed"]["times_seen"])),
            )
            for part, tokens in counts
        ]
        fields = [("arm", pa.string()), ("seed", pa.int64()), ("kind", pa.string())]
        schema = pa.schema([*fields, ("part", pa.string()), ("tokens", pa.int64())])
        return pa.Table.from_pylist(rows, schema=schema)

    @cached_property
    def data(self) -> dict[str, Any]:
        """data.json: token classes, duplicates and leakage of the corpus; empty before a run."""
        return ResultsFolder(self.path).read_sealed(DATA)

    @shared_property
    def tasks(self) -> pa.Table:
        """Task accuracy, tidy: arm, seed, task, shots, chance, items, correct, accuracy ..."""
        form = records_of(self.study)
        asked = self.finished if "tasks.parquet" in (*form.required, *form.possible) else ()
        tables = [trial_rows(f, self.trial_tasks[f.arm, f.seed]) for f in asked]
        return joined(tables or [empty_rows("task", "shots", "accuracy")])

    @shared_property
    def trial_tasks(self) -> dict[tuple[str, int], pa.Table]:
        """Tables of `tasks` by (arm, seed)."""
        return all_rows(lambda folder: folder.read_columns("tasks.parquet"), self.finished)

    @shared_property
    def trial_answers(self) -> dict[tuple[str, int], dict[str, Answers]]:
        """Answers to the questions of each task, by (arm, seed)."""
        return all_rows(read_answers, self.finished)

    @cached_property
    def items(self) -> pa.Table:
        """Every question's answer, tidy: arm, seed, task, shots, item, answer, predicted ..."""
        return self._whole("items", "task", "shots", "item")

    @cached_property
    def blocks(self) -> pa.Table:
        """Blocks of the validation split: arm, seed, block, loss_sum_nats, correct ..."""
        return self._whole("blocks", "block", *COLUMNS[records_of(self.study).blocks])

    @cached_property
    def metrics(self) -> dict[str, Metric]:
        """Unit, direction, label and digits of every column of `scores`, by name.

        Of what the study compares they are those that were registered; of the rest those that the
        trials recorded.
        """
        registered = self._registered
        declared: dict[str, Metric] = {}
        for (arm, seed), metrics in distinct(self.trials, "metrics"):
            declared = from_records(metrics, f"trial {arm}/seed-{seed}") | declared
        fixed = from_records(registered.get("metrics", {}), "the registration")
        measured = {name: metric for name, metric in declared.items() if metric.record != "probes"}
        compared = {
            name: fixed.get(name)
            or find(name, declared)
            or Metric(name, readable(name), "", "neither", "evaluation")
            for name in self.study.metrics
        }
        return measured | compared

    @shared_property
    def drawings(self) -> list[Drawing]:
        """Drawings of the columns that trials recorded during training."""
        return together(
            drawing
            for (arm, seed), drawings in distinct(self.trials, "drawings")
            for drawing in drawings_from_records(drawings, f"trial {arm}/seed-{seed}")
        )

    @cached_property
    def score_rows(self) -> list[dict[str, Any]]:
        """The rows of `scores`. Arrow imports pandas, which takes as long as a small analysis."""
        rows, columns = [], set(self.study.metrics)
        for folder in self.finished:
            diverged = self.trials[folder.arm, folder.seed]["diverged_at"] is not None
            row = {"arm": folder.arm, "seed": folder.seed, "diverged": diverged}
            values = self._values(folder)
            for metric in self.metrics.values():
                value = values[metric.record].get(metric.key)
                row[metric.name] = math.nan if value is None else float(value)
                columns |= {metric.name} if metric.key in values[metric.record] else set()
            rows.append(row)
        # A measure may have parts alone, and no value of the whole text.
        empty = self.metrics.keys() - columns
        return [{name: row[name] for name in row if name not in empty} for row in rows]

    @cached_property
    def scores(self) -> pa.Table:
        """One row per finished trial: arm, seed, diverged, and every metric (NaN where absent)."""
        kinds = {"arm": pa.string(), "seed": pa.int64(), "diverged": pa.bool_()}
        names = self.score_rows[0] if self.score_rows else [*kinds, *self.study.metrics]
        fields = [(name, kinds.get(name, pa.float64())) for name in names]
        return pa.Table.from_pylist(self.score_rows, schema=pa.schema(fields))

    def _values(self, folder: TrialFolder) -> dict[str, dict[str, Any]]:
        """Return the values from which a trial's metrics are read, by `Metric.record`."""
        trial, wanted = (folder.arm, folder.seed), dict[str, list[str]]()
        for metric in self.metrics.values():
            wanted.setdefault(metric.record, []).append(metric.key)
        parts = {}
        if "parts" in wanted:
            columns = ["measure", "part", "value"]
            rows = self.held_out(folder).read_columns("evaluation.parquet", columns)
            parts = {f"{row['measure']}/{row['part']}": row["value"] for row in rows.to_pylist()}
        return {
            "evaluation": self.held_out(folder).read_json("evaluation.json"),
            "parts": parts,
            "tasks": by_task(self.trial_tasks[trial]) if "tasks" in wanted else {},
            "steps": last_row(self.trial_steps[trial]),
            "probes": last_row(read_probes(folder, wanted["probes"])) if "probes" in wanted else {},
            "curve": curve_values(
                self.study, self.trial_curves, *trial, in_turn=self.curves_in_turn
            )
            if "curve" in wanted
            else {},
            "turns": self._turns.get(trial, {}) if "turns" in wanted else {},
        }

    @cached_property
    def trial_blocks(self) -> dict[tuple[str, int], pa.Table]:
        """Sums of every block of the validation split, by (arm, seed)."""
        name = records_of(self.study).blocks
        return all_rows(lambda f: self.held_out(f).read_columns(name), self.finished)

    @cached_property
    def has_blocks(self) -> bool:
        """True if every trial has sums of blocks; tuning trials have none."""
        name = records_of(self.study).blocks
        return all(is_regular(self.held_out(f).path / name) for f in self.finished)

    @cached_property
    def _turns(self) -> dict[tuple[str, int], dict[str, float | None]]:
        """Timed speeds and training memory by (arm, seed)."""
        return turns(self.throughput)

    @cached_property
    def throughput(self) -> pa.Table:
        """Table of timed speeds: arm, seed, kind, tokens, seconds, bytes."""
        folder = ResultsFolder(self.path)
        if not folder.has_timed(self.trials):
            return empty_rows("kind", "tokens", "seconds")
        return folder.read_columns(THROUGHPUT)

    @shared_property
    def timing(self) -> dict[tuple[str, int], dict[str, float]]:
        """timing.json by (arm, seed); a trainer of the user's own may leave it out."""
        all_are = records_of(self.study).is_timed
        timed = [f for f in self.finished if all_are or (f.path / "timing.json").exists()]
        return {(f.arm, f.seed): f.read_json("timing.json") for f in timed}


def load_results(path: str | os.PathLike[str], *, trust: bool = False) -> Results:
    """Read and verify the results folder at `path`. Nothing of it is run.

    What is later called with its study runs the custom code that the study names only with `trust`.
    A run may be under way in it: trials that it finishes later are no part of what is returned.
    """
    folder = ResultsFolder(Path(path))
    for _ in range(READINGS):
        # A trial that is finished, or seeds that are added, between two files of one reading.
        root = root_digest(folder.path)
        results = _load(folder, root, trust=trust)
        if root_digest(folder.path) == root:
            return results
    raise ParibusError(f"{folder.path} changes while it is read; wait for the run that writes it")


def _load(folder: ResultsFolder, root: str, *, trust: bool) -> Results:
    if is_regular(folder.path / CAMPAIGN) and not is_regular(folder.path / "registration.json"):
        raise ParibusError(
            f"{folder.path} is a campaign: `paribus campaign status {folder.path}` tells of it; "
            f"its results folders are in {folder.path / IDEAS}, and that of its end is final"
        )
    written = folder.read_study(trust=trust)
    registered = read_registration(folder) or {}
    study = as_registered(written, registered)
    require_choice(study, folder.path, folder.read_tuning())
    finished = tuple(
        trial for trial in (folder.trial(*label) for label in study.trials) if trial.is_finished
    )
    form = records_of(study)
    for trial in finished:
        trial.verify(form.required, form.possible)
    records = read_trials(study, finished)
    require_own(study, finished, records)
    looks = tuple(read_looks(folder))
    needed = (folder.trial(arm, seed) for arm, seed in needed_trials(study, looks))
    unfinished = tuple(trial for trial in needed if not trial.is_finished)
    tested = read_heldout(folder, finished)
    return Results(
        *(folder.path, study, finished, unfinished, records, root, looks, tested),
        edited=edited_words(written, registered),
    )


def write_tables(results: Results) -> None:
    """Write every tidy table to `tables/` as Parquet, the scores as CSV too."""
    import pyarrow.csv

    folder = results.path / "tables"
    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(results.scores, sink)
    write_bytes(folder / "scores.csv", sink.getvalue().to_pybytes())
    for name in TABLES:
        in_turn = name in BY_TRIAL and results.finished
        tables = results.parts(name) if in_turn else [getattr(results, name)]
        write_tables_in_turn(folder / f"{name}.parquet", tables)


Read = TypeVar("Read")

LABELS = ("probe", "part", "statistic", "unit")  # of its columns


def last_row(table: pa.Table) -> dict[str, Any]:
    """Return the last row, or {}."""
    return table.slice(len(table) - 1).to_pylist()[0] if len(table) else {}


def trial_rows(folder: TrialFolder, table: pa.Table) -> pa.Table:
    """Return the table of one trial with its arm and seed in front."""
    n = len(table)
    table = table.add_column(0, "seed", pa.repeat(pa.scalar(folder.seed, pa.int64()), n))
    return table.add_column(0, "arm", pa.repeat(pa.scalar(folder.arm, pa.string()), n))


def empty_rows(*columns: str) -> pa.Table:
    """Return an empty table with arm, seed and these columns."""
    return pa.table({name: pa.nulls(0) for name in ("arm", "seed", *columns)})


def all_rows(
    read: Callable[[TrialFolder], Read], trials: Iterable[TrialFolder]
) -> dict[tuple[str, int], Read]:
    """Return what `read` gives of every trial, by (arm, seed), with a thread for each core.

    A Parquet file is opened and read where other threads may run meanwhile.
    """
    folders = list(trials)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        tables = list(pool.map(read, folders))
    return {(f.arm, f.seed): table for f, table in zip(folders, tables, strict=True)}


def read_probes(folder: TrialFolder, names: list[str] | None = None) -> pa.Table:
    """Return what the probes of a trial measured, a column each; no row where it was not kept."""
    table = folder.read_columns("probes.parquet", names)
    for column in table.schema:
        if column.name == "step":
            continue
        why = "" if set(LABELS) <= _labels(column).keys() else "has no labels"
        why = why if pa.types.is_floating(column.type) else "holds no numbers"
        if why:
            raise not_what_was_written(folder.path / "probes.parquet", f"'{column.name}' {why}")
    return table


def tidy_probes(table: pa.Table) -> pa.Table:
    """Return a row for each value: step, probe, part, statistic, value, unit."""
    step, table = table["step"].to_numpy(), table.drop_columns(["step"])
    columns = [column.to_numpy() for column in table.columns]
    values = np.array(columns, np.float32).reshape(table.num_columns, len(step))
    at, row = np.nonzero(~np.isnan(values))
    labels = [_labels(field) for field in table.schema]
    tidy = {"step": pa.array(step[row], pa.int32())}
    for name in LABELS:
        words = pa.array([of_column[name] for of_column in labels], pa.string())
        tidy[name] = words.dictionary_encode().take(pa.array(at))
    return pa.table({**tidy, "value": pa.array(values[at, row])}).select(
        ["step", *LABELS[:-1], "value", "unit"]
    )


def _labels(field: pa.Field) -> dict[str, str]:
    return {key.decode(): word.decode() for key, word in (field.metadata or {}).items()}


def by_task(cells: pa.Table) -> dict[str, float]:
    """Accuracy by task, of one trial: the mean over its numbers of shots."""
    accuracies: dict[str, list[float]] = {}
    for row in cells.select(["task", "accuracy"]).to_pylist():
        accuracies.setdefault(row["task"], []).append(row["accuracy"])
    return {task: math.fsum(values) / len(values) for task, values in accuracies.items()}


def turns(throughput: pa.Table) -> dict[tuple[str, int], dict[str, float | None]]:
    """By (arm, seed), what arms took turns for: speeds, and the memory of training."""
    by_trial: dict[tuple[str, int], dict[str, float | None]] = {}
    for row in throughput.to_pylist():
        scores = by_trial.setdefault((row["arm"], row["seed"]), {})
        scores[f"{row['kind']}/tokens per second"] = row["tokens"] / row["seconds"]
        n_bytes = row.get("bytes")
        scores[f"{row['kind']}/MiB"] = n_bytes / 2**20 if n_bytes else None
    return by_trial


def read_trials(study: Study, finished: Iterable[TrialFolder]) -> dict[Trial, dict[str, Any]]:
    """trial.json by (arm, seed). Raises ParibusError where one is damaged."""
    records: dict[Trial, dict[str, Any]] = {}
    known: dict[str, Any] = {}
    form = records_of(study).trial_form
    for folder in finished:
        record = folder.read_json("trial.json")
        require(folder.path / "trial.json", record, {"trial.json": form})
        # Settings, declarations and descriptions of the data, most of a record, are the same in all
        # trials of an arm: they are in memory once.
        records[folder.arm, folder.seed] = {
            key: known.setdefault(canonical_json(value), value)
            if isinstance(value, dict | list)
            else value
            for key, value in record.items()
        }
    return records


def require_own(
    study: Study, finished: Iterable[TrialFolder], records: Mapping[Trial, dict[str, Any]]
) -> None:
    """Raise ParibusError where a trial's records are those of another arm, seed or setting, or
    where trials of one arm were trained with different custom code."""
    dumped = {arm: study.setting(arm).model_dump(mode="json") for arm in study.arms}
    kept = {arm: list(getattr(study.setting(arm), "kept_steps", ())) for arm in study.arms}
    code: dict[str, tuple[TrialFolder, dict[str, Sources]]] = {}
    for folder in finished:
        trial = records[folder.arm, folder.seed]
        expected = {"arm": folder.arm, "seed": folder.seed, "setting": dumped[folder.arm]}
        for name, value in expected.items():
            if trial[name] != value:
                raise folder.error(f"its records are of another {name}")
        if folder.sealed_steps != kept[folder.arm]:
            raise folder.error("it has weights of other steps than training.keep names")
        first, sources = code.setdefault(folder.arm, (folder, trial["own_modules"]))
        if changed := changed_sources(sources, trial["own_modules"]):
            names = ", ".join(sorted(changed))
            raise folder.error(f"it was trained with another version of {names} than {first.label}")


def require_choice(study: Study, folder: Path, record: dict[str, Any]) -> None:
    """Raise ParibusError where a study's arms have other values than tuning.json, `record`, says.

    A study that is not tuned yet has chosen nothing.
    """
    stated = study.tuning.chosen if study.tuning else {}
    sealed = {arm: chosen["values"] for arm, chosen in record.get("chosen", {}).items()}
    if stated and stated != sealed:
        raise ParibusError(
            f"{folder}: study.json has other values for its arms than tuning.json chose; restore "
            "it",
            code="changed",
        )


@dataclass(frozen=True)
class Answers:
    """The answers of one trial to one task.

    Attributes:
        right: [I] of each question, in the order in which they were first asked, the share of the
            numbers of shots at which it was answered right.
        asked: how many answers there are, every number of shots counted.
    """

    right: np.ndarray
    asked: int


def read_answers(folder: TrialFolder) -> dict[str, Answers]:
    """Return the answers of a trial by task, in the order of its record. Raises ParibusError."""
    table = folder.read_columns("items.parquet", ["task", "item", "correct"])
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


def standing(results: Results) -> Results:
    """`results` as far as they can be judged: of a study whose second stage is not finished, or
    breaks a control that its first one kept, the first stage alone."""
    study = results.study
    if not study.stages:
        # Between the two files that `extend` writes: the study is still that of the first stage.
        registered = read_registration(ResultsFolder(results.path)) or {}
        stages = (registered.get("stages") or {}).get("seeds")
        begun = stages and registered["seeds"][: stages[0]] == list(study.seeds)
        why = "its registration was interrupted; run `paribus extend` again"
        return replace(results, later_stage=why) if begun else results
    first = first_stage(study)
    seeds = set(first.seeds)
    missing = sum(trial.seed not in seeds for trial in results.unfinished)
    why = f"{missing} of its trials are not finished" if missing else ""
    part = replace(
        results,
        study=first,
        finished=tuple(trial for trial in results.finished if trial.seed in seeds),
        unfinished=tuple(trial for trial in results.unfinished if trial.seed in seeds),
        trials={trial: record for trial, record in results.trials.items() if trial[1] in seeds},
        tested={trial: home for trial, home in results.tested.items() if trial[1] in seeds},
    )
    if not why:
        broken, before = (
            {(control.name, control.arm) for control in group.controls if control.state == "broken"}
            for group in (results, part)
        )
        if broken - before:
            why = f"it breaks {', '.join(sorted({name for name, _ in broken - before}))}"
    return replace(part, later_stage=why) if why else results
