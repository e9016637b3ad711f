"""Tables: CSV, TSV, Parquet and JSON lines, long and wide; the caller says what columns mean.

A wide table has a column for each score, a long one a column with the score's name and one with its
value. Rows of the same arm, seed and further columns that tell runs apart are one run: its curve by
a column of steps, or its items by a column of them. Without a column that tells runs apart, each
row is a run; with steps or items and nothing else, the whole table is one.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from paribus.errors import ParibusError, nearest
from paribus.readers.port import Columns, Run, Source, Value, mean, reader
from paribus.untrusted_io import TABLE_BYTES, TABLE_COLUMNS, parse_json, regular_path

SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
PARQUET = b"PAR1"
MISSING = ["", "NA", "N/A", "n/a", "null", "NULL", "None", "-"]
BATCH_ROWS = 65_536
BLOCK_BYTES = 8 * 2**20


def _detects(source: Source) -> bool:
    return source.name.lower().endswith(SUFFIXES) or source.head.startswith(PARQUET)


@reader(
    "table",
    says="CSV, TSV, Parquet and JSON lines, by the names of columns",
    detects=_detects,
    general=True,
)
def table(source: Source) -> Iterator[Run]:
    """Yield the runs of a table, in the order in which they begin."""
    runs = runs_of(_batches(source), source.columns, source.path)
    if runs and not source.tail.endswith((b"\n", PARQUET)):
        runs[-1].facts["cut"] = "the last line has no end"
    yield from runs


def runs_of(batches: Iterable[pa.RecordBatch], columns: Columns, where: str) -> list[Run]:
    """Return the runs of a table, such as `pa.table(frame).to_batches()`; `where` is for errors.

    Raises ParibusError for a column that is not there, a value that is no number, and for rows that
    nothing tells apart.
    """
    _require_meant(columns, where)
    gathered = _Gathered(columns, where)
    for batch in batches:
        gathered.add(batch)
    return gathered.runs()


def _require_meant(columns: Columns, where: str) -> None:
    """Raise ParibusError where the columns that are named say nothing that can be read."""
    if bool(columns.metric) != bool(columns.value):
        raise ParibusError(
            f"{where}: a long table has a column of the score's name and one of its value; name "
            "both, metric and value"
        )
    if not columns.scores and not columns.metric:
        raise ParibusError(f"{where} is a table: name the column of the score")
    if columns.step and columns.item:
        raise ParibusError(
            f"{where}: column '{columns.step}' of steps and column '{columns.item}' of items at "
            "once; keep the rows of the last step, and name the items alone"
        )


class _Numbers(NamedTuple):
    """A column: its values, and which cells are empty. A NaN that was logged is no empty cell."""

    values: np.ndarray
    missing: np.ndarray


class _Facts(NamedTuple):
    """A column of anything: its different values, and which of them each row has."""

    name: str
    values: list[Value | None]
    codes: list[int]

    @classmethod
    def of(cls, name: str, column: pa.Array) -> _Facts:
        encoded = column.dictionary_encode("encode")
        values = [_fact(value) for value in encoded.dictionary.to_pylist()]
        return cls(name, values, encoded.indices.to_pylist())


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
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take the rows of a batch."""
        columns, names = self.columns, batch.schema.names
        long = [columns.metric, columns.value] if columns.metric else []
        meant = [*self.of_run, *columns.scores, *long, columns.step, columns.item]
        for name in filter(None, meant):
            if names.count(name) != 1:
                told = f"there is no column '{name}': {nearest(name, names)}"
                raise ParibusError(
                    f"{self.where}: " + (f"two columns are '{name}'" if name in names else told)
                )
        keys = [self._texts(batch, name) for name in self.of_run]
        if self.by_row:
            keys.append([str(self.rows + row) for row in range(batch.num_rows)])
        groups: dict[tuple[Any, ...], list[int]] = {}
        for row, key in enumerate(zip(*keys, strict=True) if keys else [()] * batch.num_rows):
            groups.setdefault(key, []).append(row)
        others = [name for name in names if name not in meant and names.count(name) == 1]
        facts = [_Facts.of(name, batch.column(name)) for name in others]
        scores = {name: self._numbers(batch, name) for name in columns.scores}
        told = self._texts(batch, columns.metric) if columns.metric else []
        values = self._numbers(batch, columns.value) if columns.metric else None
        places = self._numbers(batch, columns.step) if columns.step else None
        items = self._texts(batch, columns.item) if columns.item else None
        for key, rows in groups.items():
            run = self.found.get(key)
            if run is None:
                run = self.found[key] = Run("", facts=self._identity(key))
                self.changing[key] = set()
            self._add_facts(run, self.changing[key], facts, rows, only=len(groups) == 1)
            for name in columns.scores:
                self._add(run, name, rows, scores[name], places, items)
            if values is not None:
                by_name: dict[str, list[int]] = {}
                for row in rows:
                    by_name.setdefault(told[row], []).append(row)
                for name, some in by_name.items():
                    self._add(run, name, some, values, places, items)
        self.rows += batch.num_rows

    def runs(self) -> list[Run]:
        """Return the runs, each with the last value of its curves or the mean of its items."""
        for run in self.found.values():
            for name, curve in run.curves.items():
                curve.sort(key=lambda point: point[0])  # stable: of one step, the last row
                run.scores[name] = curve[-1][1]
                run.facts["steps"] = max(float(run.facts.get("steps", 0)), curve[-1][0])
            for name, items in run.items.items():
                run.scores[name] = mean(items.values())
        return list(self.found.values())

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
        self, run: Run, changing: set[str], facts: list[_Facts], rows: list[int], *, only: bool
    ) -> None:
        """Add what other columns say, of those that say the same in every row of the run.

        `only` says that all rows of the batch are of this run.
        """
        for name, values, codes in facts:
            if name in changing:
                continue
            said = set(values if only else (values[codes[row]] for row in rows))
            if name in run.facts:
                said.add(run.facts[name])
            if len(said) > 1:
                changing.add(name)
                run.facts.pop(name, None)
            elif (one := said.pop()) is not None:
                run.facts.setdefault(name, one)

    def _add(
        self,
        run: Run,
        name: str,
        rows: list[int],
        values: _Numbers,
        places: _Numbers | None,
        items: list[str] | None,
    ) -> None:
        given = [row for row in rows if not values.missing[row]]
        if places is not None:
            if not np.isfinite(places.values[given]).all():
                raise ParibusError(f"{self.where}: a row has no step in '{self.columns.step}'")
            points = zip(places.values[given].tolist(), values.values[given].tolist(), strict=True)
            run.curves.setdefault(name, []).extend(points)
        elif items is not None:
            found = run.items.setdefault(name, {})
            for row in given:
                if items[row] in found:
                    raise ParibusError(
                        f"{self.where}: item '{items[row]}' is twice in one run; name what else "
                        "tells runs apart"
                    )
                found[items[row]] = float(values.values[row])
        elif len(given) > 1 or (given and name in run.scores):
            said = ", ".join(f"{key} {value}" for key, value in run.facts.items() if key != name)
            raise ParibusError(
                f"{self.where}: two rows are one run ({said}); name the column of steps, or what "
                "else tells runs apart"
            )
        elif given:
            run.scores[name] = float(values.values[given[0]])

    def _numbers(self, batch: pa.RecordBatch, name: str) -> _Numbers:
        """Return a column as numbers. Raises ParibusError for what is none."""
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.utf8_trim_whitespace(column)
            empty = pc.is_in(column, value_set=pa.array(MISSING, column.type))
            column = pc.if_else(empty, pa.scalar(None, column.type), column)
        try:
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
        return ["" if one is None else _text(one) for one in batch.column(name).to_pylist()]


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _text(value: Any) -> str:
    """Return a cell as a name: 1.0, which pandas makes of an integer beside a gap, is 1."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


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
        else:
            yield from _csv(source)
    except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        raise ParibusError(f"{source.path} cannot be read as a table: {error}") from None


def _parquet(source: Source) -> Iterator[pa.RecordBatch]:
    with regular_path(source.path, TABLE_BYTES) as path:
        file = pyarrow.parquet.ParquetFile(path)
        if file.metadata.num_columns > TABLE_COLUMNS:
            raise ParibusError(f"{source.path} has {file.metadata.num_columns:,} columns")
        yield from file.iter_batches(batch_size=BATCH_ROWS)


def _json_lines(source: Source) -> Iterator[pa.RecordBatch]:
    rows: list[dict[str, Any]] = []
    names: dict[str, None] = {}
    for number, line in enumerate(source.lines(), start=1):
        if not line.strip():
            continue
        row = parse_json(line, f"{source.path}, line {number}", "is it whole?", finite=False)
        if not isinstance(row, dict):
            raise ParibusError(f"{source.path}, line {number} is no JSON object")
        rows.append(row)
    for row in rows:
        names |= dict.fromkeys(row)
    cells = {name: [_cell(row.get(name)) for row in rows] for name in names}
    if rows:
        yield pa.RecordBatch.from_pydict({name: pa.array(cells[name]) for name in names})


def _cell(value: Any) -> str | None:
    return None if value is None else _text(value)


def _csv(source: Source) -> Iterator[pa.RecordBatch]:
    delimiter = _delimiter(source)
    names = next(csv.reader([source.header], delimiter=delimiter), [])
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # Texts, whatever the first rows look like: what is a number is said by the caller.
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    read = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES)
    with regular_path(source.path, TABLE_BYTES) as path:
        batches = pyarrow.csv.open_csv(path, read, parse, convert)
        _ = batches.schema.names  # raises UnicodeDecodeError where they are no UTF-8
        yield from batches


def _delimiter(source: Source) -> str:
    if source.name.lower().endswith(".tsv"):
        return "\t"
    return max(",\t;", key=source.header.count)
