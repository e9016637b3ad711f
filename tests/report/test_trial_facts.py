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
    """A key that is new has a sentence too: it is printed as it is."""
    old = flatten(next(iter(recorded.results.trials.values()))["setting"])[key]
    mutated = changed_record(
        recorded, lambda trial: at(trial["setting"], key, CHOICES.get(key) or other(old))
    )
    before, after = sentences(recorded), sentences(mutated)
    assert set(before) ^ set(after), f"no fact depends on {key}"


NOTHING = "no such words"

# A change of the record, words that must be there then, and words that must be nowhere any more.
CLAIMS: dict[str, tuple[dict[str, Any], str, str]] = {
    "tokenizer": (
        {"setting.data.tokenizer": "bpe.json"},
        "in tokens of “bpe.json”",
        "by character",
    ),
    "corpus": ({"setting.data.corpus": "web"}, "the corpus “web”", "the corpus “text”"),
    "vocabulary": ({"data.vocab_size": 50257}, "a vocabulary of 50,257", NOTHING),
    "documents": ({"data.n_documents": 7}, "It has 7 documents.", NOTHING),
    "split": ({"data.validation_tokens": 4321}, "of it, 4,321 tokens, for validation", NOTHING),
    "validation text of its own": (
        {"setting.data.validation_path": "held.txt"},
        "of “held.txt” for validation",
        "comes from the same corpus",
    ),
    "a sealed part": (
        {"setting.data.test_fraction": 0.25},
        "the last 0.25 of it is sealed until the verdict",
        "the last 0.1 of it",
    ),
    "repeats": (
        {"setting.data.deduplicate": "exact"},
        "repeat an earlier one exactly were taken out",
        "Repeated text was left in",
    ),
    "size": ({"parameters": 987654}, "987,654 parameters", NOTHING),
    "own MLP": (
        {
            "setting.model.modules.mlp": "ideas.py:Mine",
            "own_modules": {"mlp": {"ideas.py": "feedfacecafe0123"}},
        },
        "the user's own module “ideas.py:Mine” (source digest feedfacecafe of ideas.py)",
        NOTHING,
    ),
    "own norm in blocks": (
        {"setting.model.modules.block_norm": "ideas.py:A"},
        "site block_norm",
        "Pre-LayerNorm form",
    ),
    "own embeddings": (
        {"setting.model.modules.embedding": "ideas.py:E"},
        "site embedding",
        "are normalised by RMSNorm",
    ),
    "embedding norm": (
        {"setting.model.embedding.norm": "magic"},
        "embedding.norm “magic”",
        "are normalised by RMSNorm",
    ),
    "norm": (
        {"setting.model.norm": {"kind": "rmsnorm"}},
        "norm.kind “rmsnorm”",
        "Pre-LayerNorm form",
    ),
    "post-norm": (
        {"setting.model.norm": {"kind": "layernorm", "placement": "post"}},
        "norm.placement “post”",
        "Pre-LayerNorm form",
    ),
    "positions": (
        {"setting.model.positions": {"kind": "rotary"}},
        "positions.kind “rotary”",
        "“learned”",
    ),
    "loss": (
        {"setting.training.loss": {"name": "cross_entropy", "label_smoothing": 0.1}},
        "loss.label_smoothing 0.1",
        NOTHING,
    ),
    "groups": (
        {"setting.training.optimizer.groups": [{"match": "blocks.*", "learning_rate": 0.5}]},
        "match “blocks.*” and learning_rate 0.5",
        NOTHING,
    ),
    "optimizer": ({"setting.training.optimizer.name": "muon"}, "Muon with", "AdamW"),
    "unknown optimizer": ({"setting.training.optimizer.name": "soap"}, "“soap” with", "AdamW"),
    "schedule": ({"setting.training.schedule.kind": "constant"}, "kind “constant”", "“cosine”"),
    "clip": ({"setting.training.grad_clip": None}, "gradients are not clipped", "are clipped to"),
    "dropout": ({"setting.training.dropout": 0.0}, "there is no dropout", "dropout is 0.1"),
    "precision": ({"setting.training.precision": "bfloat16"}, "mixed: float32", "float32."),
    "float16": ({"setting.training.precision": "float16"}, "float16 matrix", "float32."),
    "a key of no sentence": (
        {"setting.training.z_loss": 0.25},
        "z_loss 0.25",
        NOTHING,
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_is_no_longer_so_is_no_longer_said(recorded: Material, name: str) -> None:
    changes, says, never = CLAIMS[name]

    def change(trial: dict[str, Any]) -> None:
        for key, value in changes.items():
            at(trial, key, value)

    before = " ".join(sentences(recorded))
    text = " ".join(sentences(changed_record(recorded, change)))
    assert says in text and says not in before
    assert never not in text
    if never != NOTHING:
        assert never in before, "the test must be able to fail"


# Facts of the study beside its setting, and words of theirs in the prose.
OF_THE_STUDY: dict[str, tuple[dict[str, Any], str]] = {
    "seeds": ({"seeds": (1, 2, 3, 4, 6)}, "(1, 2, 3, 4, 6)"),
    "alpha": ({"inference": {"alpha": 0.01}}, "primary endpoint at 0.01"),
    "test": ({"inference": {"test": "welch_t"}}, "Welch's t test"),
    "threshold": ({"stability": {"unstable_above": 0.4}}, "more than 0.4 of its trials"),
    "spikes": ({"stability": {"mad_multiplier": 5.0}}, "more than 5 median"),
    "budget": (
        {"decision": {"calibration_budget": 0.5}},
        "a calibration error raised by at most 0.5",
    ),
}


@pytest.mark.parametrize("name", OF_THE_STUDY)
def test_the_protocol_is_that_of_the_study(recorded: Material, name: str) -> None:
    tables, says = OF_THE_STUDY[name]
    study = recorded.study
    updates = {
        key: getattr(study, key).model_copy(update=value) if isinstance(value, dict) else value
        for key, value in tables.items()
        if not isinstance(value, dict) or value.keys() <= getattr(study, key).model_dump().keys()
    }
    if not updates:
        pytest.skip("no such key")
    changed = study.model_copy(update=updates)
    material = replace(
        recorded,
        results=replace(recorded.results, study=changed),
        analysis=replace(recorded.analysis, study=changed),
    )
    assert says in " ".join(sentences(material))
    assert says not in " ".join(sentences(recorded))


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


def test_held_out_text_of_its_own_is_named_and_not_called_a_part(recorded: Material) -> None:
    """The validation text is a file, and no share of the corpus; so is a sealed one."""
    own = changed_record(
        recorded,
        lambda trial: trial["setting"]["data"].update(
            validation_path="held.txt", test_path="later.txt"
        ),
    )
    text = " ".join(sentences(own))
    assert "“held.txt” for validation" in text and "Validation text is “held.txt”" in text
    assert "“later.txt” is sealed until the verdict" in text
    assert "the last 0" not in text and "the next 0" not in text
