"""What several studies say in the same words is said once: of all of them, or of all but some."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paribus.report.paper.document import Paragraph, Ref, Run
from paribus.report.words import listed

Sentence = tuple[Run, ...]
_END = re.compile(r"(?<=[.!?]) (?=[A-Z“])")
# What sentences here begin with that is capital as the first word alone.
PLAIN = frozenset(
    ("A", "All", "An", "Compared", "Each", "It", "Macro", "Models", "Precision", "The", "Zero-")
)


@dataclass(frozen=True)
class SaidOnce:
    """Paragraphs by topic, parted into what is common and what is not.

    Attributes:
        common: a paragraph for each topic, of what all say, and of what most say with the names of
            the others; empty paragraphs are left out.
        own: by study, what is common to at most half of them, in its order.
    """

    common: list[Paragraph]
    own: dict[str, Paragraph]


def said_once(told: Mapping[str, Sequence[Paragraph]]) -> SaidOnce:
    """Part what every study tells, topic by topic; all tell of the same topics.

    Of a single study everything is common. Sentences that point to a figure or a table are a
    study's own, as several have tables of that name.
    """
    common: list[Paragraph] = []
    own: dict[str, list[Sentence]] = {name: [] for name in told}
    for topic in zip(*told.values(), strict=True):
        by_study = {name: sentences(paragraph) for name, paragraph in zip(told, topic, strict=True)}
        holders: dict[Sentence, list[str]] = {}
        for name, lines in by_study.items():
            for line in dict.fromkeys(lines):
                holders.setdefault(line, []).append(name)
        shared = {
            line: [name for name in told if name not in names]
            for line, names in holders.items()
            if len(told) == 1 or (2 * len(names) > len(told) and not _points(line))
        }
        runs: list[Run] = []
        # What all say comes first: what follows the names of others would seem to be of them.
        for missing in sorted(dict.fromkeys(map(tuple, shared.values())), key=len):
            lines = [line for line, names in shared.items() if tuple(names) == missing]
            if missing:
                runs.append(f"{' ' if runs else ''}In all but {listed(list(missing))}")
                lines = [_after_names(lines[0]), *lines[1:]]
            runs += joined(lines).runs
        common.append(Paragraph(tuple(_merged(runs))))
        for name, lines in by_study.items():
            own[name] += [line for line in lines if line not in shared]
    return SaidOnce(
        [paragraph for paragraph in common if paragraph.runs],
        {name: joined(lines) for name, lines in own.items()},
    )


def _after_names(line: Sentence) -> Sentence:
    """As it goes on after names of studies: a word that is capital only as the first is not."""
    first, *rest = line
    if isinstance(first, str) and first.partition(" ")[0] in PLAIN:
        return (f", {first[:1].lower()}{first[1:]}", *rest)
    return (f": {first}", *rest) if isinstance(first, str) else (": ", *line)


def grouped(told: Mapping[str, Paragraph]) -> list[Paragraph]:
    """Every paragraph once, after the names of the studies that say it; empty ones are left out."""
    holders: dict[Paragraph, list[str]] = {}
    for name, paragraph in told.items():
        if paragraph.runs:
            holders.setdefault(paragraph, []).append(name)
    return [
        Paragraph(tuple(_merged([f"In {listed(names)}: ", *paragraph.runs])))
        for paragraph, names in holders.items()
    ]


def sentences(paragraph: Paragraph) -> list[Sentence]:
    """The sentences of a paragraph, each with its citations and references."""
    found: list[Sentence] = []
    current: list[Run] = []
    for run in _merged(paragraph.runs):
        if not isinstance(run, str):
            current.append(run)
            continue
        first, *rest = _END.split(run)
        current.append(first)
        for part in rest:
            found.append(_trimmed(current))
            current = [part]
    found.append(_trimmed(current))
    return [line for line in found if line]


def joined(lines: Sequence[Sentence]) -> Paragraph:
    """A paragraph of these sentences."""
    runs: list[Run] = []
    for line in lines:
        runs += [" ", *line] if runs else line
    return Paragraph(tuple(_merged(runs)))


def _merged(runs: Sequence[Run]) -> list[Run]:
    """With words that follow each other as one run."""
    found: list[Run] = []
    for run in runs:
        if isinstance(run, str) and found and isinstance(found[-1], str):
            found[-1] += run
        else:
            found.append(run)
    return found


def _trimmed(runs: list[Run]) -> Sentence:
    """Without spaces at its end, which another sentence may follow or not."""
    kept = [run for run in runs if run != ""]
    while kept and isinstance(kept[-1], str):
        kept[-1] = kept[-1].rstrip()
        if kept[-1]:
            break
        kept.pop()
    return tuple(kept)


def _points(line: Sentence) -> bool:
    return any(isinstance(run, Ref) for run in line)
