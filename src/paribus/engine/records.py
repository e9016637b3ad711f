"""Record format of the built-in engine, and the checks that compare trials of two arms.

A check returns `declared` if the arm declares the difference (such as another batch size or
training text), and `broken` for any other difference. Held-out text must always be the same. The
result is `not proven` if the records are insufficient, for example if the training text contains
much of the held-out text, or if arms with custom code must match in FLOPs. All checks are in
CHECKS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import Field

from paribus.digests import package_digest
from paribus.engine.setting import CORPUS, Data, Setting
from paribus.ledger import TextPart
from paribus.numbers import some
from paribus.results.controls import (
    WORST,
    Checks,
    Declared,
    Evidence,
    Finding,
    declared_by,
    settings,
)
from paribus.results.records import Count, Empty, Record, RecordFormat, form, training_flops
from paribus.results.software import differences
from paribus.results.trial_folder import REQUIRED, TrialFolder
from paribus.study import Study

BLOCKS = form(kind=str, items=Count, blocks=Count)
PACKAGES = ("paribus", "torch", "numpy", "scipy", "pyarrow", "safetensors", "lm_eval")
# First steps to repeat if an arm has custom code: this share of its iterations, within the bounds.
REPEATED_SHARE, LEAST_REPEATED, MOST_REPEATED = 0.03, 3, 100


class StackedTrialForm(Record):
    """Schema of the keys in trial.json that the engine reads."""

    data: form(digests=form(corpus=str, train=str))
    tasks: Empty | form(prompts_sha256=str)
    consumed: form(sources=dict[str, dict[str, int]])
    batch_digest: str
    blocks: BLOCKS
    tokens: int
    iterations: int
    parameters: Count = 0
    # The reason if a trial was not tested; otherwise the largest influence of a later token (nats).
    causality: form(not_proven=str) | form(evaluation=float, positions=float) | None = None
    stack: list[list[Any]] = Field(default_factory=list)
    flops: Empty | form(per_token=Count) = Empty()


@dataclass(frozen=True)
class StackedEvidence(Evidence):
    """Records of a trial that the checks compare.

    Attributes:
        initial: content of initial.json.
        environment: content of environment.json.
        leaks: fractions of the validation text that also occur in the arm's training text, from
            data.json. The first is the fraction of tokens in verbatim copies, the second the larger
            fraction of documents or passages with a near duplicate. None means not counted yet.
        opened: content of test_part.json, with the time when the test text was read.
    """

    initial: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    leaks: tuple[float | None, float | None] = (None, None)
    opened: dict[str, str] = field(default_factory=dict)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 digests of the trial's data, such as its corpus and vocabulary, keyed by name."""
        return self.trial["data"]["digests"]


HELD_OUT = ("validation_text", "test")  # digests of text that every arm is evaluated on
# Keys, or beginnings of keys, by which an arm declares that it trains on other text or tokens, ...
OTHER_TEXT = (
    *("data.corpus", "data.path", "data.column", "data.name", "data.subset", "data.split"),
    *("data.revision", "data.sources", "data.mixture", "data.order"),
    *("data.deduplicate", "data.tokenizer"),
)
# ... and other batches.
OTHER_BATCHES = (
    *OTHER_TEXT,
    *("data.pack", "data.seq_len", "training.batch_size", "training.iterations"),
)
# Budgets in bytes match on average: the windows of a trial are a sample of the text.
MOST_BYTES_APART = 0.1  # of what is consumed, beyond a step
# The largest difference in leaked shares of the held-out text between an arm and its reference.
LEAKS_APART = 0.01
# The largest leaked share of the held-out text, with words: of tokens, verbatim; of documents or
# passages, as near duplicates. Crawled web text has about 4% (Lee et al. 2022).
SHARED = (
    (0.5, "of its tokens are in passages that occur verbatim in the training text"),
    (0.1, "of its documents or passages have a near duplicate in the training text"),
)


