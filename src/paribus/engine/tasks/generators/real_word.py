"""A word, or its letters in an order that no word of the corpus has, though it might."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, replace, words_inside

SPAN = 12
TRIED = 20


@task("real_word", n_choices=2, description="the word, or a non-word of the same letters")
def real_word(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """The shuffle that looks most like the language, of the first word that has one."""
    for site in held_out.sites(rng, length - SPAN, SPAN):
        for word in words_inside(site.span, least=4):
            shuffles = ("".join(rng.permutation(list(word.group()))) for _ in range(TRIED))
            wrong = [
                replace(site.span, word.start(), shuffled)
                for shuffled in shuffles
                if shuffled.lower() not in held_out.words
            ]
            if wrong:
                yield Question(site.context, site.span, (held_out.most_plausible(wrong),))
                break
