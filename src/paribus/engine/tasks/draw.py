"""Drawing the items of a suite: seeded, balanced, and checked against the window of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    n_items: int = N_ITEMS,
    n_least: int | None = None,
    own: Sequence[Task] = (),
    readers: Sequence[tuple[Encode, int]] = (),
) -> Suite:
    """Return the suite of `dataset`'s validation split, for models that see `window` tokens.

    A task has `n_items` items, or as many as the text has if these are at least `n_least`; by
    default all must be there. What the text and the window do not allow is in `left_out`. `own` are
    the user's tasks, beside those that ship; `readers` other tokenizers that the items are read
    with, and their windows. Raises ParibusError for an own one that is left out.
    """
    held_out = HeldOut.of(dataset)
    n_least = n_items if n_least is None else n_least
    delimiter = "\n" if any("\n" in text for text in held_out.documents) else " "
    readers = [(dataset.tokenizer.encode, window), *readers]
    tasks: dict[str, TaskItems] = {}
    left_out: dict[str, str] = {}
    for task in find_tasks(own=own):
        length = min(task.length, window)
        if length < LEAST_LENGTH:
            left_out[task.name] = f"the window of {window} tokens is shorter than {LEAST_LENGTH}"
            continue
        of_examples, of_items = held_out.divide()
        examples = _draw(task, of_examples, held_out, length, max(SHOTS), seed, "examples")
        items = _draw(task, of_items, held_out, length, n_items, seed, "items")
        if len(items) < n_least:
            left_out[task.name] = f"the held-out text has {len(items)} of {n_least} items"
        elif len(examples) < max(SHOTS):
            left_out[task.name] = f"the held-out text has {len(examples)} of {max(SHOTS)} examples"
        elif shots := _fitting_shots(items, examples, delimiter, readers):
            tasks[task.name] = TaskItems(task, items, examples, shots)
        else:
            left_out[task.name] = f"its items do not fit into {window} tokens"
    for task in own:
        if task.name in left_out:
            raise ParibusError(
                f"task '{task.name}' cannot be made: {left_out[task.name]}; leave it out, or "
                "use fewer items, more text or a longer window",
                code="too_few",
            )
    origin = {"seed": seed, "window": window, "n_items": n_items, "data": dataset.digests}
    return Suite(tasks, left_out, delimiter, origin)


def _fitting_shots(
    items: Iterable[Item],
    examples: Sequence[Item],
    delimiter: str,
    readers: Sequence[tuple[Encode, int]],
) -> tuple[int, ...]:
    """Return those of SHOTS with which every prompt and choice fit together, for every reader."""
    solved = [example.context + example.choices[example.answer] + delimiter for example in examples]
    texts = [item.context + choice for item in items for choice in item.choices]
    texts.sort(key=lambda text: len(text.encode()), reverse=True)
    shots = SHOTS
    for encode, window in readers:
        longest = max(texts, key=lambda text: len(encode(text)))
        shots = tuple(n for n in shots if len(encode("".join(solved[:n]) + longest)) <= window)
    return shots


def _draw(
    task: Task,
    text: HeldOut,
    held_out: HeldOut,
    length: int,
    wanted: int,
    seed: int,
    purpose: str,
) -> tuple[Item, ...]:
    """Return at most `wanted` items of `text`, a part of `held_out`.

    They differ and have one right choice. Answers stand at every place equally often, in any first
    part of them too.
    """
    kept: dict[tuple[str, str], Question] = {}
    for question in task.generate(text, stream(seed, "tasks", task.name, purpose), length):
        if len(kept) == wanted:
            break
        choices = {question.right, *question.wrong}
        # Text repeats itself: a distractor may be how it goes on elsewhere.
        also_right = any(held_out.contains(question.context + wrong) for wrong in question.wrong)
        if len(choices) == 1 + len(question.wrong) and not also_right:
            kept.setdefault((question.context, question.right), question)
    rng, places, items = stream(seed, "tasks", task.name, purpose, "places"), list[int](), []
    for question in kept.values():
        if not places:
            places = rng.permutation(1 + len(question.wrong)).tolist()
        answer = places.pop()
        choices = (*question.wrong[:answer], question.right, *question.wrong[answer:])
        items.append(Item(question.context, choices, answer))
    return tuple(items)
