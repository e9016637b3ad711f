"""`paribus values`: numbers, tables and figures of studies, for an author's own document.

`paper.toml` names studies. Beside it are written `values.json`, and `values.typ` and `values.tex`
with functions that read it: `#change("long", "layernorm")` in Typst, `\\change{long}{layernorm}` in
LaTeX.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paribus import numbers
from paribus.analysis import Analysis, analyse
from paribus.decision import decide
from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.files import write_bytes
from paribus.report import tables
from paribus.report.cells import change_text
from paribus.report.figures import draw
from paribus.report.pdf import breakable, write_figure
from paribus.report.table_model import Table
from paribus.results import Results, load_results
from paribus.untrusted_io import CODE_BYTES, read_text

# What a document can ask of a study, an arm and an endpoint.
NAMES = ("word", "change", "effect", "low", "high", "p", "holm", "n", "mean", "sd")
TOLERANCE = 1e-9
INDEX = re.compile(r"[\^_](?:\{[^{}]*\}|\([^()]*\)|-?\w+)")  # subscripts and exponents
DECIMAL = re.compile(r"(?<![\w.#-])[-\u2212]?\d[\d,]*(?:\.\d+)?%?(?![\w.]*\()")


class FigureSource(BaseModel):
    """A figure of a study, by the name that the page gives it."""

    model_config = ConfigDict(extra="forbid")
    study: str
    figure: str
    width: Annotated[int, Field(gt=0)] = 0


class TableSource(BaseModel):
    """A table of a study, and the columns of it."""

    model_config = ConfigDict(extra="forbid")
    study: str
    table: str
    columns: list[str] = []


class Paper(BaseModel):
    """The content of `paper.toml`.

    Attributes:
        studies: results folders by the name that the document gives them.
        figures, tables: by the name of their file.
        literals: numbers that may stand in the text as they are, such as "300".
    """

    model_config = ConfigDict(extra="forbid")
    studies: dict[str, str]
    figures: dict[str, FigureSource] = {}
    tables: dict[str, TableSource] = {}
    literals: list[str] = []


def read_paper(path: Path) -> Paper:
    """Return the content of `paper.toml`. Raises ParibusError."""
    missing = f"there is no {path}; write one that names studies, [studies] main = 'results/main'"
    try:
        return Paper.model_validate(tomllib.loads(read_text(path, CODE_BYTES, missing=missing)))
    except tomllib.TOMLDecodeError as error:
        raise ParibusError(f"{path}: {error}; fix it", code="unreadable") from None
    except ValidationError as error:
        raise ParibusError(f"{path}: {explain(error, Paper)}") from None


def write_values(path: Path) -> list[Path]:
    """Write the values, tables and figures of the studies that `path` names; returns the files.

    Raises ParibusError.
    """
    paper, folder = read_paper(path), path.parent
    studies = _load(paper, folder)
    values = {name: _values(results, analysis) for name, (results, analysis) in studies.items()}
    content = json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True)
    written = [_write(folder / "values.json", content + "\n")]
    drawn: dict[str, dict[str, Any]] = {}
    for name, source in paper.figures.items():
        results, analysis = _study(studies, source.study, f"{path}: figures.{name}")
        if source.study not in drawn:
            drawn[source.study] = {f.name: f for f in draw(results.judged, analysis)}
        figures = drawn[source.study]
        if source.figure not in figures:
            hint = nearest(source.figure, figures)
            raise ParibusError(f"{path}: figures.{name}: {hint}", code="unknown")
        figure = figures[source.figure]
        made = write_figure(folder, figure, source.width)
        svg = folder / f"{made['name']}.svg"
        written.append(svg.replace(folder / f"{name}.svg"))
    made_tables = {}
    for name, source in paper.tables.items():
        results, analysis = _study(studies, source.study, f"{path}: tables.{name}")
        every = {t.name: t for t in tables.all_tables(results, analysis, decide(analysis))}
        if source.table not in every:
            hint = nearest(source.table, every)
            raise ParibusError(f"{path}: tables.{name}: {hint}", code="unknown")
        table = every[source.table]
        made_tables[name] = table.only(*source.columns) if source.columns else table
    written.append(_write(folder / "values.typ", _typst(made_tables)))
    written.append(_write(folder / "values.tex", _latex(values, made_tables)))
    return written


def check_document(path: Path, document: Path) -> list[str]:
    """Return the numbers of a document that are bound to nothing, and values that have changed.

    Args:
        path: `paper.toml`, beside which `values.json` was written.
        document: a Typst or LaTeX file.
    """
    paper, folder = read_paper(path), path.parent
    text = read_text(document, CODE_BYTES, missing=f"there is no document {document}")
    accepted = folder / "values.json"
    lines = []
    if not accepted.is_file():
        lines.append(f"{accepted} is missing: write it with `paribus values {path}`")
    else:
        before = json.loads(read_text(accepted, CODE_BYTES))
        studies = _load(paper, folder)
        now = {name: _values(*study) for name, study in studies.items()}
        lines += [f"{accepted}: {change}" for change in _changes(before, now)]
    known = {*paper.literals}
    for number, line in enumerate(_prose(text, document.suffix), start=1):
        lines += [
            f"{document}, line {number}: {match} is bound to no value"
            for match in DECIMAL.findall(line)
            if match not in known
        ]
    return lines


def _load(paper: Paper, folder: Path) -> dict[str, tuple[Results, Analysis]]:
    studies = {}
    for name, place in paper.studies.items():
        results = load_results(folder / place)
        studies[name] = results, analyse(results)
    return studies


def _study(
    studies: dict[str, tuple[Results, Analysis]], name: str, where: str
) -> tuple[Results, Analysis]:
    if name not in studies:
        hint = nearest(name, studies)
        raise ParibusError(f"{where}: study '{name}' is not in [studies]: {hint}", code="unknown")
    return studies[name]


def _values(results: Results, analysis: Analysis) -> dict[str, Any]:
    """Return the values of a study: by endpoint and arm, each as a number and as text."""
    study, words = results.study, {(v.arm, v.metric): v.word for v in decide(analysis)}
    values: dict[str, Any] = {"primary": study.primary.metric, "root": results.root}
    for endpoint in study.endpoints:
        metric, by_arm = analysis.metrics[endpoint.metric], {}
        for arm in study.arms:
            summary = analysis.summary(arm, metric.name)
            cells: dict[str, Any] = {
                "mean": [summary.mean, metric.value_text(summary.mean)],
                "sd": [summary.sd, metric.value_text(summary.sd)],
                "n": [summary.n, str(summary.n)],
            }
            if study.reference(arm):
                contrast = analysis.contrast(arm, metric.name)
                says = contrast.decided
                cells["word"] = [None, words.get((arm, metric.name), "")]
                cells["change"] = [says.mean if says else None, change_text(contrast)]
                cells["p"] = [contrast.p, numbers.p_equals(contrast.p)]
                cells["holm"] = [contrast.holm_p, numbers.p_equals(contrast.holm_p)]
                if says:
                    ends = (("effect", says.mean), ("low", says.interval.low))
                    for key, value in (*ends, ("high", says.interval.high)):
                        cells[key] = [value, metric.change_text(value)]
            by_arm[arm] = cells
        values[metric.name] = by_arm
    return values


def _changes(before: Any, now: Any, path: str = "") -> list[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        return [
            line
            for key in sorted({*before, *now})
            for line in _changes(before.get(key), now.get(key), f"{path}/{key}".lstrip("/"))
        ]
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now) == 2:
        if isinstance(before[0], float) and isinstance(now[0], float):
            same = abs(before[0] - now[0]) <= TOLERANCE * max(1.0, abs(before[0]))
            return [] if same else [f"{path} was {before[1]}, and is {now[1]}"]
        return [] if before == now else [f"{path} was {before[1]}, and is {now[1]}"]
    return [] if before == now else [f"{path} changed"]


def _prose(text: str, suffix: str) -> list[str]:
    """Return the lines of a document without comments, code, calls, references and indices."""
    if suffix == ".tex":
        text = re.sub(r"(?<!\\)%.*", "", text)
        text = re.sub(r"\\[A-Za-z]+\*?(?:\[[^\]]*\])?(?:\{[^{}]*\})*", "", text)
        return INDEX.sub("", text).splitlines()
    text = re.sub(r"//.*", "", text)
    text = re.sub(r"^#(?:set|show|let|import|include)\b.*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"#[\w.-]+(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?", "", text)
    return INDEX.sub("", re.sub(r"@[\w:.-]+|<[\w:.-]+>|`[^`]*`", "", text)).splitlines()


def _typst(shown: dict[str, Table]) -> str:
    lines = [
        "// Written by `paribus values`; do not edit.",
        '#let values = json("values.json")',
        "#let value(study, arm, what, endpoint: auto, part: 1) = {",
        "  let of-study = values.at(study)",
        "  let metric = if endpoint == auto { of-study.primary } else { endpoint }",
        "  of-study.at(metric).at(arm).at(what).at(part)",
        "}",
    ]
    lines += [
        f'#let {name}(study, arm, endpoint: auto) = value(study, arm, "{name}", endpoint: endpoint)'
        for name in NAMES
    ]
    for name, table in shown.items():
        align = ", ".join("left" if label in table.text else "right" for label in table.head)
        cells = ", ".join(_typst_text(cell) for row in (table.head, *table.rows) for cell in row)
        lines.append(
            f"#let table-{name} = table(columns: {len(table.head)}, align: ({align},), {cells})"
        )
    return "\n".join(lines) + "\n"


def _typst_text(text: str) -> str:
    return json.dumps(breakable(text), ensure_ascii=False)


def _latex(values: dict[str, Any], shown: dict[str, Table]) -> str:
    lines = ["% Written by `paribus values`; do not edit."]
    lines += [
        rf"\newcommand{{\{name}}}[3][]{{\csname pv@{name}@#2@#3@#1\endcsname}}"
        for name in NAMES
        if name not in ("p", "n")
    ]
    lines += [
        rf"\newcommand{{\{name}value}}[3][]{{\csname pv@{name}@#2@#3@#1\endcsname}}"
        for name in ("p", "n")
    ]
    for study, of_study in values.items():
        for metric, arms in of_study.items():
            if not isinstance(arms, dict):
                continue
            for arm, cells in arms.items():
                for name, (_, text) in cells.items():
                    keys = [metric, *([""] if metric == of_study["primary"] else [])]
                    lines += [
                        rf"\expandafter\def\csname pv@{name}@{study}@{arm}@{key}\endcsname"
                        rf"{{{_latex_text(text)}}}"
                        for key in keys
                    ]
    for name, table in shown.items():
        columns = "".join("l" if label in table.text else "r" for label in table.head)
        rows = " \\\\\n".join(
            " & ".join(map(_latex_text, row)) for row in (table.head, *table.rows)
        )
        lines.append(
            rf"\expandafter\def\csname pv@table@{name}\endcsname{{\begin{{tabular}}{{{columns}}}"
            f"\n{rows}\n" + r"\end{tabular}}"
        )
    lines.append(r"\newcommand{\paributable}[1]{\csname pv@table@#1\endcsname}")
    return "\n".join(lines) + "\n"


def _latex_text(text: str) -> str:
    text = re.sub(r"([&%$#_{}])", r"\\\1", text)
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", text)


def _write(path: Path, text: str) -> Path:
    write_bytes(path, text.encode())
    return path
