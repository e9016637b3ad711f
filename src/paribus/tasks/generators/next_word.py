"""The next word, among other words of the same length."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from paribus.tasks.held_out import HeldOut, replace, words_inside
from paribus.tasks.task import Question, task

SPAN = 10


@task("next_word", n_choices=4, description="the true next word among words of its length")
def next_word(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    found = [
        (site, word)
        for site in held_out.sites(rng, length - SPAN, SPAN)
        for word in words_inside(site.span, least=3)[:1]
        if word.start() == 1
    ]
    by_length = defaultdict(set)
    for _, word in found:
        by_length[len(word.group())].add(word.group())
    ordered = {size: sorted(words) for size, words in by_length.items()}
    for site, word in found:
        words = ordered[len(word.group())]
        if len(words) >= 4:
            others = [words[i] for i in rng.choice(len(words), size=4, replace=False)]
            # The gap before and the character after stay, so that the word alone decides.
            right = site.span[: word.end() + 1]
            wrong = [replace(right, 1, other) for other in others if other != word.group()][:3]
            yield Question(site.context, right, tuple(wrong))
