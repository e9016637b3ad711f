"""A gap between two words moves by one letter: "the value" or "th evalue"."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import LETTERS, HeldOut, replace

SPAN = 14
TWO_WORDS = re.compile(rf"(?<=\s)({LETTERS})(\s)({LETTERS})(?=\W)")


@task("word_cut", n_choices=2, description="the gap between two words, or one letter beside it")
def word_cut(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """The gap moves to the left or the right, where that makes no two words of the corpus."""
    for site in held_out.sites(rng, length - SPAN, SPAN):
        if two := TWO_WORDS.search(site.span):
            first, gap, second = two.groups()
            earlier = (first[:-1], first[-1] + second)
            later = (first + second[0], second[1:])
            wrong = [
                replace(site.span, two.start(), left + gap + right)
                for left, right in (earlier, later)
                if left and right and not {left.lower(), right.lower()} <= held_out.words
            ]
            if wrong:
                yield Question(site.context, site.span, (held_out.most_plausible(wrong),))
