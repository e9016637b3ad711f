"""Every fact of a report follows from the records: change a record, and its sentence changes.

A study is recorded once. Then one fact of its record at a time is changed, and the table of facts
is written again: some sentence must be gone, and with it the words of what is no longer so.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.digests import flatten
from paribus.engine.facts import facts_of
from paribus.report.paper.contents import Material, sections
from paribus.results import Control
from paribus.study import Study

from ..conftest import studies_in
from ..fabricated import write_results

# What makes every key of the setting count: a key that has no effect has no sentence either.
FULL = {
    "training.schedule.kind": "cosine",
    "training.schedule.warmup": 2,
    "training.dropout": 0.1,
    "model.embedding.norm": "rmsnorm",
    "model.embedding.eps": 1e-3,
}
ARMS = {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}}
# The other way to state what training.iterations does, and what a budget that is no key says.
WITHOUT_EFFECT = {"training.tokens"}
# Of these there are only so many values.
CHOICES = {
    "data.deduplicate": "exact",
    "data.order": "epoch",
    "data.pack": "documents",
    "training.budget": "bytes",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("facts")
    study = studies_in(folder)(FULL, seeds=[1, 2, 3, 4, 5], arms=ARMS)
    results = write_results(
        folder / "r", study, lambda arm, seed: 2 + 0.01 * seed + (arm != "baseline") * 0.1
    )
    analysis = analyse(results)
    return Material(results, analysis, decide(analysis), [])


def sentences(material: Material) -> list[str]:
    text = " ".join(fact.text for fact in material.facts)
    return re.split(r"(?<=[.!?]) ", text)


def changed_record(material: Material, change: Callable[[dict[str, Any]], None]) -> Material:
    """The material with `change` made to the trial.json of every trial."""
    trials = copy.deepcopy(material.results.trials)
    for trial in trials.values():
        change(trial)
    return replace(material, results=replace(material.results, trials=trials))


def at(record: dict[str, Any], key: str, value: Any) -> None:
    """Set a dotted key."""
    *path, last = key.split(".")
    for part in path:
        record = record[part]
    record[last] = value


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value * 3 + 1
    if isinstance(value, list):
        return [other(inner) for inner in value] or ["something"]
    return "something else" if isinstance(value, str) else 7


def keys_of_a_setting() -> Iterator[str]:
    study = Study.model_validate(
        {"name": "x", "seeds": [1], "training": {"iterations": 30}, "arms": {"baseline": {}}}
    )
    yield from flatten(study.setting("baseline").model_dump(mode="json"))


@pytest.mark.parametrize("key", sorted(set(keys_of_a_setting()) - WITHOUT_EFFECT))
def test_every_key_of_the_setting_is_in_some_sentence(recorded: Material, key: str) -> None:
    old = flatten(next(iter(recorded.results.trials.values()))["setting"])[key]
    mutated = changed_record(
        recorded, lambda trial: at(trial["setting"], key, CHOICES.get(key) or other(old))
    )
    before, after = sentences(recorded), sentences(mutated)
    assert set(before) ^ set(after), f"no fact depends on {key}"


# Changes of a record beside its setting, and of parts of the setting that are named together.
CHANGES: list[dict[str, Any]] = [
    {"data.vocab_size": 50257},
    {"data.n_documents": 7},
    {"data.validation_tokens": 4321},
    {"parameters": 987654},
    {"setting.model.modules.mlp": "ideas.py:Mine", "own_modules": {"mlp": {"ideas.py": "feed"}}},
    {"setting.model.norm": {"kind": "layernorm", "placement": "post"}},
    {"setting.model.positions": {"kind": "rotary"}},
    {"setting.training.loss": {"name": "cross_entropy", "label_smoothing": 0.1}},
    {"setting.training.optimizer.groups": [{"match": "blocks.*", "learning_rate": 0.5}]},
    {"setting.training.z_loss": 0.25},
]


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: next(iter(changes)))
def test_record_facts_are_in_some_sentence(recorded: Material, changes: dict[str, Any]) -> None:
    def change(trial: dict[str, Any]) -> None:
        for key, value in changes.items():
            at(trial, key, value)

    before, after = (set(sentences(one)) for one in (recorded, changed_record(recorded, change)))
    assert after - before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("seeds", (1, 2, 3, 4, 6)),
        ("inference", {"alpha": 0.01}),
        ("inference", {"test": "welch_t"}),
        ("stability", {"unstable_above": 0.4}),
        ("stability", {"mad_multiplier": 5.0}),
        ("decision", {"calibration_budget": 0.5}),
    ],
    ids=str,
)
def test_protocol_facts_are_in_some_sentence(recorded: Material, key: str, value: Any) -> None:
    if isinstance(value, dict):
        assert value.keys() <= getattr(recorded.study, key).model_dump().keys()
        value = getattr(recorded.study, key).model_copy(update=value)
    changed = recorded.study.model_copy(update={key: value})
    material = replace(
        recorded,
        results=replace(recorded.results, study=changed),
        analysis=replace(recorded.analysis, study=changed),
    )
    before, after = (set(sentences(one)) for one in (recorded, material))
    assert after - before and before - after


def test_a_control_that_did_not_hold_is_not_claimed(recorded: Material) -> None:
    def held(material: Material) -> str:
        (part,) = (one for one in sections(material) if one.title == "Controls")
        lines = [line for block in part.blocks if isinstance(block, list) for line in block]
        return next(str(line) for line in lines if str(line).startswith("held"))

    assert "initial values" in held(recorded) and "batches" in held(recorded)
    controls = tuple(
        Control(c.name, c.arm, c.reference, "declared", c.detail)
        if c.name == "initial values"
        else c
        for c in recorded.analysis.controls
    )
    changed = held(replace(recorded, analysis=replace(recorded.analysis, controls=controls)))
    assert "initial values" not in changed and "batches" in changed


def test_what_was_not_registered_before_is_not_said_to_be(recorded: Material) -> None:
    analysis = replace(recorded.analysis, unregistered="the registration is missing")
    text = " ".join(sentences(replace(recorded, analysis=analysis)))
    assert "registered before the first run" not in text
    assert "Before the first run the study was registered" not in text
    assert "The registration does not hold: the registration is missing." in text


def test_a_study_without_a_finished_trial_claims_no_records(recorded: Material) -> None:
    facts = facts_of(replace(recorded.results, finished=(), trials={}))
    assert facts["Data"].endswith("by character.")
    assert " parameters." not in facts["Model"] and not facts["Machine"]
