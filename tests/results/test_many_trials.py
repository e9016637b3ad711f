"""What is read of many trials: in memory once where they share it, never trial against trial."""

import numpy as np
import pyarrow as pa

from paribus.results import ResultsFolder
from paribus.results.formats import write_table
from paribus.results.read import read_answers


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
