"""How a longer text goes on, among pieces of the same length from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paribus.tasks.held_out import HeldOut
from paribus.tasks.task import Question, task

SPAN = 12


@task("continuation", n_choices=4, description="the true next characters", length=80)
def continuation(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    sites = list(held_out.sites(rng, length - SPAN, SPAN))
    spans = sorted({site.span for site in sites})
    for site in sites:
        others = [spans[i] for i in rng.choice(len(spans), size=4, replace=False)]
        wrong = tuple(span for span in others if span != site.span)[:3]
        yield Question(site.context, site.span, wrong)
