"""The tidy tables of a study as files."""

from __future__ import annotations

import pyarrow as pa

from paribus.files import write_bytes
from paribus.results.formats import csv_cell, write_table, write_tables_in_turn
from paribus.results.layout import secure
from paribus.results.read import Results

# The tidy tables of `Results`: those that are small, and those that are written trial by trial.
WHOLE = ("scores", "steps", "curve", "tasks", "sampling", "throughput")
BY_TRIAL = ("probes", "evaluation", "blocks", "items")
TABLES = (*WHOLE, *BY_TRIAL)


def write_tables(results: Results) -> None:
    """Write every tidy table to `tables/` as Parquet, the scores as CSV too."""
    import pyarrow.csv

    secure(results.path)
    folder = results.path / "tables"
    sink = pa.BufferOutputStream()
    arms = pa.array(map(csv_cell, results.scores["arm"].to_pylist()), pa.string())
    pyarrow.csv.write_csv(results.scores.set_column(0, "arm", arms), sink)
    write_bytes(folder / "scores.csv", sink.getvalue().to_pybytes())
    for name in WHOLE:
        write_table(folder / f"{name}.parquet", getattr(results, name))
    for name in BY_TRIAL:
        if results.finished:
            write_tables_in_turn(folder / f"{name}.parquet", results.parts(name))
        else:
            write_table(folder / f"{name}.parquet", getattr(results, name))
