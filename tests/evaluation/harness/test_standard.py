"""The harness's own tasks, on small data sets of the same fields: its words, its judgement."""

import math
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paribus.engine.data import CharacterTokenizer
from paribus.engine.evaluation.harness.outcome import TaskResults
from paribus.engine.evaluation.harness.standard import STANDARD, templates

from ...standins import MOON, NIGHT, STORY
from ...tools import refused
from .conftest import Uniform, evaluate_standard

SEQ_LEN = 256


# The first item of each stand-in, in the words of the harness's own configurations.
WORDS = {
    "lambada_openai": [
        ("She opened the door and saw her old friend, and smiled at her", " friend")
    ],
    "hellaswag": [
        ("Swimming: A man stands at a pool. He", f" {ending}")
        for ending in ("jumps in and swims.", "eats it.", "is a large pool now.", "sings. x")
    ],
    "piqa": [
        ("Question: Open a jar\nAnswer:", " Twist the lid."),
        ("Question: Open a jar\nAnswer:", " Paint the lid blue."),
    ],
    "arc_easy": [
        ("Question: What is blue?\nAnswer:", f" {text}")
        for text in ("sky", "grass", "blood", "a very white cloud")
    ],
    "arc_challenge": [
        ("Question: What is hot?\nAnswer:", f" {text}")
        for text in ("ice", "snow", "a cold lake", "rain", "the sun")
    ],
    "winogrande": [
        (f"The cup did not fit in the box because the {option}", " was too large.")
        for option in ("cup", "box")
    ],
    "boolq": [
        ("Rome is a city in Italy.\nQuestion: is rome a city?\nAnswer:", f" {answer}")
        for answer in ("no", "yes")
    ],
}


@pytest.mark.parametrize("task", list(STANDARD))
def test_the_words_are_the_harness_s(task, prompts, shortest, bpe, hub):
    evaluate_standard(shortest, bpe, SEQ_LEN, tasks=[task], n_items=1, data_folder=hub)
    assert prompts == WORDS[task]


def test_choices_are_judged_as_by_hand(shortest, bpe, hub):
    results = evaluate_standard(shortest, bpe, SEQ_LEN, n_items=100, data_folder=hub)
    assert {cell["task"]: cell["chance"] for cell in results.cells} == {
        "lambada_openai": 0.0,
        "hellaswag": 1 / 4,
        "piqa": 1 / 2,
        "arc_easy": pytest.approx((1 / 4 + 1 / 3 + 1 / 5) / 3),
        "arc_challenge": pytest.approx((1 / 5 + 1 / 3) / 2),
        "winogrande": 1 / 2,
        "boolq": 1 / 2,
    }
    answers = {
        "hellaswag": [0, 1],
        "piqa": [0, 1],
        "arc_easy": [0, 1, 4],
        "arc_challenge": [4, 1],
        "winogrande": [0, 1],
        "boolq": [1, 0],
        "lambada_openai": [0, 0],
    }
    for task, expected in answers.items():
        rows = [row for row in results.items.to_pylist() if row["task"] == task]
        assert [row["answer"] for row in rows] == expected
        assert [row["item"] for row in rows] == list(range(len(rows)))
    for row in results.items.to_pylist():
        if row["task"] == "lambada_openai":
            continue
        costs = [-value / math.log(bpe.vocab_size) for value in row["loglikelihood"]]
        assert row["predicted"] == int(np.argmin(np.round(costs)))
        assert row["correct"] == (row["predicted"] == row["answer"])


class Knows(nn.Module):
    """Certain of the token that follows in `ids`, wherever it has seen the two before."""

    def __init__(self, ids: np.ndarray, vocab_size: int) -> None:
        super().__init__()
        self.certainty = nn.Parameter(torch.tensor(30.0))
        self.vocab_size = vocab_size
        self.next = {tuple(ids[i - 4 : i]): int(ids[i]) for i in range(4, len(ids))}

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = torch.zeros(*tokens.shape, self.vocab_size)
        for row, ids in enumerate(tokens.tolist()):
            for at in range(3, len(ids)):
                following = self.next.get(tuple(ids[at - 3 : at + 1]), 0)
                logits[row, at, following] = self.certainty.item()
        return logits


def test_lambada_is_right_where_the_word_is_likeliest(bpe, hub):
    model = Knows(bpe.encode(STORY["text"]), bpe.vocab_size)
    results = evaluate_standard(
        model, bpe, SEQ_LEN, tasks=["lambada_openai", "piqa"], data_folder=hub
    )
    story, night = [r for r in results.items.to_pylist() if r["task"] == "lambada_openai"]
    assert (story["correct"], story["predicted"]) == (True, 0)
    assert story["probability"] == [pytest.approx(1, abs=1e-3)]
    assert (night["correct"], night["predicted"]) == (False, None)
    lambada, piqa = results.cells
    assert lambada["accuracy"] == 0.5
    assert lambada["brier_score"] is lambada["calibration_error"] is None
    assert results.headline["choice_brier_score"] == piqa["brier_score"] is not None
    assert NIGHT["text"].endswith(" lamp")


