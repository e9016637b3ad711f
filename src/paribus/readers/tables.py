"""Tables: CSV, TSV, Parquet and JSON, long and wide; the caller says what columns mean.

JSON is a line for each row, or a list of objects.

A wide table has a column for each score, a long one a column with the score's name and one with its
value. Rows of the same arm, seed and further columns that tell runs apart are one run: its curve by
a column of steps, or its items by a column of them. Without a column that tells runs apart, each
row is a run; with steps or items and nothing else, the whole table is one.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from paribus.digests import flatten
from paribus.errors import ParibusError, nearest
from paribus.readers.port import (
    EMPTY,
    NOT_FINISHED,
    Columns,
    Curve,
    Run,
    SkippedError,
    Source,
    Value,
    mark_filtered_zeros,
    mean,
    reader,
    seed_in,
)
from paribus.study.bounds import MOST_SEEDS
from paribus.untrusted_io import TABLE_BYTES, TABLE_COLUMNS, open_regular, parse_json, regular_path

pc: Any = pyarrow.compute  # its functions are made at import, unseen by type checkers
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
PARQUET = b"PAR1"
DIVERGED = ["diverged", "overflow", "1.#inf", "-1.#inf", "1.#qnan", "-1.#ind"]  # words for NaN
MISSING = ["", "NA", "N/A", "n/a", "null", "NULL", "None", "-"]
BATCH_ROWS = 65_536
BLOCK_BYTES = 8 * 2**20


# How columns are called whose values go up along a run: a word of the name, `trainer/global_step`.
ALONG = {"batch", "batches", "epoch", "epochs", "episode", "episodes", "examples", "iter"}
ALONG |= {"iteration", "iterations", "iters", "round", "rounds", "runtime", "samples", "seconds"}
ALONG |= {"step", "steps", "t", "time", "timestamp", "timestep", "timesteps", "tokens", "update"}
ALONG |= {"updates", "walltime"}
OF_TIME = {"runtime", "seconds", "t", "time", "timestamp", "walltime"}  # of runs in their order too
STEPS = re.compile(r"(?:.*/)?_?(?:global_|train_)?(?:step|iter|iteration)s?", re.IGNORECASE)
GRADIENT_NORM = re.compile(r"(?:.*[/_.])?grad(?:ient)?_?norm", re.IGNORECASE)
LEAST_CLIMB = 3  # rows
LEAST_CLIMB_OF_ANY = 5  # of a column of any name, which begins anew
LEAST_CLIMB_OF_TIME = 8
# What tells runs apart, and goes up from row to row in many a table.
IDENTIFIES = re.compile(
    r"(?:.*[^a-z])?(?:seeds?|rng|random_state|replicate|rep|trial|run|fold|split|id|idx|index|no|nr)"
    r"|unnamed: 0|#|",
    re.IGNORECASE,
)
# As wandb, MLflow, Optuna and schedulers say of a run, in a column called so, that it has not come
# to its end. A run that was stopped may have been meant to.
STATE = re.compile(r"(?:.*[^a-z])?(?:state|status)", re.IGNORECASE)
UNFINISHED = re.compile(
    r"(?<![a-z])(?:abort(?:ed)?|active|cancell?ed|crash(?:ed)?|dead|diverged|error|fail(?:ed|ure)?"
    r"|in.progress|incomplete|interrupted|killed|node.fail|oom|out.of.memory|paused|pending"
    r"|preempt(?:ed|ing)|pruned|running|scheduled|started|timeout|unfinished|waiting)(?![a-z])",
    re.IGNORECASE,
)
ENDED = {"finished": False, "completed": False, "done": False, "crashed": True, "failed": True}
TRUE, FALSE = {"true", "1", "yes"}, {"false", "0", "no"}


def _is_unfinished(name: str, value: Value) -> bool:
    """Return whether a column of a name says by a value that its run has not come to its end."""
    said = str(int(value) if isinstance(value, float) and value.is_integer() else value).casefold()
    if STATE.fullmatch(name):
        return bool(UNFINISHED.search(said))
    if (bad := ENDED.get(name.casefold())) is not None:
        return said in (TRUE if bad else FALSE)
    return name.casefold() == "exit_code" and said not in ("", "0")


def _words(name: str) -> set[str]:
    """Return the words of a name, `training_iteration` and `totalSteps` alike."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return set(re.split(r"[^a-z]+", apart.casefold()))


