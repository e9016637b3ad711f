"""Readers of long and wide tables: CSV, TSV, Parquet and JSON.

A wide table has a column for each score, and a long table one with the score's name and one with
its value. Rows with the same arm and seed are points of a curve if there is a step column, or items
if there is an item column; otherwise each row is a run.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow._compute
import pyarrow.csv

from paribus.digests import flatten
from paribus.errors import ParibusError, nearest
from paribus.numbers import some
from paribus.readers import port
from paribus.readers.facts import PATTERNS, RATE, TIME, TOKENS, WORDS, find_kind, find_size
from paribus.readers.port import Reader, Run, Source, Value, as_number, cell_text, is_number
from paribus.study.base import MOST_SEEDS
from paribus.study.runs import RunsSection
from paribus.untrusted_io import MIB, regular_path

# `pyarrow.compute`, and so the methods of arrays, without the wrappers that it makes of 286
# functions, which takes 60 ms.
arrow_compute: Any = pyarrow._compute
_call = arrow_compute.call_function
BLOCK_BYTES = 4 * MIB
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
PARQUET = b"PAR1"
RUN_NAMES = ("Name", "name", "run_name", "run", "run_id", "trial_id")  # columns
DIVERGED = re.compile(r"(?:diverged|overflow|-?1\.#(?:inf|ind|qnan))$", re.IGNORECASE)
GROUPED = re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?")  # a number such as 3,281
DECIMAL_COMMA = re.compile(rb"(?<![\d,])0,\d|\d,(?:\d{1,2}|\d{4,})(?!\d)")  # and no such number
TRUTH = {"true": "1", "false": "0"}
EMPTY = ["", "NA", "N/A", "n/a", "null", "NULL", "None", "-"]
STEPS = PATTERNS["steps"]
WANDB_STEP = "_step"
ALONG = (RATE, TIME, TOKENS, port.GRADIENT_NORM)  # names of columns beside the scores of a curve


def read_program_table(step: str, source: Source) -> list[Run]:
    """Return the runs in a table, with `step` as its step column unless the section names one."""
    section = source.section
    if step and not (section.step or section.item):
        section = section.model_copy(update={"step": step})
    return runs_of(read_table(source), section, source.scores, source.path)


def _is_table(source: Source) -> bool:
    name = source.name.lower()
    is_list = name.endswith(".json") and source.head.lstrip().startswith(b"[")
    return is_list or name.endswith(SUFFIXES) or source.head.startswith(PARQUET)


table = Reader(
    name="table",
    read=partial(read_program_table, ""),
    says="CSV, TSV, Parquet, JSON Lines and JSON lists, read by column names",
    detects=_is_table,
)


@dataclass
class Column:
    """Table column, stored as numbers or as integer codes of its distinct strings."""

    values: np.ndarray  # [rows], numbers (NaN for an empty cell), or indices into `texts`
    missing: np.ndarray  # [rows], True for an empty cell
    texts: list[str] | None = None  # the distinct texts, or None for a column of numbers

    @property
    def keys(self) -> np.ndarray:
        """Integer codes [rows] that are equal if and only if the cells are equal."""
        return self.values.view(np.int64) if self.texts is None else self.values

    def cell(self, row: int) -> Value:
        """Return the cell in a row, or "" if it is empty."""
        if self.texts is not None:
            return self.texts[self.values[row]]
        return "" if self.missing[row] else float(self.values[row])


def _as_numpy(cells: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Convert an Arrow array to NumPy without pandas, with arbitrary values for empty cells."""
    cells = _call("cast", [cells], arrow_compute.CastOptions.unsafe(kind))
    values = [None, cells.buffers()[1]]
    return np.from_dlpack(pa.Array.from_buffers(kind, len(cells), values, offset=cells.offset))


def _column(cells: pa.Array) -> Column:
    missing = _as_numpy(_call("is_null", [cells]), pa.uint8()) == 1
    kind, values = cells.type, np.array([])
    if not pa.types.is_dictionary(kind):
        if kind not in (pa.string(), pa.large_string()):
            with suppress(pa.ArrowException):  # such as dates
                values = np.where(missing, math.nan, _as_numpy(cells, pa.float64()))
            is_large = np.nanmax(abs(values), initial=0) >= port.LARGEST_EXACT
            if len(values) and kind != pa.bool_() and not (pa.types.is_integer(kind) and is_large):
                return Column(values, missing)
            cells = pa.array(map(cell_text, cells.to_pylist()), pa.string())
        cells = _call("dictionary_encode", [cells], arrow_compute.DictionaryEncodeOptions("encode"))
    places: dict[str, int] = {}  # cells such as 1 and 1.0 are one text
    distinct = [*map(cell_text, cells.dictionary.to_pylist()), ""]
    codes = np.array([places.setdefault(text, len(places)) for text in distinct])
    rows = np.where(missing, -1, _as_numpy(cells.indices, pa.int64()))
    return Column(codes[rows], missing, [*places])