def test_anybodys_lm_eval_gives_the_same_scores(make_model, bpe, hub):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from paribus.engine.evaluation.harness.adapter import ParibusLM

    overrides = {"model.n_layer": 1, "model.d_model": 16, "data.seq_len": SEQ_LEN}
    model = make_model(bpe.vocab_size, **overrides)
    names = ["hellaswag", "piqa", "arc_easy", "winogrande", "boolq"]
    tasks = Path(str(resources.files("lm_eval.tasks")))
    manager = TaskManager(
        include_path=[tasks / STANDARD[name] for name in names], include_defaults=False
    )
    built = {}
    for name in names:
        dataset = str(hub / manager.task_index[name].cfg["dataset_path"])
        built |= manager.load({"group": "g", "task": [{"task": name, "dataset_path": dataset}]})[
            "tasks"
        ]
    theirs: Any = simple_evaluate(
        model=ParibusLM(model, bpe, SEQ_LEN),
        tasks=list(built.values()),
        task_manager=manager,
        num_fewshot=1,
        bootstrap_iters=0,
    )
    ours = evaluate_standard(model, bpe, SEQ_LEN, tasks=names, shots=[1], data_folder=hub)
    assert len(ours.items) == sum(len(theirs["samples"][name]) for name in names)
    for cell in ours.cells:
        result = theirs["results"][cell["task"]]
        assert cell["accuracy"] == result["acc,none"]
    for row in ours.items.to_pylist():
        sample = theirs["samples"][row["task"]][row["item"]]
        assert row["loglikelihood"] == [float(ll) for ll, _ in sample["filtered_resps"]]


def test_solved_examples(prompts, shortest, bpe, hub):
    results = evaluate_standard(
        shortest, bpe, SEQ_LEN, tasks=["boolq", "lambada_openai"], shots=(0, 1), n_items=1,
        data_folder=hub,
    )  # fmt: skip
    solved = f"{MOON['passage']}\nQuestion: {MOON['question']}?\nAnswer: no\n\n"
    assert prompts[-2:] == [(solved + context, answer) for context, answer in WORDS["boolq"]]
    assert ("lambada_openai", 1) not in [(c["task"], c["shots"]) for c in results.cells]
    with refused("value"):
        evaluate_standard(
            shortest, bpe, SEQ_LEN, tasks=["lambada_openai"], shots=(1,), data_folder=hub
        )


def test_a_short_window_of_characters_leaves_nothing_out(hub):
    tokenizer = CharacterTokenizer.from_text("abcdefghijklmnopqrstuvwxyz .?,:\nT", ends=True)
    model = Uniform(tokenizer.vocab_size)
    results = evaluate_standard(model, tokenizer, 16, data_folder=hub)
    assert len(results.items) == 2 * 6 + 3


def test_pins_name_data_and_words(shortest, bpe, hub):

    def pins(n_items: int) -> dict[str, Any]:
        results: TaskResults = evaluate_standard(
            shortest, bpe, SEQ_LEN, tasks=["boolq"], n_items=n_items, data_folder=hub
        )
        return results.pins

    one, two = pins(1), pins(2)
    assert (one["version"], one["tasks"]["boolq"]["version"]) == ("0.4.13", 2.0)
    assert one["tasks"]["boolq"]["dataset"] == "aps/super_glue"
    assert (one["tasks"]["boolq"]["documents"], two["tasks"]["boolq"]["documents"]) == (1, 2)
    changed = {k for k, v in one["tasks"]["boolq"].items() if two["tasks"]["boolq"][k] != v}
    assert changed == {"documents", "data_sha256"}


# T0's wordings of the standard suite: the texts of promptsource, on the harness's data.


# promptsource 0.2.3's texts, filled in by hand; what is read, and the continuations.
T0_WORDS = {
    "boolq:exam": (
        "EXAM\n1. Answer by yes or no.\n\nDocument: Rome is a city in Italy.\n"
        "Question: is rome a city?",
        [" No", " Yes"],
    ),
    "arc_challenge:qa_options": (
        "What is hot?\n\nOptions:\n- ice\n- snow\n- a cold lake\n- rain\n- the sun",
        [" ice", " snow", " a cold lake", " rain", " the sun"],
    ),
    "winogrande:stand_for": (
        "In the sentence below, does the _ stand for cup or box?\n"
        "The cup did not fit in the box because the _ was too large.",
        [" cup", " box"],
    ),
    "lambada_openai:gpt_3_style": (
        "Fill in the blank:\n\nShe opened the door and saw her old friend, and smiled at her ____.",
        [" friend"],
    ),
}


@pytest.mark.parametrize("name", list(T0_WORDS))
def test_t0_s_words_are_those_of_promptsource(name, prompts, shortest, bpe, hub):
    results = evaluate_standard(shortest, bpe, SEQ_LEN, tasks=[name], n_items=1, data_folder=hub)
    context, continuations = T0_WORDS[name]
    assert prompts == [(context, continuation) for continuation in continuations]
    assert results.cells[0]["task"] == name


def test_every_wording_has_its_answer(shortest, bpe, hub):
    results = evaluate_standard(shortest, bpe, SEQ_LEN, tasks=["standard", "t0"], data_folder=hub)
    rows: dict[str, list[dict]] = {}
    for row in results.items.to_pylist():
        rows.setdefault(row["task"], []).append(row)
    assert len(templates()) == 38
    assert rows.keys() == STANDARD.keys() | templates().keys()
    for name in templates():
        task = name.partition(":")[0]
        assert [row["answer"] for row in rows[name]] == [row["answer"] for row in rows[task]]
        assert (
            results.pins["tasks"][name]["data_sha256"]
            == (results.pins["tasks"][task]["data_sha256"])
        )
    wordings = {pins["wording_sha256"] for pins in results.pins["tasks"].values()}
    assert len(wordings) >= 38 + 7 - 6  # both parts of ARC have the same words