def _is_climbing(steps: Sequence[Any], least: int = LEAST_CLIMB, pieces: int = 1) -> bool:
    """Return whether numbers go up strictly, in so many pieces or more, of the same beginning and
    at least so long."""
    if len(steps) < least or not all(isinstance(step, int | float) for step in steps):
        return False
    starts = [0, *(at for at in range(1, len(steps)) if steps[at] <= steps[at - 1]), len(steps)]
    return len(starts) > pieces and all(
        end - start >= least and steps[start] == steps[0] for start, end in pairwise(starts)
    )


def _is_of_a_curve(name: str, steps: Sequence[Any]) -> bool:
    """Return whether the values of a column, row by row, are those of steps along a curve."""
    if IDENTIFIES.fullmatch(name):
        return False
    words = _words(name) & ALONG
    if words & OF_TIME:
        return _is_climbing(steps, LEAST_CLIMB_OF_TIME)
    if words:
        return _is_climbing(steps) or _is_even(steps)
    return _is_climbing(steps, LEAST_CLIMB_OF_ANY, pieces=2)


def _is_even(steps: Sequence[Any]) -> bool:
    """Return whether numbers in any order are each as far from the next, as steps of one curve."""
    if len(steps) < LEAST_CLIMB or not all(isinstance(step, int | float) for step in steps):
        return False
    gaps = {after - before for before, after in pairwise(sorted(steps))}
    return len(gaps) == 1 and 0 not in gaps


def _detects(source: Source) -> bool:
    if source.header.startswith("epoch,"):  # training.log, as Keras writes it
        return True
    if source.name.lower().endswith(".json") and source.head.lstrip().startswith(b"["):
        return True
    return source.name.lower().endswith(SUFFIXES) or source.head.startswith(PARQUET)


@reader(
    "table",
    says="CSV, TSV, Parquet, JSON lines and lists, by the names of columns",
    detects=_detects,
    general=True,
)
def table(source: Source) -> Iterator[Run]:
    """Yield the runs of a table, in the order in which they begin."""
    runs = runs_of(_batches(source), source.columns, source.path)
    if len(runs) == 1 and (seed := seed_in(source.path)) is not None:
        runs[0].facts.setdefault("seed", seed)
    is_list = source.head.lstrip().startswith(b"[")
    if runs and not is_list and not source.tail.endswith((b"\n", PARQUET)):
        if not source.notes:
            source.notes.append(f"The last line of {source.path} has no end, and was taken.")
        runs[-1].facts["cut"] = "the last line has no end"
    yield from runs


def runs_of(batches: Iterable[pa.RecordBatch], columns: Columns, where: str) -> list[Run]:
    """Return the runs of a table, such as `pa.table(frame).to_batches()`; `where` is for errors.

    Raises ParibusError for a column that is not there, a value that is no number, and for rows that
    nothing tells apart.
    """
    _require_meant(columns, where)
    gathered = None
    for batch in batches:
        if gathered is None:
            _require_scores(batch, columns, where)
            if not columns.seed and columns.seed_if_any in batch.schema.names:
                columns = replace(columns, seed=columns.seed_if_any)
            columns = _with_steps(batch, columns)
            gathered = _Gathered(columns, where)
        gathered.add(batch)
    if gathered is None:
        return []
    return gathered.runs()


def _require_meant(columns: Columns, where: str) -> None:
    """Raise ParibusError where the columns that are named say nothing that can be read."""
    if bool(columns.metric) != bool(columns.value):
        raise ParibusError(
            f"{where}: a long table has a column of the score's name and one of its value; name "
            "both, metric and value"
        )
    if columns.step and columns.item:
        raise ParibusError(
            f"{where}: column '{columns.step}' of steps and column '{columns.item}' of items at "
            "once; keep the rows of the last step, and name the items alone"
        )


