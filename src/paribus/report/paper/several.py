"""Several results folders as the material of one paper: finished, whole, and none of them twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.errors import ParibusError
from paribus.report.figures import draw
from paribus.report.paper.material import Material
from paribus.results import Results, load_results

MOST_STUDIES = 20
MOST_MISSING = 3  # trials that an error names


def material_of(folders: Sequence[Path]) -> list[Material]:
    """Read, analyse and judge the studies in these folders, in their order; nothing is written.

    Raises ParibusError for no folder, for more than MOST_STUDIES, and for a study that is damaged,
    not finished, or given twice, be it as a copy.
    """
    if not 0 < len(folders) <= MOST_STUDIES:
        raise ParibusError(
            f"{len(folders)} results folders; a paper is of 1 to {MOST_STUDIES} studies"
        )
    read = [load_results(folder) for folder in folders]
    for one in read:
        _require_finished(one)
    _require_distinct(read)
    found = [_material(one) for one in read]
    return [replace(one, label=label) for one, label in zip(found, _labels(read), strict=True)]


def _material(results: Results) -> Material:
    analysis = analyse(results)
    judged = results.judged
    return Material(judged, analysis, decide(analysis), draw(judged, analysis))


def _require_finished(results: Results) -> None:
    left = [f"{trial.arm}/seed-{trial.seed}" for trial in results.unfinished]
    if not left and results.finished:
        return
    named = ", ".join(left[:MOST_MISSING]) + (" and others" if len(left) > MOST_MISSING else "")
    raise ParibusError(
        f"{results.path}: {len(results.finished)} of {results.n_trials} trials are finished"
        f"{f'; missing: {named}' if named else ''}; finish the study with `paribus run`, or leave "
        "it out of the paper"
    )


def _require_distinct(read: Sequence[Results]) -> None:
    """By folder and by what was recorded: a copy is the same study."""
    for key in (lambda one: one.path.resolve(), lambda one: one.root):
        seen: dict[object, Path] = {}
        for one in read:
            if (before := seen.setdefault(key(one), one.path)) is not one.path:
                raise ParibusError(
                    f"{one.path} holds the study of {before} once more; name each study once"
                )


def _labels(read: Sequence[Results]) -> list[str]:
    """The names of the studies; where two are called alike, of their folders as well."""
    names = Counter(one.study.name for one in read)
    labels = [
        one.study.name if names[one.study.name] == 1 else f"{one.study.name} ({one.path.name})"
        for one in read
    ]
    again = Counter(labels)
    return [
        label if again[label] == 1 else f"{one.study.name} ({one.path})"
        for one, label in zip(read, labels, strict=True)
    ]
