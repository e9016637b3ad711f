"""The controls: held where all else is equal, broken where something sneaked in."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from paribus.engine.records import CHECKS, StackedEvidence
from paribus.results import (
    ResultsFolder,
    check_controls,
    load_results,
)
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


def states(study: Study, change: Callable[[StackedEvidence], None] | None = None) -> dict[str, str]:
    """The controls of `layernorm` by name, with `change` done to its record of seed 2."""
    records = [deepcopy(record(study, arm, seed)) for arm in study.arms for seed in study.seeds]
    if change:
        change(next(r for r in records if (r.arm, r.seed) == ("layernorm", 2)))
    return {c.name: c.state for c in check_controls(study, records, CHECKS) if c.arm == "layernorm"}


def test_controls_hold_for_equal_records(small_study: Maker) -> None:
    found = states(small_study())
    assert set(found.values()) == {"held"}
    assert len(found) == 9


def test_evidence_counts_parameters_and_seeds(small_study: Maker) -> None:
    study = small_study()
    records = [deepcopy(record(study, arm, seed)) for arm in study.arms for seed in study.seeds]
    for one in records:
        if one.arm == "layernorm":
            one.initial["embedding.norm.weight"] = one.initial["embedding.tokens.weight"]
    controls = {(c.arm, c.name): c for c in check_controls(study, records, CHECKS)}
    more, alike = (controls[arm, "initial values"] for arm in ("layernorm", "rmsnorm"))
    assert (more.state, more.sign) == ("held", "~")
    assert more.detail.startswith("1 of 2 parameters")
    assert "not shared: embedding.norm.weight" in more.detail and "2 of 2 seeds" in more.detail
    assert (alike.sign, alike.detail.split(" shared")[0]) == ("✓", "1 of 1 parameters")
    batches = controls["layernorm", "batches"].detail  # of every seed, not of the first alone
    assert "batches-1" in batches and "batches-2" in batches and "2 of 2 seeds" in batches
    puts = put("trial/batch_digest", "others")
    puts(next(one for one in records if (one.arm, one.seed) == ("layernorm", 2)))
    broken = next(c for c in check_controls(study, records, CHECKS) if c.state == "broken")
    assert broken.sign == "✗" and "layernorm/seed-2: 1 of 2 seeds" in broken.detail


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
        ("trial/own_modules/mlp/ideas.py", "edited", "setting"),
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
    records = [deepcopy(record(study, arm, seed)) for arm in study.arms for seed in study.seeds]
    about = {"train_tokens": 10, "vocab_size": 257}
    for one in records:
        one.trial["data"] |= about
        if one.arm == "layernorm":
            one.trial["data"]["digests"] |= dict.fromkeys(("vocabulary", "train"), "others")
            one.trial["batch_digest"] = f"others of {one.seed}"
    found = {c.name: c.state for c in check_controls(study, records, CHECKS)}
    assert (found["text"], found["batches"]) == ("declared", "declared")
    assert found["held-out text"] == "held"
    records[-1].trial["data"]["digests"]["train"] = "of another seed"
    assert {c.name: c.state for c in check_controls(study, records, CHECKS)}["text"] == "broken"
    for one in records:
        if one.arm == "layernorm":
            one.trial["data"]["digests"] |= {"train": "others", "validation_text": "others"}
    found = {c.name: c.state for c in check_controls(study, records, CHECKS)}
    assert (found["text"], found["held-out text"]) == ("declared", "broken")


def test_two_machines_are_declared_where_pairs_share_one(small_study: Maker) -> None:
    study = small_study()
    records = [deepcopy(record(study, arm, seed)) for arm in study.arms for seed in study.seeds]
    for one in records:
        one.environment.update(stack=one.seed)
    assert {c.state for c in check_controls(study, records, CHECKS)} == {"held"}
    for one in records:
        one.environment.update(processor=f"number {one.seed}")
        one.environment["packages"] = one.environment["packages"] | {"torch": f"2.{one.seed}"}
    found = {c.name: c for c in check_controls(study, records, CHECKS)}
    software = found.pop("software")
    assert software.state == "declared" and "number 2" in software.detail
    assert "torch 2.2 against 2.1" in software.detail
    assert {c.state for c in found.values()} == {"held"}


def test_the_sealed_test_part_is_a_control(small_study: Maker) -> None:
    study = small_study()
    records = [record(study, arm, seed) for arm in study.arms for seed in study.seeds]
    assert all(c.name != "sealed test part" for c in check_controls(study, records, CHECKS))
    for one in records:
        one.trial["data"]["digests"]["test"] = "e" * 64

    def found(opened: dict[str, str] | None) -> tuple[str, str]:
        (one,) = (
            c
            for c in check_controls(study, records, CHECKS, opened=opened)
            if (c.arm, c.name) == ("layernorm", "sealed test part")
        )
        return one.state, one.detail

    assert found(None)[0] == "held"
    assert found(None)[1].startswith(f"digest {'e' * 12}, never read")
    opened = {"digest": "e" * 64, "purpose": "verdict of abc", "opened": "2026-11-22T05:00:00"}
    state, detail = found(opened)
    assert state == "held"
    assert "2026-11-22T05:00:00" in detail
    assert found(opened | {"digest": "f" * 64})[0] == "broken"
    del next(r for r in records if r.arm == "layernorm").trial["data"]["digests"]["test"]
    assert found(None)[0] == "broken"


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
        controls = check_controls(study, records, CHECKS)
        return next(c.state for c in controls if c.name == "held-out text")

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

    def tokens(n_bytes: int | None) -> tuple[str, str]:
        records = [record(study, arm, seed) for arm in study.arms for seed in study.seeds]
        for one in records:
            mine = one.arm == "layernorm"
            one.trial["data"] |= {"bytes_per_token": 1.0, "train_tokens": 9, "vocab_size": 9}
            one.trial.update({"iterations": 30, "tokens": 3000 if mine else 3001})
            size = n_bytes if mine else 3000
            if size is not None:
                one.trial["consumed"] = {"sources": {"corpus": {"bytes": size}}}
        control = next(c for c in check_controls(study, records, CHECKS) if c.name == "budget")
        return control.state, control.detail

    state, detail = tokens(3100)
    assert state == "held"
    assert "+3.3%" in detail
    assert tokens(2000)[0] == tokens(4000)[0] == "broken"
    assert tokens(None)[0] == "not proven"
