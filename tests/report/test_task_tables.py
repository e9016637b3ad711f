"""Tasks against their reference: the table of page and paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paribus.analysis import TaskContrast, analyse
from paribus.report.section_tables import task_contrast_table
from paribus.results import Results
from paribus.statistics import paired_contrast
from paribus.study import Study

BASELINE = [0.50, 0.52, 0.48, 0.51, 0.49]
TREATMENT = [0.45, 0.46, 0.44, 0.47, 0.43]


def contrast(n: int) -> TaskContrast:
    ours, theirs = TREATMENT[:n], BASELINE[:n]
    paired = paired_contrast(theirs, ours, seed=0) if n > 1 else None
    seeds = tuple(range(1, n + 1))
    means = sum(theirs) / n, sum(ours) / n
    return TaskContrast("layernorm", "baseline", "typo", 0.5, seeds, *means, paired, holm_p=0.0123)


def test_five_pairs_are_tested_and_fewer_described(
    small_study: Callable[..., Study], fabricate: Callable[..., Results]
) -> None:
    analysis = analyse(fabricate(small_study(), lambda arm, seed: 2.0 + 0.01 * seed))
    assert task_contrast_table(analysis) is None  # no tasks, no table
    rows = []
    for n in (5, 4, 1):
        table = task_contrast_table(replace(analysis, tasks=(contrast(n),)))
        assert table is not None
        rows += table.rows
    assert rows[0][0] == "typo"
    assert rows[0][2:4] == ("0.500", "0.450")
    assert rows[0][4].startswith("-0.050 [-0.0")
    assert rows[0][6] == "0.012"
    assert rows[1][5:] == rows[2][5:] == ("–", "–")  # noqa: RUF001
    assert rows[2][4] == "-0.050"
