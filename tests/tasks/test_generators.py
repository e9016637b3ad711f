"""Every registered task: its items are real text against corruptions of it, balanced and alike."""

from collections import Counter
from collections.abc import Callable

import pytest

from paribus.engine.tasks import HeldOut, all_tasks, build_suite
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


def test_the_registry_is_sorted_and_its_chances_are_those_of_a_guess():
    tasks = all_tasks()
    assert list(tasks) == sorted(tasks)
    assert len(tasks) >= 8
    assert all(
        task.name == name and task.chance == 1 / task.n_choices for name, task in tasks.items()
    )


def test_at_least_eight_tasks_are_made_from_the_smallest_text_that_ships(suite):
    assert set(suite.tasks) >= set(ON_PYDOC)
    assert len(suite.tasks) >= 8
    assert suite.left_out.keys() <= RICH_TEXT_ONLY


@pytest.mark.parametrize("name", ON_PYDOC)
def test_only_the_answer_is_the_real_text(suite, dataset, name):
    documents = HeldOut.of(dataset).documents
    for item in suite.tasks[name].items:
        for number, choice in enumerate(item.choices):
            real = any(item.context + choice in document for document in documents)
            assert real == (number == item.answer), item


@pytest.mark.parametrize("name", ON_PYDOC)
def test_items_differ_and_their_choices_are_of_one_length(suite, name):
    made = suite.tasks[name]
    assert len(made.items) == 500
    assert len(set(made.items) | set(made.examples)) == 500 + len(made.examples)
    for item in made.items + made.examples:
        assert len(set(item.choices)) == len(item.choices) == made.task.n_choices
        assert len({len(choice) for choice in item.choices}) == 1
        assert item.context.strip()
        assert len(item.context + item.choices[0]) <= made.task.length


@pytest.mark.parametrize("name", ON_PYDOC)
def test_answers_stand_at_every_place_equally_often(suite, name):
    made = suite.tasks[name]
    for n in (64, 500):
        counts = Counter(item.answer for item in made.items[:n])
        assert max(counts.values()) - min(counts.values()) <= 1
        assert len(counts) == made.task.n_choices


@pytest.mark.parametrize("name", ON_PYDOC)
def test_solved_examples_and_question_fit_the_window(suite, name):
    made = suite.tasks[name]
    for shots in (0, 1, 3):
        shown = "".join(e.context + e.choices[e.answer] + "\n" for e in made.examples[:shots])
        longest = max(len(shown + item.context + item.choices[0]) for item in made.items)
        assert (longest <= 128) == (shots in made.shots)


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
    questions = list(all_tasks()[name].generate(RICH, stream(0, name), 31))
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
    questions = list(task.generate(HeldOut.of(dataset), stream(0, name), task.length))
    assert len(questions) % 4 == 0
    for at in range(0, len(questions), 4):
        group = questions[at : at + 4]
        assert len({question.right for question in group}) == 4
        assert len({frozenset((question.right, *question.wrong)) for question in group}) == 1


def test_a_non_word_is_no_word_of_the_corpus(suite, dataset):
    words = HeldOut.of(dataset).words
    for name in ("real_word", "typo", "letter_swap"):
        for item in suite.tasks[name].items:
            wrong = item.choices[1 - item.answer]
            changed = [
                word
                for word, real in zip(split(wrong), split(item.choices[item.answer]), strict=True)
                if word != real
            ]
            assert len(changed) == 1
            assert changed[0].lower() not in words


def split(text: str) -> list[str]:
    return "".join(c if c.isalpha() else " " for c in text).split()


def test_suites_of_one_seed_are_equal(suite, dataset):
    again, other = (build_suite(dataset, seed, 128, n_items=20) for seed in (0, 1))
    assert again.tasks["typo"].items == suite.tasks["typo"].items[:20]
    assert other.tasks["typo"].items != again.tasks["typo"].items


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
        for question in task.generate(held_out, stream(0, name), task.length):
            assert len({len(question.right), *map(len, question.wrong)}) == 1
            assert len(question.wrong) == task.n_choices - 1