def columns_of(data: pa.Table) -> dict[str, Column]:
    """Return the columns of an Arrow table, keyed by name. Duplicate names are skipped."""
    names = data.column_names
    columns = zip(names, data.columns, strict=True)
    return {name: _column(own.combine_chunks()) for name, own in columns if names.count(name) == 1}


def numbers_of(column: Column, name: str, where: str) -> Column:
    """Convert a column to numbers. A logged NaN does not count as missing.

    Cells such as `3,281` are integers. If all cells have a percent sign, or say true or false, they
    are percentages, or 1 and 0. Raises ParibusError, which names the column and the table `where`,
    if a cell is neither empty nor a number.
    """
    if column.texts is None:
        return column
    texts = list(map(str.strip, column.texts))
    stated = [text for text in texts if text not in EMPTY and not DIVERGED.match(text)]
    if all(text.endswith("%") for text in stated):
        texts = [text.removesuffix("%") for text in texts]
    elif all(text.casefold() in TRUTH for text in stated):
        texts = [TRUTH.get(text.casefold(), text) for text in texts]
    texts = [text.replace(",", "") if GROUPED.fullmatch(text) else text for text in texts]
    numbers = [math.nan if DIVERGED.match(text) else as_number(text) for text in texts]
    missing = np.array([text in EMPTY for text in texts])
    for code, number in enumerate(numbers):
        if number is None and not missing[code] and code in column.values:
            row = np.flatnonzero(column.values == code)[0] + 1
            why = f"{where}, row {row}: {texts[code]!r:.80} in column '{name}' must be a number"
            raise ParibusError(f"{why}; correct or remove the row")
    return Column(np.array(numbers, float)[column.values], missing[column.values])


def _is_numeric(column: Column) -> bool:
    if column.texts and {text.casefold() for text in column.texts} <= {"", *TRUTH}:
        return False  # such as a column `crashed`, unless it is named as a score
    try:
        return not numbers_of(column, "", "").missing.all()
    except ParibusError:
        return False


def runs_of(data: pa.Table, section: RunsSection, scores: Sequence[str], where: str) -> list[Run]:
    """Return the runs in an Arrow table called `where`, in the order of their first rows.

    The section `[runs]` names columns. If `scores` is empty, they are inferred: every numeric
    column is a score unless its name indicates otherwise.
    """
    if not data.num_rows:
        return []
    data, section, scores = _as_long(data, section, scores)
    n, columns = data.num_rows, columns_of(data)
    scores, names = () if section.metric else scores, list(columns)
    _require_columns(data.column_names, section, scores, where)
    seeds = [name for name in names if find_kind(name) == "seed"]
    seed = seeds[0] if len(seeds) == 1 and section.seed not in names else section.seed
    keys = ({} if section.arm in port.FROM_PATH else {section.arm: "arm"}) | {seed: "seed"}
    keys = {name: keys[name] for name in names if name in keys}
    others = [name for name in names if name not in {*keys, section.step, section.item}]
    if not scores and not section.metric:
        scores = [name for name in others if _is_score(name, columns[name])]
    order, starts = _group([columns[name].keys for name in keys], n)
    step, is_grouped = section.step, bool(section.step or section.item or section.metric)
    run_keys = [*keys, *(name for name in RUN_NAMES if name in others)]
    if not is_grouped and run_keys != [section.arm]:
        groups = _group([columns[name].keys for name in run_keys], n)
        if step := _find_step(columns, *groups):
            order, starts = groups
    if not (is_grouped or step):  # each row is a run
        order = starts = np.arange(n)
    if len(starts) > MOST_SEEDS:
        raise ParibusError(f"{where} has more than {MOST_SEEDS:,} runs; pass --step or --item")
    runs = [Run(is_row=True) for _ in starts]
    meant = {step, section.metric, section.value, *scores, "arm", "seed"}
    facts = keys | {name: name for name in others if name not in meant}
    for name, fact in facts.items():
        own = columns[name].keys[order]
        is_constant = np.maximum.reduceat(own, starts) == np.minimum.reduceat(own, starts)
        for place in np.flatnonzero(is_constant).tolist():
            if (cell := columns[name].cell(int(order[starts[place]]))) != "":
                runs[place].facts[fact] = cell_text(cell) if fact == "arm" else port.as_value(cell)
    metrics: dict[str, Any] = dict.fromkeys(scores, True)
    if section.metric:
        named = columns[section.metric]
        _, rows, codes = np.unique(named.keys, return_index=True, return_inverse=True)
        metrics = {cell_text(named.cell(row)): codes == code for code, row in enumerate(rows)}
    if step:  # beside its scores, the speed and the gradient norm are read along a curve
        measured = [n for n in facts if any(kind.fullmatch(n) for kind in ALONG)]
        metrics |= dict.fromkeys((n for n in measured if _is_numeric(columns[n])), True)
    along = numbers_of(columns[step], step, where).values if step else None
    rows_of = np.split(order, starts[1:])
    for name, chosen in metrics.items():
        column = section.value or name
        score = numbers_of(columns[column], column, where)
        present = chosen & ~score.missing
        for run, rows in zip(runs, rows_of, strict=True):
            rows = rows[present[rows]]
            values = score.values[rows]
            if along is not None and len(rows):
                _add_curve(run, name, along[rows], values, where)
            if along is not None or not len(rows):
                continue
            cells = [columns[section.item].cell(row) for row in rows] if section.item else [""]
            items = dict(zip(map(cell_text, cells), values.tolist(), strict=False))
            if len(items) < len(rows):
                stated = ", ".join(f"{fact} {cell_text(own)}" for fact, own in run.facts.items())
                why = f"{where}: several rows belong to one run ({stated})"
                ways = "name a column of steps (--step), items (--item) or seeds (--seed)"
                raise ParibusError(f"{why}; {ways}", code="ambiguous")
            if section.item:
                run.items[name] = items
            else:
                run.scores[name] = float(values[0])
    for run in runs:
        name = next((str(run.facts[name]) for name in RUN_NAMES if name in run.facts), "")
        arm, seed = port.split_seed(name)  # such as base-seed1
        if seed and "arm" not in run.facts and section.arm == "arm":
            run.facts = {"arm": arm} | seed | run.facts
    return runs


