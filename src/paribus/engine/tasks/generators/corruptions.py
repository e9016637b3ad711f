"""Tasks that ask for the original text, with a corrupted copy as the distractor.

`length` is the maximum length of context and choice together, in characters. If several corruptions
are possible, the most plausible one is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from paribus.engine.tasks.task import LETTERS, HeldOut, Question, Site, replace, task, words_inside

# Texts with too few of these verbs do not have the task `agreement`.
SINGULAR = {"is": "are", "was": "were", "has": "have", "does": "do", "this": "these"}
PLURAL = {plural: singular for singular, plural in SINGULAR.items()}
FIRST_WORD = re.compile(r"\s([a-z]+)\W")
MARK = re.compile(r"(?<=.)[.,;:!?()\"'-](?=.)", re.DOTALL)
TWO_WORDS = re.compile(rf"(?<=\s)({LETTERS})(\s)({LETTERS})(?=\W)")


def _questions(held_out: HeldOut, site: Site, wrong: list[str]) -> Iterator[Question]:
    """Yield one question with the most plausible wrong choice, or none if `wrong` is empty."""
    if wrong:
        yield Question(site.context, site.span, (held_out.most_plausible(wrong),))


def _no_words(
    held_out: HeldOut, sites: Iterable[Site], changes: Callable[[str], Iterable[str]]
) -> Iterator[Question]:
    """Yield one question per site, whose distractor replaces a word with a non-word.

    `changes` returns corrupted forms of a word. The first word with a suitable form is used.
    """
    for site in sites:
        for word in words_inside(site.span, shortest=4):
            wrong = [
                replace(site.span, word.start(), changed)
                for changed in changes(word.group())
                if changed != word.group() and changed.lower() not in held_out.words
            ]
            if wrong:
                yield from _questions(held_out, site, wrong)
                break


@task("agreement", n_choices=2)
def agreement(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about number agreement, such as "the values is" for "the values are".

    The correct choices alternate between singular and plural.
    """
    span = 10
    waiting: tuple[list[Question], list[Question]] = ([], [])
    # Two characters more than are shown, so that both forms fill the span.
    for site in held_out.sites(rng, length - span, span + 2):
        if word := FIRST_WORD.match(site.span):
            for forms, questions in zip((SINGULAR, PLURAL), waiting, strict=True):
                if form := forms.get(word.group(1)):
                    wrong = site.span[0] + form + site.span[word.end(1) :]
                    questions.append(Question(site.context, site.span[:span], (wrong[:span],)))
        if all(waiting):
            yield from (questions.pop() for questions in waiting)


@task("case", n_choices=2)
def case(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about a word's capitalization, alternating lowercase and uppercase."""
    span = 12
    known = set("".join(held_out.documents))
    waiting: tuple[list[Question], list[Question]] = ([], [])
    for site in held_out.sites(rng, length - span, span):
        for word in words_inside(site.span, shortest=2)[:1]:
            letter = word.group()[0]
            if word.start() == 1 and letter.swapcase() in known - {letter}:
                wrong = replace(site.span, 1, letter.swapcase())
                waiting[letter.isupper()].append(Question(site.context, site.span, (wrong,)))
        if all(waiting):
            yield from (questions.pop() for questions in waiting)


@task("letter_swap", n_choices=2)
def letter_swap(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about two transposed letters, such as "the vaule" for "the value"."""

    def swaps(text: str) -> Iterator[str]:
        return (replace(text, at, text[at + 1] + text[at]) for at in range(1, len(text) - 2))

    yield from _no_words(held_out, held_out.sites(rng, length - 14, 14), swaps)


@task("punctuation", n_choices=2)
def punctuation(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about a punctuation mark, with another plausible mark as the distractor."""
    marks = held_out.marks
    for site in held_out.sites(rng, length - 14, 14):
        if mark := MARK.search(site.span):
            # Drawn as often as the text has them, so that a common mark is not thereby right.
            drawn = {marks[at] for at in rng.integers(len(marks), size=3)}
            others = sorted(drawn - {mark.group()})
            wrong = [replace(site.span, mark.start(), text) for text in others]
            yield from _questions(held_out, site, wrong)


@task("real_word", n_choices=2)
def real_word(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about a word, with a plausible scrambled non-word as the distractor."""

    def shuffles(text: str) -> Iterator[str]:
        return ("".join(rng.permutation(list(text))) for _ in range(20))

    yield from _no_words(held_out, held_out.sites(rng, length - 12, 12), shuffles)


@task("typo", n_choices=2)
def typo(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about a substituted letter, such as "the valoe" for "the value"."""
    known = sorted({letter for text in held_out.documents for letter in text if letter.islower()})

    def changed(text: str) -> str:
        at = int(rng.integers(1, len(text)))
        # Not a neighbour's letter: an untrained model with tied embeddings repeats itself.
        letters = [letter for letter in known if letter not in text[at - 1 : at + 2].lower()]
        return replace(text, at, letters[int(rng.integers(len(letters)))]) if letters else text

    sites = held_out.sites(rng, length - 14, 14)
    yield from _no_words(held_out, sites, lambda text: (changed(text) for _ in range(4)))


@task("word_cut", n_choices=2)
def word_cut(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about a misplaced space, such as "th evalue" for "the value"."""
    for site in held_out.sites(rng, length - 14, 14):
        if two := TWO_WORDS.search(site.span):
            first, gap, second = two.groups()
            earlier = (first[:-1], first[-1] + second)
            later = (first + second[0], second[1:])
            wrong = [
                replace(site.span, two.start(), left + gap + right)
                for left, right in (earlier, later)
                if left and right and not {left.lower(), right.lower()} <= held_out.words
            ]
            yield from _questions(held_out, site, wrong)


@task("word_order", n_choices=2)
def word_order(held_out: HeldOut, rng: np.random.Generator, length: int) -> Iterator[Question]:
    """Yield questions about two swapped words, such as "value the of" for "the value of"."""
    for site in held_out.sites(rng, length - 18, 18):
        if two := TWO_WORDS.search(site.span):
            first, gap, second = two.groups()
            if first.lower() != second.lower():
                wrong = replace(site.span, two.start(), second + gap + first)
                yield Question(site.context, site.span, (wrong,))
