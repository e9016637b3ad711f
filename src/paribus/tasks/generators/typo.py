"""One letter of a word becomes another: "the value" or "the vadue"."""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase

import numpy as np

from paribus.tasks.held_out import HeldOut, replace, words_inside
from paribus.tasks.task import Question, task

SPAN = 14


@task("typo", n_choices=2, description="the word, or the word with one letter replaced")
def typo(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    known = sorted(set(ascii_lowercase) & set("".join(held_out.documents)))
    for site in held_out.sites(rng, length - SPAN, SPAN):
        for word in words_inside(site.span, least=4):
            text = word.group()
            at = int(rng.integers(1, len(text)))
            # Not a neighbour's letter: an untrained model with tied embeddings repeats itself.
            others = [letter for letter in known if letter not in text[at - 1 : at + 2].lower()]
            changed = replace(text, at, str(rng.choice(others)))
            if changed.lower() not in held_out.words:
                wrong = replace(site.span, word.start(), changed)
                yield Question(site.context, site.span, (wrong,))
                break
