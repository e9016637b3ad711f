"""Tasks that ask for the true continuation of a text, with distractors from other passages.

`length` is the maximum length of context and choice together, in characters.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import (
    HeldOut,
    Question,
    before_from_word,
    grouped,
    replace,
    task,
    words_inside,
)

LINE = re.compile(r"\n(?=[^\n])")
# Texts with too few paragraphs do not have the task `paragraph_end`.
END = re.compile(r"(?<=\S)\n(?=\n)")
GOES_ON = re.compile(r"(?<=\S)\n(?=[^\n])")


@task("continuation", n_choices=4, length=80)
def continuation(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions in groups of four that share the same four choices."""
    sites = held_out.sites(rng, length - 12, 12)
    for group in grouped(sites, lambda site: site.span, size=4):
        for site in group:
            wrong = tuple(distractor.span for distractor in group if distractor is not site)
            yield Question(site.context, site.span, wrong)


@task(
    "line_start",
    n_choices=4,
    # Long enough to see how earlier lines begin; a solved example of this length still fits.
    length=63,
)
def line_start(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about the start of a line, in groups of four.

    The four line starts differ in shape, such as a speaker, a heading or an indent. Each one is
    the answer to one question and a distractor in the other three.
    """
    span = 8
    places = [
        (before_from_word(document, line.end(), length - span), document[line.end() :][:span])
        for document in held_out.documents
        for line in LINE.finditer(document)
        if line.end() + span <= len(document)
    ]
    places = [place for place in places if place[0].strip()]
    shuffled = (places[index] for index in rng.permutation(len(places)))
    for group in grouped(shuffled, lambda place: shape_of(place[1]), size=4):
        for context, right in group:
            yield Question(
                context, right, tuple(distractor for _, distractor in group if distractor != right)
            )


def shape_of(text: str) -> str:
    """Replace the letters and digits in `text` with their class: A, a or 0.

    For example, `   The n` and `   Its f` have the same shape.
    """
    text = re.sub(r"[^\W\d_]", lambda letter: "A" if letter.group().isupper() else "a", text)
    return re.sub(r"\d", "0", text)


@task("next_word", n_choices=4)
def next_word(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about the next word, with three distractors of equal length."""
    sites = held_out.sites(rng, length - 10, 10)
    words = ((site, words_inside(site.span, shortest=3)[:1]) for site in sites)
    first = [(site, word.group()) for site, inside in words for word in inside if word.start() == 1]
    by_length: dict[int, set[str]] = defaultdict(set)
    for _, word in first:
        by_length[len(word)].add(word)
    ordered = {size: sorted(choices) for size, choices in by_length.items()}
    for site, word in first:
        known = ordered[len(word)]
        if len(known) >= 4:
            choices = [known[i] for i in rng.choice(len(known), size=4, replace=False)]
            # The gap before and the character after stay, so that the word alone decides.
            right = site.span[: len(word) + 2]
            wrong = [replace(right, 1, choice) for choice in choices if choice != word][:3]
            yield Question(site.context, right, tuple(wrong))


@task("paragraph_end", n_choices=2)
def paragraph_end(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield pairs of questions, one at the end of a paragraph and one at a line break within it."""
    span = 4
    ends, goes_on = (
        [
            (before_from_word(document, at, length - span), document[at : at + span])
            for document in held_out.documents
            for at in (place.start() for place in kind.finditer(document))
            if at + span <= len(document)
        ]
        for kind in (END, GOES_ON)
    )
    orders = rng.permutation(len(ends)), rng.permutation(len(goes_on))
    for end, on in zip(*orders, strict=False):
        (end_context, end_text), (on_context, on_text) = ends[end], goes_on[on]
        if end_context and on_context:
            yield Question(end_context, end_text, (on_text,))
            yield Question(on_context, on_text, (end_text,))
