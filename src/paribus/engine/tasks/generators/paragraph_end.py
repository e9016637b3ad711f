"""Whether the paragraph ends here or goes on in the next line. Half of the items are of each kind.

Texts with too few paragraphs do not have this task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut, before_from_word

SPAN = 4
END = re.compile(r"(?<=\S)\n(?=\n)")
GOES_ON = re.compile(r"(?<=\S)\n(?=[^\n])")


@task("paragraph_end", n_choices=2, description="an empty line, or the next line of the paragraph")
def paragraph_end(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Pairs of an end and of a line that goes on; what is right for one is wrong for the other."""
    ends, goes_on = (
        [
            (before_from_word(document, at, length - SPAN), document[at : at + SPAN])
            for document in held_out.documents
            for at in (place.start() for place in kind.finditer(document))
            if at + SPAN <= len(document)
        ]
        for kind in (END, GOES_ON)
    )
    orders = rng.permutation(len(ends)), rng.permutation(len(goes_on))
    for end, on in zip(*orders, strict=False):
        (end_context, end_text), (on_context, on_text) = ends[end], goes_on[on]
        if end_context and on_context:
            yield Question(end_context, end_text, (on_text,))
            yield Question(on_context, on_text, (end_text,))
