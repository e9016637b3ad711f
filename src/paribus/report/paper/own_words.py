"""A paper's authors and own paragraphs, from a small Markdown file: `paper.md` beside the studies.

    +++
    title = "Does embedding normalization help small language models?"
    authors = ["A. Author (Somewhere)", "B. Author"]
    +++
    # Introduction
    An own paragraph, with a citation of a work that the paper knows [@LeScao2022].

    # embedding-norm-tuned
    Another one, at the end of that study's section.

Headings are sections of the paper, or names of its studies. Paragraphs are words and nothing else:
nothing in them is run, and no markup but citations is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, nearest
from paribus.report.paper.document import Cite, Paragraph, Run
from paribus.study.allowed_text import MOST_TITLE, flaw
from paribus.untrusted_io import parse_toml, read_text

NAME = "paper.md"
MOST_BYTES = 64 * 1024
MOST_AUTHORS, MOST_PARAGRAPHS, MOST_PARAGRAPH = 60, 60, 4_000
FENCE = "+++"
KEYS = ("title", "authors")
_CITATION = re.compile(r"\[@([A-Za-z0-9]+)\]")


@dataclass(frozen=True)
class OwnWords:
    """What the authors wrote themselves.

    Attributes:
        title: empty for the one that follows from the studies.
        paragraphs: by the section or the study that they stand in.
    """

    title: str = ""
    authors: tuple[str, ...] = ()
    paragraphs: dict[str, list[Paragraph]] = field(default_factory=dict)


def beside(folders: Collection[Path]) -> Path | None:
    """The file `paper.md` in the folder that all these folders lie in; None where there is none."""
    parents = {folder.absolute().parent for folder in folders}
    found = [parent / NAME for parent in parents]
    return found[0] if len(found) == 1 and found[0].exists() else None


def read_own_words(path: Path, places: Collection[str]) -> OwnWords:
    """Read the file; `places` are the sections and studies that paragraphs may stand in.

    Raises ParibusError for one that is no such file: too large, another key or heading, a citation
    of an unknown work, characters that no paper may hold.
    """
    text = read_text(path, MOST_BYTES).replace("\r\n", "\n")
    if wrong := flaw(text):
        raise ParibusError(f"{path} holds {wrong}; take it out")
    head, body = _parted(text, path)
    unknown = next((key for key in head if key not in KEYS), None)
    if unknown is not None:
        raise ParibusError(f"{path}: unknown key '{unknown}': {nearest(unknown, KEYS)}")
    return OwnWords(_title(head, path), _authors(head, path), _paragraphs(body, path, places))


def _parted(text: str, path: Path) -> tuple[dict[str, Any], str]:
    """(what stands between two lines of +++ at the top, the rest)."""
    lines = text.split("\n")
    if lines[0].strip() != FENCE:
        return {}, text
    ends = [i for i, line in enumerate(lines) if i and line.strip() == FENCE]
    if not ends:
        raise ParibusError(f"{path} begins with {FENCE}, which no second line of {FENCE} ends")
    head = "\n".join(lines[1 : ends[0]])
    return parse_toml(head, str(path)), "\n".join(lines[ends[0] + 1 :])


def _title(head: dict[str, Any], path: Path) -> str:
    title = head.get("title", "")
    if not isinstance(title, str) or len(title) > MOST_TITLE or "\n" in title:
        raise ParibusError(f"{path}: title is a line of at most {MOST_TITLE} characters")
    return title


def _authors(head: dict[str, Any], path: Path) -> tuple[str, ...]:
    authors = head.get("authors", [])
    if (
        not isinstance(authors, list)
        or len(authors) > MOST_AUTHORS
        or not all(isinstance(one, str) and 0 < len(one) <= MOST_TITLE for one in authors)
        or any(flaw(one, frozenset()) for one in authors if isinstance(one, str))
    ):
        raise ParibusError(
            f"{path}: authors is a list of at most {MOST_AUTHORS} names, each a line of at most "
            f"{MOST_TITLE} characters"
        )
    return tuple(authors)


def _paragraphs(body: str, path: Path, places: Collection[str]) -> dict[str, list[Paragraph]]:
    """The paragraphs under every heading."""
    found: dict[str, list[Paragraph]] = {}
    place, n = "", 0
    for block in re.split(r"\n\s*\n", _headings_alone(body)):
        words = " ".join(block.split())
        if words.startswith("#"):
            place = words.lstrip("#").strip()
            if place not in places:
                raise ParibusError(
                    f"{path}: no section or study is called '{place}': {nearest(place, places)}"
                )
        elif words:
            n += 1
            if not place:
                raise ParibusError(
                    f"{path}: the paragraph '{words[:40]}' stands under no heading; put one before "
                    "it, such as # Introduction"
                )
            if n > MOST_PARAGRAPHS or len(words) > MOST_PARAGRAPH:
                raise ParibusError(
                    f"{path} may have {MOST_PARAGRAPHS} paragraphs of {MOST_PARAGRAPH:,} "
                    "characters; make it shorter"
                )
            found.setdefault(place, []).append(_with_citations(words, path))
    return found


def _headings_alone(body: str) -> str:
    """With empty lines around every heading, whether or not they are there."""
    return re.sub(r"(?m)^(#.*)$", r"\n\n\1\n\n", body)


def _with_citations(words: str, path: Path) -> Paragraph:
    runs: list[Run] = []
    for i, part in enumerate(_CITATION.split(words)):
        if i % 2:
            if part not in _works():
                raise ParibusError(f"{path}: unknown work [@{part}]: {nearest(part, _works())}")
            runs.append(Cite(part))
        elif part:
            runs.append(part)
    return Paragraph(tuple(runs))


@cache
def _works() -> frozenset[str]:
    """Keys of the works that the paper can cite."""
    text = files("paribus.report.paper").joinpath("references.bib").read_text("utf-8")
    return frozenset(re.findall(r"@\w+\{(\w+),", text))
