"""Number agreement: "the values are" or "the values is". Half of the items are of each number.

Texts with too few of these verbs do not have this task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from paribus.engine.tasks.task import Question, task
from paribus.engine.tasks.validation_text import HeldOut

SPAN = 10
SINGULAR = {"is": "are", "was": "were", "has": "have", "does": "do", "this": "these"}
PLURAL = {plural: singular for singular, plural in SINGULAR.items()}
FIRST_WORD = re.compile(r"\s([a-z]+)\W")


@task("agreement", n_choices=2, description="the verb's number, or the other one")
def agreement(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """One question of each number in turn; `length` is that of context and choice together."""
    waiting: tuple[list[Question], list[Question]] = ([], [])
    # Two characters more than are shown, so that both forms fill the span.
    for site in held_out.sites(rng, length - SPAN, SPAN + 2):
        if word := FIRST_WORD.match(site.span):
            for forms, questions in zip((SINGULAR, PLURAL), waiting, strict=True):
                if other := forms.get(word.group(1)):
                    wrong = site.span[0] + other + site.span[word.end(1) :]
                    question = Question(site.context, site.span[:SPAN], (wrong[:SPAN],))
                    questions.append(question)
        if all(waiting):
            yield from (questions.pop() for questions in waiting)
