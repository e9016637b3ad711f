"""Several studies of the same arms on one page: pilot, final, powered.

Studies are set side by side and never pooled: each has its own registration and its own error rate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

from paribus import numbers
from paribus.analysis import Analysis, analyse
from paribus.decision import change_in_words, decide, verdict_record
from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.report.figures import Figure, colours
from paribus.report.figures.contrasts import ends_of, intervals, state_shapes
from paribus.report.figures.style import PANEL, TEXT, hover, rounded
from paribus.report.page import page
from paribus.report.table_model import Table
from paribus.report.tables import change_head, change_of, plain_name
from paribus.report.words import headline, state_of
from paribus.results import Results

ROW_PIXELS = 30
STUDY_PIXELS = 190
MOST_TOLD = 3  # findings in a title

Pair = tuple[str, str]


def write_comparison(results: Sequence[Results], path: Path) -> Path:
    """Write one page on several studies to `path`; returns it.

    Raises ParibusError for fewer than two studies, and where they have no contrast in common or
    decide on different endpoints.
    """
    write_bytes(path, render_comparison(results).encode())
    return path


def render_comparison(results: Sequence[Results]) -> str:
    """Return the page as text."""
    shared = _shared(results)
    analyses = [analyse(one) for one in results]
    labels = _titles(_labels(results), analyses)
    study = results[0].study
    called, palette = study.called, colours(study)
    by_label = dict(zip(labels, analyses, strict=True))
    judged = [
        (analyses[0].metrics[metric].label, _forest(by_label, shared, metric, is_first=i == 0))
        for i, metric in enumerate(_judged(results))
    ]
    arms = {called[arm]: palette[arm] for arm in study.arms if any(arm in pair for pair in shared)}
    return page(
        "compare.html",
        [figure for _, figure in judged if figure],
        title=f"{len(results)} studies: {', '.join(labels)}",
        judged=judged,
        verdicts=[
            (label, headline(analysis, decide(analysis, titles=True)))
            for label, analysis in zip(labels, analyses, strict=True)
        ],
        colours=arms,
        tables=[_studies(labels, results), _contrasts(labels, analyses, shared)],
    )


def comparison_tables(results: Sequence[Results]) -> list[Table]:
    """Return, for each primary endpoint that all studies have and each shared contrast, a table of
    the word in every study, for the terminal."""
    shared = _shared(results)
    analyses = [analyse(one).by_name for one in results]
    labels = _titles(_labels(results), analyses)
    found = [decide(analysis) for analysis in analyses]
    tables = []
    for metric in _judged(results):
        for arm, reference in shared:
            rows = []
            for label, analysis, verdicts in zip(labels, analyses, found, strict=True):
                verdict = next(v for v in verdicts if (v.arm, v.metric) == (arm, metric))
                change = change_in_words(analysis.contrast(arm, metric))
                p = numbers.p_or_blank(verdict.adjusted_p)
                rows.append((label, verdict.word, change, p))
            head = ("study", "word", change_head(analyses[0].study), "Holm p")
            title = f"{arm} against {reference}: {analyses[0].metrics[metric].change_title}"
            text = frozenset({"study", "word"})
            tables.append(Table("compared", title, head, tuple(rows), text, title=title))
    return tables


def comparison_record(results: Sequence[Results]) -> dict[str, Any]:
    """Return the verdicts on the shared contrasts and endpoints as plain values, by study."""
    shared, metrics = _shared(results), _judged(results)
    analyses = [analyse(one) for one in results]
    studies = {}
    for label, analysis in zip(_labels(results), analyses, strict=True):
        verdicts = verdict_record(analysis, decide(analysis))["verdicts"]
        mine = [v for v in verdicts if (v["arm"], v["reference"]) in shared]
        studies[label] = [v for v in mine if v["metric"] in metrics]
    return {"studies": studies}


def _shared(results: Sequence[Results]) -> list[Pair]:
    """Return the contrasts that all studies have."""
    if len(results) < 2:
        raise ParibusError(f"{len(results)} results folder; a comparison takes two or more")
    if not _judged(results):
        metrics = {endpoint.metric for one in results for endpoint in one.study.judged}
        raise ParibusError(
            f"the studies decide on different endpoints ({', '.join(sorted(metrics))}); "
            "compare studies that have a primary endpoint in common"
        )
    first, *others = (one.study.contrasts for one in results)
    shared = [pair for pair in first if all(pair in other for other in others)]
    if not shared:
        raise ParibusError(
            f"the studies {', '.join(one.study.name for one in results)} have no contrast in "
            "common; compare studies whose arms have the same names"
        )
    return shared


def _judged(results: Sequence[Results]) -> list[str]:
    """Return the primary endpoints that all studies have, in the order of the first."""
    first, *others = ([e.metric for e in one.study.judged] for one in results)
    return [metric for metric in first if all(metric in other for other in others)]


def _titles(labels: Sequence[str], analyses: Sequence[Analysis]) -> list[str]:
    """Return the names with which studies are shown: `new-schedule, exploratory`."""
    return [
        f"{label}, exploratory" if one.runs and one.runs.exploratory else label
        for label, one in zip(labels, analyses, strict=True)
    ]


def _labels(results: Sequence[Results]) -> list[str]:
    """Return the names of the studies; of two that are called alike, with their folders."""
    found = [one.study.name for one in results]
    if len(set(found)) < len(found):
        found = [f"{one.study.name} ({one.path.name})" for one in results]
    seen: Counter[str] = Counter()
    labels = []
    for name in found:
        seen[name] += 1
        labels.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return labels


def _forest(
    analyses: dict[str, Analysis], shared: list[Pair], metric: str, *, is_first: bool
) -> Figure | None:
    """Return a panel for each shared contrast, with a row for each study; None without any."""
    first = next(iter(analyses.values()))
    rows = _forest_rows(analyses, shared, metric)
    if not rows:
        return None
    declared = first.metrics[metric]
    title = f"change of {declared.change_title}"
    facet = alt.Facet("contrast:N", title=None, header=alt.Header(labelLimit=PANEL * 3))
    labels = alt.Axis(labelLimit=STUDY_PIXELS)
    y = alt.Y("study:N", title=None, sort=list(analyses), axis=labels)
    band = alt.Chart().mark_bar(color=TEXT, opacity=0.1, tooltip=None, height={"band": 1})
    margins = band.encode(y=y, x=alt.X("from:Q", title=title), x2=alt.X2("to:Q"))
    told = hover("study:N", "arm:N", "mean:Q", "n:Q")
    marks = intervals(first.study, alt.Chart(), y, told, title, state_shapes(rows))
    chart = (
        alt.layer(margins, *marks)
        .properties(width=PANEL * 3, height=ROW_PIXELS * len(analyses))
        .facet(facet=facet, columns=1, data=alt.NamedData("studies"))
    )
    caption = (
        f"{title[0].upper()}{title[1:]} in every study, at the same seed, with the intervals that "
        "decide; bands are the margins that each study registered. Studies stand side by side and "
        "are not pooled."
    )
    found = Counter(f"{row['contrast']} {row['state']}" for row in rows)
    ours = numbers.plural(len(analyses), "study", "studies")
    told = [f"{one} in {n} of {ours}" for one, n in found.most_common(MOST_TOLD)]
    heading = f"{declared.label}: {'; '.join(told)}{' ...' if len(found) > MOST_TOLD else ''}"
    return Figure(
        "studies" if is_first else f"studies-{plain_name(metric)}",
        "endpoints",
        f"{heading[0].upper()}{heading[1:]}",
        caption,
        chart,
        rows,
        panel=PANEL * 3,
        room=STUDY_PIXELS + 30,
        wide=True,
    )


def _forest_rows(
    analyses: dict[str, Analysis], shared: list[Pair], metric: str
) -> list[dict[str, Any]]:
    """Return a row for every shared contrast of every study that analysed it."""
    called = next(iter(analyses.values())).study.called
    rows: list[dict[str, Any]] = []
    for label, analysis in analyses.items():
        for arm, reference in shared:
            contrast = analysis.contrast(arm, metric)
            says, margin = contrast.decided, contrast.margin or 0
            if says is None:
                continue
            shown, ends = contrast.declared.shown, ends_of(says.interval, says.mean)
            low, high = map(shown, ends)
            rows.append(
                {
                    "contrast": f"{called[arm]} against {called[reference]}",
                    "arm": called[arm],
                    "study": label,
                    "mean": rounded(shown(says.mean)),
                    "low": rounded(low),
                    "high": rounded(high),
                    "from": -shown(margin),
                    "to": shown(margin),
                    "n": says.n,
                    "state": state_of(contrast, analysis.study.inference.alpha),
                }
            )
    return rows


def _studies(labels: list[str], results: Sequence[Results]) -> Table:
    by_study = [one.study.format.sizes(one.study) for one in results]
    sizes = list(dict.fromkeys(name for mine in by_study for name in mine))
    rows = []
    for label, one, mine in zip(labels, results, by_study, strict=True):
        rows.append(
            (
                label,
                *(mine.get(name, "") for name in sizes),
                str(len(one.study.seeds)),
                f"{len(one.finished)} of {one.n_trials}",
                one.study.digest[:12],
            )
        )
    head = ("study", *sizes, "seeds", "finished", "digest")
    return Table("studies", "The studies.", head, tuple(rows), frozenset({"study", "digest"}))


def _contrasts(labels: list[str], analyses: list[Analysis], shared: list[Pair]) -> Table:
    """Return every endpoint that all studies have, contrast by contrast and study by study."""
    called = analyses[0].study.called
    common = [
        endpoint.metric
        for endpoint in analyses[0].study.endpoints
        if all(endpoint.metric in [e.metric for e in a.study.endpoints] for a in analyses)
    ]
    rows = []
    for metric in common:
        label = analyses[0].metrics[metric].label
        for arm, _ in shared:
            for i, (study, analysis) in enumerate(zip(labels, analyses, strict=True)):
                contrast = analysis.contrast(arm, metric)
                p = (numbers.p_or_blank(contrast.p), numbers.p_or_blank(contrast.tested_p))
                first = ("", "") if i else (label, called[arm])
                rows.append((*first, study, str(len(contrast.seeds)), change_of(contrast), *p))
    return Table(
        "contrasts",
        "Every endpoint that the studies share: changes to the arm's reference at the same seed, "
        "with the intervals of the tests that decide and their p; Holm p is adjusted in the "
        "family of the primary or of the secondary endpoints.",
        ("endpoint", "arm", "study", "seeds", "change [interval]", "p", "Holm p"),
        tuple(rows),
        frozenset({"endpoint", "arm", "study"}),
    )
