"""Tables: CSV, TSV, Parquet and JSON, long and wide; the caller says what columns mean.

A wide table has a column for each score, a long one a column with the score's name and one with its
value. Rows of the same arm, seed and further columns that tell runs apart are one run: its curve by
a column of steps, or its items by a column of them. Without a column that tells runs apart, each
row is a run; with steps or items and nothing else, the whole table is one.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from paribus.digests import flatten
from paribus.errors import ParibusError, nearest
from paribus.readers.facts import WORDS
from paribus.readers.port import (
    EMPTY,
    NOT_FINISHED,
    Columns,
    Curve,
    Run,
    SkippedError,
    Source,
    Value,
    cell_text,
    mean,
    reader,
    seed_in,
)
from paribus.study.base import MOST_SEEDS
from paribus.untrusted_io import TABLE_BYTES, TABLE_COLUMNS, parse_json, regular_path

pc: Any = pyarrow.compute  # its functions are made at import, unseen by type checkers
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
PARQUET = b"PAR1"
DIVERGED = ["diverged", "overflow", "1.#inf", "-1.#inf", "1.#qnan", "-1.#ind"]  # words for NaN
MISSING = ["", "NA", "N/A", "n/a", "null", "NULL", "None", "-"]

ALONG = WORDS["along"]  # in names of columns whose values go up along a run
STEPS = re.compile(r"(?:.*/)?_?(?:global_|train_)?(?:step|iter|iteration)s?", re.IGNORECASE)
GRADIENT_NORM = re.compile(r"(?:.*[/_.])?grad(?:ient)?_?norm", re.IGNORECASE)
LEAST_CLIMB = 3  # rows
# What tells runs apart, and goes up from row to row in many a table.
IDENTIFIES = re.compile(
    r"(?:.*[^a-z])?(?:seeds?|rng|random_state|replicate|rep|trial|run|fold|split|id|idx|index|no|nr)"
    r"|unnamed: 0|#|",
    re.IGNORECASE,
)
# As wandb, MLflow, Optuna and schedulers say of a run, in a column of such a name, that it has not
# come to its end. A run that was stopped may have been meant to.
STATE = re.compile(r"(?:.*[^a-z])?(?:state|status)", re.IGNORECASE)
UNFINISHED = re.compile(
    r"(?<![a-z])(?:abort(?:ed)?|active|cancell?ed|crash(?:ed)?|dead|diverged|error|fail(?:ed|ure)?"
    r"|in.progress|incomplete|interrupted|killed|node.fail|oom|out.of.memory|paused|pending"
    r"|preempt(?:ed|ing)|pruned|running|scheduled|started|timeout|unfinished|waiting)(?![a-z])",
    re.IGNORECASE,
)
ENDED = {"finished": False, "completed": False, "done": False, "crashed": True, "failed": True}
TRUE, FALSE = {"true", "1", "yes"}, {"false", "0", "no"}


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
    runs = runs_of(read_table(source), source.columns, source.path)
    if len(runs) == 1 and (seed := seed_in(source.path)) is not None:
        runs[0].facts.setdefault("seed", seed)
    is_list = source.head.lstrip().startswith(b"[")
    if runs and not is_list and not source.tail.endswith((b"\n", PARQUET)):
        if not source.notes:
            source.notes.append(f"The last line of {source.path} has no end, and was taken.")
        runs[-1].facts["cut"] = "the last line has no end"
    yield from runs


def runs_of(data: pa.Table, columns: Columns, where: str) -> list[Run]:
    """Return the runs of an Arrow table; `where` is for errors.

    Raises ParibusError for a column that is not there, a value that is not a number, and rows that
    nothing tells apart.
    """
    if not data.num_rows:
        return []
    names = data.column_names
    if not columns.seed and columns.seed_if_any in names:
        columns = replace(columns, seed=columns.seed_if_any)
    _require_columns(data, columns, where)
    columns = _with_steps(data, columns)
    return _Table(data, columns, where).runs()


def _require_columns(data: pa.Table, columns: Columns, where: str) -> None:
    """Raise ParibusError where the columns that are named are not there, or say nothing."""
    names = data.column_names
    if bool(columns.metric) != bool(columns.value):
        raise ParibusError(
            f"{where}: a long table needs two columns, one for the score's name and one for its "
            "value; set both `metric` and `value`"
        )
    if columns.step and columns.item:
        raise ParibusError(
            f"{where}: column '{columns.step}' of steps and column '{columns.item}' of items at "
            "once; keep the rows of the last step, and name the items alone"
        )
    for name in columns.meant:
        if names.count(name) == 1:
            continue
        why = f"two columns are '{name}'"
        if name not in names:
            why = f"there is no column '{name}': {nearest(name, names)}"
            if name in columns.scores and columns.arm not in names:
                why += "; of a column for each arm make a row for each run, with arm and score"
        raise ParibusError(f"{where}: {why}")
    if not columns.scores and not columns.metric:
        numeric = [
            name
            for name in dict.fromkeys(names)
            if name not in columns.meant
            and not IDENTIFIES.fullmatch(name)
            and not _words(name) & ALONG
            and _number(data.column(names.index(name))[0].as_py()) is not None
        ]
        such = f", such as --score '{numeric[0]}': {', '.join(numeric[:8])}" if numeric else ""
        raise ParibusError(f"{where}: name the column of the score{such}")


def _with_steps(data: pa.Table, columns: Columns) -> Columns:
    """Return the columns with that of steps, where it is not named and arm, seed and step identify
    a row."""
    keys = [name for name in (columns.arm, columns.seed) if name]
    if columns.step or columns.item or columns.metric or not columns.seed or columns.run:
        return columns
    rows = list(zip(*(data.column(name).to_pylist() for name in keys), strict=True))
    if len(set(rows)) == len(rows):
        return columns
    for name in data.column_names:
        if STEPS.fullmatch(name) or name.casefold() in ("epoch", "epochs"):
            steps = [_number(value) for value in data.column(name).to_pylist()]
            if None not in steps and len(set(zip(rows, steps, strict=True))) == len(rows):
                return replace(columns, step=name)
    return columns


class _Table:
    """The rows of a table, by run."""

    def __init__(self, data: pa.Table, columns: Columns, where: str) -> None:
        self.data, self.columns, self.where = data, columns, where
        names = data.column_names
        self.of_run = [name for name in (columns.arm, columns.seed, *columns.run) if name]
        # A row for each run, where nothing says that several rows are one.
        self.by_row = not (columns.step or columns.item or columns.metric or columns.seed)
        self.by_row = self.by_row and not columns.run
        # Facts of that name are what the columns that were named say.
        taken = {fact for fact in ("arm", "seed") if getattr(columns, fact)}
        self.others = [
            name for name in names if name not in columns.meant | taken and names.count(name) == 1
        ]
        norms = [name for name in self.others if GRADIENT_NORM.fullmatch(name)]
        self.norm = norms[0] if columns.step and len(norms) == 1 else ""

    def runs(self) -> list[Run]:
        """Return the runs, each with the last value of its curves or the mean of its items. Raises
        ParibusError where each row would be a run, and they are the steps of some."""
        groups, keys = self._groups()
        if len(groups) > MOST_SEEDS:
            raise ParibusError(
                f"{self.where} has more than {MOST_SEEDS:,} runs; name the column of steps, items "
                "or seeds, if a run has several rows"
            )
        runs = [Run("", facts=self._identity(key)) for key in keys]
        self._add_facts(runs, groups)
        if self.columns.metric:
            named, codes = self._coded(self.columns.metric, cell_text)
            values, missing = self._numbers(self.columns.value)
            for code, name in enumerate(named):
                self._add(runs, groups, name, values, missing, codes == code)
        for name in (*self.columns.scores, *filter(None, [self.norm])):
            self._add(runs, groups, name, *self._numbers(name))
        if self.by_row:
            self._require_no_steps(runs)
        for run in runs:
            for name, items in run.items.items():
                run.scores[name] = mean(items.values())
            run.finish(run.curves.pop(self.norm, ()))
            run.scores.pop(self.norm, None)
            _add_its_end(run)
        return runs

    def _groups(self) -> tuple[list[np.ndarray], list[tuple[Any, ...]]]:
        """Return the rows of each run, in the order of the runs, and what tells it apart."""
        coded = [self._coded(name, cell_text) for name in self.of_run]
        rows = np.arange(self.data.num_rows)
        if self.by_row:
            groups = [rows[row : row + 1] for row in rows]
        else:
            code = np.zeros(self.data.num_rows, np.int64)
            for values, codes in coded:
                _, code = np.unique(code * len(values) + codes, return_inverse=True)
            order = np.argsort(code, kind="stable")
            ends = np.flatnonzero(np.diff(code[order])) + 1
            groups = sorted(np.split(order, ends), key=lambda own: int(own[0]))
        keys = [tuple(values[codes[own[0]]] for values, codes in coded) for own in groups]
        return groups, keys

    def _identity(self, key: tuple[Any, ...]) -> dict[str, Value]:
        values = dict(zip(self.of_run, key, strict=True))
        facts: dict[str, Value] = {name: values[name] for name in self.columns.run}
        if self.columns.arm:
            facts["arm"] = values[self.columns.arm]
        if self.columns.seed:
            number = _number(values[self.columns.seed])
            facts["seed"] = values[self.columns.seed] if number is None else number
        return facts

    def _add_facts(self, runs: Sequence[Run], groups: Sequence[np.ndarray]) -> None:
        """Add what other columns say that have one value in all rows of a run."""
        order = np.concatenate(groups)
        starts = np.cumsum([0, *(len(own) for own in groups[:-1])])
        for name in self.others:
            values, codes = self._coded(name, _fact)
            lowest = np.minimum.reduceat(codes[order], starts)
            highest = np.maximum.reduceat(codes[order], starts)
            for place in np.flatnonzero(lowest == highest).tolist():
                if (value := values[lowest[place]]) is not None:
                    runs[place].facts.setdefault(name, value)

    def _add(
        self,
        runs: Sequence[Run],
        groups: Sequence[np.ndarray],
        name: str,
        values: np.ndarray,
        missing: np.ndarray,
        chosen: np.ndarray | None = None,
    ) -> None:
        """Add a score to the runs: its curve, its items or its value. `chosen` are its rows."""
        steps = self._numbers(self.columns.step)[0] if self.columns.step else None
        items = self.data.column(self.columns.item).to_pylist() if self.columns.item else None
        for run, group in zip(runs, groups, strict=True):
            rows = group if chosen is None else group[chosen[group]]
            present = rows[~missing[rows]]
            if steps is not None:
                self._add_curve(run, name, rows, present, steps, values)
            elif items is not None:
                named = [cell_text(items[row]) for row in present.tolist()]
                own = dict(zip(named, values[present].tolist(), strict=True))
                if len(own) < len(named):
                    twice = next(name for name in named if named.count(name) > 1)
                    raise ParibusError(
                        f"{self.where}: item '{twice}' is twice in one run; name what else tells "
                        "runs apart"
                    )
                run.items[name] = own
            elif len(present) > 1:
                facts = ", ".join(f"{f} {cell_text(v)}" for f, v in run.facts.items() if f != name)
                raise ParibusError(
                    f"{self.where}: two rows are one run ({facts}); name the column of steps "
                    "(--step) or of items (--item), or what else tells runs apart, such as a seed "
                    "in every row"
                )
            elif len(present):
                run.scores[name] = float(values[present[0]])

    def _add_curve(
        self,
        run: Run,
        name: str,
        rows: np.ndarray,
        given: np.ndarray,
        steps: np.ndarray,
        values: np.ndarray,
    ) -> None:
        own = steps[given]
        if not np.isfinite(own).all():
            raise ParibusError(f"{self.where}: a row has no step in '{self.columns.step}'")
        is_one_file = self.columns.seed_if_any and not self.columns.seed
        if is_one_file and len(own) > 1 and 2 * len(np.unique(own)) <= len(own):
            raise ParibusError(
                f"{self.where} has most steps several times, as of several runs or of one that "
                "began again; name the column that tells them apart with --seed"
            )
        order = np.argsort(own, kind="stable")  # of one step, the last row
        if len(own):
            run.curves[name] = Curve(own[order], values[given][order])  # type: ignore[assignment]
            empty = np.setdiff1d(rows, given)
            if len(empty) and (last := float(np.nanmax(steps[empty]))) > own.max():
                run.facts[f"{EMPTY}/{name}"] = last

    def _require_no_steps(self, runs: Sequence[Run]) -> None:
        """Raise ParibusError where a column goes up from row to row, once or again and again from
        one beginning, as steps do: the rows are no runs."""
        by_arm: dict[Value, list[Run]] = {}
        for run in runs:
            if run.scores:  # of a row of something else the score is empty
                by_arm.setdefault(run.facts.get("arm", ""), []).append(run)
        for own in by_arm.values():
            seeds = [run.facts.get("seed") for run in own]
            if None not in seeds and len(set(seeds)) == len(seeds):
                continue  # which tell every row apart
            for name in self.others:
                if IDENTIFIES.fullmatch(name) or not _words(name) & ALONG:
                    continue
                steps = [run.facts.get(name) for run in own]
                if _is_along(steps) or _is_along(steps[::-1]):
                    raise ParibusError(
                        f"{self.where} has a row for each '{name}', as of a curve or of items: "
                        f"name it as the column of steps (--step {name}) or of items (--item "
                        f"{name}); if each row is a run, name the column of seeds (--seed)"
                    )

    def _coded(self, name: str, spell: Any) -> tuple[list[Any], np.ndarray]:
        """Return the different values of a column as `spell` has them, and which each row has."""
        column = self.data.column(name).combine_chunks()
        if pa.types.is_dictionary(column.type):  # with values twice, perhaps, or none
            column = column.dictionary_decode()
        encoded = column.dictionary_encode("encode")
        values = [spell(value) for value in encoded.dictionary.to_pylist()]
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        codes: Any = np.from_dlpack(encoded.indices)
        return list(places), np.array([places[v] for v in values] or [0], np.int64)[codes]

    def _numbers(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Return a column as numbers, and a mask of its empty cells. A logged NaN is not empty.

        Raises ParibusError for a value that is not a number.
        """
        column = self.data.column(name)
        if pa.types.is_dictionary(column.type):
            column = pc.cast(column, column.type.value_type)
        try:
            try:
                numbers = pc.cast(column, pa.float64())
            except pa.ArrowInvalid:
                text = pc.utf8_trim_whitespace(column)
                empty = pc.is_in(text, value_set=pa.array(MISSING, text.type))
                text = pc.if_else(empty, pa.scalar(None, text.type), text)
                lost = pc.is_in(pc.utf8_lower(text), value_set=pa.array(DIVERGED, text.type))
                numbers = pc.cast(pc.if_else(lost, pa.scalar("nan", text.type), text), pa.float64())
        except pa.ArrowException:
            for row, value in enumerate(column.to_pylist(), start=1):
                if value is not None and str(value) not in MISSING and _number(value) is None:
                    raise ParibusError(
                        f"{self.where}, row {row}: {value!r:.80} in column '{name}' is not a number"
                    ) from None
            raise ParibusError(
                f"{self.where}: column '{name}' is {column.type}, and no numbers"
            ) from None
        # to_numpy imports pandas, which takes longer than a table of some rows.
        empty = np.from_dlpack(pc.cast(pc.is_null(numbers), pa.int8()).combine_chunks())
        missing, values = empty.astype(bool), np.full(len(numbers), math.nan)
        values[~missing] = np.from_dlpack(pc.drop_null(numbers).combine_chunks())
        return values, missing


