"""Which questions a trial answered right: all that is compared of items.parquet."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paribus.results.trial_folder import TrialFolder

COLUMNS = ["task", "item", "correct"]


@dataclass(frozen=True)
class Answers:
    """The answers of one trial to one task.

    Attributes:
        right: [I] of each question, in the order in which they were first asked, the share of the
            numbers of shots at which it was answered right.
        asked: how many answers there are, every number of shots counted.
    """

    right: np.ndarray
    asked: int


def read_answers(folder: TrialFolder) -> dict[str, Answers]:
    """Return the answers of a trial by task, in the order of its record. Raises ParibusError."""
    table = folder.read_columns("items.parquet", COLUMNS)
    tasks = table["task"].combine_chunks().dictionary_encode()
    codes, words = tasks.indices.to_numpy(), tasks.dictionary.to_pylist()
    items = table["item"].to_numpy()
    correct = table["correct"].to_numpy(zero_copy_only=False).astype(np.float64)
    found = {}
    for code, word in enumerate(words):
        mine = codes == code
        _, first, place = np.unique(items[mine], return_index=True, return_inverse=True)
        right = np.bincount(place, correct[mine]) / np.bincount(place)
        found[word] = Answers(right[np.argsort(first)], int(mine.sum()))
    return found
