"""Tables: CSV, TSV, Parquet and JSON, long and wide; the caller says what columns mean.

A wide table has a column for each score, a long one a column with the score's name and one with its
value. Rows of the same arm and seed are one run: its curve by a column of steps, or its items by a
column of them. Where none of these is named, each row is a run. Where no score is named, every
column of numbers is one whose name says nothing else.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet

from paribus.digests import flatten
from paribus.errors import ParibusError, nearest
from paribus.readers.facts import SEEDS, WORDS, find_kind, split_words
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
)
from paribus.study.base import MOST_SEEDS
from paribus.study.runs import RunsSection
from paribus.untrusted_io import TABLE_BYTES, TABLE_COLUMNS, regular_path

pc: Any = pyarrow.compute  # its functions are made at import, unseen by type checkers
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
    """Return the reader of a table that a program writes of one run: how it is known, its column of
    steps, and the scores that decide."""

    def read(source: Source) -> Iterator[Run]:
        section = source.section
        if not (section.step or section.item or {section.arm, section.seed} & {*_names(source)}):
            source.section = section.model_copy(update={"step": step})
        return _read(source)

    return Reader(name, read, says, detects, score)


def _read(source: Source) -> Iterator[Run]:
    """Yield the runs of a table, in the order in which they begin."""
    runs = runs_of(read_table(source), source.section, source.scores, source.path)
    is_list = source.head.lstrip().startswith(b"[")
    if runs and not is_list and not source.tail.endswith((b"\n", PARQUET)):
        if not source.notes:
            source.notes.append(f"The last line of {source.path} has no end, and was taken.")
        runs[-1].facts["cut"] = "the last line has no end"
    yield from runs


says = "CSV, TSV, Parquet, JSON lines and lists, by the names of columns"
table = Reader("table", _read, says, _is_table, general=True)
LOSSES = ("val_loss", "eval_loss", "valid_loss", "loss", "train_loss")
keras = _declare(
    "keras", "CSVLogger of Keras", lambda s: s.header.startswith("epoch,"), "epoch", LOSSES
)
lightning = _declare(
    "lightning",
    "metrics.csv of Lightning's CSVLogger",
    lambda source: source.name == "metrics.csv" and "step" in _names(source),
    "step",
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
    """Return the runs of an Arrow table; `where` is for errors.

    Raises ParibusError for a column that is not there, a value that is not a number, and rows that
    nothing tells apart.
    """
    if not data.num_rows:
        return []
    names, scores = data.column_names, () if section.metric else scores
    seeds = [section.seed] if section.seed in names else list(filter(SEEDS.fullmatch, names))
    keys = {"arm": section.arm, "seed": seeds[0] if len(seeds) == 1 else section.seed}
    keys = {key: name for key, name in keys.items() if name in names and name not in FROM_PATH}
    meant = {getattr(section, key) for key in ("step", "item", "metric", "value")} - {""}
    meant |= {*keys.values(), *scores}
    _require_columns(names, section, meant - {*keys.values()}, where)
    if not scores and not section.metric:
        scores = [name for name in names if name not in meant and _is_score(data, name)]
        meant |= {*scores}
    of_run = [_coded(data, column) for column in keys.values()]
    codes = np.zeros(data.num_rows, int)
    for values, coded in of_run:
        codes = codes * len(values) + coded
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    codes = first[codes]  # of each row the first row of its run
    step = section.step
    if not (step or section.item or section.metric):
        step = _find_step(data, codes) if len(keys) != 1 else ""
        if not step:  # each row is a run
            codes = np.arange(data.num_rows)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    groups = np.split(order, starts[1:])
    if len(groups) > MOST_SEEDS:
        raise ParibusError(f"{where} has more than {MOST_SEEDS:,} runs; name --step or --item")
    runs = [Run(is_row=True) for _ in groups]
    for name, (values, coded) in zip(keys, of_run, strict=True):
        for run, code in zip(runs, coded[order[starts]].tolist(), strict=True):
            if values[code]:
                run.facts[name] = values[code] if name == "arm" else _fact(values[code])
    taken = {*meant, *keys, step}
    others = [name for name in names if name not in taken and names.count(name) == 1]
    for name in others:
        values, coded = _coded(data, name)
        highest, lowest = (f.reduceat(coded[order], starts) for f in (np.maximum, np.minimum))
        for place in np.flatnonzero(lowest == highest).tolist():
            if text := values[lowest[place]]:
                runs[place].facts[name] = _fact(text)
    every = np.ones(len(order), bool)
    metrics = dict.fromkeys(scores, every)
    if section.metric:
        named, coded = _coded(data, section.metric)
        metrics = {name: coded == code for code, name in enumerate(named)}
    steps, items = None, None
    if step:
        steps, _ = _numbers(data, step, where)
        metrics |= {name: every for name in others if GRADIENT_NORM.fullmatch(name)}
    if section.item:
        items = [cell_text(value) for value in data.column(section.item).to_pylist()]
    for name, chosen in metrics.items():
        values, missing = _numbers(data, section.value or name, where)
        present = chosen & ~missing
        for run, group in zip(runs, groups, strict=True):
            rows = group[present[group]]
            own_steps = None if steps is None else steps[rows]
            own_items = None if items is None else [items[row] for row in rows.tolist()]
            _add_values(run, name, own_steps, own_items, values[rows], where)
    for run in runs:
        _add_its_end(run)
        run.finish()
    return runs


def _is_score(data: pa.Table, name: str) -> bool:
    """Return whether a column of numbers is a score, as its name says nothing else."""
    says_more = find_kind(name) != "other" or split_words(name) & WORDS["along"]
    if says_more or name.casefold() in ENDED or data.column_names.count(name) > 1:
        return False
    numbers = _numbers_or_none(data, name)
    return numbers is not None and not numbers[1].all()


def _require_columns(
    names: Sequence[str], section: RunsSection, meant: set[str], where: str
) -> None:
    """Raise ParibusError where the columns that are named are not there, or say nothing."""
    if bool(section.metric) != bool(section.value):
        raise ParibusError(f"{where}: a long table needs both columns, `metric` and `value`")
    if section.step and section.item:
        why = f"{where}: columns of steps and of items at once; name the items alone"
        raise ParibusError(why, code="conflict")
    named = {section.arm, section.seed} - {"arm", "seed", *FROM_PATH}
    for name in sorted(meant | named):
        if name not in names:
            why = f"{where}: there is no column '{name}': {nearest(name, names)}"
            raise ParibusError(why, code="missing")
        if names.count(name) > 1:
            raise ParibusError(f"{where}: two columns are '{name}'; rename one")


def _find_step(data: pa.Table, codes: np.ndarray) -> str:
    """Return the column of steps by which rows of one run differ, from one beginning; empty for
    none."""
    for name in dict.fromkeys(data.column_names):
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
    steps: np.ndarray | None,
    items: list[str] | None,
    values: np.ndarray,
    where: str,
) -> None:
    """Add a score of a run: a curve in the order of its steps, the values of items, or one value;
    of one step, the last row is the last point. Raises ParibusError."""
    if not len(values):
        return
    if steps is not None:
        if not np.isfinite(steps).all():
            raise ParibusError(f"{where}: a row has no step; remove the row")
        if "seed" not in run.facts and len(steps) > 1 and 2 * len(np.unique(steps)) <= len(steps):
            raise ParibusError(
                f"{where} has most steps several times, as of several runs or of one that began "
                "again; name the column that tells them apart with --seed",
                code="ambiguous",
            )
        order = np.argsort(steps, kind="stable")
        run.curves[name] = np.stack([steps[order], values[order]], axis=1)
    elif items is not None:
        run.items[name] = dict(zip(items, values.tolist(), strict=True))
        if len(run.items[name]) < len(items):
            twice = next(item for item in items if items.count(item) > 1)
            why = f"{where}: item '{twice}' is twice in one run; name what tells runs apart"
            raise ParibusError(why, code="ambiguous")
    elif len(values) > 1:
        facts = ", ".join(f"{fact} {cell_text(value)}" for fact, value in run.facts.items())
        raise ParibusError(
            f"{where}: two rows are one run ({facts}); name the column of steps (--step) or of "
            "items (--item), or what tells runs apart, such as a seed in every row",
            code="ambiguous",
        )
    else:
        run.scores[name] = float(values[0])


def _add_its_end(run: Run) -> None:
    """Add from columns of such names whether the run is unfinished, and its last step."""
    for name, value in list(run.facts.items()):
        text = cell_text(value).casefold()
        if STATE.fullmatch(name) and UNFINISHED.search(text):
            run.facts[NOT_FINISHED] = text
        elif text in ENDED.get(name.casefold(), ()) or (
            name.casefold() == "exit_code" and text != "0"
        ):
            run.facts[NOT_FINISHED] = "not finished"
        elif STEPS.fullmatch(name) and isinstance(value, float):
            run.facts.setdefault("steps", value)


def _coded(data: pa.Table, name: str) -> tuple[list[str], np.ndarray]:
    """Return the different cells of a column as texts, and which each row has."""
    column = data.column(name).combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    encoded = column.dictionary_encode("encode")
    places: dict[str, int] = {}  # cells such as 1 and 1.0 are one text
    cells = map(cell_text, encoded.dictionary.to_pylist())
    codes = np.array([places.setdefault(cell, len(places)) for cell in cells])
    return [*places], codes[np.from_dlpack(encoded.indices).astype(int)]


def _fact(text: str) -> Value:
    number = as_number(text)
    return text if number is None else number


def _numbers(data: pa.Table, name: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a column as numbers, and a mask of its empty cells. A logged NaN is not empty.

    Raises ParibusError for a value that is not a number.
    """
    column = data.column(name)
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    missing = pc.is_null(column)
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.utf8_trim_whitespace(column)
            missing = pc.or_kleene(missing, pc.match_substring_regex(column, MISSING.pattern))
            for words in (MISSING.pattern, DIVERGED):
                column = pc.replace_substring_regex(column, words, "nan")
        numbers = pc.cast(column, pa.float64()).combine_chunks()
    except pa.ArrowException:
        for row, value in enumerate(column.to_pylist(), start=1):
            if not MISSING.fullmatch(str(value)) and as_number(value) is None:
                raise ParibusError(
                    f"{where}, row {row}: {value!r:.80} in column '{name}' must be a number"
                ) from None
        raise ParibusError(
            f"{where}: column '{name}' must hold numbers, and is {column.type}"
        ) from None
    values = np.frombuffer(numbers.buffers()[1], float)[numbers.offset :][: len(numbers)]
    is_missing = np.from_dlpack(pc.cast(missing, pa.uint8()).combine_chunks()) > 0
    return np.where(is_missing, math.nan, values), is_missing


