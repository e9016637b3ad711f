"""What a trainer declares and records, and the facts of a study that its analysis needs.

A study names its trainer (`trainer = "stacked"`, the built-in engine, by default).
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
    """The test text of a trainer's scores, identified by its digest as in the ledger.

    Attributes:
        digest: SHA-256 of the text.
        corpus: SHA-256 of the text that it was cut from; empty if unknown.
        start, stop: its position in that text, in bytes; a stop of None is the end.
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
        controls: names of the controls, which must be equal in both trials of a pair; each with
            the prefixes of study keys by which an arm declares a difference.
        by_item: metrics that are means over items, for which every trial records each item's
            score.
        must_be_finite: the metric without which a trial has diverged; empty for none.
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
        scores: value by metric; a missing metric was not measured.
        items: by metric, the score of each item, in the same order in all trials and of equal
            weight.
        losses: training loss of each step, in which divergence and spikes are detected; may be
            empty.
        controls: evidence by control; it holds if values are equal. A missing control is not
            proven.
        diverged_at: the first step, from 0, that was not finite; None if all were.
        seconds: training time.
        steps: the step of each entry of `losses`, if not 1, 2, 3 and so on.
        curves: by metric, its values along training as (step, value).
        about: further data for trial.json.
        files: content of further records to seal, by file name; only names that its format
            knows.
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
        tokenizer: losses per token can be compared between arms that have the same one.
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
        target: the loss up to which budgets are counted; None without a target.
        seals_test: whether a part of the text is sealed for the verdict.
        texts: files of text and vocabulary that the study names, as absolute paths.
    """

    target: float | None = None
    seals_test: bool = False
    texts: tuple[Path, ...] = ()
