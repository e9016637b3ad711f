"""What is read of many trials: in memory once where they share it, never trial against trial."""

import numpy as np
import pyarrow as pa
import pytest

from paribus.results import ResultsFolder
from paribus.results.formats import write_table
from paribus.results.trial_records import read_answers


def loss(arm: str, seed: int) -> float:
    return 2.5 + 0.01 * seed + len(arm) / 500


@pytest.fixture
def made(small_study, fabricate):
    return fabricate(small_study(seeds=[1, 2, 3]), loss)


def test_probes_are_tidy_column_by_column(made):
    trial = made.finished[0]
    wide = trial.read_columns("probes.parquet")
    rows = made.trial_probes[trial.arm, trial.seed].tidy.to_pylist()
    expected = [
        {"step": step, "value": value}
        | {key.decode(): word.decode() for key, word in field.metadata.items()}
        for field in wide.schema
        if field.name != "step"
        for step, value in zip(wide["step"].to_pylist(), wide[field.name].to_pylist(), strict=True)
        if value is not None
    ]
    assert rows == expected


def test_answers_are_the_share_of_shots_in_the_order_asked(tmp_path):
    trial = ResultsFolder(tmp_path).trial("baseline", 1)
    asked = [(0, 7, True), (0, 2, False), (3, 7, False), (3, 2, False), (3, 9, True)]
    columns = {
        "task": ["typo"] * 5,
        "shots": [shots for shots, *_ in asked],
        "item": [item for _, item, _ in asked],
        "correct": [right for *_, right in asked],
    }
    write_table(trial.path / "items.parquet", pa.table(columns))
    answers = read_answers(trial)["typo"]
    np.testing.assert_array_equal(answers.right, [0.5, 0, 1])  # 7, 2 and 9
    assert answers.asked == 5
