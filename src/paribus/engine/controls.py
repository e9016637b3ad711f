"""The controls of the built-in engine, compared between two trials from their records.

A difference that the arm declares (another batch size, other text to train on) is `declared`; any
other is `broken`. Held-out text is never the arm's to declare. What the records cannot show is
`not proven`: that training text with much of the held-out text in it is held out, or that arms with
custom code match in FLOPs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from paribus.numbers import some
from paribus.results.controls import (
    WORST,
    Check,
    Checks,
    Declared,
    Evidence,
    Finding,
    declared_by,
    settings,
)
from paribus.results.software import differences
from paribus.results.trial_folder import TrialFolder
from paribus.study import changed_sources


@dataclass(frozen=True)
class StackedEvidence(Evidence):
    """Records that controls compare: trial.json, initial.json and environment.json of a trial.

    `leaks` are shares of the validation text that the training text of the arm has too, from
    data.json: of tokens, word for word; of documents, or of passages if that is more, as near
    duplicates. None is what nobody counted yet.
    """

    initial: dict[str, dict[str, Any]] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    leaks: tuple[float | None, float | None] = (None, None)

    @property
    def digests(self) -> dict[str, str]:
        """Digests of its texts."""
        return self.trial["data"]["digests"]

    @property
    def own_parts(self) -> list[str]:
        """Keys at which it has custom code that computes."""
        return [key for key in self.trial["own_modules"] if not key.startswith("data.")]


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
# Shares of the held-out text that the training text has too.
LEAKS_APART = 0.01  # between an arm and its reference
# The most of it, and words: of tokens word for word; of documents or passages as near duplicates,
# of which crawled web text has some 4% (Lee et al. 2022).
SHARED = (
    (0.5, "of its tokens lie in runs that", "has word for word"),
    (0.1, "of its documents or passages have a near duplicate in", ""),
)


def _sealed(record: StackedEvidence, opened: Mapping[str, str] | None) -> Finding | None:
    """Compare the test part with the record of its one opening; None where nothing is sealed."""
    digest = record.digests.get("test")
    if digest is None:
        return None
    if opened is None:
        return "held", f"digest {digest[:12]}, never read"
    if opened["digest"] != digest:
        return "broken", f"digest {digest[:12]}, and what was read has {opened['digest'][:12]}"
    when, purpose = opened["opened"], opened["purpose"]
    return "held", f"digest {digest[:12]}, read once, on {when}, for “{purpose}”"


def _differing(own: StackedEvidence, reference: StackedEvidence, *, held_out: bool) -> list[str]:
    """Return the names of the digests that differ: of held-out text, or of any reference."""
    ours, theirs = own.digests, reference.digests
    names = (name for name in {**ours, **theirs} if (name in HELD_OUT) == held_out)
    return [name for name in names if ours.get(name) != theirs.get(name)]


def _worst(problems: Mapping[str, Finding]) -> Finding | None:
    """Return the worst state among `problems`, with everything that is in it."""
    for state in WORST:
        if words := [text for worst, text in problems.values() if worst == state]:
            return state, "; ".join(words)
    return None


def _text(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Compare what is trained on, and in which tokens."""
    differing = _differing(own, reference, held_out=False)
    if not differing:
        corpus, train = own.digests["corpus"], own.digests["train"]
        return "held", f"corpus {corpus[:12]}, training split {train[:12]}"
    sizes = (
        f"{data['train_tokens']:,} tokens of a vocabulary of {data['vocab_size']:,}"
        for data in (own.trial["data"], reference.trial["data"])
        if "train_tokens" in data
    )
    return declared_by(declared, *OTHER_TEXT), (
        f"{', '.join(differing)} differ: {' against '.join(sizes)}"
    )


