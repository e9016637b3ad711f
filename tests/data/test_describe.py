"""What training repeats of the held-out text, by hand."""

from pathlib import Path

import numpy as np

from paribus.engine.data import describe_data, load_dataset
from paribus.engine.setting import Data


def sentence(seed: int, n: int = 120) -> str:
    """Random letters: nothing in it is found in another."""
    return "".join(np.random.default_rng(seed).choice(list("abcdefghijklmnop"), size=n))


def write(folder: Path, *documents: str) -> Data:
    for i, document in enumerate(documents):
        (folder / f"{i}.txt").write_text(document, encoding="utf-8")
    return Data(corpus="text", path=".", seq_len=8, validation_fraction=0.5)


def test_a_corpus_by_hand(tmp_path):
    """Documents of 121, 364, 121 and 242 tokens with their ends: 848, cut in the second."""
    data = write(
        tmp_path,
        sentence(0),
        "\n\n".join([sentence(1), sentence(2, n=119), sentence(0)]),
        sentence(0),
        f"{sentence(2, n=119)}\n\n{sentence(3)}",
    )
    table = describe_data(load_dataset(data, tmp_path))
    assert table["duplicates"] == {"passage": {"validation_units": 3, "leaked_near": 2}}
    # What the cut left of the second document, with its end; the third, with its end; and the
    # passage that the second document has too, with its blank line.
    leakage = {"validation_tokens": 424, "in_training": 60 + 1 + 121 + 119 + 2}
    assert table["leakage"] == leakage
