"""autoresearch: `results.tsv`, a row for each idea tried, and `run.log`, output of the last.

    commit	val_bpb	memory_gb	status	description
    a1b2c3d	0.997900	44.0	keep	baseline
    d4e5f6g	0.000000	0.0	crash	double model width (OOM)

A crash is written as 0.000000; it is a run without a score here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paribus.readers.port import Run, Source, as_number, csv_rows, reader, seed_fact


def _is_table(source: Source) -> bool:
    header = source.header.split("\t")
    return header[0] == "commit" and "status" in header and header.index("status") > 1


@reader("autoresearch", says="results.tsv, a row for each idea", detects=_is_table)
def autoresearch(source: Source) -> Iterator[Run]:
    """Yield a run for each row, its commit the arm; the second column is the score."""
    for row in csv_rows(source, ("commit", "status"), "\t", quoted=False):
        columns = list(row)
        score = columns[1]
        value = as_number(row[score])
        facts: dict[str, str | float] = {"arm": row["commit"]}
        for key in (one for one in columns if one != score and row[one]):
            number = as_number(row[key])
            facts[key] = row[key] if number is None or key == "commit" else number
        if row["status"] == "crash" or value is None or (value == 0 and "bpb" in score):
            yield Run("", facts=facts | {"crashed": row.get("description") or "crash"})
        else:
            yield Run("", scores={score: value}, facts=facts)


SUMMARY = re.compile(rb"^(\w{1,40}): +([-+.\w]+)\r?\n", re.MULTILINE)
SCORE = re.compile(rb"---\r?\n(?=val_bpb: {2,}[-+.\w]+\r?\n)")
NAMES = {"training_seconds": "train_seconds", "num_steps": "steps"}


def _is_log(source: Source) -> bool:
    return bool(SCORE.search(source.tail)) and not source.has(b" val_bpb:")


@reader("autoresearch-log", says="run.log, its summary", detects=_is_log)
def autoresearch_log(source: Source) -> Iterator[Run]:
    """Yield the run of a log: its summary, from `val_bpb:` on."""
    run = Run("")
    starts = [match.end() for match in SCORE.finditer(source.tail)]
    summary = source.tail[starts[-1] :] if starts else b""
    for name, text in SUMMARY.findall(summary):
        if (number := as_number(text)) is None:
            continue
        key: str = name.decode()
        if key == "val_bpb":
            run.scores[key] = number
        else:
            run.facts[NAMES.get(key, key)] = number
    run.facts |= seed_fact(source.path)
    if not source.tail.endswith(b"\n"):
        run.facts["cut"] = "the last line has no end"
    if run.scores:
        yield run
