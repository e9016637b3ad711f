"""One letter of a word becomes another that might stand there: "the value" or "the valoe"."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, replace, words_inside

SPAN = 14
TRIED = 4


@task("typo", n_choices=2, description="the word, or the word with one letter replaced")
def typo(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """The change that looks most like the language, of the first word that has one."""
    known = sorted({letter for text in held_out.documents for letter in text if letter.islower()})
    for site in held_out.sites(rng, length - SPAN, SPAN):
        for word in words_inside(site.span, least=4):
            text = word.group()
            wrong = [
                replace(site.span, word.start(), changed)
                for changed in (_changed(text, known, rng) for _ in range(TRIED))
                if changed.lower() not in held_out.words
            ]
            if wrong:
                yield Question(site.context, site.span, (held_out.most_plausible(wrong),))
                break


def _changed(text: str, letters: list[str], rng: np.random.Generator) -> str:
    at = int(rng.integers(1, len(text)))
    # Not a neighbour's letter: an untrained model with tied embeddings repeats itself.
    others = [letter for letter in letters if letter not in text[at - 1 : at + 2].lower()]
    return replace(text, at, others[int(rng.integers(len(others)))]) if others else text