def _numbers_or_none(data: pa.Table, name: str) -> tuple[np.ndarray, np.ndarray] | None:
    try:
        return _numbers(data, name, "")
    except ParibusError:
        return None


def _names(source: Source) -> list[str]:
    """Return the names in the first line of a CSV file."""
    delimiter = "\t" if source.name.endswith(".tsv") else max(",\t;", key=source.header.count)
    return next(csv.reader([source.header], delimiter=delimiter), [])


def read_table(source: Source, *, whole_lines: bool = False) -> pa.Table:
    """Return the table of a file; with `whole_lines` without a last line that has no end. Raises
    ParibusError."""
    start = source.head.lstrip()[:1]
    try:
        if source.head.startswith(PARQUET):
            file = pyarrow.parquet.ParquetFile(regular_path(source.path, TABLE_BYTES))
            if file.metadata.num_columns > TABLE_COLUMNS:
                raise ParibusError(
                    f"{source.path} must have at most {TABLE_COLUMNS:,} columns, and has "
                    f"{file.metadata.num_columns:,}"
                )
            return file.read()
        if source.name.lower().endswith((".jsonl", ".ndjson")) or start == b"{":
            return _from_objects(row for _, row in source.objects())
        if source.name.lower().endswith(".json") and start == b"[":
            rows = source.json()
            if not any(map(as_dict, rows)):
                raise SkippedError("a JSON list, and no table: its rows are no objects")
            if lost := [n for n, row in enumerate(rows, start=1) if not isinstance(row, dict)]:
                raise ParibusError(f"{source.path}, row {lost[0]} must be a JSON object")
            return _from_objects(rows)
        return _read_csv(source, whole_lines=whole_lines)
    except UnicodeDecodeError:
        why = f"{source.path} is not UTF-8; save it as UTF-8"
        raise ParibusError(why, code="unreadable") from None
    except (pa.ArrowException, csv.Error) as error:
        raise ParibusError(f"{source.path} cannot be read as a table: {error}") from None


