"""What a task is: a function from held-out text to questions, and the decorator that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from paribus.engine.tasks.validation_text import HeldOut

# Four blocks of this size and the line breaks between them fit into a window of 128 characters:
# three solved examples and the question.
SHORT = 31


@dataclass(frozen=True)
class Question:
    """What a generator yields: the text before, how it really goes on, and how it does not."""

    context: str
    right: str
    wrong: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """A question with its choices in the order in which they are shown."""

    context: str
    choices: tuple[str, ...]
    answer: int


# (text, random stream, characters of context and choice together) -> questions, in random order
Generate = Callable[[HeldOut, np.random.Generator, int], Iterator[Question]]


@dataclass(frozen=True)
class Task:
    """A registered task.

    Attributes:
        name: unique; also that of its files.
        n_choices: how many each item has; all of one length in characters.
        description: what has to be told apart.
        length: the most characters that context and choice have together.
        version: raised with every change of what it generates.
        generate: its questions.
    """

    name: str
    n_choices: int
    description: str
    length: int
    version: int
    generate: Generate

    @property
    def chance(self) -> float:
        """The accuracy of a guess: answers are spread evenly over the places."""
        return 1 / self.n_choices


def task(
    name: str, *, n_choices: int, description: str, length: int = SHORT, version: int = 1
) -> Callable[[Generate], Task]:
    """Make a task of a function `(held_out, rng, length) -> questions`.

    It must be pure: random only through `rng`, and every choice of one length.
    """
    return lambda generate: Task(name, n_choices, description, length, version, generate)
