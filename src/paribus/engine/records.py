"""The records of the built-in engine: which files a trial has, and what they must hold."""

# pyright: reportInvalidTypeForm=false
from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from paribus.digests import package_digest
from paribus.engine.controls import CHECKS, StackedEvidence, evidence_of
from paribus.engine.setting import CORPUS, Data, Setting
from paribus.ledger import TextPart
from paribus.results.controls import Checks
from paribus.results.records import Count, Empty, Record, RecordFormat, form
from paribus.results.trial_folder import MEASURED, REQUIRED, TrialFolder
from paribus.study import Study

BLOCKS = form(kind=str, items=Count, blocks=Count)
PACKAGES = ("paribus", "torch", "numpy", "scipy", "pyarrow", "safetensors", "lm_eval")
# Steps of a trial that are trained again where its arm has custom code: a share of its iterations,
# and within these bounds.
REPEATED_SHARE, LEAST_REPEATED, MOST_REPEATED = 0.03, 3, 100


class StackedTrialForm(Record):
    """Keys of trial.json that the engine reads."""

    data: form(digests=form(corpus=str, train=str))
    tasks: Empty | form(prompts_sha256=str)
    consumed: form(sources=dict[str, dict[str, int]])
    batch_digest: str
    blocks: BLOCKS
    tokens: int
    iterations: int
    parameters: Count = 0
    # Of a trial that was not tested, why; else the largest influence of a later token, in nats.
    causality: form(not_proven=str) | form(evaluation=float, positions=float) | None = None
    stack: list[list[Any]] = Field(default_factory=list)
    flops: Empty | form(per_token=Count, by=str) = Empty()


class StackedRecords(RecordFormat):
    """The records of the built-in engine."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return what two trials are compared in."""
        return CHECKS

    def evidence(
        self, folder: TrialFolder, trial: dict[str, Any], data: dict[str, Any]
    ) -> StackedEvidence:
        """Return what checks look at of a trial."""
        return evidence_of(folder, trial, data)

    def code(self) -> str:
        """Return the digest of the source that trains and measures."""
        return package_digest()

    def held_out_parts(self, study: Study, registered: Mapping[str, Any]) -> list[TextPart]:
        """Return the texts that are held out, with their places in the corpus."""
        return [
            part
            for arm, record in registered["data"].items()
            if arm in study.arms
            for part in _held_out_parts(study.setting(arm).data, record)
        ]

    def forbids_reuse(self, study: Study, registered: Mapping[str, Any]) -> bool:
        """Return whether a test text that was opened before must not be tested on again."""
        return study.data.test_reuse == "forbid"

    def registered(self, study: Study) -> dict[str, Any]:
        """Return the budget of every arm, and its precision."""
        settings: dict[str, Setting] = {arm: study.setting(arm) for arm in study.arms}
        return {
            "budgets": {
                arm: {
                    "match_in": setting.training.budget,
                    "iterations": setting.iterations,
                    "tokens": setting.tokens,
                }
                for arm, setting in settings.items()
            },
            "precision": {arm: setting.training.precision for arm, setting in settings.items()},
        }

    def repeated_steps(self, setting: Setting) -> int:
        """Return how many first steps of a trial are trained again."""
        share = math.ceil(REPEATED_SHARE * setting.iterations)
        return min(setting.iterations, max(LEAST_REPEATED, min(share, MOST_REPEATED)))


def _held_out_parts(data: Data, record: Mapping[str, Any]) -> list[TextPart]:
    """Return the validation text and the test part of an arm, from what is registered of its data.

    Bytes of the corpus follow one another: trained on, validated on, sealed.
    """
    digests, n_bytes = record["digests"], record.get("validation_bytes")
    form = data.deduplicate if data.deduplicate in ("exact", "near") else ""
    cut = {"corpus": digests["corpus"], "form": form}
    start = _trained_bytes(data, record)
    parts = []
    if text := digests.get("validation_text"):
        place: dict[str, Any] = {"corpus": text, "start": 0, "stop": n_bytes}
        if data.validation_path is None:
            stop = None if start is None or n_bytes is None else start + n_bytes
            place = cut | {"start": start, "stop": stop}
            start = stop
        parts.append(TextPart(role="validation", digest=text, **place))
    if text := digests.get("test"):
        place = cut | {"start": start}
        if data.test_path is not None:
            place = {"corpus": text, "start": 0}
        parts.append(TextPart(role="test", digest=text, **place))
    return parts


def _trained_bytes(data: Data, record: Mapping[str, Any]) -> int | None:
    """Return how many bytes of the corpus lie before what is held out; None where nothing says."""
    if data.deduplicate == "none" and "sources" in record:
        return record["sources"].get(CORPUS, {}).get("n_bytes")
    if set(data.shares) != {CORPUS}:
        return None
    if data.deduplicate != "none":  # lines that held-out text has too are cut out afterwards
        return record.get("deduplicated", {}).get("train_bytes")
    return record.get("train_bytes")


RECORDS = StackedRecords(
    required=REQUIRED,
    possible=MEASURED,
    trial_form=StackedTrialForm,
    packages=PACKAGES,
    blocks="blocks.parquet",
    aligned_by="characters",
    is_timed=True,
    finite="validation_loss",
)
