"""Two neighbouring words change places: "the value of" or "value the of"."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import LETTERS, HeldOut, replace

SPAN = 18
TWO_WORDS = re.compile(rf"(?<=\s)({LETTERS})(\s)({LETTERS})(?=\W)")


@task("word_order", n_choices=2, description="two words, or the same two in the other order")
def word_order(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """The first two neighbouring words after the context, unless they are the same word."""
    for site in held_out.sites(rng, length - SPAN, SPAN):
        if two := TWO_WORDS.search(site.span):
            first, gap, second = two.groups()
            if first.lower() != second.lower():
                wrong = replace(site.span, two.start(), second + gap + first)
                yield Question(site.context, site.span, (wrong,))
