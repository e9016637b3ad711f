"""Data classes of the trainer interface: declarations, trial records, and study metadata.

The default trainer is the built-in engine, `trainer = "stacked"`.
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
    """Identity of the test text on which a trainer measures its scores.

    Attributes:
        digest: SHA-256 of the text.
        corpus: SHA-256 of the corpus that contains the text, or "" if unknown.
        start, stop: byte range of the text in the corpus; a stop of None is the end of the corpus.
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
        metrics: metrics that trials record.
        controls: {name: study key prefixes} for values that must be equal in both trials of a
            pair, unless the arm overrides a key with one of the prefixes.
        by_item: metrics that are means over items and are recorded per item.
        must_be_finite: metric that is not finite if a trial has diverged, or "" for none.
        test: the text on which scores are measured, or None if it is not declared.
        about: further JSON data to register, such as a program's commit.
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
        scores: final values, keyed by metric; metrics that were not measured are omitted.
        items: per-item scores, keyed by metric, in the same order in all trials.
        losses: training loss at each step, used to detect divergence and spikes; may be empty.
        controls: values that must match between both trials of a pair, keyed by control. A missing
            control is reported as not proven.
        diverged_at: 0-based index of the first step with a non-finite loss, or None.
        seconds: training time in seconds.
        steps: step number of each entry of `losses`; by default 1, 2, 3 and so on.
        curves: measurements during training as (step, value) pairs, keyed by metric.
        about: further JSON data for trial.json.
        files: contents of further records, keyed by file name; the names must be among those that
            the trainer's record format defines.
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
    """Metadata of an arm for the analysis.

    Attributes:
        steps, tokens: training budget; None if unknown.
        learning_rate: peak learning rate; None if unknown.
        tokenizer: identifier of the tokenizer. Losses per token are only comparable between arms
            with equal identifiers.
        curve_tokens: number of training tokens before each point of the held-out loss curve.
        absent: seeds for which the arm has no trial.
    """

    steps: int | None = None
    tokens: int | None = None
    learning_rate: float | None = None
    tokenizer: str = ""
    curve_tokens: tuple[int | None, ...] = ()
    absent: tuple[int, ...] = ()


@dataclass(frozen=True)
class StudyFacts:
    """Metadata of a study for the analysis.

    Attributes:
        target: loss for comparisons of the budget needed to reach it, or None.
        seals_test: whether a test split is withheld until the verdict.
        texts: absolute paths of the text and vocabulary files that the study uses.
    """

    target: float | None = None
    seals_test: bool = False
    texts: tuple[Path, ...] = ()
