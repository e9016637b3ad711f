"""How the next line begins (a speaker, a heading, an indent), among beginnings of other shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, before_from_word, grouped

SPAN = 8
LINE = re.compile(r"\n(?=[^\n])")
# Long enough to see how earlier lines begin; a solved example of this length still fits.
LENGTH = 63


@task(
    "line_start",
    n_choices=4,
    description="the true beginning of the next line, by its shape",
    length=LENGTH,
)
def line_start(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Four lines a group, of different shapes: what begins one is wrong for the three others."""
    places = [
        (before_from_word(document, line.end(), length - SPAN), document[line.end() :][:SPAN])
        for document in held_out.documents
        for line in LINE.finditer(document)
        if line.end() + SPAN <= len(document)
    ]
    found = [place for place in places if place[0].strip()]
    shuffled = (found[index] for index in rng.permutation(len(found)))
    for group in grouped(shuffled, lambda place: shape_of(place[1]), size=4):
        for context, right in group:
            yield Question(context, right, tuple(other for _, other in group if other != right))


def shape_of(text: str) -> str:
    """`   The n` and `   Its f` have one shape: what kind of character stands where."""
    text = re.sub(r"[^\W\d_]", lambda letter: "A" if letter.group().isupper() else "a", text)
    return re.sub(r"\d", "0", text)