def _require_scores(batch: pa.RecordBatch, columns: Columns, where: str) -> None:
    """Raise ParibusError where no column of scores is named; it lists those that may be one."""
    if columns.scores or columns.metric:
        return
    numeric = [
        name
        for name in batch.schema.names
        if name not in columns.meant
        and not IDENTIFIES.fullmatch(name)
        and not _words(name) & ALONG
        and any(_number(value) is not None for value in batch.column(name)[:1].to_pylist())
    ]
    such = f", such as --score '{numeric[0]}': {', '.join(numeric[:8])}" if numeric else ""
    raise ParibusError(f"{where}: name the column of the score{such}")


def _with_steps(batch: pa.RecordBatch, columns: Columns) -> Columns:
    """Return the columns with that of steps, where it is not named and arm, seed and step identify
    a row."""
    names = batch.schema.names
    if columns.step or columns.item or columns.metric or not columns.seed or columns.run:
        return columns
    keys = [name for name in (columns.arm, columns.seed) if name]
    if not keys or any(name not in names for name in keys):
        return columns
    rows = list(zip(*(batch.column(name).to_pylist() for name in keys), strict=True))
    if len(set(rows)) == len(rows):
        return columns
    for name in names:
        if STEPS.fullmatch(name) or name.casefold() in ("epoch", "epochs", "_step"):
            steps = [_number(value) for value in batch.column(name).to_pylist()]
            if None not in steps and len(set(zip(rows, steps, strict=True))) == len(rows):
                return replace(columns, step=name)
    return columns


class _Numbers(NamedTuple):
    """A column: its values, and which cells are empty. A NaN that was logged is no empty cell."""

    values: np.ndarray
    missing: np.ndarray


class _Coded(NamedTuple):
    """A column of anything: its different values, and which of them each row has."""

    values: list[Any]
    codes: np.ndarray

    @classmethod
    def of(cls, column: pa.Array, spelt: Callable[[Any], Any]) -> _Coded:
        """Return the column with its values as `spelt` has them."""
        if pa.types.is_dictionary(column.type):  # with values twice, perhaps, or none
            column = column.dictionary_decode()
        encoded = column.dictionary_encode("encode")
        values = [spelt(value) for value in encoded.dictionary.to_pylist()]
        places = {value: at for at, value in enumerate(dict.fromkeys(values))}
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        return cls(list(places), np.array([places[value] for value in values], np.int64)[codes])


