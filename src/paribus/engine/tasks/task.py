"""Task declaration, and the held-out text that tasks are generated from."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from paribus.engine.data import Dataset
from paribus.study.choices import Decorated

T = TypeVar("T")

NAME = "^[A-Za-z0-9_-]{1,64}$"  # of a task, which is that of its files too
LETTERS = r"[^\W\d_]+"
# One white-space character between two others: inside a line of text, or where it is wrapped.
WORD_GAP = re.compile(r"(?<=\S)\s(?=\S)")
LEAST_CONTEXT = 8
# The part of the split that solved examples come from; no scored item touches it.
EXAMPLES_FRACTION = 0.05
EXAMPLES_LEAST = 2_000
# Of either split; more would make no better items, and take long to search.
MOST_TOKENS = 2**20


@dataclass(frozen=True)
class Site:
    """Word boundary in a text, with the text on both sides.

    `context` is the text before the boundary. `span` is the text after the boundary, starting with
    the whitespace before a word.
    """

    context: str
    span: str


@dataclass(frozen=True)
class HeldOut:
    """Documents of the validation split, the first of which may be truncated at its start.

    Attributes:
        documents: nonempty texts.
        words: all words in the training and validation text, in lowercase.
    """

    documents: tuple[str, ...]
    words: frozenset[str]

    @classmethod
    def decode(cls, dataset: Dataset) -> HeldOut:
        """Decode the first MOST_TOKENS tokens of the validation split into documents."""
        tokenizer = dataset.tokenizer
        documents = tuple(tokenizer.documents(dataset.validation[:MOST_TOKENS]))
        everything = (tokenizer.decode(dataset.train[:MOST_TOKENS]), *documents)
        # Only corruptions are checked against the training text's words; no item shows any of it.
        words = (word.lower() for text in everything for word in re.findall(LETTERS, text))
        return cls(documents, frozenset(words))

    def contains(self, text: str) -> bool:
        """Return whether `text` occurs verbatim in one of the documents."""
        return any(text in document for document in self.documents)

    def divide(self) -> tuple[HeldOut, HeldOut]:
        """Split the documents into text for few-shot examples and text for scored items."""
        total = sum(map(len, self.documents))
        wanted = min(max(int(total * EXAMPLES_FRACTION), EXAMPLES_LEAST), total // 2)
        examples, items = [], []
        for document in self.documents:
            examples.append(document[:wanted])
            items.append(document[wanted:])
            wanted -= len(examples[-1])
        of_examples, of_items = (tuple(filter(None, texts)) for texts in (examples, items))
        return HeldOut(of_examples, self.words), HeldOut(of_items, self.words)

    @cached_property
    def marks(self) -> str:
        """All punctuation marks in the documents, including repetitions, as one string."""
        return "".join(re.findall(r"[.,;:!?()\"'-]", "".join(self.documents)))

    @cached_property
    def pairs(self) -> Counter[str]:
        """Counts of adjacent character pairs in the documents."""
        return Counter(text[at : at + 2] for text in self.documents for at in range(len(text) - 1))

    def most_plausible(self, texts: Iterable[str]) -> str:
        """Return the candidate whose adjacent character pairs are most common in the documents.

        This avoids corruptions that are obvious from an impossible pair of characters.
        """
        # The product of counts orders as the sum of their logarithms does, and is exact.
        return max(
            texts,
            key=lambda text: math.prod(1 + self.pairs[text[i : i + 2]] for i in range(len(text))),
        )

    def sites(self, rng: np.random.Generator, context: int, span: int) -> Iterator[Site]:
        """Yield all word boundaries inside running text, in random order.

        Contexts start at a word and have at most `context` characters. Spans have exactly `span`
        characters.
        """
        places = [
            (document, gap.start())
            for document in self.documents
            for gap in WORD_GAP.finditer(document)
            if gap.start() + span <= len(document)
        ]
        for index in rng.permutation(len(places)):
            document, at = places[index]
            before = before_from_word(document, at, context)
            if len(before) >= min(LEAST_CONTEXT, context):
                yield Site(before, document[at : at + span])


def grouped(values: Iterable[T], key: Callable[[T], str], size: int) -> Iterator[list[T]]:
    """Yield disjoint groups of `size` values with distinct keys.

    If each member of a group is the correct choice once and a distractor otherwise, guessing
    without the context is correct with probability 1 / size.
    """
    waiting: list[dict[str, T]] = []
    for value in values:
        group = next((group for group in waiting if key(value) not in group), None)
        if group is None:
            waiting.append(group := {})
        group[key(value)] = value
        if len(group) == size:
            waiting.remove(group)
            yield list(group.values())


def before_from_word(document: str, at: int, length: int) -> str:
    """Return up to `length` characters before position `at`, starting at a word boundary."""
    start = max(at - length, 0)
    text = document[start:at]
    if start > 0 and not document[start - 1].isspace() and not text[:1].isspace():
        text = re.sub(r"^\S*", "", text)
    return text.lstrip()


def words_inside(span: str, shortest: int) -> list[re.Match[str]]:
    """Find the words of at least `shortest` letters in `span` that touch neither of its ends."""
    pattern = rf"(?<=\s)[^\W\d_]{{{shortest},}}(?=[^\w])"
    return list(re.finditer(pattern, span))


def replace(span: str, start: int, text: str) -> str:
    """Replace characters of `span` with `text`, starting at index `start`."""
    return span[:start] + text + span[start + len(text) :]


# Four blocks of this size and the line breaks between them fit into a window of 128 characters:
# three solved examples and the question.
SHORT = 31


@dataclass(frozen=True)
class Question:
    """Multiple-choice question with a context, its true continuation, and distractors."""

    context: str
    right: str
    wrong: tuple[str, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(Decorated):
    """Decorator that declares a function as a task: `@task("name", n_choices=2)`.

    The function takes the held-out text, a random generator, and the maximum number of characters
    in context and choice together. It yields questions in random order and uses no other source of
    randomness. All choices of a question have equal length. Files are named after the task.

    Attributes:
        n_choices: number of choices of each question.
        length: maximum number of characters in context and choice together.
        version: version of the questions; increase it whenever they change.
    """

    n_choices: int
    length: int = SHORT
    version: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(NAME, self.name):
            raise ValueError(
                f"{self.name!r} is not a valid task name; use up to 64 letters, digits, '_' and '-'"
            )


task = Task
