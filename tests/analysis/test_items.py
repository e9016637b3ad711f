"""Accuracy by item: windows that weigh by their tokens, arms that share no items, single tasks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from paribus.analysis import Analysis, analyse
from paribus.analysis.items import RATIOS, block_scores
from paribus.analysis.table import Table
from paribus.decision import decide
from paribus.evaluation.harness import CELLS, ITEMS
from paribus.report import tables
from paribus.report.words import headline
from paribus.results import Results, load_results
from paribus.results.formats import write_table
from paribus.results.trial_folder import TrialFolder
from paribus.study import Study

Study_, Fabricate = Callable[..., Study], Callable[..., Results]
SEEDS = [1, 2, 3, 4, 5, 6]
TWO_ARMS = {"baseline": {}, "arm": {"set": {"model.embedding.norm": "layernorm"}}}
ACCURACY = {"metric": "validation_accuracy", "primary": True, "margin": 0.001}


def windows(trial: TrialFolder, correct: list[int], predicted: list[int]) -> None:
    hits, sizes = np.array(correct), np.array(predicted)
    columns = {"loss_sum_nats": 2.0 * sizes, "correct": hits, "predicted": sizes}
    columns |= {"brier_sum": 0.5 * sizes, "characters": sizes}
    trial.write_columns("blocks.parquet", columns, dict.fromkeys(columns, "1"))
    scores = trial.read_json("evaluation.json")
    scores["validation_accuracy"] = float(hits.sum() / sizes.sum())
    trial.write_json("evaluation.json", scores)
    trial.finish()


def test_a_short_last_window_weighs_by_its_tokens(
    small_study: Study_, fabricate: Fabricate
) -> None:
    """The change of a row is the difference of the means of that row."""
    made = fabricate(small_study(seeds=SEEDS, arms=TWO_ARMS, endpoints=[ACCURACY]), lambda *_: 2.0)
    for trial in made.finished:
        ours = trial.arm == "arm"
        correct = [8 - ours, 8 - ours * (trial.seed % 2), 8, 8, 12 * ours]
        windows(trial, correct, [16, 16, 16, 16, 12])
    analysis = analyse(load_results(made.path))
    contrast = analysis.contrast("arm", "validation_accuracy")
    means = [analysis.summary(arm, "validation_accuracy").mean for arm in ("arm", "baseline")]
    assert contrast.decided is not None
    assert contrast.decided.test == "crossed_bootstrap"
    assert contrast.decided.mean == pytest.approx(means[0] - means[1])
    assert contrast.decided.mean == pytest.approx((12 - 1.5) / 76)
    assert contrast.items is not None
    assert contrast.items.by_seed.sd == pytest.approx(contrast.paired.sd)


def test_arms_without_shared_items_are_judged_on_these_alone_and_it_is_said(
    small_study: Study_, fabricate: Fabricate
) -> None:
    """The registered target is new items; what decides is not what was registered."""
    made = fabricate(small_study(seeds=SEEDS, arms=TWO_ARMS, endpoints=[ACCURACY]), lambda *_: 2.0)
    for trial in made.finished:
        if trial.arm == "arm":
            windows(trial, [2 + trial.seed % 3] * 40, [8] * 40)
        else:
            windows(trial, [6] * 20, [16] * 20)
    analysis = analyse(load_results(made.path))
    contrast = analysis.contrast("arm", "validation_accuracy")
    assert contrast.items is None
    assert contrast.decided is not None
    assert contrast.decided.test == "paired_t"
    (verdict,) = decide(analysis)
    assert "windows of other lengths: the paired t on seed means decides" in verdict.sentence
    assert "not about new items as registered" in verdict.sentence
    assert "this is about these items, not new ones" in headline(analysis, [verdict])


def asked(made: Results, hits: Callable[[TrialFolder], list[int]], questions: int) -> Analysis:
    for trial in made.finished:
        right = hits(trial)
        rows = [
            {"task": "quiz", "shots": 0, "item": i, "correct": i in right} for i in range(questions)
        ]
        share = len(right) / questions
        cells = [{"task": "quiz", "shots": 0, "chance": 0.5, "accuracy": share}]
        write_table(trial.path / "items.parquet", pa.Table.from_pylist(rows, schema=ITEMS))
        write_table(trial.path / "tasks.parquet", pa.Table.from_pylist(cells, schema=CELLS))
        trial.write_json(
            "evaluation.json", trial.read_json("evaluation.json") | {"macro_accuracy": share}
        )
        trial.finish()
    return analyse(load_results(made.path))


def test_one_question_more_in_every_seed_is_the_resolution_of_a_task(
    small_study: Study_, fabricate: Fabricate
) -> None:
    made = fabricate(small_study(seeds=SEEDS, arms=TWO_ARMS), lambda *_: 2.0)
    (found,) = asked(made, lambda t: list(range(20 + (t.arm == "arm"))), 40).tasks
    assert found.paired is not None
    assert found.paired.resolution == 1 / 40
    assert found.paired.decided.p_value > 1e-3  # a t of sqrt(6)
    assert found.paired.t_p == pytest.approx(0.0577, abs=5e-4)


def test_equal_items_at_every_seed_have_words_of_their_own(
    small_study: Study_, fabricate: Fabricate
) -> None:
    endpoints = [{"metric": "macro_accuracy", "primary": True, "margin": 0.05}]
    study = small_study(seeds=SEEDS, arms=TWO_ARMS, endpoints=endpoints)
    none_or_all = asked(
        fabricate(study, lambda *_: 2.0), lambda t: list(range(8 * (t.arm == "arm"))), 8
    )
    (verdict,) = decide(none_or_all)
    assert "Every item differs by the same amount at every seed" in verdict.sentence
    some = asked(
        fabricate(study, lambda *_: 2.0, folder="some"),
        lambda t: list(range(4 + (t.arm == "arm"))),
        8,
    )
    (verdict,) = decide(some)
    assert "differences are equal" not in verdict.sentence
    assert "same amount" not in verdict.sentence
    assert "[" in tables.primary(some)[0].rows[1][3]


@pytest.mark.parametrize("metric", [*RATIOS, "validation_accuracy"])
def test_blocks_weigh_as_a_ratio_estimator_has_it(
    small_study: Study_, fabricate: Fabricate, metric: str
) -> None:
    """The mean over blocks is the ratio of the sums, and their spread gives its standard error.

    Against the textbook's s.e. of a ratio (Cochran 1977, equation 6.13), written out in numbers.
    """
    made = fabricate(small_study(seeds=SEEDS[:2], arms=TWO_ARMS), lambda *_: 2.0)
    rng = np.random.default_rng(4)
    sizes = rng.integers(5, 200, size=40)
    y = rng.uniform(0.2, 0.6, size=40) * sizes
    for trial in made.finished:
        columns = {"loss_sum_nats": y, "brier_sum": y, "correct": y, "predicted": sizes}
        columns["characters"] = sizes
        trial.write_columns("blocks.parquet", columns, dict.fromkeys(columns, "1"))
        trial.finish()
    table = Table.of(load_results(made.path))
    scores = block_scores(table, metric, "arm", (1, 2))
    scale = 1 / np.log(2) if metric == "bits_per_character" else 1.0
    ratio = y.sum() / sizes.sum()
    assert scores.shape == (2, 40)
    assert scores.mean(axis=1) == pytest.approx(scale * ratio)
    error = np.sqrt(((y - ratio * sizes) ** 2).sum() / 39 / 40) / sizes.mean()
    assert scores[0].std(ddof=1) / np.sqrt(40) == pytest.approx(scale * error)


def test_documents_are_shared_by_arms_that_read_other_windows(
    small_study: Study_, fabricate: Fabricate
) -> None:
    """Blocks of the same text are the same items, whatever the lengths in tokens."""
    made = fabricate(small_study(seeds=SEEDS, arms=TWO_ARMS, endpoints=[ACCURACY]), lambda *_: 2.0)
    for trial in made.finished:
        sizes = np.array([30, 50, 20, 60, 40, 10]) // (2 if trial.arm == "arm" else 1)
        windows(trial, (sizes // 2).tolist(), sizes.tolist())
        blocks = trial.read_columns("blocks.parquet").to_pydict()
        blocks["characters"] = [90, 150, 60, 180, 120, 30]
        units = dict.fromkeys(blocks, "1")
        trial.write_columns("blocks.parquet", {k: np.array(v) for k, v in blocks.items()}, units)
        trial.finish()
    contrast = analyse(load_results(made.path)).contrast("arm", "validation_accuracy")
    assert contrast.items_why_not == ""
    assert contrast.items is not None and contrast.items.crossed is not None
    assert contrast.items.crossed.n_items == (6,)