class _Gathered:
    """What the rows say so far, by run."""

    def __init__(self, columns: Columns, where: str) -> None:
        self.columns, self.where = columns, where
        self.of_run = [one for one in (columns.arm, columns.seed, *columns.run) if one]
        # A row for each run, where nothing says that several rows are one.
        self.by_row = not (columns.step or columns.item or columns.metric or columns.seed)
        self.by_row = self.by_row and not columns.run
        self.found: dict[tuple[Any, ...], Run] = {}
        self.changing: dict[tuple[Any, ...], set[str]] = {}
        self.empty: dict[tuple[Any, ...], dict[str, float]] = {}  # last steps without a value
        self.norm = ""  # the column of gradient norms, where rows have steps
        self.points: dict[tuple[Any, ...], dict[str, list[tuple[np.ndarray, np.ndarray]]]] = {}
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch."""
        columns, names = self.columns, batch.schema.names
        long = [columns.metric, columns.value] if columns.metric else []
        meant = [*self.of_run, *columns.scores, *long, columns.step, columns.item]
        for name in filter(None, meant):
            if names.count(name) != 1:
                told = f"there is no column '{name}': {nearest(name, names)}"
                if name in columns.scores and columns.arm not in names:
                    told += "; of a column for each arm make a row for each run, with arm and score"
                raise ParibusError(
                    f"{self.where}: " + (f"two columns are '{name}'" if name in names else told)
                )
        # Facts of that name are what the columns that were named say.
        taken = {fact for fact in ("arm", "seed") if getattr(columns, fact)}
        facts: dict[str, _Coded | None] = {
            name: None
            for name in names
            if name not in meant and name not in taken and names.count(name) == 1
        }
        values = {name: self._numbers(batch, name) for name in columns.scores}
        if columns.step:
            norms = [name for name in facts if GRADIENT_NORM.fullmatch(name)]
            self.norm = norms[0] if len(norms) == 1 else ""
            if self.norm:
                facts.pop(self.norm)
                values[self.norm] = self._numbers(batch, self.norm)
        told = _Coded.of(batch.column(columns.metric), _name) if columns.metric else None
        of_long = self._numbers(batch, columns.value) if columns.metric else None
        places = self._numbers(batch, columns.step) if columns.step else None
        items = self._texts(batch, columns.item) if columns.item else None
        groups = list(self._groups(batch))
        for key, rows in groups:
            run = self.found.get(key)
            if run is None:
                if len(self.found) == MOST_SEEDS:
                    raise ParibusError(
                        f"{self.where} has more than {MOST_SEEDS:,} runs; name the column of "
                        "steps, items or seeds, if a run has several rows"
                    )
                run = self.found[key] = Run("", facts=self._identity(key))
                self.changing[key] = set()
            self._add_facts(run, self.changing[key], batch, facts, rows, only=len(groups) == 1)
            for name in values:
                self._add(key, name, rows, values[name], places, items)
            if told is not None and of_long is not None:
                for code in dict.fromkeys(told.codes[rows].tolist()):
                    some = rows[told.codes[rows] == code]
                    self._add(key, told.values[code], some, of_long, places, items)
        self.rows += batch.num_rows

    def _groups(self, batch: pa.RecordBatch) -> Iterator[tuple[tuple[Any, ...], np.ndarray]]:
        """Yield what tells a run apart, and its rows, in the order in which runs begin."""
        coded = [_Coded.of(batch.column(name), _name) for name in self.of_run]
        each = np.arange(batch.num_rows)
        if self.by_row:
            for row in each:
                key = tuple(one.values[one.codes[row]] for one in coded)
                yield (*key, str(self.rows + row)), each[row : row + 1]
            return
        code = np.zeros(batch.num_rows, np.int64)
        for one in coded:
            _, code = np.unique(code * len(one.values) + one.codes, return_inverse=True)
        order = np.argsort(code, kind="stable")
        ends = np.flatnonzero(np.diff(code[order])) + 1
        for rows in sorted(np.split(order, ends), key=lambda rows: rows[:1].tolist()):
            if len(rows):
                yield tuple(one.values[one.codes[rows[0]]] for one in coded), rows

    def runs(self) -> list[Run]:
        """Return the runs, each with the last value of its curves or the mean of its items. Raises
        ParibusError where each row would be a run, and they are the steps of some."""
        if self.by_row:
            self._require_no_steps()
        for key, run in self.found.items():
            for name, pieces in self.points.pop(key, {}).items():
                steps, values = map(np.concatenate, zip(*pieces, strict=True))
                order = np.argsort(steps, kind="stable")  # of one step, the last row
                curve: Any = Curve(steps[order], values[order])
                run.curves[name] = curve
                if self.columns.seed_if_any and not self.columns.seed:
                    self._require_one_run(steps)
                if len(curve):
                    run.scores[name] = curve[-1][1]
                    run.facts["steps"] = max(float(run.facts.get("steps", 0)), curve[-1][0])
                    empty = self.empty.get(key, {}).get(name, -math.inf)
                    if empty > curve[-1][0]:
                        run.facts[f"{EMPTY}/{name}"] = empty
            run.curves = {name: curve for name, curve in run.curves.items() if curve}
            mark_filtered_zeros(run, run.curves.pop(self.norm, ()))
            run.scores.pop(self.norm, None)
            for name, items in run.items.items():
                run.scores[name] = mean(items.values())
            self._add_its_end(run)
        return list(self.found.values())

    def _add_its_end(self, run: Run) -> None:
        """Add from columns that are called so whether the run is unfinished, and its last step."""
        for name, value in list(run.facts.items()):
            if _is_unfinished(name, value):
                by_state = STATE.fullmatch(name)
                run.facts[NOT_FINISHED] = str(value).casefold() if by_state else "not finished"
            if STEPS.fullmatch(name) and isinstance(value, float):
                run.facts.setdefault("steps", value)

    def _require_no_steps(self) -> None:
        """Raise ParibusError where a column goes up from row to row, once or again and again from
        one beginning, as steps do: the rows are no runs."""
        by_arm: dict[Value, list[Run]] = {}
        for run in self.found.values():
            if run.scores:  # of a row of something else the score is empty
                by_arm.setdefault(run.facts.get("arm", ""), []).append(run)
        for mine in by_arm.values():
            seeds = [run.facts.get("seed") for run in mine]
            if None not in seeds and len(set(seeds)) == len(seeds):
                continue  # which tell every row apart
            for name in mine[0].facts:
                steps = [run.facts.get(name) for run in mine]
                if _is_of_a_curve(name, steps) or _is_of_a_curve(name, steps[::-1]):
                    raise ParibusError(
                        f"{self.where} has a row for each '{name}', as of a curve: name it as the "
                        f"column of steps (--step {name}); if each row is a run, name the column "
                        "of seeds (--seed), or rename it"
                    )

    def _require_one_run(self, steps: np.ndarray) -> None:
        """Raise ParibusError where most steps are there several times, and nothing tells why."""
        if 2 * len(np.unique(steps)) <= len(steps) and len(steps) > 1:
            raise ParibusError(
                f"{self.where} has most steps several times, as of several runs; name the column "
                "that tells them apart with --seed"
            )

    def _identity(self, key: tuple[Any, ...]) -> dict[str, Value]:
        said = dict(zip(self.of_run, key, strict=False))
        facts: dict[str, Value] = {name: said[name] for name in self.columns.run}
        if self.columns.arm:
            facts["arm"] = said[self.columns.arm]
        if self.columns.seed:
            seed = said[self.columns.seed]
            facts["seed"] = _number(seed) if _number(seed) is not None else seed  # type: ignore[assignment]
        return facts

    def _add_facts(
        self,
        run: Run,
        changing: set[str],
        batch: pa.RecordBatch,
        facts: dict[str, _Coded | None],
        rows: np.ndarray,
        *,
        only: bool,
    ) -> None:
        """Add what other columns say, of those that say the same in every row of the run.

        `facts` are read when they are asked for; `only` says that all rows are of this run.
        """
        for name in facts:
            if name in changing:
                continue
            ends = {_fact(batch.column(name)[int(rows[at])].as_py()) for at in (0, -1)}
            if len(ends) > 1:  # as most that change do: the rest need not be looked at
                changing.add(name)
                run.facts.pop(name, None)
                continue
            column = facts[name] = facts[name] or _Coded.of(batch.column(name), _fact)
            codes = () if only else np.unique(column.codes[rows])
            said = set(column.values if only else (column.values[code] for code in codes))
            if name in run.facts:
                said.add(run.facts[name])
            if len(said) > 1:
                changing.add(name)
                run.facts.pop(name, None)
            elif (one := said.pop()) is not None:
                run.facts.setdefault(name, one)

    def _add(
        self,
        key: tuple[Any, ...],
        name: str,
        rows: np.ndarray,
        values: _Numbers,
        places: _Numbers | None,
        items: list[str] | None,
    ) -> None:
        run, given = self.found[key], rows[~values.missing[rows]]
        if places is not None:
            empty = places.values[rows[values.missing[rows]]]
            if len(empty):
                last = self.empty.setdefault(key, {})
                last[name] = max(last.get(name, -math.inf), float(np.max(empty)))
            steps = places.values[given]
            if not np.isfinite(steps).all():
                raise ParibusError(f"{self.where}: a row has no step in '{self.columns.step}'")
            pieces = self.points.setdefault(key, {}).setdefault(name, [])
            pieces.append((steps, values.values[given]))
        elif items is not None:
            found = run.items.setdefault(name, {})
            for row in given.tolist():
                if items[row] in found:
                    raise ParibusError(
                        f"{self.where}: item '{items[row]}' is twice in one run; name what else "
                        "tells runs apart"
                    )
                found[items[row]] = float(values.values[row])
        elif len(given) > 1 or (len(given) and name in run.scores):
            said = ", ".join(
                f"{fact} {_text(of)}" for fact, of in run.facts.items() if fact != name
            )
            raise ParibusError(
                f"{self.where}: two rows are one run ({said}); name the column of steps, or what "
                "else tells runs apart, such as a seed in every row"
            )
        elif len(given):
            run.scores[name] = float(values.values[given[0]])

    def _numbers(self, batch: pa.RecordBatch, name: str) -> _Numbers:
        """Return a column as numbers. Raises ParibusError for what is none."""
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        try:
            try:
                numbers = pc.cast(column, pa.float64())
            except pa.ArrowInvalid:
                if not is_text:
                    raise
                column = pc.utf8_trim_whitespace(column)
                empty = pc.is_in(column, value_set=pa.array(MISSING, column.type))
                column = pc.if_else(empty, pa.scalar(None, column.type), column)
                diverged = pc.is_in(
                    pc.utf8_lower(column), value_set=pa.array(DIVERGED, column.type)
                )
                column = pc.if_else(diverged, pa.scalar("nan", column.type), column)
                numbers = pc.cast(column, pa.float64())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise self._no_number(column, name) from None
        missing = pc.is_null(numbers).to_numpy(zero_copy_only=False)
        return _Numbers(numbers.to_numpy(zero_copy_only=False), missing)

    def _no_number(self, column: pa.Array, name: str) -> ParibusError:
        for row, value in enumerate(column.to_pylist()):
            if value is not None and _number(value) is None:
                return ParibusError(
                    f"{self.where}, row {self.rows + row + 1}: {value!r:.80} in column '{name}' is "
                    "no number"
                )
        return ParibusError(f"{self.where}: column '{name}' is {column.type}, and no numbers")

    def _texts(self, batch: pa.RecordBatch, name: str) -> list[str]:
        return [_name(one) for one in batch.column(name).to_pylist()]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    """Return a cell as a name: 1.0, which pandas makes of an integer beside a gap, is 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _name(value: Any) -> str:
    return "" if value is None else _text(value)


