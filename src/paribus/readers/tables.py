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
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow._compute
import pyarrow.csv

from paribus.digests import flatten
from paribus.errors import ParibusError, nearest
from paribus.readers.facts import WORDS, find_kind, split_words
from paribus.readers.port import (
    FROM_PATH,
    GRADIENT_NORM,
    NOT_FINISHED,
    Reader,
    Run,
    SkippedError,
    Source,
    as_dict,
    as_number,
    cell_text,
)
from paribus.study.base import MOST_SEEDS
from paribus.study.runs import RunsSection
from paribus.untrusted_io import TABLE_BYTES, TABLE_COLUMNS, regular_path

# `pyarrow.compute` without the wrappers that it makes of 286 functions, which takes 60 ms.
pc: Any = pyarrow._compute
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
PARQUET = b"PAR1"
# Cells of text. What makes Arrow of Python's values, or NumPy of Arrow, is not used for them: it
# imports pandas, which takes as long as all else together.
DIVERGED = r"(?i)^(?:diverged|overflow|-?1\.#(?:inf|ind|qnan))$"
MISSING = re.compile(r"^(?:NA|N/A|n/a|null|NULL|None|-)?$")
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
    meant = {section.step, section.item, section.metric, section.value, *scores}
    if not scores and not section.metric:
        scores = [name for name in names if name not in {*keys, *meant} and _is_score(data, name)]
        meant |= {*scores}
    codes = np.zeros(data.num_rows, int)
    for name in keys:
        values, coded = _coded(data, name)
        codes = codes * len(values) + coded
    step, has_groups = section.step, bool(section.step or section.item or section.metric)
    if not has_groups and len(keys) != 1:
        step = _find_step(data, codes)
    if not (has_groups or step):  # each row is a run
        codes = np.arange(data.num_rows)
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    order = np.argsort(first[codes], kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    groups = np.split(order, starts)[1:]
    if len(groups) > MOST_SEEDS:
        raise ParibusError(f"{where} has more than {MOST_SEEDS:,} runs; pass --step or --item")
    runs = [Run(is_row=True) for _ in groups]
    facts = keys | {
        name: name for name in names if name not in {*keys, *meant, step, "arm", "seed"}
    }
    for name, fact in facts.items() if runs else ():
        values, coded = _coded(data, name)
        highest, lowest = (f.reduceat(coded[order], starts) for f in (np.maximum, np.minimum))
        for place in np.flatnonzero(lowest == highest).tolist():
            if text := values[lowest[place]]:
                number = None if fact == "arm" else as_number(text)
                runs[place].facts[fact] = text if number is None else number
    every = np.ones(len(order), bool)
    metrics = dict.fromkeys(scores, every)
    if section.metric:
        named, coded = _coded(data, section.metric)
        metrics = {name: coded == code for code, name in enumerate(named)}
    if step:
        metrics |= dict.fromkeys(filter(GRADIENT_NORM.fullmatch, facts), every)
    along = numbers_of(data, step, where)[0] if step else None
    items = data.column(section.item).to_pylist() if section.item else None
    for name, chosen in metrics.items():
        values, missing = numbers_of(data, section.value or name, where)
        present = chosen & ~missing
        for run, group in zip(runs, groups, strict=True):
            if len(rows := group[present[group]]):
                _add_values(run, name, rows, values, along, items, where)
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


def _is_score(data: pa.Table, name: str) -> bool:
    """Return whether a column is a score: it is numeric, and its name says nothing else."""
    says_more = find_kind(name) != "other" or split_words(name) & WORDS["along"]
    if says_more or name.casefold() in ENDED or data.column_names.count(name) > 1:
        return False
    numbers = _numbers_or_none(data, name)
    return numbers is not None and not numbers[1].all()


def _find_step(data: pa.Table, codes: np.ndarray) -> str:
    """Return the name of the column of steps, or an empty text. Its values increase within each
    run, and start at the same step in all runs."""
    for name in data.column_names:
        if STEPS.fullmatch(name) or name.casefold() in ("epoch", "epochs"):
            numbers = _numbers_or_none(data, name)
            if numbers is None or not np.isfinite(numbers[0]).all():
                continue
            order = np.lexsort([numbers[0], codes])
            steps, begins = numbers[0][order], np.diff(codes[order], prepend=-1) > 0
            is_alone = begins & np.append(begins[1:], True)
            is_up = begins[1:] | (np.diff(steps) > 0)
            if is_up.all() and not is_alone.any() and (steps[begins] == steps[0]).all():
                return name
    return ""


def _add_values(
    run: Run,
    name: str,
    rows: np.ndarray,
    values: np.ndarray,
    along: np.ndarray | None,
    items: list[Any] | None,
    where: str,
) -> None:
    """Add a score to a run: a curve sorted by step, the values of items, or a single value. Rows of
    the same step keep their order. Raises ParibusError."""
    why = ""
    if along is not None:
        steps = along[rows]
        if not np.isfinite(steps).all():
            why = "a row has no step; remove the row"
        elif "seed" not in run.facts and 2 * len(np.unique(steps)) <= len(steps) > 1:
            why = (
                "most steps are there several times, as of several runs or of one that began "
                "again; name the column that tells them apart with --seed"
            )
        order = np.argsort(steps, kind="stable")
        run.curves[name] = np.stack([steps[order], values[rows][order]], axis=1)
    elif items is not None:
        own = [cell_text(items[row]) for row in rows]
        run.items[name] = dict(zip(own, values[rows].tolist(), strict=True))
        if len(run.items[name]) < len(own):
            twice = next(item for item in own if own.count(item) > 1)
            why = f"item '{twice}' is twice in one run; name what tells runs apart"
    elif len(rows) > 1:
        facts = ", ".join(f"{fact} {cell_text(value)}" for fact, value in run.facts.items())
        why = (
            f"two rows are one run ({facts}); name the column of steps (--step) or of items "
            "(--item), or what tells runs apart, such as a seed in every row"
        )
    else:
        run.scores[name] = float(values[rows[0]])
    if why:
        raise ParibusError(f"{where}: {why}", code="ambiguous")


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


def _apply(name: str, *columns: Any, options: Any = None) -> Any:
    return pc.call_function(name, list(columns), options)


def _column(data: pa.Table, name: str) -> Any:
    column = data.column(data.column_names.index(name)).combine_chunks()
    is_coded = pa.types.is_dictionary(column.type)
    return _cast(column, column.type.value_type) if is_coded else column


def _cast(column: Any, to: pa.DataType) -> Any:
    return _apply("cast", column, options=pc.CastOptions.safe(to))


def _coded(data: pa.Table, name: str) -> tuple[list[str], np.ndarray]:
    """Return the distinct cells of a column as texts, and each row's index into them."""
    options = pc.DictionaryEncodeOptions("encode")
    encoded = _apply("dictionary_encode", _column(data, name), options=options)
    places: dict[str, int] = {}  # cells such as 1 and 1.0 are one text
    cells = map(cell_text, encoded.dictionary.to_pylist())
    codes = np.array([places.setdefault(cell, len(places)) for cell in cells])
    return [*places], codes[np.from_dlpack(encoded.indices).astype(int)]


def numbers_of(data: pa.Table, name: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a column as numbers, and a mask of its empty cells. A logged NaN is not empty.

    Raises ParibusError for a value that is not a number.
    """
    column = _column(data, name)
    missing = _apply("is_null", column)
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = _apply("utf8_trim_whitespace", column)
            options = pc.MatchSubstringOptions(MISSING.pattern)
            is_empty = _apply("match_substring_regex", column, options=options)
            missing = _apply("or_kleene", missing, is_empty)
            for words in (MISSING.pattern, DIVERGED):
                options = pc.ReplaceSubstringOptions(words, "nan")
                column = _apply("replace_substring_regex", column, options=options)
        numbers = _cast(column, pa.float64())
    except pa.ArrowException:
        cells = enumerate(column.to_pylist(), start=1)
        bad = ((n, c) for n, c in cells if as_number(c) is None and not MISSING.fullmatch(str(c)))
        row, cell = next(bad, (1, column.type))
        why = f"{where}, row {row}: {cell!r:.80} in column '{name}' must be a number"
        raise ParibusError(why) from None
    values = np.frombuffer(numbers.buffers()[1], float)[numbers.offset :][: len(numbers)]
    is_missing = np.from_dlpack(_cast(missing, pa.uint8())) > 0
    return np.where(is_missing, math.nan, values), is_missing


def _numbers_or_none(data: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        return numbers_of(data, name, "")
    except ParibusError:
        return None


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
    names = dict.fromkeys(name for row in rows for name in row)
    cells = {
        name: [None if (cell := row.get(name)) is None else cell_text(cell) for row in rows]
        for name in names
    }
    return pa.table({name: pa.array(cells[name], pa.string()) for name in names})


def _names(source: Source) -> list[str]:
    """Return the column names in the first line of a CSV file."""
    return next(csv.reader(source.header.splitlines()[:1], delimiter=_delimiter(source)), [])


def _delimiter(source: Source) -> str:
    is_tabbed = source.name.lower().endswith(".tsv")
    return "\t" if is_tabbed else max(",\t;", key=source.header.count)


def _read_csv(source: Source, *, whole_lines: bool) -> pa.Table:
    names, last = _names(source), source.tail.rpartition(b"\n")[2]
    parse = pyarrow.csv.ParseOptions(delimiter=_delimiter(source), newlines_in_values=True)
    # Texts, whatever the first rows look like: what is a number is said by the caller.
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    is_cut = last and (whole_lines or last.count(_delimiter(source).encode()) < len(names) - 1)
    text: Any = regular_path(source.path, TABLE_BYTES)
    if source.unpack or is_cut:
        with source.open() as file:
            content = file.read()
        text = io.BytesIO(content[: len(content) - len(last)] if is_cut else content)
    if is_cut:
        source.notes.append(f"The last line of {source.path} is cut, and was left out.")
    data = pyarrow.csv.read_csv(text, parse_options=parse, convert_options=convert)
    _ = data.column_names  # raises UnicodeDecodeError where they are no UTF-8
    return data
