"""Tables from Python's values and back, without what pyarrow imports for that."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from paribus.results.formats import as_numpy, from_rows

SCHEMA = pa.schema(
    [
        ("arm", pa.string()),
        ("seed", pa.int64()),
        ("diverged", pa.bool_()),
        ("loss", pa.float64()),
        ("parts", pa.list_(pa.float32())),
    ]
)
ROWS = [
    {"arm": "Grundlinie ü", "seed": 1, "diverged": False, "loss": 2.5, "parts": [1.0, 2.0]},
    {"arm": "", "seed": -(2**40), "diverged": True, "loss": math.nan, "parts": []},
    {"arm": None, "seed": None, "diverged": None, "loss": None},
] * 7  # more than a byte of what is there


@pytest.mark.parametrize("rows", [ROWS, ROWS[:2], ROWS[:1], []])
def test_rows_make_the_table_that_pyarrow_makes_of_them(rows: list[dict[str, object]]) -> None:
    made = from_rows(rows, SCHEMA)
    made.validate(full=True)
    np.testing.assert_equal(made.to_pylist(), pa.Table.from_pylist(rows, schema=SCHEMA).to_pylist())
    assert made.schema.equals(SCHEMA)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("values", [[1, 2, 3] * 5, [None, 4, None] * 5, []])
def test_a_column_is_the_array_that_pyarrow_makes_of_it(
    values: list[int | None], kind: pa.DataType
) -> None:
    column = pa.chunked_array([pa.array([9, *values], kind).slice(1), pa.array(values, kind)])
    for one in (column, column.slice(2), column.slice(len(column))):
        found = as_numpy(one)
        assert found.dtype == one.to_numpy().dtype or not len(found)
        np.testing.assert_array_equal(found, one.to_numpy())


def test_neither_imports_pandas() -> None:
    """Which takes half a second and 40 MiB, of whoever starts the workers too."""
    code = (
        "import sys, pyarrow as pa\n"
        "from paribus.results.formats import as_numpy, from_rows\n"
        "schema = pa.schema([('arm', pa.string()), ('loss', pa.float64())])\n"
        "table = from_rows([{'arm': 'a', 'loss': None}, {'loss': 1.0}], schema)\n"
        "assert as_numpy(table['loss'])[1] == 1 and table.to_pylist()[1]['loss'] == 1\n"
        "assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