def _apart(own: StackedEvidence, reference: StackedEvidence, *, held_out: bool) -> Finding | None:
    """Compare the digests of held-out or training texts, and return a finding if they differ."""
    ours, theirs = own.digests, reference.digests
    names = [name for name in {**ours, **theirs} if (name in HELD_OUT) == held_out]
    names = [name for name in names if ours.get(name) != theirs.get(name)]
    return ("broken", f"{', '.join(names)} differ") if names else None


def _text(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Compare the training texts and their tokens."""
    if differing := _apart(own, reference, held_out=False):
        return declared_by(declared, *OTHER_TEXT), differing[1]
    corpus, train = own.digests["corpus"], own.digests["train"]
    return "held", f"corpus {corpus[:12]}, training split {train[:12]}"


def _held_out(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Compare the held-out texts and their overlap with the training texts.

    Held-out texts must be equal, even if the arm declares another text.
    """
    if differing := _apart(own, reference, held_out=True):
        return differing
    same_text = ("data.tokenizer", "data.order")  # in other tokens, or in another order
    reads_other = any(k.startswith(OTHER_TEXT) and not k.startswith(same_text) for k in declared)
    for (limit, words), ours, theirs in zip(SHARED, own.leaks, reference.leaks, strict=True):
        if (largest := max(ours or 0, theirs or 0)) > limit:
            return "not proven", f"{largest:.1%} {words}"
        if not reads_other or ours is None or theirs is None:
            continue
        if abs(ours - theirs) >= LEAKS_APART:
            return "not proven", f"{ours:.1%} (reference: {theirs:.1%}) {words}"
    n_bytes = own.trial["data"].get("validation_bytes", 0)
    return "held", f"{n_bytes:,} bytes with SHA-256 {own.digests.get('validation_text', '')[:12]}"


def _batches(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    ours, theirs = own.trial["batch_digest"], reference.trial["batch_digest"]
    if ours == theirs:
        return "held", f"running digest {ours[:12]}"
    words = f"running digest {ours[:12]} vs. {theirs[:12]} in the reference"
    return declared_by(declared, *OTHER_BATCHES), words


def _budget(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    ours, theirs = own.trial["tokens"], reference.trial["tokens"]
    unit = own.trial["setting"]["training"].get("budget")
    if ours == theirs and unit != "flops":
        return "held", f"{ours:,} tokens in both trials"
    words = f"{ours:,} tokens vs. {theirs:,} in the reference"
    if unit not in SPENT:
        return "broken", words
    state, spent = matched(own.trial, reference.trial, unit)
    own_code = {*own.trial["own_modules"], *reference.trial["own_modules"]}
    parts = [key for key in sorted(own_code) if not key.startswith("data.")]
    if state == "held" and unit == "flops" and parts:
        # Only matrix products are counted, not losses, optimizers or other operations.
        spent = f"custom code ({some(parts)}) may use operations that are not counted; {spent}"
        state = "not proven"
    return state, f"{spent}; {words}"


def _bytes(trial: Mapping[str, Any]) -> int:
    return sum(source["bytes"] for source in trial["consumed"]["sources"].values())


# A trial's expense in each unit in which budgets match; 0 if it is not recorded.
SPENT = {"bytes": _bytes, "flops": lambda trial: training_flops(trial) or 0}


def matched(own: Mapping[str, Any], reference: Mapping[str, Any], unit: str) -> Finding:
    """Compare the consumed budgets of two trials, which must match to the nearest step.

    Args:
        own: trial.json of the arm's trial.
        reference: trial.json of the reference arm's trial.
        unit: unit of the budget, "bytes" or "flops".
    """
    ours, theirs = SPENT[unit](own), SPENT[unit](reference)
    if not ours or not theirs:
        return "not proven", f"the {unit} of at least one trial were not counted"
    tolerance = max(ours / own["iterations"], theirs / reference["iterations"])
    if unit == "bytes":  # iterations follow from the average token; drawn windows differ from it
        tolerance += MOST_BYTES_APART * theirs
    share = f"{ours:.6g} {unit} vs. {theirs:.6g} ({(ours - theirs) / theirs:+.1%})"
    return "held" if abs(ours - theirs) <= tolerance else "broken", share


def _initial_values(
    own: StackedEvidence, reference: StackedEvidence, declared: Declared
) -> Finding:
    """Compare the initial values of parameters that both models contain.

    They may differ only if the arm declares another initialization. Parameters that only one model
    contains are counted and listed.
    """
    ours, theirs = own.initial, reference.initial
    names = list({**ours, **theirs})
    shapes = [{name: each[name]["shape"] for name in each} for each in (ours, theirs)]
    shared = [name for name in names if shapes[0].get(name) == shapes[1].get(name)]
    differing = [name for name in shared if ours[name]["sha256"] != theirs[name]["sha256"]]
    if not differing:
        alone = [name for name in names if name not in shared]
        summary = f"{len(shared)} of {len(names)} parameters shared, bit-equal at step 0"
        return "held", f"{summary}; not shared: {some(alone)}" if alone else summary
    if same_rule := [name for name in differing if ours[name]["rule"] == theirs[name]["rule"]]:
        return "broken", f"different values despite the same rule: {some(same_rule)}"
    # An initialization rule depends on these keys; the depth scales residual projections.
    state = declared_by(declared, "model.init.", "model.modules.", "model.n_layer")
    return state, f"initialized by a different rule: {some(differing)}"


def _causality(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Require that both trials passed the causality test."""
    tested = [record.trial.get("causality") or {} for record in (own, reference)]
    if not all(tested):
        return "broken", "the causality test was not run"
    for each in tested:
        if "not_proven" in each:
            return "not proven", f"in a trial, {each['not_proven']}"
    largest = max(each["evaluation"] for each in tested)
    share = min(each["positions"] for each in tested)
    words = "no prediction depends on a later token or another row"
    return "held", f"{words} (within {largest:.1g} nats, at {share:.0%} of the positions)"


def _questions(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Compare the prompts, task files and harness versions of two trials."""
    ours, theirs = own.trial["tasks"], reference.trial["tasks"]
    differing = sorted(key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key))
    if differing:
        return "broken", f"the tasks differ in {', '.join(differing)}"
    return "held", f"prompts {ours['prompts_sha256'][:12]}" if ours else "no tasks"


def _other_software(
    own: StackedEvidence, reference: StackedEvidence, *, pair: bool = False
) -> Finding | None:
    """Return the finding for the most severe software differences, or None if there are none."""
    problems = differences(own.environment, reference.environment, pair=pair).values()
    for state in WORST:
        if words := [text for effect, text in problems if effect == state]:
            return state, "; ".join(words)
    return None


def _software(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    if problem := _other_software(own, reference, pair=True):
        return problem
    return "held", f"torch {own.environment['packages']['torch']} on {own.environment['device']}"


def _sealed(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding | None:
    """Compare the test text with the record of its use, or return None if there is none."""
    digest, opened = own.digests.get("test"), own.opened
    if digest is None:
        return None
    words = f"digest {digest[:12]}"
    if not opened:
        return "held", f"{words}, never read"
    if opened["digest"] != digest:
        return "broken", f"{words}, but the text that was read has {opened['digest'][:12]}"
    return "held", f"{words}, read once, on {opened['opened']}"


CHECKS = Checks(
    pairs={
        "setting": settings,
        "text": _text,
        "held-out text": _held_out,
        "batches": _batches,
        "budget": _budget,
        "initial values": _initial_values,
        "causality": _causality,
        "questions": _questions,
        "software": _software,
        "sealed test part": _sealed,
    },
    across={
        "text": partial(_apart, held_out=False),
        "held-out text": partial(_apart, held_out=True),
        "software": _other_software,
    },
    # Arms may be trained on other text than each other, the trials of one arm may not.
    of_arm=frozenset({"text"}),
)


class StackedRecords(RecordFormat):
    """Record format of the built-in engine."""

    def checks(self, registered: Mapping[str, Any]) -> Checks:
        """Return the checks that compare trials."""
        return CHECKS

    def evidence(
        self,
        folder: TrialFolder,
        trial: dict[str, Any],
        data: dict[str, Any],
        opened: dict[str, str],
    ) -> StackedEvidence:
        """Collect the records of a trial that the checks compare.

        Args:
            folder: the trial's folder.
            trial: content of trial.json.
            data: content of the study's data.json.
            opened: content of the study's test_part.json.
        """
        of_arm = data.get("arms", {}).get(folder.arm, data)
        leakage = of_arm.get("leakage", {})
        leaked = None
        if leakage.get("validation_tokens"):
            leaked = leakage["in_training"] / leakage["validation_tokens"]
        near = [
            counts["leaked_near"] / counts["validation_units"]
            for counts in of_arm.get("duplicates", {}).values()
            if counts.get("validation_units") and "leaked_near" in counts
        ]
        initial, machine = map(folder.read_json, ("initial.json", "environment.json"))
        leaks = leaked, max(near, default=None)
        return StackedEvidence(folder.arm, folder.seed, trial, initial, machine, leaks, opened)

    def code(self) -> str:
        """Return the digest of the engine's source code."""
        return package_digest()

    def held_out_parts(self, study: Study, registered: Mapping[str, Any]) -> list[TextPart]:
        """Return the held-out texts of all arms, including their byte ranges in the corpus."""
        return [
            part
            for arm, record in registered["data"].items()
            if arm in study.arms
            for part in _held_out_parts(study.setting(arm).data, record)
        ]

    def repeated_steps(self, setting: Setting) -> int:
        """Return the number of initial steps to reproduce for a trial with custom code."""
        share = math.ceil(REPEATED_SHARE * setting.iterations)
        return min(setting.iterations, max(LEAST_REPEATED, min(share, MOST_REPEATED)))


def _held_out_parts(data: Data, record: Mapping[str, Any]) -> list[TextPart]:
    """Return an arm's validation and test texts according to its registered data.

    A corpus contains training, validation and test text, in this order.
    """
    digests = record["digests"]
    form = data.deduplicate if data.deduplicate in ("exact", "near") else ""
    cut = {"corpus": digests["corpus"], "form": form}
    start, n_bytes, parts = _trained_bytes(data, record), record.get("validation_bytes"), []
    if text := digests.get("validation_text"):
        place: dict[str, Any] = {"corpus": text, "start": 0, "stop": n_bytes}
        if data.validation_path is None:
            stop = None if start is None or n_bytes is None else start + n_bytes
            place = cut | {"start": start, "stop": stop}
            start = stop
        parts.append(TextPart(role="validation", digest=text, **place))  # type: ignore
    if text := digests.get("test"):
        place = cut | {"start": start} if data.test_path is None else {"corpus": text, "start": 0}
        parts.append(TextPart(role="test", digest=text, **place))  # type: ignore
    return parts


def _trained_bytes(data: Data, record: Mapping[str, Any]) -> int | None:
    """Return the number of corpus bytes that precede the held-out text, or None if unknown."""
    if data.deduplicate == "none" and "sources" in record:
        return record["sources"].get(CORPUS, {}).get("n_bytes")
    if set(data.shares) != {CORPUS}:
        return None
    if data.deduplicate != "none":  # lines that held-out text has too are cut out afterwards
        return record.get("deduplicated", {}).get("train_bytes")
    return record.get("train_bytes")


RECORDS = StackedRecords(
    required=REQUIRED,
    trial_form=StackedTrialForm,
    packages=PACKAGES,
    blocks="blocks.parquet",
    aligned_by="characters",
    finite="validation_loss",
)
