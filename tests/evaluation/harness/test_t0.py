"""T0's wordings of the standard suite: the texts of promptsource, on the harness's data."""

import pytest

from paribus.engine.evaluation.harness.standard import STANDARD, evaluate_standard, templates

SEQ_LEN = 256

# promptsource 0.2.3's texts, filled in by hand; what is read, and the continuations.
T0_WORDS = {
    "boolq:exam": (
        "EXAM\n1. Answer by yes or no.\n\nDocument: Rome is a city in Italy.\n"
        "Question: is rome a city?",
        [" No", " Yes"],
    ),
    "piqa:finish_sentence_with_correct_choice": (
        "Finish the following sentence with the best choice: Open a jar\n\nChoices:\n"
        "- Twist the lid.\n- Paint the lid blue.\n\nAnswer:",
        [" Twist the lid.", " Paint the lid blue."],
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
        assert results.chance[name] == results.chance[task]
        assert (
            results.pins["tasks"][name]["data_sha256"]
            == (results.pins["tasks"][task]["data_sha256"])
        )
    wordings = {pins["wording_sha256"] for pins in results.pins["tasks"].values()}
    assert len(wordings) >= 38 + 7 - 6  # both parts of ARC have the same words
