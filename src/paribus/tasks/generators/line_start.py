"""How the next line begins (a speaker, a heading, an indent), among beginnings of other shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.tasks.held_out import HeldOut, before_from_word
from paribus.tasks.task import Question, task

SPAN = 8
LINE = re.compile(r"\n(?=[^\n])")


@task("line_start", n_choices=4, description="the true beginning of the next line, by its shape")
def line_start(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    places = [
        (document, line.end())
        for document in held_out.documents
        for line in LINE.finditer(document)
        if line.end() + SPAN <= len(document)
    ]
    starts = sorted({document[at : at + SPAN] for document, at in places})
    for index in rng.permutation(len(places)):
        document, at = places[index]
        context, right = before_from_word(document, at, length - SPAN), document[at : at + SPAN]
        wrong: dict[str, str] = {}
        for other in rng.permutation(len(starts)):
            shape = shape_of(starts[other])
            if shape != shape_of(right):
                wrong.setdefault(shape, starts[other])
            if len(wrong) == 3:
                break
        if len(wrong) == 3 and context.strip():
            yield Question(context, right, tuple(wrong.values()))


def shape_of(text: str) -> str:
    """`   The n` and `   Its f` have one shape: what kind of character stands where."""
    text = re.sub(r"[^\W\d_]", lambda letter: "A" if letter.group().isupper() else "a", text)
    return re.sub(r"\d", "0", text)
