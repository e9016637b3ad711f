"""A punctuation mark, or another one that might stand between the same neighbours."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, replace

SPAN = 14
TRIED = 3
MARK = re.compile(r"(?<=.)[.,;:!?()\"'-](?=.)", re.DOTALL)


@task("punctuation", n_choices=2, description="the punctuation mark, or another one")
def punctuation(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """The most plausible of a few marks, drawn as often as the text has them, is wrong."""
    marks = held_out.marks
    for site in held_out.sites(rng, length - SPAN, SPAN):
        if mark := MARK.search(site.span):
            # Drawn as often as the text has them, so that a common mark is not thereby right.
            drawn = {marks[at] for at in rng.integers(len(marks), size=TRIED)}
            wrong = [
                replace(site.span, mark.start(), other) for other in sorted(drawn - {mark.group()})
            ]
            if wrong:
                yield Question(site.context, site.span, (held_out.most_plausible(wrong),))