def _fact(value: Any) -> Value | None:
    if value is None or value == "":
        return None
    number = None if isinstance(value, bool) else _number(value)
    return str(value) if number is None else number


def _batches(source: Source) -> Iterator[pa.RecordBatch]:
    """Yield the table in pieces. Raises ParibusError."""
    name = source.name.lower()
    try:
        if source.head.startswith(PARQUET):
            yield from _parquet(source)
        elif name.endswith((".jsonl", ".ndjson")) or source.head.lstrip().startswith(b"{"):
            yield from _json_lines(source)
        elif name.endswith(".json") and source.head.lstrip().startswith(b"["):
            rows = source.json()
            if not any(isinstance(row, dict) for row in rows):
                raise SkippedError("a JSON list, and no table: its rows are no objects")
            yield from _in_batches(source, enumerate(rows, start=1), "row")
        else:
            yield from _csv(source)
    except UnicodeDecodeError:
        raise ParibusError(
            f"{source.path} is no UTF-8, perhaps UTF-16 as spreadsheets write it; save it as UTF-8"
        ) from None
    except (pa.ArrowException, csv.Error) as error:
        raise ParibusError(f"{source.path} cannot be read as a table: {error}") from None


def _parquet(source: Source) -> Iterator[pa.RecordBatch]:
    file = pyarrow.parquet.ParquetFile(regular_path(source.path, TABLE_BYTES))
    if file.metadata.num_columns > TABLE_COLUMNS:
        raise ParibusError(f"{source.path} has {file.metadata.num_columns:,} columns")
    yield from file.iter_batches(batch_size=BATCH_ROWS)


