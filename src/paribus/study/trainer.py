"""Declarations and records of trainers, and facts of a study for its analysis.

A study names its trainer; the default is `trainer = "stacked"`, the built-in engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as validated

from paribus.metric import Metric

STACKED, RUNS, COMMAND = "stacked", "runs", "command"

Trial = tuple[str, int]
"""(arm, seed)."""

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
Place = Annotated[int, Field(ge=0, lt=2**63)]


@validated(frozen=True, config=ConfigDict(defer_build=True))
class TestText:
    """The text on which a trainer's test scores are measured, identified as in the ledger.

    Attributes:
        digest: SHA-256 of the text.
        corpus: SHA-256 of the corpus that the text was cut from, or "" if unknown.
        start, stop: range of bytes in the corpus. A stop of None is the end of the corpus.
    """

    __test__ = False  # nothing for pytest, whatever its name

    digest: Sha256
    corpus: Literal[""] | Sha256 = ""
    start: Place | None = None
    stop: Place | None = None


@validated(frozen=True, config=ConfigDict(defer_build=True))
class Declaration:
    """Metrics and controls of a trainer, registered before its first trial.

    Attributes:
        metrics: metrics that its trials score.
        controls: values that must be equal in both trials of a pair, by name; each with the
            prefixes of study keys by which an arm declares that they differ.
        by_item: metrics that are means over items, for which every trial records each item's
            score.
        must_be_finite: a trial without a finite value of this metric has diverged; "" for none.
        test: the text on which scores are measured; None if it is not declared.
        about: further data to register, such as a program's commit.
    """

    metrics: tuple[Metric, ...]
    controls: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_item: frozenset[str] = frozenset()
    must_be_finite: str = ""
    test: TestText | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialRecord:
    """Results of one trial.

    Attributes:
        scores: values by metric; a missing metric was not measured.
        items: by metric, the score of each item, in the same order in all trials and with equal
            weights.
        losses: training loss at each step, used to detect divergence and spikes; may be empty.
        controls: evidence by control; a control holds if both trials have equal values, and is
            unproven if it is missing.
        diverged_at: the first step, from 0, that was not finite; None if all were.
        seconds: training time.
        steps: the step of each entry of `losses`, if not 1, 2, 3 and so on.
        curves: by metric, its values along training as (step, value).
        about: further data for trial.json.
        files: content of further records to seal, by file name; only names that the trainer's
            format knows.
    """

    scores: Mapping[str, float]
    items: Mapping[str, Sequence[float]] = field(default_factory=dict)
    losses: Sequence[float] = ()
    controls: Mapping[str, str | int | float] = field(default_factory=dict)
    diverged_at: int | None = None
    seconds: float | None = None
    steps: Sequence[float] = ()
    curves: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ArmFacts:
    """Facts of one arm for the analysis.

    Attributes:
        steps, tokens: the length of training; None if unknown.
        learning_rate: None if unknown.
        tokenizer: identity of the tokenizer; arms with the same one can be compared by loss per
            token.
        curve_tokens: tokens seen by each point of the held-out curve.
        absent: seeds of the study for which the arm has no trial.
    """

    steps: int | None = None
    tokens: int | None = None
    learning_rate: float | None = None
    tokenizer: str = ""
    curve_tokens: tuple[int | None, ...] = ()
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class StudyFacts:
    """Facts of a study for the analysis, from the trainer's sections.

    Attributes:
        target: the loss that runs must reach when their budgets are compared, or None.
        seals_test: whether a part of the text is sealed until the verdict.
        texts: files of text and vocabulary that the study names, as absolute paths.
    """

    target: float | None = None
    seals_test: bool = False
    texts: tuple[Path, ...] = ()
