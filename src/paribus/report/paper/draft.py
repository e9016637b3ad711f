"""`paribus paper --new`: a first draft on finished studies, whose every number is bound."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from itertools import takewhile
from pathlib import Path

from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.report.paper.bound import CHANGES, DESIGNS, Bound, escaped
from paribus.report.paper.contents import Material

MOST_STUDIES = 40


def write_draft(folders: Sequence[Path], path: Path) -> None:
    """Write a draft on the studies in `folders` to `path`, and works on its methods beside it.

    Raises ParibusError for a file that is there already, and a study that is not finished or given
    twice, be it as a copy.
    """
    bibliography = path.with_suffix(".bib")
    for file in (path, bibliography):
        if os.path.lexists(file):
            raise ParibusError(f"{file} is there already; choose another name with -o")
    if not 0 < len(folders) <= MOST_STUDIES:
        raise ParibusError(f"{len(folders)} results folders; a paper is of 1 to {MOST_STUDIES}")
    names = _names(folders)
    bound = Bound(dict(zip(names, folders, strict=True)))
    studies = {name: bound.material(name) for name in names}
    roots = Counter(one.results.root for one in studies.values())
    for name, folder in zip(names, folders, strict=True):
        if roots[studies[name].results.root] > 1:
            raise ParibusError(f"{folder} is given more than once; name each study once")
    home = path.parent.absolute()
    paths = {
        name: Path(os.path.relpath(folder.absolute(), home)).as_posix()
        for name, folder in zip(names, folders, strict=True)
    }
    text = _draft(studies, paths, bibliography.name)
    write_bytes(path, text.encode())
    works = files("paribus.report.paper").joinpath("references.bib").read_bytes()
    write_bytes(bibliography, works)


def _names(folders: Sequence[Path]) -> list[str]:
    """Return names of folders without the words that all begin with; with a number where alike."""
    names = [folder.absolute().name for folder in folders]
    words = [name.split("-") for name in names]
    shared = len(list(takewhile(lambda parts: len(set(parts)) == 1, zip(*words, strict=False))))
    short = ["-".join(of[min(shared, len(of) - 1) :]) for of in words] if len(names) > 1 else names
    if len(set(short)) < len(short):
        return [f"{name}-{i + 1}" for i, name in enumerate(short)]
    return short


def _draft(studies: dict[str, Material], paths: dict[str, str], bibliography: str) -> str:
    first = next(iter(studies.values()))
    title = first.study.title if len(studies) == 1 else f"{len(studies)} studies"
    quoted = json.dumps(list(studies), ensure_ascii=False)
    whole = [
        "---",
        f"title: {json.dumps(escaped(title or first.study.name), ensure_ascii=False)}",
        "author: []",
        f"bibliography: {json.dumps(bibliography)}",
        f"studies: {json.dumps(paths, ensure_ascii=False)}",
        # A draft's title and headings name studies; the text that is yet to be written does not.
        f"literal: {json.dumps(_literals(studies, title), ensure_ascii=False)}",
        "---",
        "# Abstract",
        "A first draft, made by `paribus paper --new`: replace what is not yours.",
        "# Question",
        *(f'- {{{{ question("{name}") }}}}' for name in studies),
        "# Method",
        f'{{{{ table({quoted}, "{DESIGNS}") }}}}',
    ]
    for fact in ("Model", "Data", "Optimizer", "Inference"):
        alike: dict[str, list[str]] = {}
        for name, one in studies.items():
            text = next((row.text for row in one.facts if row.name == fact), "")
            alike.setdefault(text, []).append(name)
        whole += [f'**{fact}** ({", ".join(of)}): {{{{ fact("{of[0]}", "{fact}") }}}}'
                  for text, of in alike.items() if text]  # fmt: skip
    whole += [f'{{{{ table("{name}", "arms", label="tbl-arms-{name}") }}}}' for name in studies]
    whole += ["# Results"]
    if len({one.study.primary.metric for one in studies.values()}) == 1:
        whole += [
            f'{{{{ table({quoted}, "{CHANGES}") }}}}',
            f'{{{{ figure({quoted}, "{CHANGES}") }}}}',
        ]
    for name, one in studies.items():
        whole += [f"## {escaped(name)}", *_facts(name, one)]
        whole += [f'{{{{ figure("{name}", "{figure}") }}}}' for figure in _figures(one)]
    whole += [
        "# Limits",
        "What these studies do not say.",
        "# Supplement {-}",
        "{{ supplement() }}",
    ]
    return "\n\n".join(whole).replace("\n\n", "\n", 6) + "\n"


def _literals(studies: dict[str, Material], title: str) -> list[str]:
    """Return words with digits in what the draft says itself."""
    arms = [title for one in studies.values() for title in one.called.values()]
    labels = [verdict.label for one in studies.values() for verdict in one.verdicts]
    said = " ".join([title, *studies, *arms, *labels]).split()
    return sorted({word for word in said if any(map(str.isdigit, word))})


def _facts(name: str, one: Material) -> list[str]:
    """Return a line for each verdict: its change, its p and its word."""
    lines = []
    for verdict in one.verdicts:
        contrast = one.analysis.contrast(verdict.arm, verdict.metric)
        of = json.dumps([name, verdict.arm, verdict.metric], ensure_ascii=False)[1:-1]
        line = f"- {escaped(one.called[verdict.arm])}, {escaped(verdict.label)}: "
        if contrast.decided is not None:
            line += f"{{{{ change({of}) }}}} ({{{{ p({of}) }}}}, {{{{ seeds({of}) }}}} seeds): "
        lines.append(f"{line}{{{{ outcome({of}) }}}}.")
    return ["\n".join(lines)] if lines else []


def _figures(one: Material) -> list[str]:
    wanted = ("forest", "tuning-learning_rate", "loss-curves")
    return [figure for figure in wanted if figure in one.figures][:2]
