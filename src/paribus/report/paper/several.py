"""Several results folders as the material of one paper: finished, whole, and none of them twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from paribus.analysis import analyse
from paribus.decision import decide
from paribus.errors import ParibusError
from paribus.report.figures import draw
from paribus.report.paper.material import Material
from paribus.report.paper.measured_errors import measured_errors
from paribus.results import Results, load_results
from paribus.results.keeping import readable

MOST_STUDIES = 20
MOST_MISSING = 3  # trials that an error names


def material_of(folders: Sequence[Path]) -> list[Material]:
    """Read, analyse and judge the studies in these folders, in their order; nothing is written.

    A folder may hold a study that `paribus keep` wrote. Raises ParibusError for no folder, for more
    than MOST_STUDIES, and for a study that is damaged, not finished, or given twice, be it as a
    copy.
    """
    if not 0 < len(folders) <= MOST_STUDIES:
        raise ParibusError(
            f"{len(folders)} results folders; a paper is of 1 to {MOST_STUDIES} studies"
        )
    with ExitStack() as unpacked:
        read = [load_results(unpacked.enter_context(readable(folder))) for folder in folders]
        for folder, one in zip(folders, read, strict=True):
            _require_finished(folder, one)
        _require_distinct(folders, read)
        labels = _labels(folders, [one.study.name for one in read])
        named = zip(read, labels, short_names(labels), strict=True)
        return [_material(one, label, short) for one, label, short in named]


def _material(results: Results, label: str, short: str) -> Material:
    analysis = analyse(results)
    judged = results.judged
    drawn, errors = draw(judged, analysis), measured_errors(results)
    material = Material(judged, analysis, decide(analysis), drawn, label, errors, short)
    # What is read only now and then, while the folder is there.
    _ = (judged.tasks, judged.scores, material.facts)
    return material


def _require_finished(folder: Path, results: Results) -> None:
    left = [f"{trial.arm}/seed-{trial.seed}" for trial in results.unfinished]
    if not left and results.finished:
        return
    named = ", ".join(left[:MOST_MISSING]) + (" and others" if len(left) > MOST_MISSING else "")
    raise ParibusError(
        f"{folder}: {len(results.finished)} of {results.n_trials} trials are finished"
        f"{f'; missing: {named}' if named else ''}; finish the study with `paribus run`, or leave "
        "it out of the paper"
    )


def _require_distinct(folders: Sequence[Path], read: Sequence[Results]) -> None:
    """By folder and by what was recorded: a copy is the same study."""
    for keys in ([str(folder.resolve()) for folder in folders], [one.root for one in read]):
        for i, key in enumerate(keys):
            if key in keys[:i]:
                before = folders[keys.index(key)]
                raise ParibusError(
                    f"{folders[i]} holds the study of {before} once more; name each study once"
                )


def _labels(folders: Sequence[Path], names: Sequence[str]) -> list[str]:
    """The names of the studies; where two are called alike, of their folders as well."""
    for suffixes in ([""] * len(names), [f" ({path.name})" for path in folders]):
        labels = [name + suffix for name, suffix in zip(names, suffixes, strict=True)]
        if len(set(labels)) == len(labels):
            return labels
    return [f"{name} ({path})" for name, path in zip(names, folders, strict=True)]


def short_names(names: Sequence[str]) -> list[str]:
    """Names without what more than half of them begin with, up to a hyphen; as they are where they
    would then be alike, or where they share nothing."""
    starts = Counter(
        name[: i + 1] for name in names for i, letter in enumerate(name[:-1]) if letter == "-"
    )
    shared = [start for start, n in starts.items() if 2 * n > len(names) and n > 1]
    start = max(shared, key=len, default="")
    short = [name.removeprefix(start) for name in names]
    return short if len(set(short)) == len(short) else list(names)