def _words(name: str) -> set[str]:
    """Return the words of a name, `training_iteration` and `totalSteps` alike."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    return set(re.split(r"[^a-z]+", apart.casefold()))


def _is_along(steps: Sequence[Any]) -> bool:
    """Return whether numbers go up strictly, in pieces of the same beginning, or are, in any order,
    each as far from the next, as steps of one curve."""
    if len(steps) < LEAST_CLIMB or not all(isinstance(step, int | float) for step in steps):
        return False
    values = np.array(steps, np.float64)
    pieces = np.split(values, np.flatnonzero(np.diff(values) <= 0) + 1)
    if all(len(piece) >= LEAST_CLIMB and piece[0] == values[0] for piece in pieces):
        return True
    gaps = np.diff(np.sort(values))
    return bool(gaps[0] > 0 and (gaps == gaps[0]).all())


def _add_its_end(run: Run) -> None:
    """Add from columns of such names whether the run is unfinished, and its last step."""
    for name, value in list(run.facts.items()):
        text = cell_text(value).casefold()
        if STATE.fullmatch(name) and UNFINISHED.search(text):
            run.facts[NOT_FINISHED] = text
        elif (is_bad := ENDED.get(name.casefold())) is not None:
            if text in (TRUE if is_bad else FALSE):
                run.facts[NOT_FINISHED] = "not finished"
        elif name.casefold() == "exit_code" and text not in ("", "0"):
            run.facts[NOT_FINISHED] = "not finished"
        if STEPS.fullmatch(name) and isinstance(value, float):
            run.facts.setdefault("steps", value)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _fact(value: Any) -> Value | None:
    if value is None or value == "":
        return None
    number = None if isinstance(value, bool) else _number(value)
    return str(value) if number is None else number


def read_table(source: Source) -> pa.Table:
    """Return the table of a file. Raises ParibusError."""
    name = source.name.lower()
    try:
        if source.head.startswith(PARQUET):
            file = pyarrow.parquet.ParquetFile(regular_path(source.path, TABLE_BYTES))
            if file.metadata.num_columns > TABLE_COLUMNS:
                raise ParibusError(f"{source.path} has {file.metadata.num_columns:,} columns")
            return file.read()
        if name.endswith((".jsonl", ".ndjson")) or source.head.lstrip().startswith(b"{"):
            return _from_objects(source, _objects(source), "line")
        if name.endswith(".json") and source.head.lstrip().startswith(b"["):
            rows = source.json()
            if not any(isinstance(row, dict) for row in rows):
                raise SkippedError("a JSON list, and no table: its rows are no objects")
            return _from_objects(source, enumerate(rows, start=1), "row")
        return _read_csv(source)
    except UnicodeDecodeError:
        raise ParibusError(
            f"{source.path} is not UTF-8, perhaps UTF-16 as spreadsheets write it; save it as UTF-8"
        ) from None
    except (pa.ArrowException, csv.Error) as error:
        raise ParibusError(f"{source.path} cannot be read as a table: {error}") from None


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


def _from_objects(source: Source, objects: Any, owner: str) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for number, row in objects:
        if not isinstance(row, dict):
            raise ParibusError(f"{source.path}, {owner} {number} is not a JSON object")
        rows.append(flatten(row))  # values within values have names such as eval.loss
    names = dict.fromkeys(name for row in rows for name in row)
    cells = {
        name: [None if (cell := row.get(name)) is None else cell_text(cell) for row in rows]
        for name in names
    }
    return pa.table({name: pa.array(cells[name], pa.string()) for name in names})


def _read_csv(source: Source) -> pa.Table:
    delimiter = "\t" if source.name.lower().endswith(".tsv") else ""
    delimiter = delimiter or max(",\t;", key=source.header.count)
    names = next(csv.reader([source.header], delimiter=delimiter), [])
    last = source.tail.rpartition(b"\n")[2]
    cells = next(csv.reader([last.decode("utf-8", "replace")], delimiter=delimiter), [])
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # Texts, whatever the first rows look like: what is a number is said by the caller.
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    is_packed = source.name != os.path.basename(source.path)
    is_short = bool(last) and len(cells) < len(names)
    if is_packed or is_short:
        with source.open() as file:
            content = file.read()
        text: Any = io.BytesIO(content[: len(content) - len(last)] if is_short else content)
    else:
        text = regular_path(source.path, TABLE_BYTES)
    data = pyarrow.csv.read_csv(text, parse_options=parse, convert_options=convert)
    _ = data.column_names  # raises UnicodeDecodeError where they are no UTF-8
    if last and not is_short and names[-1] in source.columns.meant and data.num_rows > 1:
        # The last cell may be cut where it is shorter than all others of its column.
        lengths = pc.utf8_length(data.column(data.num_columns - 1)).to_pylist()
        is_short = lengths[-1] < min(lengths[:-1])
        data = data.slice(0, data.num_rows - 1) if is_short else data
    if is_short:
        source.notes.append(
            f"The last line of {source.path} has no end and is cut: it was left out."
        )
    return data
