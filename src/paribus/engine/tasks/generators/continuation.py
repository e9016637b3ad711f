"""How a longer text goes on, among the continuations of three other places."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, grouped

SPAN = 12


@task("continuation", n_choices=4, description="the true next characters", length=80)
def continuation(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Four places a group: what continues one is wrong for the three others."""
    sites = held_out.sites(rng, length - SPAN, SPAN)
    for group in grouped(sites, lambda site: site.span, size=4):
        for site in group:
            wrong = tuple(other.span for other in group if other is not site)
            yield Question(site.context, site.span, wrong)