def _held_out(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Compare the bytes that all arms are evaluated on, which nothing that an arm declares may
    change, and how much of them the training texts have."""
    if differing := _differing(own, reference, held_out=True):
        return "broken", f"{', '.join(name.partition('_')[0] for name in differing)} text differs"
    same_text = ("data.tokenizer", "data.order")  # in other tokens, or in another order
    reads_other = any(k.startswith(OTHER_TEXT) and not k.startswith(same_text) for k in declared)
    for (limit, verb, end), ours, theirs in zip(SHARED, own.leaks, reference.leaks, strict=True):
        for record, share in ((own, ours), (reference, theirs)):
            if (share or 0) > limit:
                whose = "" if own.digests == reference.digests else f" of arm '{record.arm}'"
                return "not proven", f"{share:.1%} {verb} the training text{whose} {end}".strip()
        if not reads_other or ours is None or theirs is None:
            continue
        if abs(ours - theirs) >= LEAKS_APART:
            words = f"{ours:.1%} {verb} the training text of the arm {end}".strip()
            return "not proven", f"{words}, and {theirs:.1%} for its reference"
    sha256 = own.digests.get("validation_text", "")
    n_bytes = own.trial["data"].get("validation_bytes", 0)
    return "held", f"{n_bytes:,} bytes with SHA-256 {sha256[:12]}"


def _batches(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    ours, theirs = own.trial["batch_digest"], reference.trial["batch_digest"]
    if ours == theirs:
        return "held", f"running digest {ours[:12]}"
    state = declared_by(declared, *OTHER_BATCHES)
    return state, f"running digest {ours[:12]} against {theirs[:12]}"


def _budget(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    ours, theirs = own.trial["tokens"], reference.trial["tokens"]
    units = {record.trial["setting"]["training"].get("budget") for record in (own, reference)}
    if ours == theirs and "flops" not in units:
        return "held", f"{ours:,} tokens in each"
    words = f"{ours:,} tokens against {theirs:,}"
    if units == {"flops"}:
        state, words = matched_flops(own.trial, reference.trial, words)
        hidden = {key for record in (own, reference) for key in record.own_parts}
        if state == "held" and hidden:
            # No counter sees a loss, an optimizer, or anything else that is not a matrix product.
            code = f"own code ({some(sorted(hidden))}) can compute what no count of FLOPs sees"
            return "not proven", f"{code}; {words}"
        return state, words
    if units != {"bytes"}:
        return "broken", words
    ours, theirs = _consumed_bytes(own), _consumed_bytes(reference)
    if not ours or not theirs:
        return "not proven", f"no record of the bytes that were consumed: {words}"
    # Iterations are rounded to whole steps, one arm's from the other's, by the average token of
    # each arm's text; what the drawn windows hold differs from that average.
    step = max(ours / own.trial["iterations"], theirs / reference.trial["iterations"])
    is_near = abs(ours - theirs) <= step + MOST_BYTES_APART * theirs
    return "held" if is_near else "broken", (
        f"budgets match in bytes on average: {ours:,} bytes were consumed against {theirs:,} "
        f"({(ours - theirs) / theirs:+.1%}), to the nearest step; {words}"
    )


def _consumed_bytes(record: StackedEvidence) -> int:
    """Return the UTF-8 bytes of all targets of a trial; 0 of no record."""
    sources = record.trial.get("consumed", {}).get("sources", {})
    return sum(source["bytes"] for source in sources.values())


def _initial_values(
    own: StackedEvidence, reference: StackedEvidence, declared: Declared
) -> Finding:
    """Compare what both models have, by name and shape: another *rule* must be the arm's doing.

    What one of them has alone is counted, and named.
    """
    names = [*own.initial, *(name for name in reference.initial if name not in own.initial)]
    shared = [
        name
        for name, ours in own.initial.items()
        if name in reference.initial and ours["shape"] == reference.initial[name]["shape"]
    ]
    differing = [n for n in shared if own.initial[n]["sha256"] != reference.initial[n]["sha256"]]
    if not differing:
        alone = [name for name in names if name not in shared]
        summary = f"{len(shared)} of {len(names)} parameters shared, bit-equal at step 0"
        return "held", f"{summary}; not shared: {some(alone)}" if alone else summary
    same_rule = [n for n in differing if own.initial[n]["rule"] == reference.initial[n]["rule"]]
    if same_rule:
        return "broken", f"drawn by one rule, yet different: {some(same_rule)}"
    # What an initialisation rule depends on; the depth scales residual projections.
    state = declared_by(declared, "model.init.", "model.modules.", "model.n_layer")
    return state, f"another rule for {some(differing)}"


def _questions(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Accuracies are compared on the same prompts, of the same files, through the same harness."""
    ours, theirs = own.trial["tasks"], reference.trial["tasks"]
    differing = sorted(key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key))
    if differing:
        return "broken", f"{', '.join(differing)} of the tasks differ"
    return "held", f"prompts {ours['prompts_sha256'][:12]}" if ours else "no tasks"


