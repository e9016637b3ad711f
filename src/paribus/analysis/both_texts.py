"""The validation text and the test part beside each other, and whether they disagree.

Validation text chose values and was looked at; the test part was not, until the verdict. Where a
contrast is another on the two, the difference is tested: of each seed the change on the test part
minus the change on the validation text, by the paired t. The verdict is of the test part whatever
it says.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paribus.analysis.schema import BothTexts, Contrast, Mean
from paribus.results import Results
from paribus.statistics import DESCRIPTIVE_BELOW, paired_t


def both_texts(results: Results, contrasts: Iterable[Contrast], alpha: float) -> list[BothTexts]:
    """Return each primary contrast on both texts; none where trials have scores of one alone.

    `results` are as they were recorded; `contrasts` those of the verdict. One whose validation
    scores are not all finite is left out, as is one of fewer than two pairs.
    """
    if results.judged is results:
        return []
    rows = {(row["arm"], row["seed"]): row for row in results.scores.to_pylist()}
    found = []
    for c in contrasts:
        metric = results.metrics[c.metric]
        is_of_text = metric.label != results.judged.metrics[c.metric].label
        if not c.primary or c.paired is None or not is_of_text:
            continue
        ours, theirs = (
            np.array([metric.compared(rows[arm, seed][c.metric]) for seed in c.seeds])
            for arm in (c.arm, c.reference)
        )
        validation = ours - theirs
        test = np.array([pair.delta for pair in c.paired.pairs])
        if np.isfinite(validation).all() and len(test) > 1:
            means = (_mean(deltas, alpha) for deltas in (validation, test, test - validation))
            found.append(BothTexts(c.arm, c.reference, c.metric, c.seeds, *means))
    return found


def _mean(deltas: np.ndarray, alpha: float) -> Mean:
    test = paired_t(deltas)
    p = test.p_value() if len(deltas) >= DESCRIPTIVE_BELOW else None
    return Mean(test.mean, test.interval(1 - alpha), p)