def _as_long(
    data: pa.Table, section: RunsSection, scores: Sequence[str]
) -> tuple[pa.Table, RunsSection, Sequence[str]]:
    """Convert a table whose columns are arms or whose rows are scores to long format.

    A table without a column of arms, but with one called `baseline` or alike beside other numbers,
    gets a row for each arm. Columns such as `metric` and `value` are used as `section` would.
    """
    names = {name.casefold(): name for name in data.column_names}
    metric = next((names[name] for name in WORDS["metric"] if name in names), "")
    if metric and "value" in names and not {section.metric, *scores} & {*data.column_names}:
        section = section.model_copy(update={"metric": metric, "value": names["value"]})
    is_named = {section.arm, section.step, section.metric, *scores} & {*data.column_names}
    if is_named or section.arm != "arm" or names.keys().isdisjoint(WORDS["baseline"]):
        return data, section, scores
    arms = [name for name, column in columns_of(data).items() if _is_score(name, column)]
    words = {word for name in arms for word in re.findall("[a-z]+", name.casefold())}
    if len(arms) < 2 or words & {*WORDS["lower"], *WORDS["higher"]}:
        return data, section, scores
    if not scores:
        why = f"columns {some(arms)} seem to be arms; name their score, such as --score loss"
        raise ParibusError(why, code="ambiguous")
    score, shared = scores[0], data.drop_columns(arms)
    parts = [
        shared.append_column("arm", pa.array([arm] * len(data))).append_column(score, data[arm])
        for arm in arms
    ]
    return pa.concat_tables(parts, promote_options="permissive"), section, [score]


def _require_columns(
    names: Sequence[str], section: RunsSection, scores: Sequence[str], where: str
) -> None:
    """Raise ParibusError if named columns are missing, duplicate or contradictory."""
    if bool(section.metric) != bool(section.value) or (section.step and section.item):
        why = "name `metric` and `value` together, and only one of `step` and `item`"
        raise ParibusError(f"{where}: {why}", code="conflict")
    named = [*scores, section.step, section.item, section.metric, section.value]
    named += {section.arm, section.seed} - {"arm", "seed", *port.FROM_PATH}  # which may be missing
    if missing := [name for name in named if name and names.count(name) != 1]:
        many = "more than one" if missing[0] in names else "no"
        why = f"{where} has {many} column '{missing[0]}'"
        raise ParibusError(f"{why}; {nearest(missing[0], names)}", code="missing")


def _is_score(name: str, column: Column) -> bool:
    """Return whether a column is numeric and its name does not indicate anything but a score."""
    return find_kind(name) == "other" and not find_size(name) and _is_numeric(column)


