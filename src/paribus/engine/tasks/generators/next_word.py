"""The next word, among other words of the same length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, replace, words_inside

SPAN = 10


@task("next_word", n_choices=4, description="the true next word among words of its length")
def next_word(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Three words of the same length that stand elsewhere in the text are the wrong choices."""
    sites = held_out.sites(rng, length - SPAN, SPAN)
    words = ((site, words_inside(site.span, least=3)[:1]) for site in sites)
    found = [(site, word.group()) for site, first in words for word in first if word.start() == 1]
    by_length: dict[int, set[str]] = defaultdict(set)
    for _, word in found:
        by_length[len(word)].add(word)
    ordered = {size: sorted(others) for size, others in by_length.items()}
    for site, word in found:
        known = ordered[len(word)]
        if len(known) >= 4:
            others = [known[i] for i in rng.choice(len(known), size=4, replace=False)]
            # The gap before and the character after stay, so that the word alone decides.
            right = site.span[: len(word) + 2]
            wrong = [replace(right, 1, other) for other in others if other != word][:3]
            yield Question(site.context, right, tuple(wrong))
