"""The first letter of a word, small or capital. Half of the items are of each kind.

Texts with too few capitals do not have this task.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, replace, words_inside

SPAN = 12


@task("case", n_choices=2, description="the word, or the word with its first letter in other case")
def case(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """One question of each kind in turn; `length` is that of context and choice together."""
    known = set("".join(held_out.documents))
    waiting: tuple[list[Question], list[Question]] = ([], [])
    for site in held_out.sites(rng, length - SPAN, SPAN):
        for word in words_inside(site.span, least=2)[:1]:
            letter = word.group()[0]
            if word.start() == 1 and letter.swapcase() in known - {letter}:
                wrong = replace(site.span, 1, letter.swapcase())
                waiting[letter.isupper()].append(Question(site.context, site.span, (wrong,)))
        if all(waiting):
            yield from (questions.pop() for questions in waiting)
