"""Every registered task: its items are real text against corruptions of it, balanced and alike."""

import re
from collections import Counter
from collections.abc import Callable

import pytest

from paribus.engine.tasks import HeldOut
from paribus.engine.tasks.generators import all_tasks
from paribus.rng import stream

# They need more verbs, capitals and paragraphs than the language reference's held-out part has.
RICH_TEXT_ONLY = {"agreement", "case", "paragraph_end"}
ON_PYDOC = sorted(all_tasks().keys() - RICH_TEXT_ONLY)

RICH = HeldOut(
    tuple(
        f"Today the old house by lane {n} is quiet, and dark.\nIts many\nrooms are empty now.\n\n"
        f"Here the men of ship {n} were tired, and the\nking alone was awake all night.\n\n"
        for n in range(40)
    ),
    frozenset(),
)


def test_at_least_eight_tasks_are_made_from_the_smallest_text_that_ships(suite):
    assert list(all_tasks()) == sorted(all_tasks())
    assert len(suite.tasks.keys() & ON_PYDOC) == len(ON_PYDOC) >= 8
    assert suite.left_out.keys() <= RICH_TEXT_ONLY


@pytest.mark.parametrize("name", ON_PYDOC)
def test_items_are_real_text_against_others_balanced_and_of_one_length(suite, dataset, name):
    task, documents = all_tasks()[name], HeldOut.decode(dataset).documents
    items, examples = suite.rows[name]["test"], suite.rows[name]["examples"]
    assert 80 <= len(items) <= 500
    assert len({(row["context"], *row["choices"]) for row in items + examples}) == len(items) + 3
    for row in items:
        for number, choice in enumerate(row["choices"]):
            real = any(row["context"] + choice in document for document in documents)
            assert real == (number == row["answer"]), row
    for row in items + examples:
        assert len(set(row["choices"])) == len(row["choices"]) == task.n_choices
        assert len({len(choice) for choice in row["choices"]}) == 1
        assert row["context"].strip()
        assert len(row["context"] + row["choices"][0]) <= task.length
    for n in (64, len(items)):  # answers stand at every place equally often
        counts = Counter(row["answer"] for row in items[:n])
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len(counts) == task.n_choices
    for shots in (0, 1, 3):
        shown = "".join(e["context"] + e["choices"][e["answer"]] + "\n" for e in examples[:shots])
        longest = max(len(shown + row["context"] + row["choices"][0]) for row in items)
        assert (longest <= 128) == (shots in suite.tasks[name].shots)


def test_solved_examples_come_from_text_that_no_item_touches():
    held_out = HeldOut(("a" * 3_000, "b" * 30_000, "c" * 27_000), frozenset())
    examples, items = held_out.divide()
    assert examples.documents == ("a" * 3_000,)
    assert items.documents == ("b" * 30_000, "c" * 27_000)
    examples, items = HeldOut(("a" * 1_000, "b" * 9_000), frozenset()).divide()
    assert examples.documents == ("a" * 1_000, "b" * 1_000)
    assert items.documents == ("b" * 8_000,)


@pytest.mark.parametrize("name", sorted(RICH_TEXT_ONLY))
def test_tasks_of_richer_texts_are_real_text_of_either_kind_half_and_half(name):
    questions = list(all_tasks()[name].function(RICH, stream(0, name), 31))
    assert len(questions) >= 40
    for question in questions:
        (wrong,) = question.wrong
        assert any(question.context + question.right in text for text in RICH.documents)
        assert len(question.right) == len(wrong)
        assert question.right != wrong
    # A preference for one kind is right half of the time.
    kinds: dict[str, Callable[[str], bool]] = {
        "agreement": lambda text: text.split()[0] in ("are", "were"),
        "case": lambda text: text[1].isupper(),
        "paragraph_end": lambda text: text.startswith("\n\n"),
    }
    counts = Counter(kinds[name](question.right) for question in questions)
    assert counts[True] == counts[False]


@pytest.mark.parametrize("name", ["continuation", "line_start"])
def test_every_choice_of_a_group_is_right_once(dataset, name):
    task = all_tasks()[name]
    questions = list(task.function(HeldOut.decode(dataset), stream(0, name), task.length))
    assert len(questions) % 4 == 0
    for at in range(0, len(questions), 4):
        group = questions[at : at + 4]
        assert len({question.right for question in group}) == 4
        assert len({frozenset((question.right, *question.wrong)) for question in group}) == 1


def test_a_non_word_is_no_word_of_the_corpus(suite, dataset):
    words = HeldOut.decode(dataset).words
    for name in ("real_word", "typo", "letter_swap"):
        for row in suite.rows[name]["test"]:
            texts = (row["choices"][place] for place in (row["answer"], 1 - row["answer"]))
            real, wrong = (re.findall(r"[^\W\d_]+", text) for text in texts)
            changed = [word for word, known in zip(wrong, real, strict=True) if word != known]
            assert len(changed) == 1
            assert changed[0].lower() not in words


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a" * 5_000,
        "да нет не знаю, что там было. " * 200,
        "你好世界。" * 900,
        "1 2 3 " * 900,
    ],
)
def test_a_text_of_another_kind_gives_fewer_items_and_no_crash(text):
    held_out = HeldOut((text,) if text else (), frozenset(text.lower().split()))
    for name, task in all_tasks().items():
        for question in task.function(held_out, stream(0, name), task.length):
            assert len({len(question.right), *map(len, question.wrong)}) == 1
            assert len(question.wrong) == task.n_choices - 1
