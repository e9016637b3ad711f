"""The controls: held where all else is equal, broken where something sneaked in."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from paribus.engine.records import CHECKS, StackedEvidence
from paribus.results import Control, ResultsFolder, check_controls, load_results
from paribus.study import Study

from ..conftest import Fabricate, Maker


def record(study: Study, arm: str, seed: int) -> StackedEvidence:
    parameter = {"shape": [2, 2], "rule": "normal(std=0.02)", "sha256": f"tokens-{seed}"}
    return StackedEvidence(
        arm,
        seed,
        trial={
            "setting": study.setting(arm).model_dump(mode="json"),
            "data": {"digests": {"corpus": "c" * 64, "train": "t" * 64}},
            "batch_digest": f"batches-{seed}",
            "tokens": 512,
            "own_modules": {"mlp": {"ideas.py": "source"}},
            "causality": {"training": 0.0, "evaluation": 1e-7, "positions": 1.0},
            "tasks": {"prompts_sha256": "prompts", "pins": {"version": "1"}},
        },
        initial={"embedding.tokens.weight": parameter},
        environment={
            "code": "c" * 64,
            "packages": {"torch": "2"},
            "device": "cpu",
            "threads": 1,
            "stack": 1,
        },
    )


def records_of(study: Study) -> list[StackedEvidence]:
    return [deepcopy(record(study, arm, seed)) for arm in study.arms for seed in study.seeds]


def controls_of(study: Study, records: list[StackedEvidence]) -> dict[str, Control]:
    """The controls of `layernorm` by name."""
    controls = check_controls(study, records, CHECKS, repeated={})
    return {control.name: control for control in controls if control.arm == "layernorm"}


def states(study: Study, change: Callable[[StackedEvidence], None] | None = None) -> dict[str, str]:
    """The states of the controls, with `change` done to the record of seed 2."""
    records = records_of(study)
    if change:
        change(next(r for r in records if (r.arm, r.seed) == ("layernorm", 2)))
    return {name: control.state for name, control in controls_of(study, records).items()}


def test_controls_hold_for_equal_records(small_study: Maker) -> None:
    held = states(small_study())
    assert set(held.values()) == {"held"} and len(held) == 9


def test_evidence_counts_parameters_and_seeds(small_study: Maker) -> None:
    study = small_study()
    records = records_of(study)
    for each in records:
        if each.arm == "layernorm":
            each.initial["embedding.norm.weight"] = each.initial["embedding.tokens.weight"]
    controls = controls_of(study, records)
    more, batches = controls["initial values"], controls["batches"]
    assert more.state == "held"
    assert more.detail.startswith("1 of 2 parameters")
    assert "embedding.norm.weight" in more.detail and "2 of 2 seeds" in more.detail
    # Of every seed, not of the first alone.
    assert all(text in batches.detail for text in ("batches-1", "batches-2", "2 of 2 seeds"))
    change = put("trial/batch_digest", "others")
    change(next(each for each in records if (each.arm, each.seed) == ("layernorm", 2)))
    broken = controls_of(study, records)["batches"]
    assert broken.sign == "✗" and "layernorm/seed-2: 1 of 2" in broken.detail


def put(path: str, value: Any) -> Callable[[StackedEvidence], None]:
    def change(record: StackedEvidence) -> None:
        part, *keys, last = path.split("/")
        node = getattr(record, part)
        for key in keys:
            node = node[key]
        node[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "name"),
    [
        ("trial/batch_digest", "others", "batches"),
        ("trial/tokens", 511, "budget"),
        ("trial/data/digests/train", "others", "text"),
        ("trial/data/digests/validation_text", "others", "held-out text"),
        ("trial/setting/training/batch_size", 5, "setting"),
        ("initial/embedding.tokens.weight/sha256", "others", "initial values"),
        ("environment/device", "cuda", "software"),
        ("trial/setting/model/embedding/norm", "none", "setting"),  # declared, yet equal
        ("trial/tasks/prompts_sha256", "others", "questions"),
        ("trial/causality", None, "causality"),
    ],
)
def test_one_seed_breaks_a_control(small_study: Maker, path: str, value: Any, name: str) -> None:
    found = states(small_study(), put(path, value))
    assert found.pop(name) == "broken"
    assert set(found.values()) == {"held"}


@pytest.mark.parametrize(
    ("key", "value", "state"),
    [
        ("packages/torch", "3", "not proven"),
        ("packages/pyarrow", "3", "declared"),
        ("python", "3.99.0", "declared"),
        ("stack", 5, "not proven"),
        ("processor", "another", "not proven"),
        ("kernels", "compiled 0123", "not proven"),
    ],
)
def test_another_machine_is_only_told(small_study: Maker, key: str, value: Any, state: str) -> None:
    study = small_study()
    found = states(study, put(f"environment/{key}", value))
    assert found.pop("software") == state
    assert set(found.values()) == {"held"}


def test_a_declared_initialisation_or_batch_size_is_no_breach(small_study: Maker) -> None:
    larger = {"baseline": {}, "layernorm": {"set": {"training.batch_size": 2}}}
    study = small_study(training={"tokens": 8 * 4 * 16, "batch_size": 4}, arms=larger)
    assert states(study, put("trial/batch_digest", "others"))["batches"] == "declared"
    study = small_study(arms={"baseline": {}, "layernorm": {"set": {"model.init.token_std": 1.0}}})

    def another_rule(record: StackedEvidence) -> None:
        record.initial["embedding.tokens.weight"] |= {"rule": "normal(std=1)", "sha256": "others"}

    assert states(study, another_rule)["initial values"] == "declared"
    # A rule that changed though the arm says nothing of the model is a breach.
    quiet = small_study(
        arms={"baseline": {}, "layernorm": {"set": {"training.optimizer.learning_rate": 1e-3}}}
    )
    assert states(quiet, another_rule)["initial values"] == "broken"


def test_other_text_may_be_declared_and_other_held_out_text_may_not(small_study: Maker) -> None:
    arms = {"baseline": {}, "layernorm": {"set": {"data.tokenizer": "byte"}}}
    study = small_study(arms=arms)
    records = records_of(study)
    own = [each for each in records if each.arm == "layernorm"]
    for each in records:
        each.trial["data"] |= {"train_tokens": 10, "vocab_size": 257}
    for each in own:
        each.trial["data"]["digests"] |= dict.fromkeys(("vocabulary", "train"), "others")
        each.trial["batch_digest"] = f"others of {each.seed}"

    def state(name: str) -> str:
        return controls_of(study, records)[name].state

    assert (state("text"), state("batches")) == ("declared", "declared")
    assert state("held-out text") == "held"
    records[-1].trial["data"]["digests"]["train"] = "of another seed"
    assert state("text") == "broken"
    for each in own:
        each.trial["data"]["digests"] |= {"train": "others", "validation_text": "others"}
    assert (state("text"), state("held-out text")) == ("declared", "broken")


def test_two_machines_are_declared_where_pairs_share_one(small_study: Maker) -> None:
    study = small_study()
    records = records_of(study)
    for each in records:
        each.environment.update(stack=each.seed)
    assert {c.state for c in controls_of(study, records).values()} == {"held"}
    for each in records:
        each.environment.update(processor=f"number {each.seed}")
        each.environment["packages"] = each.environment["packages"] | {"torch": f"2.{each.seed}"}
    controls = controls_of(study, records)
    software = controls.pop("software")
    assert software.state == "declared" and "number 2" in software.detail
    assert "torch 2.2 against 2.1" in software.detail
    assert {c.state for c in controls.values()} == {"held"}


def test_the_sealed_test_part_is_a_control(small_study: Maker) -> None:
    study, name = small_study(), "sealed test part"
    records = records_of(study)
    assert name not in controls_of(study, records)
    for each in records:
        each.trial["data"]["digests"]["test"] = "e" * 64
    sealed = controls_of(study, records)[name]
    assert sealed.state == "held" and sealed.detail.startswith(f"digest {'e' * 12}, never read")
    for each in records:
        each.opened.update(digest="e" * 64, opened="2026-11-22T05:00:00")
    read = controls_of(study, records)[name]
    assert read.state == "held" and "2026-11-22T05:00:00" in read.detail
    for each in records:
        each.opened["digest"] = "f" * 64
    assert controls_of(study, records)[name].state == "broken"
    del next(r for r in records if r.arm == "layernorm").trial["data"]["digests"]["test"]
    assert controls_of(study, records)["held-out text"].state == "broken"


def test_text_that_has_held_out_text_is_not_proven_to_be_apart(small_study: Maker) -> None:
    def found(set_: dict[str, Any], *leaked: float | None) -> str:
        arms = {"baseline": {}, "layernorm": {"set": set_}}
        data = {"corpus": "text", "path": "a.txt", "validation_path": "held.txt", "seq_len": 16}
        study = small_study(data=data, arms=arms)
        records = [
            replace(record(study, arm, seed), leaks=(of, None))
            for arm, of in zip(study.arms, leaked, strict=True)
            for seed in study.seeds
        ]
        return controls_of(study, records)["held-out text"].state

    other = {"data.path": "b.txt"}
    assert found(other, 0.0, 0.011) == found(other, 0.9, 0.1) == "not proven"
    assert found(other, 0.0, 0.009) == found(other, None, None) == "held"
    assert found({"data.tokenizer": "byte"}, 0.0, 0.5) == "held"
    # Where the training text has most of it, it was not held out from anybody.
    assert found({"data.tokenizer": "byte"}, 0.51, 0.51) == "not proven"
    assert found({"data.tokenizer": "byte"}, 0.0, 1.0) == "not proven"


@pytest.mark.parametrize(
    ("leaked", "state"), [(26, "not proven"), (13, "not proven"), (12, "held")]
)
def test_near_copies(small_study: Maker, fabricate: Fabricate, leaked: int, state: str) -> None:
    results = fabricate(small_study(), lambda arm, seed: 2.0)
    counts = {"validation_units": 128, "leaked_near": leaked, "leaked_exact": 0}
    passages = {"document": {"validation_units": 0, "leaked_near": 0}, "passage": counts}
    leakage = {"in_training": 3, "validation_tokens": 9000}
    data = {"token_classes": {}, "duplicates": passages, "leakage": leakage}
    ResultsFolder(results.path).seal("data.json", data)
    controls = load_results(results.path).controls
    found = next(c for c in controls if c.name == "held-out text")
    assert found.state == state
    assert ("20.3%" in found.detail) == (leaked == 26)
    # One text, whichever arms are compared: it is told in the same words, once.
    of_text = [c for c in controls if c.name == "held-out text"]
    assert len(of_text) > 1 and len({c.detail for c in of_text}) == 1


def test_budgets_in_bytes_are_held_against_what_was_consumed(small_study: Maker) -> None:
    arms = {"baseline": {}, "layernorm": {"set": {"data.tokenizer": "byte"}}}
    study = small_study(arms=arms, training={"budget": "bytes", "iterations": 30})

    def budget(n_bytes: int) -> Control:
        records = records_of(study)
        for each in records:
            is_own = each.arm == "layernorm"
            each.trial["data"] |= {"bytes_per_token": 1.0, "train_tokens": 9, "vocab_size": 9}
            each.trial.update({"iterations": 30, "tokens": 3000 if is_own else 3001})
            size = n_bytes if is_own else 3000
            each.trial["consumed"] = {"sources": {"corpus": {"bytes": size}}}
        return controls_of(study, records)["budget"]

    near = budget(3100)
    assert near.state == "held" and "+3.3%" in near.detail
    assert budget(2000).state == budget(4000).state == "broken"
    assert budget(0).state == "not proven"