def _causality(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Predictions were compared under changed tokens before and after a model was evaluated."""
    checked = [record.trial.get("causality") for record in (own, reference)]
    if not all(checked):
        return "broken", "not compared under changed tokens"
    unclear = [each["not_proven"] for each in checked if each and "not_proven" in each]
    if unclear:
        return "not proven", f"of a trial: {unclear[0]}"
    modes = ("training", "evaluation")
    largest = max(each[m] for each in checked if each for m in modes if m in each)
    words = f"up to rounding ({largest:.1g} nats)" if largest else "to the bit"
    share = min(each["positions"] for each in checked if each)
    tried = f", at {share:.0%} of the positions, drawn at random" if share < 1 else ""
    return "held", f"no prediction follows a later token or another row, {words}{tried}"


def _software(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    if problem := _worst(differences(own.environment, reference.environment, pair=True)):
        return problem
    kernels, torch = own.environment.get("kernels", "torch"), own.environment["packages"]["torch"]
    ours = "" if kernels == "torch" else f", kernels {kernels}"
    return "held", f"torch {torch} on {own.environment['device']}{ours}"


def _settings(own: StackedEvidence, reference: StackedEvidence, declared: Declared) -> Finding:
    """Compare what two trials were set to, and the source of own parts that both have."""
    state, words = settings(own, reference, declared)
    ours, theirs = own.trial["own_modules"], reference.trial["own_modules"]
    for site in ours.keys() & theirs.keys() if state == "held" else ():
        files = changed_sources({site: ours[site]}, {site: theirs[site]})
        key = site if "." in site else f"model.modules.{site}"
        if files and not any(key == d or key.startswith(f"{d}.") for d in declared):
            return "broken", f"{', '.join(sorted(files))} of the own part '{site}' differs"
    return state, words


def evidence_of(
    folder: TrialFolder, trial: dict[str, Any], data: dict[str, Any]
) -> StackedEvidence:
    """Return what the controls look at of one trial; `data` is the study's data.json."""
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
    initial, environment = folder.read_json("initial.json"), folder.read_json("environment.json")
    leaks = leaked, max(near, default=None)
    return StackedEvidence(folder.arm, folder.seed, trial, initial, environment, leaks)


def matched_flops(own: Mapping[str, Any], reference: Mapping[str, Any], words: str) -> Finding:
    """Compare the FLOPs of two trials (trial.json), which match to the nearest step."""
    spent, steps = [], []
    for trial in (own, reference):
        per_token = trial.get("flops", {}).get("per_token")
        if per_token is None:
            return "not proven", f"FLOPs were not counted: {words}"
        spent.append(per_token * trial["tokens"])
        steps.append(spent[-1] / max(trial["iterations"], 1))
    share = (spent[0] - spent[1]) / spent[1]
    summary = (
        f"{spent[0]:.6g} FLOPs against {spent[1]:.6g} ({share:+.2%}), to the nearest step of "
        f"{steps[0]:.6g} and {steps[1]:.6g}; {words}"
    )
    return "broken" if abs(spent[0] - spent[1]) > max(steps) else "held", summary


PAIRS: dict[str, Check] = {
    "setting": _settings,
    "text": _text,
    "held-out text": _held_out,
    "batches": _batches,
    "budget": _budget,
    "initial values": _initial_values,
    "causality": _causality,
    "questions": _questions,
    "software": _software,
}


def _apart(own: StackedEvidence, reference: StackedEvidence, *, held_out: bool) -> Finding | None:
    names = _differing(own, reference, held_out=held_out)
    return ("broken", f"{', '.join(names)} differ") if names else None


CHECKS = Checks(
    PAIRS,
    across={
        "text": partial(_apart, held_out=False),
        "held-out text": partial(_apart, held_out=True),
        "software": lambda own, reference: _worst(
            differences(own.environment, reference.environment)
        ),
    },
    # Arms may be trained on other text than each other, the trials of one arm may not.
    of_arm=frozenset({"text"}),
    further={"sealed test part": _sealed},
)
