"""A letter of a word changes between capital and small: "the value" or "the vaLue"."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paribus.tasks.held_out import HeldOut, replace, words_inside
from paribus.tasks.task import Question, task

SPAN = 12


@task("case", n_choices=2, description="the word, or the word with one letter in the other case")
def case(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    known = set("".join(held_out.documents))
    for site in held_out.sites(rng, length - SPAN, SPAN):
        for word in words_inside(site.span, least=3):
            at = word.start() + int(rng.integers(len(word.group())))
            other = site.span[at].swapcase()
            if other != site.span[at] and other in known:
                yield Question(site.context, site.span, (replace(site.span, at, other),))
                break
