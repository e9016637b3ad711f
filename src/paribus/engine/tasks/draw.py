"""Drawing the items of a suite: seeded, balanced, and checked against the window of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paribus.engine.data import Dataset
from paribus.engine.tasks.generators import find_tasks
from paribus.engine.tasks.task import HeldOut, Item, Question, Task
from paribus.errors import ParibusError
from paribus.rng import stream

N_ITEMS = 500
SHOTS = (0, 1, 3)
# An item shorter than this says too little to be worth asking.
LEAST_LENGTH = 24
# Between solved examples: of texts that have lines, and of those that have none.
DELIMITERS = ("\n", " ")

# text -> token ids
Encode = Callable[[str], Sequence[int] | np.ndarray]


@dataclass(frozen=True)
class TaskItems:
    """The items of a task.

    Attributes:
        task: what made them.
        items: what is scored.
        examples: solved examples, in the order in which they are shown; never scored.
        shots: how many examples fit before every item, of SHOTS.
    """

    task: Task
    items: tuple[Item, ...]
    examples: tuple[Item, ...]
    shots: tuple[int, ...]


@dataclass(frozen=True)
class Suite:
    """Tasks made from one text.

    Attributes:
        tasks: by name.
        left_out: {task: why the text or the window does not allow it}.
        delimiter: what stands between solved examples.
        origin: seed, window and digests of the text, for the record.
    """

    tasks: dict[str, TaskItems]
    left_out: dict[str, str]
    delimiter: str
    origin: dict[str, Any]


def build_suite(
    dataset: Dataset,
    seed: int,
    window: int,
    *,
    names: Sequence[str] | None = None,
    n_items: int = N_ITEMS,
    least: int | None = None,
    own: Sequence[Task] = (),
    readers: Sequence[tuple[Encode, int]] = (),
) -> Suite:
    """Return the suite of `dataset`'s validation split, for models that see `window` tokens.

    A task has `n_items` items, or as many as the text has where these are at least `least`; by
    default all must be there. `names` None is every task that the text and the window allow; what
    they do not allow is in `left_out`. `own` are the user's tasks, beside those that ship;
    `readers` other tokenizers that the items are read with, and their windows. Raises ParibusError
    for an unknown task, and for a named or own one that is left out.
    """
    held_out = HeldOut.of(dataset)
    least = n_items if least is None else least
    lines, words = DELIMITERS
    delimiter = lines if any(lines in text for text in held_out.documents) else words
    all_readers = [(dataset.tokenizer.encode, window), *readers]
    tasks: dict[str, TaskItems] = {}
    left_out: dict[str, str] = {}
    for task in find_tasks(names, own):
        length = min(task.length, window)
        if length < LEAST_LENGTH:
            left_out[task.name] = f"the window of {window} tokens is shorter than {LEAST_LENGTH}"
            continue
        examples, items = (
            _draw(task, text, held_out, length, wanted, seed, purpose)
            for purpose, text, wanted in zip(
                ("examples", "items"), held_out.divide(), (max(SHOTS), n_items), strict=True
            )
        )
        if len(items) < least:
            left_out[task.name] = f"the held-out text has {len(items)} of {least} items"
        elif len(examples) < max(SHOTS):
            left_out[task.name] = f"the held-out text has {len(examples)} of {max(SHOTS)} examples"
        elif shots := _shots(items, examples, delimiter, all_readers):
            tasks[task.name] = TaskItems(task, items, examples, shots)
        else:
            left_out[task.name] = f"its items do not fit into {window} tokens"
    for name in (*(names or ()), *(task.name for task in own)):
        if name in left_out:
            raise ParibusError(
                f"task '{name}' cannot be made: {left_out[name]}; leave it out of the tasks, or "
                "use fewer items, more text or a longer window"
            )
    origin = {"seed": seed, "window": window, "n_items": n_items, "data": dataset.digests}
    return Suite(tasks, left_out, delimiter, origin)


def _shots(
    items: Iterable[Item],
    examples: Sequence[Item],
    delimiter: str,
    readers: Sequence[tuple[Encode, int]],
) -> tuple[int, ...]:
    """Return those of SHOTS that `fitting_shots` gives for every reader."""
    each = [fitting_shots(items, examples, delimiter, size, encode) for encode, size in readers]
    return tuple(n for n in SHOTS if all(n in one for one in each))


def fitting_shots(
    items: Iterable[Item], examples: Sequence[Item], delimiter: str, window: int, encode: Encode
) -> tuple[int, ...]:
    """Return those of SHOTS with which every prompt and choice fit into `window` together."""
    solved = [example.context + example.choices[example.answer] for example in examples]
    longest = _longest((i.context + choice for i in items for choice in i.choices), encode)
    return tuple(
        n
        for n in SHOTS
        if len(encode("".join(text + delimiter for text in solved[:n]) + longest)) <= window
    )


def _longest(texts: Iterable[str], encode: Encode) -> str:
    """Return the text of the most tokens."""
    longest, most = "", 0
    # No text has more tokens than bytes, so those of fewer bytes than tokens found are not encoded.
    for text in sorted(texts, key=lambda text: len(text.encode()), reverse=True):
        if len(text.encode()) <= most:
            break
        n_tokens = len(encode(text))
        if n_tokens > most:
            longest, most = text, n_tokens
    return longest


def _draw(
    task: Task,
    text: HeldOut,
    held_out: HeldOut,
    length: int,
    wanted: int,
    seed: int,
    purpose: str,
) -> tuple[Item, ...]:
    """Return at most `wanted` items of `text`, a part of `held_out`."""
    questions = task.generate(text, stream(seed, "tasks", task.name, purpose), length)
    distinct = _distinct(questions, wanted, held_out)
    return tuple(_placed(distinct, stream(seed, "tasks", task.name, purpose, "places")))


def _distinct(questions: Iterable[Question], wanted: int, held_out: HeldOut) -> list[Question]:
    """Return the first `wanted` questions that differ and have one right choice."""
    kept: dict[tuple[str, str], Question] = {}
    for question in questions:
        if len(kept) == wanted:
            break
        choices = {question.right, *question.wrong}
        # Text repeats itself: a distractor may be how it goes on elsewhere.
        also_right = any(held_out.contains(question.context + wrong) for wrong in question.wrong)
        if len(choices) == 1 + len(question.wrong) and not also_right:
            kept.setdefault((question.context, question.right), question)
    return list(kept.values())


def _placed(questions: list[Question], rng: np.random.Generator) -> Iterator[Item]:
    """Items whose answers stand at every place equally often, in any first part of them too."""
    places: list[int] = []
    for question in questions:
        if not places:
            places = rng.permutation(1 + len(question.wrong)).tolist()
        answer = places.pop()
        choices = list(question.wrong)
        choices.insert(answer, question.right)
        yield Item(question.context, tuple(choices), answer)
