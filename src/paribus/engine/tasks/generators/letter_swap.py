"""Two neighbouring letters inside a word change places: "the value" or "the vaule"."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, replace, words_inside

SPAN = 14


@task("letter_swap", n_choices=2, description="the word, or the word with two letters swapped")
def letter_swap(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """The swap that looks most like the language, of the first word that has one."""
    for site in held_out.sites(rng, length - SPAN, SPAN):
        for word in words_inside(site.span, least=4):
            text = word.group()
            swaps = (replace(text, at, text[at + 1] + text[at]) for at in range(1, len(text) - 2))
            wrong = [
                replace(site.span, word.start(), swapped)
                for swapped in swaps
                if swapped != text and swapped.lower() not in held_out.words
            ]
            if wrong:
                yield Question(site.context, site.span, (held_out.most_plausible(wrong),))
                break
