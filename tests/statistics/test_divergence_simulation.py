"""The simulation of words when runs diverge, small: it agrees with the built thing, and errs at 5%.

The full tables are in benchmarks/README.md.
"""

import math
from pathlib import Path

import numpy as np
import pytest

import paribus

from ..tools import module_at

FILE = Path(__file__).parents[2] / "benchmarks" / "divergence_words.py"
RULE = "worst"  # the one that is built
TABLES = 200
# Four Monte Carlo standard errors above 5%.
MOST = TABLES * (0.05 + 4 * math.sqrt(0.05 * 0.95 / TABLES))


@pytest.fixture(scope="module")
def simulated():
    return module_at(FILE)


@pytest.mark.parametrize("paired", [False, True])
def test_the_simulated_word_is_that_of_judge(simulated, paired):
    rng, seen = np.random.default_rng(3), set()
    for rates, gain in (((0.2, 0.2), 5.0), ((0.5, 0.0), 0.0), ((0.1, 0.5), 1.0)):
        for _ in range(5):
            arms = simulated.draw(rng, 8, rates, "hard runs", paired=paired, gain=gain)
            losses = [
                np.where(diverged, np.nan, of)
                for of, diverged in zip(arms[:2], arms[2:], strict=True)
            ]
            table = {
                "arm": ["base"] * 8 + ["new"] * 8,
                "seed": [*range(8)] * 2,
                "loss": np.concatenate(losses).tolist(),
            }
            said = paribus.judge(table, score="loss", baseline="base", pair=paired)[0]
            assert said.word == simulated.words(arms, paired=paired)[RULE]
            seen.add(said.word)
    assert {"BETTER", "UNRESOLVED"} <= seen


@pytest.mark.parametrize("rates", [(0.05, 0.05), (0.2, 0.2), (0.5, 0.0), (0.0, 0.5)])
@pytest.mark.parametrize("n", [10, 20])
@pytest.mark.parametrize(
    ("paired", "cause"), [(False, "chance"), (False, "hard runs"), (True, "hard runs")]
)
def test_a_false_word_is_rare(simulated, paired, cause, n, rates):
    """With one law of loss BETTER is true of an arm that diverges less, and WORSE of the other."""
    said = simulated.rates_of(n, rates, cause, paired=paired, tables=TABLES)[RULE]
    theirs, ours = rates
    assert theirs > ours or said["BETTER"] <= MOST
    assert ours > theirs or said["WORSE"] <= MOST


@pytest.mark.parametrize("paired", [False, True])
def test_a_large_gain_is_found_though_runs_diverge(simulated, paired):
    """The score of an untrained model would find a third of them."""
    found = simulated.rates_of(10, (0.05, 0.05), "chance", paired=paired, tables=TABLES, gain=5.0)
    assert found[RULE]["BETTER"] >= 0.95 * TABLES
    assert found["untrained"]["BETTER"] <= 0.6 * TABLES
