"""Small stand-ins for the data sets of the standard suite, laid out as the hub's repositories.

Texts are ours; field names, types, splits and configurations are those of the real ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

JARS = {"goal": "Open a jar", "sol1": "Twist the lid.", "sol2": "Paint the lid blue.", "label": 0}
PENS = {"goal": "Find a pen", "sol1": "Cook the whole desk.", "sol2": "Look.", "label": 1}
SWIM = {
    "ind": 4,
    "activity_label": "Swimming",
    "ctx_a": "A man stands at a pool.",
    "ctx_b": "he",
    "ctx": "A man stands at a pool. he",
    "endings": [
        "jumps in [step] and swims.",
        "eats it.",
        "is a large pool now.",
        "sings [title] x",
    ],
    "source_id": "activitynet~v_1",
    "split": "val",
    "split_type": "indomain",
    "label": "0",
}
BAKE = SWIM | {
    "activity_label": "Baking",
    "ctx_a": "Bread rises.",
    "ctx_b": "it",
    "ctx": "Bread rises. it",
    "endings": ["runs away from all of it.", "grows.", "is paid.", "flies over the sea."],
    "label": "1",
}


def arc(question: str, texts: list[str], key: str, labels: str = "ABCDE") -> dict[str, Any]:
    """Return a record of ARC."""
    choices = {"text": texts, "label": list(labels[: len(texts)])}
    return {"id": question[:9], "question": question, "choices": choices, "answerKey": key}


SKY = arc("What is blue?", ["sky", "grass", "blood", "a very white cloud"], "A")
TEN = arc("Which is a number?", ["a tree", "ten", "the sea"], "2", labels="123")
SUN = arc("What is hot?", ["ice", "snow", "a cold lake", "rain", "the sun"], "E")
CUP = {
    "sentence": "The cup did not fit in the box because the _ was too large.",
    "option1": "cup",
    "option2": "box",
    "answer": "1",
}
DOG = {
    "sentence": "The dog chased the cat until _ was tired.",
    "option1": "the big cat",
    "option2": "the dog",
    "answer": "2",
}
ROME = {"question": "is rome a city", "passage": "Rome is a city in Italy.", "idx": 0, "label": 1}
MOON = {"question": "is the moon near", "passage": "It is far away.", "idx": 1, "label": 0}
STORY = {"text": "She opened the door and saw her old friend, and smiled at her friend"}
NIGHT = {"text": "It was dark, the lamp was broken, so he could not see the lamp"}

# {repository: {configuration: {split: records}}}
HUB: dict[str, dict[str, dict[str, list[dict[str, Any]]]]] = {
    "EleutherAI/lambada_openai": {"default": {"test": [STORY, NIGHT]}},
    "Rowan/hellaswag": {"default": {"train": [BAKE, SWIM], "validation": [SWIM, BAKE]}},
    "baber/piqa": {"default": {"train": [PENS, JARS], "validation": [JARS, PENS]}},
    "allenai/ai2_arc": {
        "ARC-Easy": {"train": [TEN, SKY], "validation": [TEN], "test": [SKY, TEN, SUN]},
        "ARC-Challenge": {"train": [SKY, TEN], "validation": [SKY], "test": [SUN, TEN]},
    },
    "allenai/winogrande": {"winogrande_xl": {"train": [DOG, CUP], "validation": [CUP, DOG]}},
    "aps/super_glue": {"boolq": {"train": [MOON, ROME], "validation": [ROME, MOON]}},
}


def write_hub(folder: Path) -> Path:
    """Every repository as `folder`/its name: a card that lists its files, and JSON lines."""
    for name, configurations in HUB.items():
        repository = folder / name
        card = ["---", "configs:"]
        for configuration, splits in configurations.items():
            card += [f"- config_name: {configuration}", "  data_files:"]
            for split, records in splits.items():
                file = repository / configuration / f"{split}.jsonl"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
                card += [f"  - split: {split}", f"    path: {configuration}/{split}.jsonl"]
        (repository / "README.md").write_text("\n".join([*card, "---", ""]), encoding="utf-8")
    return folder
