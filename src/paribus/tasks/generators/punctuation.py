"""A punctuation mark, or another one in its place."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.tasks.held_out import HeldOut, replace
from paribus.tasks.task import Question, task

SPAN = 14
MARK = re.compile(r"(?<=.)[.,;:!?()\"'-](?=.)", re.DOTALL)


@task("punctuation", n_choices=2, description="the punctuation mark, or another one")
def punctuation(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    marks = held_out.marks
    for site in held_out.sites(rng, length - SPAN, SPAN):
        if mark := MARK.search(site.span):
            # Drawn as often as the text has it, so that a common mark is not thereby right.
            other = marks[int(rng.integers(len(marks)))]
            if other != mark.group():
                yield Question(site.context, site.span, (replace(site.span, mark.start(), other),))