def _from_objects(objects: Any) -> pa.Table:
    rows = [flatten(row) for row in objects]  # values within values have names such as eval.loss
    names = dict.fromkeys(name for row in rows for name in row)
    cells = {
        name: [None if (cell := row.get(name)) is None else cell_text(cell) for row in rows]
        for name in names
    }
    return pa.table({name: pa.array(cells[name], pa.string()) for name in names})


def _read_csv(source: Source, *, whole_lines: bool) -> pa.Table:
    is_tabbed = source.name.lower().endswith(".tsv")
    delimiter = "\t" if is_tabbed else max(",\t;", key=source.header.count)
    names = next(csv.reader([source.header], delimiter=delimiter), [])
    last = source.tail.rpartition(b"\n")[2]
    cells = next(csv.reader([last.decode("utf-8", "replace")], delimiter=delimiter), [])
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
    # Texts, whatever the first rows look like: what is a number is said by the caller.
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False
    )
    is_cut = bool(last) and (whole_lines or len(cells) < len(names))
    text: Any = regular_path(source.path, TABLE_BYTES)
    if source.unpack or is_cut:
        with source.open() as file:
            content = file.read()
        text = io.BytesIO(content[: len(content) - len(last)] if is_cut else content)
    data = pyarrow.csv.read_csv(text, parse_options=parse, convert_options=convert)
    _ = data.column_names  # raises UnicodeDecodeError where they are no UTF-8
    if last and not is_cut and data.num_rows > 1:
        # The last cell may be cut where it is shorter than all others of its column.
        lengths = pc.utf8_length(data.column(data.num_columns - 1)).to_pylist()
        is_cut = lengths[-1] < min(lengths[:-1])
        data = data.slice(0, data.num_rows - is_cut)
    if is_cut:
        source.notes.append(f"The last line of {source.path} is cut, and was left out.")
    return data