def _group(columns: Sequence[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Group the `n` rows that are equal in all columns, in the order of their first rows.

    Returns the row indices [n], sorted by group, and the start of each group among them [groups].
    """
    codes = np.zeros(n, int)
    for keys in columns:
        distinct, own = np.unique(keys, return_inverse=True)
        codes = codes * len(distinct) + own
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    groups = np.argsort(np.argsort(first))[codes]
    order = np.argsort(groups, kind="stable")
    return order, np.searchsorted(groups[order], np.arange(len(first)))


def _find_step(columns: Mapping[str, Column], order: np.ndarray, starts: np.ndarray) -> str:
    """Return the name of the step column, or "" if none exists.

    Its name says so, and its values are unique within each run, which has several rows. Those of
    Weights & Biases (`_step`) may be repeated, because a run that was resumed logs them again.
    """
    sizes = np.diff(starts, append=len(order))
    runs = np.repeat(np.arange(len(starts)), sizes)
    for name, column in sorted(columns.items(), key=lambda item: item[0] != WANDB_STEP):
        is_called_so = STEPS.fullmatch(name) or name.casefold() == "epoch"
        if is_called_so and sizes.min() > 1 and _is_numeric(column) and not column.missing.any():
            rows, firsts = _group([runs, column.keys[order]], len(order))
            is_repeated = name == WANDB_STEP and np.bincount(runs[rows[firsts]]).min() > 2
            if len(firsts) == len(order) or is_repeated:
                return name
    return ""


def _add_curve(run: Run, name: str, steps: np.ndarray, values: np.ndarray, where: str) -> None:
    """Add a score's curve, sorted by step, unless its rows seem to belong to several runs."""
    if not np.isfinite(steps).all():
        raise ParibusError(f"{where}: a row has no step; remove the row", code="ambiguous")
    curve = np.stack([steps, values], axis=1)[np.argsort(steps, kind="stable")]
    if "seed" not in run.facts and 2 * len(np.unique(steps)) <= len(steps):
        why = f"{where}: most steps are repeated, as if by several runs or by a restarted run"
        way = "name the column that distinguishes the runs with --seed"
        raise ParibusError(f"{why}; {way}", code="ambiguous")
    run.curves[name] = curve


def read_table(source: Source) -> pa.Table:
    """Read a file as an Arrow table; values within JSON values have names such as `eval.loss`."""
    start = source.head.lstrip()[:1]
    if source.head.startswith(PARQUET):
        from pyarrow import parquet

        with source.open() as file:
            return parquet.ParquetFile(file).read()
    if start not in (b"[", b"{"):
        return _read_csv(source)
    objects = list(source.json() if start == b"[" else source.objects())
    if not all(isinstance(row, dict) for row in objects):
        raise port.SkippedError("it is a list with elements other than JSON objects")
    rows, columns = list(map(flatten, objects)), dict[str, pa.Array]()
    for name in dict.fromkeys(chain(*rows)):
        cells = [row.get(name) for row in rows]
        if all(c is None or (is_number(c) and is_number(port.as_value(c))) for c in cells):
            columns[name] = pa.array(cells, pa.float64())
        else:
            columns[name] = pa.array([None if c is None else cell_text(c) for c in cells])
    return pa.table(columns)


def _read_csv(source: Source) -> pa.Table:
    is_tabbed = source.name.lower().endswith(".tsv")
    delimiter = "\t" if is_tabbed else max(",\t;", key=source.header.count)
    text: Any = regular_path(source.path)
    last = source.tail.rpartition(b"\n")[2]
    source.is_cut = last != b""
    if source.is_cut and last.count(delimiter.encode()) < source.header.count(delimiter):
        with source.open() as file:
            text = io.BytesIO(file.read().removesuffix(last))
    # Arms, items and names of scores are texts as written, such as 007; true is no number. A seed
    # may have more digits than a float.
    section = source.section
    meant = (section.arm, section.seed, section.item, section.metric)
    return pyarrow.csv.read_csv(
        text,
        pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES, encoding=source.encoding),
        # A cell with line ends is quoted; without any, blocks are parsed in parallel.
        pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=source.has(b'"')),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(meant, pa.dictionary(pa.int32(), pa.string())),
            null_values=EMPTY,
            true_values=[],
            false_values=[],
            decimal_point="," if delimiter == ";" and source.has(DECIMAL_COMMA) else ".",
            timestamp_parsers=["-"],  # pandas would be imported for a timestamp
            auto_dict_encode=True,
            auto_dict_max_cardinality=2**31 - 1,
        ),
    )
