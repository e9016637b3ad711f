"""Per-item scores, where items are documents, contiguous blocks of one text, or task questions.

If results are to generalize to new text or new questions, items are treated as a random sample, in
addition to seeds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from paribus.analysis.table import Table
from paribus.metric import QUESTIONS, ItemSums, Metric
from paribus.numbers import plural
from paribus.results.records import records_of
from paribus.statistics import DESCRIPTIVE_BELOW, LEAST_IN_BLOCK, contiguous_blocks, joined
from paribus.study.sections import HELD_OUT
from paribus.study.trainer import RUNS, STACKED

Scores = list[np.ndarray]  # [seeds, items] by task


def block_scores(
    table: Table, items: ItemSums, arm: str, seeds: tuple[int, ...], n_blocks: int | None = None
) -> np.ndarray:
    """Return block scores at every seed, [S, I], whose mean over blocks is the text's score.

    Recorded blocks are used, or joined into `n_blocks` contiguous blocks. A ratio of sums over
    blocks with totals y_i and counts x_i is linearized (Cochran 1977, Sampling Techniques, section
    6.4): the score of block i is R + (y_i - R x_i) / mean(x) with R = sum(y) / sum(x). For blocks
    of equal size, this equals y_i / x_i.
    """
    y, x = (
        np.stack([_column(table, arm, seed, name) for seed in seeds])
        for name in (items.total, items.count)
    )
    if n_blocks is not None:
        y, x = joined(y, n_blocks), joined(x, n_blocks)
    R = y.sum(axis=1, keepdims=True) / x.sum(axis=1, keepdims=True)
    return items.scale * (R + (y - R * x) / x.mean(axis=1, keepdims=True))


def _column(table: Table, arm: str, seed: int, name: str) -> np.ndarray:
    """Return a column of a trial's per-block table as a float64 array [I]."""
    blocks = table.results.trial_blocks[arm, seed]
    return blocks[name].to_numpy(zero_copy_only=False).astype(float)


def question_scores(table: Table, arm: str, seeds: tuple[int, ...], task: str | None) -> Scores:
    """Return question scores, as one array [seeds, questions] per task.

    A score is the fraction of few-shot settings with a correct answer. Questions have the same
    order in every trial, because the controls compare their prompts.

    Args:
        table: scores of the study.
        arm: name of the arm.
        seeds: seeds to include.
        task: name of a task, or None for all tasks.
    """
    trials = [table.results.trial_answers[arm, seed] for seed in seeds]
    names = [name for name in trials[0] if task in (None, name)]
    return [np.stack([trial[name].right for trial in trials]) for name in names]


def share_step(table: Table, metric: Metric) -> float | None:
    """Return the resolution of a metric, 1 / n for a fraction of n items, or None for others."""
    trial, items = next(iter(table.events), None), metric.items
    if trial is None or not items:
        return None
    if isinstance(items, str):
        answers = table.results.trial_answers[trial].items()
        asked = sum(answer.asked for task, answer in answers if metric.task in (None, task))
        return 1 / asked if asked else None
    if not items.step:
        return None
    return items.scale * items.step / float(np.sum(_column(table, *trial, items.count)))


@dataclass(frozen=True)
class Items:
    """Items of one metric, for a comparison of arms at common seeds."""

    table: Table
    metric: Metric
    arms: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def _trials(self) -> list[tuple[str, int]]:
        """First trial of each arm, which represents the arm because all its trials share items."""
        return [(arm, self.seeds[0]) for arm in self.arms]

    @property
    def _blocks(self) -> Mapping[str, Any]:
        """Metadata of the held-out text's blocks, with keys `kind`, `items` and `blocks`."""
        return self.table.results.trials[self._trials[-1]]["blocks"]

    @property
    def _recorded(self) -> int:
        """Number of blocks of held-out text in the records."""
        return len(self.table.results.trial_blocks[self._trials[-1]])

    @property
    def n_blocks(self) -> int | None:
        """Number of contiguous blocks into which windows are joined.

        None for documents, which are not joined because they are independent.
        """
        is_one_text = self._blocks["kind"] == "window"
        return contiguous_blocks(self._recorded) if is_one_text else None

    def _share_blocks(self) -> bool:
        """Return whether the text is divided into the same blocks in all arms."""
        results, trials = self.table.results, self._trials
        kinds = {results.trials[trial]["blocks"]["kind"] for trial in trials}
        # The same text has the same characters in each of its blocks, whatever its tokens are; but
        # the first token, which no token predicts, is longer in one tokenizer than in another.
        start = 1 if kinds == {"document"} else 0
        column = records_of(results.study).aligned_by
        first, *rest = (_column(self.table, *trial, column)[start:] for trial in trials)
        return len(kinds) == 1 and all(np.array_equal(first, sizes) for sizes in rest)

    def scores(self) -> dict[str, Scores] | str:
        """Return {arm: [array of shape (seeds, items) per task]}, or why items cannot be paired."""
        over = self.metric.items
        if not over:
            return f"{self.metric.label} is not a ratio of sums over items"
        if isinstance(over, str):
            task = self.metric.task
            by_arm = {arm: question_scores(self.table, arm, self.seeds, task) for arm in self.arms}
        elif not self._share_blocks():
            return "the arms divide the validation text into different blocks"
        elif self.n_blocks is not None and self.n_blocks < DESCRIPTIVE_BELOW:
            text = plural(self._recorded, "window")
            blocks = f"{DESCRIPTIVE_BELOW} blocks of {LEAST_IN_BLOCK}"
            return f"a text of {text} is too short for {blocks}"
        else:
            by_arm = {
                arm: [block_scores(self.table, over, arm, self.seeds, self.n_blocks)]
                for arm in self.arms
            }
        first, *rest = ([task.shape[1] for task in tasks] for tasks in by_arm.values())
        if any(sizes != first for sizes in rest):
            return "the arms were evaluated on different questions"
        return by_arm if max(first, default=0) > 1 else "there is only one item"

    def text(self, n: int) -> str:
        """Describe `n` items, such as `384 questions` or `1,024 blocks of 3,000 documents`."""
        if isinstance(self.metric.items, str):
            return f"{n:,} questions"
        if self.n_blocks is not None:
            return f"{n:,} contiguous blocks of text"
        counted = f"{self._blocks['items']:,} {self._blocks['kind']}s"
        return counted if self._blocks["items"] == n else f"{n:,} blocks of {counted}"

    def target(self, sampled: str) -> str:
        """Describe the target population, such as `text like these 40 documents`.

        Returns "" if the metric is not measured on held-out text or tasks.

        Args:
            sampled: description of the items that are treated as a sample, or "" for none.
        """
        trainer = self.table.results.study.trainer
        if self.metric.items == QUESTIONS:
            n = sampled.partition(" ")[0]
            return f"questions like these {n}" if sampled else "these questions"
        # Nobody says what scores of other programs are of, and what they hold out may be no text.
        if self.metric.record not in HELD_OUT or (trainer == RUNS and not sampled):
            return ""
        if trainer != STACKED:
            return f"items like these {sampled}" if sampled else "this held-out data"
        if not sampled:
            return "this text"
        if self.n_blocks is not None:
            return f"this text (error over {sampled.removesuffix(' of text')})"
        return f"text like these {sampled}"
