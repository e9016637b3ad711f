"""Readers of long and wide tables: CSV, TSV, Parquet and JSON.

A wide table has a column for each score. A long table has a column with the score's name and one
with its value. Rows of the same arm and seed are one run: a curve if there is a column of steps, or
items if there is a column of items. If neither is named, each row is a run. If no score is named,
every numeric column is a score unless its name says otherwise.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow._compute
import pyarrow.csv

from paribus.digests import flatten
from paribus.errors import ParibusError, nearest
from paribus.readers.facts import RATE, TIME, WORDS, find_kind, split_words
from paribus.readers.port import (
    FROM_PATH,
    GRADIENT_NORM,
    NOT_FINISHED,
    Reader,
    Run,
    SkippedError,
    Source,
    Value,
    as_dict,
    as_number,
    cell_text,
    is_number,
)
from paribus.study.base import MOST_SEEDS
from paribus.study.runs import RunsSection
from paribus.untrusted_io import MIB, TABLE_BYTES, TABLE_COLUMNS, regular_path

# `pyarrow.compute`, and so the methods of arrays, without the wrappers that it makes of 286
# functions, which takes 60 ms.
arrow_compute: Any = pyarrow._compute
BLOCK_BYTES = 4 * MIB
KINDS = {"double": np.float64, "int64": np.int64, "int32": np.int32}  # of a column's buffer
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
PARQUET = b"PAR1"
DIVERGED = re.compile(r"(?:diverged|overflow|-?1\.#(?:inf|ind|qnan))$", re.IGNORECASE)
EMPTY = ["", "NA", "N/A", "n/a", "null", "NULL", "None", "-"]
STEPS = re.compile(r"(?:.*/)?_?(?:global_|train_)?(?:step|iter|iteration)s?", re.IGNORECASE)
# As wandb, MLflow, Optuna and schedulers say of a run, in a column of such a name, that it has not
# come to its end. A run that was stopped may have been meant to.
STATE = re.compile(r"(?:.*[^a-z])?(?:state|status)", re.IGNORECASE)
UNFINISHED = re.compile(
    r"(?<![a-z])(?:abort(?:ed)?|active|cancell?ed|crash(?:ed)?|dead|diverged|error|fail(?:ed|ure)?"
    r"|in.progress|incomplete|interrupted|killed|node.fail|oom|out.of.memory|paused|pending"
    r"|preempt(?:ed|ing)|pruned|running|scheduled|started|timeout|unfinished|waiting)(?![a-z])",
    re.IGNORECASE,
)
# By the name of a column, the cells that say that a run has not finished.
YES, NO = ("true", "1", "yes"), ("false", "0", "no")
ENDED = {"finished": NO, "completed": NO, "done": NO, "crashed": YES, "failed": YES}


def _is_table(source: Source) -> bool:
    name = source.name.lower()
    is_list = name.endswith(".json") and source.head.lstrip().startswith(b"[")
    return is_list or name.endswith(SUFFIXES) or source.head.startswith(PARQUET)


def _declare(
    name: str, says: str, detects: Callable[[Source], bool], step: str, score: tuple[str, ...]
) -> Reader:
    """Return the reader for a program's table of one run. `detects` recognises the file, `step` is
    its column of steps, and `score` lists the default scores."""

    def read(source: Source) -> Iterator[Run]:
        section = source.section
        if not (section.step or section.item or {section.arm, section.seed} & {*_names(source)}):
            source.section = section.model_copy(update={"step": step})
        return _read(source)

    return Reader(name, read, says, detects, score)


def _read(source: Source) -> Iterator[Run]:
    """Yield the runs of a table, in the order of their first rows."""
    runs = runs_of(read_table(source), source.section, source.scores, source.path)
    is_list = source.head.lstrip().startswith(b"[")
    if runs and not is_list and not source.tail.endswith((b"\n", PARQUET)):
        if not source.notes:
            source.notes.append(f"The last line of {source.path} has no end, and was taken.")
        runs[-1].facts["cut"] = "the last line has no end"
    yield from runs


table = Reader(
    "table",
    _read,
    "CSV, TSV, Parquet, JSON lines and lists, by the names of columns",
    _is_table,
    general=True,
)
LOSSES = ("val_loss", "eval_loss", "valid_loss", "loss", "train_loss")
lightning = _declare(
    "lightning",
    "metrics.csv of Lightning's CSVLogger",
    lambda source: source.name == "metrics.csv" and "step" in _names(source),
    "step",
    LOSSES,
)
keras = _declare(
    "keras",
    "CSVLogger of Keras",
    lambda source: source.header.startswith("epoch,") and not lightning.detects(source),
    "epoch",
    LOSSES,
)
ray_tune = _declare(
    "ray-tune",
    "result.json or progress.csv of a trial of Ray Tune",
    lambda source: all(word in source.header for word in ("training_iteration", "trial_id")),
    "training_iteration",
    (*LOSSES, "mean_accuracy", "episode_reward_mean"),
)
levanter = _declare(
    "levanter-summary",
    "tracker_metrics.jsonl of Levanter",
    lambda source: source.name == "tracker_metrics.jsonl" and '"summary"' in source.header,
    "",
    ("summary.eval/loss", "summary.train/loss"),
)


@dataclass
class Column:
    """A column of a table: numbers, or codes of its distinct texts."""

    values: np.ndarray
    """a number or a code by row; the number is NaN where a cell is empty"""
    missing: np.ndarray
    texts: list[str] | None = None

    @property
    def keys(self) -> np.ndarray:
        """An integer by row, which is equal where cells are."""
        return self.values.view(np.int64) if self.texts is None else self.values

    def cell(self, row: int) -> Value:
        """Return the cell in a row; an empty one is an empty text."""
        if self.texts is not None:
            return self.texts[self.values[row]]
        return "" if self.missing[row] else float(self.values[row])


def _column(data: pa.Table, name: str) -> Column:
    """Return a column of an Arrow table, from its buffers: Arrow's own conversions to NumPy import
    pandas, which takes as long as all else together."""
    cells = data.column(data.column_names.index(name)).combine_chunks()
    if pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type):
        options = arrow_compute.DictionaryEncodeOptions("encode")
        cells = arrow_compute.call_function("dictionary_encode", [cells], options)
    is_coded = pa.types.is_dictionary(cells.type)
    coded = cells.indices if is_coded else cells
    if str(coded.type) not in KINDS:
        try:
            coded = coded.cast(pa.int64() if is_coded else pa.float64())
        except pa.ArrowException:  # such as dates
            texts = pa.array(map(cell_text, cells.to_pylist()), pa.string())
            return _column(pa.table({name: texts}), name)
    validity, content = coded.buffers()
    part = slice(coded.offset, coded.offset + len(coded))
    values = np.frombuffer(content or b"", KINDS[str(coded.type)])[part]
    missing = np.zeros(len(values), bool)
    if validity is not None:
        missing = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[part] == 0
    if not is_coded:
        return Column(np.where(missing, math.nan, values), missing)
    places: dict[str, int] = {}  # cells such as 1 and 1.0 are one text
    distinct = [*map(cell_text, cells.dictionary.to_pylist()), ""]
    codes = np.array([places.setdefault(text, len(places)) for text in distinct])
    return Column(codes[np.where(missing, -1, values)], missing, [*places])


def columns_of(data: pa.Table) -> dict[str, Column]:
    """Return the columns of an Arrow table by name; of equal names, the first."""
    return {name: _column(data, name) for name in dict.fromkeys(data.column_names)}


def numbers_of(column: Column, name: str, where: str) -> Column:
    """Return a column as numbers. A logged NaN is not empty.

    Raises ParibusError for a cell that is not a number.
    """
    if column.texts is None:
        return column
    texts = list(map(str.strip, column.texts))
    numbers = [math.nan if DIVERGED.match(text) else as_number(text) for text in texts]
    missing = np.array([text in EMPTY for text in texts])
    for code, number in enumerate(numbers):
        if number is None and not missing[code] and code in column.values:
            row = np.flatnonzero(column.values == code)[0] + 1
            why = f"{where}, row {row}: {column.texts[code]!r:.80} in column '{name}'"
            raise ParibusError(f"{why} must be a number")
    values = np.array([math.nan if number is None else number for number in numbers])
    return Column(values[column.values], missing[column.values])


def _numbers_or_none(column: Column) -> Column | None:
    try:
        return numbers_of(column, "", "")
    except ParibusError:
        return None


def runs_of(data: pa.Table, section: RunsSection, scores: Sequence[str], where: str) -> list[Run]:
    """Return the runs of an Arrow table; `where` names it in errors.

    Raises ParibusError for a missing column, a value that is not a number, and rows that cannot be
    told apart.
    """
    names, scores = data.column_names, () if section.metric else scores
    seeds = [name for name in names if name == section.seed or find_kind(name) == "seed"]
    is_clear = len(seeds) == 1 and section.seed not in names
    keys = {section.arm: "arm", seeds[0] if is_clear else section.seed: "seed"}
    keys = {name: key for name, key in keys.items() if name in names and name not in FROM_PATH}
    _require_columns(names, section, scores, where)
    columns = columns_of(data)
    meant = {section.step, section.item, section.metric, section.value, *scores}
    if not scores and not section.metric:
        others = [name for name in names if name not in {*keys, *meant} and names.count(name) == 1]
        scores = [name for name in others if _is_score(name, columns[name])]
        meant |= {*scores}
    order, starts = _group([columns[name].keys for name in keys], data.num_rows)
    step, is_grouped = section.step, bool(section.step or section.item or section.metric)
    if not is_grouped and len(keys) != 1:
        step = _find_step(columns, order, starts)
    if not (is_grouped or step):  # each row is a run
        order = starts = np.arange(data.num_rows)
    if len(starts) > MOST_SEEDS:
        raise ParibusError(f"{where} has more than {MOST_SEEDS:,} runs; pass --step or --item")
    runs = [Run(is_row=True) for _ in starts]
    facts = keys | {
        name: name for name in columns if name not in {*keys, *meant, step, "arm", "seed"}
    }
    for name, fact in facts.items() if runs else ():
        own = columns[name].keys[order]
        is_constant = np.maximum.reduceat(own, starts) == np.minimum.reduceat(own, starts)
        for place in np.flatnonzero(is_constant).tolist():
            if (cell := columns[name].cell(int(order[starts[place]]))) != "":
                number = None if fact == "arm" else as_number(cell)
                runs[place].facts[fact] = cell_text(cell) if number is None else number
    metrics: dict[str, Any] = dict.fromkeys(scores, True)
    if section.metric:
        named = columns[section.metric]
        _, rows, codes = np.unique(named.keys, return_index=True, return_inverse=True)
        cells = [cell_text(named.cell(row)) for row in rows]
        metrics = {name: codes == code for code, name in enumerate(cells)}
    if step:
        speeds = [name for name in facts if RATE.fullmatch(name) or TIME.fullmatch(name)]
        metrics |= {name: True for name in speeds if _numbers_or_none(columns[name])}
        metrics |= dict.fromkeys(filter(GRADIENT_NORM.fullmatch, facts), True)
    along = numbers_of(columns[step], step, where).values if step else None
    for name, chosen in metrics.items():
        of = section.value or name
        score = numbers_of(columns[of], of, where)
        present = (chosen & ~score.missing)[order]
        is_whole = bool(present.all())
        for run, start, stop in zip(runs, starts, [*starts[1:], len(order)], strict=True):
            rows = order[start:stop] if is_whole else order[start:stop][present[start:stop]]
            if not len(rows):
                continue
            values = score.values[rows]
            if along is not None:
                _add_curve(run, name, along[rows], values, where)
            elif section.item:
                cells = [cell_text(columns[section.item].cell(row)) for row in rows.tolist()]
                _add_items(run, name, cells, values, where)
            elif len(rows) > 1:
                stated = ", ".join(f"{fact} {cell_text(own)}" for fact, own in run.facts.items())
                why = f"{where}: two rows are one run ({stated}); name the column of steps (--step)"
                ways = "or of items (--item), or what tells runs apart, such as a seed in every row"
                raise ParibusError(f"{why} {ways}", code="ambiguous")
            else:
                run.scores[name] = float(values[0])
    for run in runs:
        _add_its_end(run)
        run.finish()
    return runs


def _require_columns(
    names: Sequence[str], section: RunsSection, scores: Sequence[str], where: str
) -> None:
    """Raise ParibusError if named columns are missing, duplicate or contradictory."""
    if bool(section.metric) != bool(section.value):
        raise ParibusError(f"{where}: a long table needs both columns, `metric` and `value`")
    if section.step and section.item:
        why = f"{where}: columns of steps and of items at once; name the items alone"
        raise ParibusError(why, code="conflict")
    named = {section.arm, section.seed} - {"arm", "seed", *FROM_PATH}
    named |= {section.step, section.item, section.metric, section.value} - {""}
    for name in [*scores, *sorted(named)]:
        if name not in names:
            why = f"{where}: there is no column '{name}': {nearest(name, names)}"
            raise ParibusError(why, code="missing")
        if names.count(name) > 1:
            raise ParibusError(f"{where}: two columns are called '{name}'; rename one")


def _is_score(name: str, column: Column) -> bool:
    """Return whether a column is a score: it is numeric, and its name says nothing else."""
    says_more = find_kind(name) != "other" or split_words(name) & WORDS["along"]
    numbers = None if says_more or name.casefold() in ENDED else _numbers_or_none(column)
    return numbers is not None and not numbers.missing.all()


def _group(columns: Sequence[np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
    """Group `n` rows whose cells in all columns are equal. Returns the rows group by group, in the
    order of their first rows, and where each group begins among them."""
    is_new = np.zeros(n, bool)
    is_new[:1] = True
    for keys in columns:
        is_new[1:] |= keys[1:] != keys[:-1]
    starts = np.flatnonzero(is_new)
    codes = np.zeros(len(starts), int)
    for keys in columns:
        distinct, own = np.unique(keys[starts], return_inverse=True)
        codes = codes * len(distinct) + own
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    if len(first) == len(codes):  # the rows of a group follow each other
        return np.arange(n), starts
    groups = np.repeat(np.argsort(np.argsort(first))[codes], np.diff(starts, append=n))
    order = np.argsort(groups, kind="stable")
    return order, np.searchsorted(groups[order], np.arange(len(first)))


def _find_step(columns: Mapping[str, Column], order: np.ndarray, starts: np.ndarray) -> str:
    """Return the name of the column of steps, or an empty text. Its values increase within each
    run, and start at the same step in all runs."""
    begins = np.zeros(len(order), bool)
    begins[starts] = True
    is_alone = np.diff(starts, append=len(order)) < 2
    for name, column in () if is_alone.any() else columns.items():
        is_called_so = STEPS.fullmatch(name) or name.casefold() in ("epoch", "epochs")
        numbers = _numbers_or_none(column) if is_called_so else None
        if numbers is None or not np.isfinite(numbers.values).all():
            continue
        steps = numbers.values[order]
        if not (begins[1:] | (np.diff(steps) > 0)).all():
            steps = steps[np.lexsort([steps, np.cumsum(begins)])]
        is_up = begins[1:] | (np.diff(steps) > 0)
        if is_up.all() and (steps[starts] == steps[0]).all():
            return name
    return ""


def _add_curve(run: Run, name: str, steps: np.ndarray, values: np.ndarray, where: str) -> None:
    """Add the curve of a score, sorted by step; points of one step keep their order. Raises
    ParibusError."""
    if not np.isfinite(steps).all():
        raise ParibusError(f"{where}: a row has no step; remove the row", code="ambiguous")
    if (np.diff(steps) < 0).any():
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
    n_steps = 1 + np.count_nonzero(np.diff(steps))
    if "seed" not in run.facts and 2 * n_steps <= len(steps):
        why = "most steps are there several times, as of several runs or of one that began again"
        way_out = "name the column that tells them apart with --seed"
        raise ParibusError(f"{where}: {why}; {way_out}", code="ambiguous")
    run.curves[name] = np.stack([steps, values], axis=1)


def _add_items(run: Run, name: str, items: list[str], values: np.ndarray, where: str) -> None:
    """Add the values of items. Raises ParibusError for an item that is there twice."""
    run.items[name] = dict(zip(items, values.tolist(), strict=True))
    if len(run.items[name]) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        why = f"{where}: item '{twice}' is twice in one run; name what tells runs apart"
        raise ParibusError(why, code="ambiguous")


def _add_its_end(run: Run) -> None:
    """Set the facts `unfinished` and `steps` from columns such as `state` or `global_step`."""
    for name, value in list(run.facts.items()):
        text, key = cell_text(value).casefold(), name.casefold()
        if STATE.fullmatch(name) and UNFINISHED.search(text):
            run.facts[NOT_FINISHED] = text
        elif text in ENDED.get(key, ()) or (key == "exit_code" and text != "0"):
            run.facts[NOT_FINISHED] = "not finished"
        elif STEPS.fullmatch(name) and isinstance(value, float):
            run.facts.setdefault("steps", value)


def read_table(source: Source, *, whole_lines: bool = False) -> pa.Table:
    """Read a file as an Arrow table. With `whole_lines`, a last line without a line end is dropped.
    Raises ParibusError."""
    start = source.head.lstrip()[:1]
    try:
        if source.head.startswith(PARQUET):
            return _read_parquet(source)
        if start == b"{":
            return _from_objects(row for _, row in source.objects())
        if start == b"[":
            rows = source.json()
            if not any(map(as_dict, rows)):
                raise SkippedError("a JSON list without objects is not a table")
            if lost := [n for n, row in enumerate(rows, start=1) if not isinstance(row, dict)]:
                raise ParibusError(f"{source.path}, row {lost[0]} must be a JSON object")
            return _from_objects(rows)
        return _read_csv(source, whole_lines=whole_lines)
    except UnicodeDecodeError:
        why = f"{source.path} is not UTF-8; save it as UTF-8"
        raise ParibusError(why, code="unreadable") from None
    except pa.ArrowException as error:
        raise ParibusError(f"{source.path} cannot be read as a table: {error}") from None


def _read_parquet(source: Source) -> pa.Table:
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(regular_path(source.path, TABLE_BYTES))
    if file.metadata.num_columns > TABLE_COLUMNS:
        raise ParibusError(f"{source.path} must have at most {TABLE_COLUMNS:,} columns")
    return file.read()


def _from_objects(objects: Iterable[dict[str, Any]]) -> pa.Table:
    rows = [flatten(row) for row in objects]  # values within values have names such as eval.loss
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        cells = [row.get(name) for row in rows]
        if all(cell is None or is_number(cell) for cell in cells):
            columns[name] = pa.array(cells, pa.float64())
        else:
            texts = [None if cell is None else cell_text(cell) for cell in cells]
            columns[name] = pa.array(texts, pa.string())
    return pa.table(columns)


def _names(source: Source) -> list[str]:
    """Return the column names in the first line of a CSV file."""
    return next(csv.reader(source.header.splitlines()[:1], delimiter=_delimiter(source)), [])


def _delimiter(source: Source) -> str:
    is_tabbed = source.name.lower().endswith(".tsv")
    return "\t" if is_tabbed else max(",\t;", key=source.header.count)


def _read_csv(source: Source, *, whole_lines: bool) -> pa.Table:
    names, last = _names(source), source.tail.rpartition(b"\n")[2]
    # A cell with line ends is quoted; without any, blocks are parsed in parallel.
    is_quoted = any(b'"' in end for end in source.ends)
    parse = pyarrow.csv.ParseOptions(delimiter=_delimiter(source), newlines_in_values=is_quoted)
    # Arms, items and names of scores are texts as written, such as 007; true is no number.
    meant = (source.section.arm, source.section.item, source.section.metric)
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(meant, pa.dictionary(pa.int32(), pa.string())),
        null_values=EMPTY,
        true_values=[],
        false_values=[],
        timestamp_parsers=["-"],  # pandas would be imported for a timestamp
        auto_dict_encode=True,
        auto_dict_max_cardinality=2**31 - 1,
    )
    options = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES)
    is_cut = last and (whole_lines or last.count(_delimiter(source).encode()) < len(names) - 1)
    text: Any = regular_path(source.path, TABLE_BYTES)
    if source.unpack or is_cut:
        with source.open() as file:
            content = file.read()
        text = io.BytesIO(content[: len(content) - len(last)] if is_cut else content)
    if is_cut:
        source.notes.append(f"The last line of {source.path} is cut, and was left out.")
    data = pyarrow.csv.read_csv(
        text, read_options=options, parse_options=parse, convert_options=convert
    )
    _ = data.column_names  # raises UnicodeDecodeError where they are no UTF-8
    return data