def _json_lines(source: Source) -> Iterator[pa.RecordBatch]:
    yield from _in_batches(source, _objects(source), "line")


def _objects(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield the value of each line, with its number; of a cut last line none."""
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        try:
            row = parse_json(line, f"{source.path}, line {number}", "is it whole?", finite=False)
        except ParibusError:
            if line.endswith(b"\n") or number == 1:
                raise
            source.notes.append(f"The last line of {source.path} is cut, and was left out.")
            break
        yield number, row


def _in_batches(
    source: Source, objects: Iterable[tuple[int, Any]], what: str
) -> Iterator[pa.RecordBatch]:
    names: dict[str, None] = {}  # of all rows so far; a row need not have every one
    rows: list[dict[str, Any]] = []
    for number, row in objects:
        if not isinstance(row, dict):
            raise ParibusError(f"{source.path}, {what} {number} is no JSON object")
        row = flatten(row)  # values within values have names such as eval.loss
        rows.append(row)
        names |= dict.fromkeys(row)
        if len(rows) == BATCH_ROWS:
            yield _batch(rows, names)
            rows = []
    if rows:
        yield _batch(rows, names)


def _batch(rows: list[dict[str, Any]], names: Iterable[str]) -> pa.RecordBatch:
    cells = {name: [_cell(row.get(name)) for row in rows] for name in names}
    return pa.RecordBatch.from_pydict({name: pa.array(cells[name], pa.string()) for name in cells})


def _cell(value: Any) -> str | None:
    return None if value is None else _text(value)


def _csv(source: Source) -> Iterator[pa.RecordBatch]:
    delimiter = _delimiter(source)
    names = next(csv.reader([source.header], delimiter=delimiter), [])
    last = source.tail.rpartition(b"\n")[2]
    cells = next(csv.reader([last.decode("utf-8", "replace")], delimiter=delimiter), [])
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # Texts, whatever the first rows look like: what is a number is said by the caller.
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    read = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES)
    with contextlib.ExitStack() as opened:
        if source.name != os.path.basename(source.path):  # it is packed
            table: Any = pa.PythonFile(opened.enter_context(source.open()), mode="r")
            last = b""
        elif last and len(cells) < len(names):
            _note_cut(source)
            whole = opened.enter_context(open_regular(source.path, TABLE_BYTES))
            table = pa.PythonFile(_Beginning(whole, len(last)), mode="r")
        else:
            table = regular_path(source.path, TABLE_BYTES)
        batches = pyarrow.csv.open_csv(table, read, parse, convert)
        _ = batches.schema.names  # raises UnicodeDecodeError where they are no UTF-8
        if last and len(cells) == len(names) and names[-1] in source.columns.meant:
            batches = _without_a_short_end(source, batches, len(cells[-1]))
        yield from batches


def _note_cut(source: Source) -> None:
    source.notes.append(f"The last line of {source.path} has no end and is cut: it was left out.")


class _Beginning(io.RawIOBase):
    """A file but for its last bytes."""

    def __init__(self, file: BinaryIO, left_out: int) -> None:
        self._file = file
        self._left = file.seek(0, 2) - left_out
        file.seek(0)

    def readable(self) -> bool:
        """Return that it is."""
        return True

    def read(self, n: int = -1) -> bytes:
        """Return the next `n` bytes, or all that are left."""
        piece = self._file.read(self._left if n < 0 else min(n, self._left))
        self._left -= len(piece)
        return piece


def _without_a_short_end(
    source: Source, batches: Iterable[pa.RecordBatch], length: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table whose last line has no end; without it, where its last cell, of so
    many characters, is shorter than all others of its column, so that it may be cut."""
    shortest, held, last = math.inf, None, math.inf
    for batch in batches:
        if held is not None:
            yield held
        held = batch
        lengths = pc.utf8_length(batch.column(batch.num_columns - 1)).to_pylist()
        # Should it be the last batch, its last row is not held against itself.
        shortest = min([shortest, last, *lengths[:-1]])
        last = lengths[-1] if lengths else math.inf
    if held is not None and length < shortest < math.inf:
        held = held.slice(0, held.num_rows - 1)
        _note_cut(source)
    if held is not None:
        yield held


def _delimiter(source: Source) -> str:
    if source.name.lower().endswith(".tsv"):
        return "\t"
    return max(",\t;", key=source.header.count)
