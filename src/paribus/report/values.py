"""Export of numbers, tables and figures to Typst and LaTeX documents (`paribus values`).

`paper.toml` lists the studies. `values.json`, `values.typ` and `values.tex` are written to the same
folder. The latter two define functions that return a value: `#change("long", "layernorm")` in
Typst, `\\change{long}{layernorm}` in LaTeX.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from paribus import numbers
from paribus.analysis import Analysis, analyse
from paribus.comparison import agree
from paribus.decision import decide
from paribus.digests import flatten
from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.files import write_bytes
from paribus.report import tables
from paribus.report.cells import change_text
from paribus.report.figures import Figure, draw
from paribus.report.pdf import breakable, minus, write_figure
from paribus.report.table_model import Table
from paribus.results import load_results
from paribus.untrusted_io import parse_toml, read_text

# What a document can ask of a study, an arm and an endpoint.
NAMES = ("word", "change", "effect", "low", "high", "p", "holm", "n", "mean", "sd")
INDEX = re.compile(r"[\^_](?:\{[^{}]*\}|\([^()]*\)|-?\w+)")  # subscripts and exponents
# What a document asks for, by its suffix: the value, the study, the arm, and perhaps the endpoint.
CALLS = {
    ".typ": r'#(?P<name>NAMES)\(\s*"(?P<study>[^"]*)",\s*"(?P<arm>[^"]*)"'
    r'(?:,\s*endpoint:\s*"(?P<endpoint>[^"]*)")?',
    ".tex": r"\\(?P<name>NAMES)(?:value)?(?:\[(?P<endpoint>[^]]*)\])?"
    r"\{(?P<study>[^{}]*)\}\{(?P<arm>[^{}]*)\}",
}
# What a check skips, by suffix. All other numbers must be bound to values.
UNCHECKED = {
    ".typ": (
        r"//.*|`[^`]*`|@[\w:.-]+|<[\w:.-]+>|^#(?:set|show|import|include)\b.*$",
        r"#(?:NAMES)\([^()]*\)|\b(?:image|bibliography|link|cite|ref|read|json)\(\"[^\"]*\"",
        r"\b[a-z-]+: *[\d.]+%?(?=[,)])|[\d.]+(?:pt|mm|cm|in|em|fr|deg)\b",
        r"#[\w.-]+",
    ),
    ".tex": (
        r"(?<!\\)%.*",
        r"\\(?:NAMES)(?:value)?(?:\[[^]]*\])?\{[^{}]*\}\{[^{}]*\}",
        r"\\(?:\w*ref|label|cite\w*|includegraphics|input|include|usepackage|documentclass|url|begin|"
        r"end|bibliography\w*|[vh]space)\*?(?:\[[^]]*\])*\{[^{}]*\}",
        r"[\d.]+(?:pt|mm|cm|in|em|ex|\\\w*(?:width|height))\b",
        r"\\[A-Za-z]+\*?(?:\[[^]]*\])?",
    ),
}
# How to write LaTeX's special characters, and signs that its oldest encoding lacks.
LATEX = str.maketrans(
    {char: rf"\{char}" for char in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"<": "$<$", ">": "$>$", "\N{MINUS SIGN}": "$-$"}
)
DECIMAL = re.compile(r"(?<![\w.#-])[-\u2212]?\d[\d,]*(?:\.\d+)?%?(?![\w.]*\()")


class Source(BaseModel):
    """Reference to a figure of a study, or to columns of one of its tables."""

    model_config = ConfigDict(extra="forbid")
    study: str
    figure: str = ""
    table: str = ""
    columns: list[str] = []


class Paper(BaseModel):
    """Content of `paper.toml`.

    Attributes:
        studies: {name in the document: results folder}.
        figures: {file name without suffix: source}.
        tables: {name in the document: source}.
        literals: numbers that the text may contain without a call to a value function, such as
            "300".
    """

    model_config = ConfigDict(extra="forbid")
    studies: dict[str, str]
    figures: dict[str, Source] = {}
    tables: dict[str, Source] = {}
    literals: list[str] = []


class _Study:
    """Results, analysis and verdicts of a study in `paper.toml`."""

    def __init__(self, folder: Path) -> None:
        self.results = load_results(folder)
        self.analysis = analyse(self.results)
        self.verdicts = decide(self.analysis)

    @property
    def figures(self) -> dict[str, Figure]:
        return {figure.name: figure for figure in draw(self.results.judged, self.analysis)}

    @property
    def tables(self) -> dict[str, Table]:
        every = tables.all_tables(self.results, self.analysis, self.verdicts)
        return {table.name: table for table in every}

    @property
    def values(self) -> dict[str, Any]:
        """Nested dict endpoint -> arm -> name -> [number, formatted text]."""
        study = self.results.study
        words = {(v.arm, v.metric): v.word for v in self.verdicts}
        return {"primary": study.primary.metric, "root": self.results.root} | {
            endpoint.metric: {
                arm: _values(self.analysis, arm, endpoint.metric, words) for arm in study.arms
            }
            for endpoint in study.endpoints
        }


def _values(
    analysis: Analysis, arm: str, name: str, words: dict[tuple[str, str], Any]
) -> dict[str, Any]:
    metric, summary = analysis.metrics[name], analysis.summary(arm, name)
    cells: dict[str, Any] = {
        "mean": [summary.mean, metric.value_text(summary.mean)],
        "sd": [summary.sd, metric.value_text(summary.sd)],
        "n": [summary.n, str(summary.n)],
    }
    if analysis.study.reference(arm):
        contrast = analysis.contrast(arm, name)
        says = contrast.decided
        cells |= {
            "word": [None, words.get((arm, name), "")],
            "change": [says.mean if says else None, change_text(contrast)],
            "p": [contrast.p, numbers.p_equals(contrast.p)],
            "holm": [contrast.holm_p, numbers.p_equals(contrast.holm_p)],
        }
        if says:
            ends = {"effect": says.mean, "low": says.interval.low, "high": says.interval.high}
            cells |= {key: [value, metric.change_text(value)] for key, value in ends.items()}
    return {key: [value, minus(text)] for key, (value, text) in cells.items()}


def read_paper(path: Path) -> tuple[Paper, dict[str, _Study]]:
    """Read `paper.toml` and load the studies that it lists.

    Raises ParibusError if the file or a study is missing or invalid.
    """
    missing = f"{path} does not exist; create it with a [studies] section, main = 'results/main'"
    try:
        text = read_text(path, missing=missing)
        paper = Paper.model_validate(parse_toml(text, str(path)))
    except ValidationError as error:
        raise ParibusError(f"{path}: {explain(error, Paper)}") from None
    return paper, {name: _Study(path.parent / place) for name, place in paper.studies.items()}


def write_values(path: Path) -> list[Path]:
    """Write the values, tables and figures specified in `paper.toml`, and return the file paths.

    Raises ParibusError if the file is invalid or refers to an unknown study, figure or table.
    """
    paper, studies = read_paper(path)
    folder, written, shown = path.parent, [], {}
    for name, source in paper.figures.items():
        where = f"{path}: figures.{name}"
        figures = _known(source.study, studies, where).figures
        drawn = write_figure(folder, _known(source.figure, figures, where))
        svg = folder / f"{drawn['name']}.svg"
        written.append(svg.replace(folder / f"{name}.svg"))
    for name, source in paper.tables.items():
        where = f"{path}: tables.{name}"
        table = _known(source.table, _known(source.study, studies, where).tables, where)
        for column in source.columns:
            _known(column, dict.fromkeys(table.head), where)
        shown[name] = table.only(*source.columns) if source.columns else table
    values = {name: study.values for name, study in studies.items()}
    content = json.dumps(values, indent=1, ensure_ascii=False, sort_keys=True)
    files = {
        "values.json": content + "\n",
        "values.typ": _typst(shown),
        "values.tex": _latex(values, shown),
    }
    for name, text in files.items():
        write_bytes(folder / name, text.encode())
        written.append(folder / name)
    return written


def _known(name: str, known: dict[str, Any], where: str) -> Any:
    if name not in known:
        hint = nearest(name, known)
        raise ParibusError(f"{where} has an unknown name '{name}'; {hint}", code="unknown")
    return known[name]


def check_document(path: Path, document: Path) -> list[str]:
    """Return a line for each hard-coded number in a document and for each outdated value.

    Args:
        path: `paper.toml`, in the folder that contains `values.json`.
        document: Typst or LaTeX file.
    """
    paper, studies = read_paper(path)
    text = read_text(document, missing=f"{document} does not exist; correct the path")
    accepted = path.parent / "values.json"
    now = {name: study.values for name, study in studies.items()}
    if accepted.is_file():
        before = json.loads(read_text(accepted))
        lines = [f"{accepted}: {change}" for change in _changes(before, now)]
    else:
        lines = [f"{accepted} is missing; write it with `paribus values {path}`"]
    pattern = CALLS.get(document.suffix, CALLS[".typ"]).replace("NAMES", "|".join(NAMES))
    safe = _latex_key if document.suffix == ".tex" else str
    for call in re.finditer(pattern, text):
        where = f"{document}: {call[0]}"
        try:
            values = _known(call["study"], {safe(name): now[name] for name in now}, where)
            arms = _known(call["endpoint"] or values["primary"], values, where)
            cells = _known(call["arm"], {safe(arm): arms[arm] for arm in arms}, where)
            _known(call["name"], cells, where)
        except ParibusError as error:
            lines.append(str(error))
    for skipped in UNCHECKED.get(document.suffix, UNCHECKED[".typ"]):
        text = re.sub(skipped.replace("NAMES", "|".join(NAMES)), " ", text, flags=re.MULTILINE)
    for number, line in enumerate(INDEX.sub("", text).splitlines(), start=1):
        lines += [
            f"{document}, line {number}: {match} is hard-coded; use a value function or `literals`"
            for match in DECIMAL.findall(line)
            if match not in paper.literals
        ]
    return lines


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[str]:
    accepted, fresh = flatten(before), flatten(now)
    for key in sorted(accepted.keys() | fresh.keys()):
        was, value = accepted.get(key), fresh.get(key)
        path = key.replace(".", "/")
        if not (isinstance(was, list) and isinstance(value, list)):
            if was != value:
                yield f"{path} changed"
        elif not (agree(was[0], value[0]) and was[1] == value[1]):
            yield f"{path} was {was[1]} and is now {value[1]}"


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
        cells = ", ".join(
            json.dumps(breakable(cell), ensure_ascii=False)
            for row in (table.head, *table.rows)
            for cell in row
        )
        lines.append(
            f"#let table-{name} = table(columns: {len(table.head)}, align: ({align},), {cells})"
        )
    return "\n".join(lines) + "\n"


def _latex(values: dict[str, Any], shown: dict[str, Table]) -> str:
    lines = ["% Written by `paribus values`; do not edit."]
    for name in NAMES:
        command = f"{name}value" if name in ("p", "n") else name  # LaTeX has some of one letter
        lines.append(rf"\newcommand{{\{command}}}[3][]{{\csname pv@{name}@#2@#3@#1\endcsname}}")
    for study, of_study in values.items():
        primary = of_study["primary"]
        for key, text in flatten(of_study | {"": of_study[primary]}).items():
            metric, _, rest = key.partition(".")
            if isinstance(text, list):
                arm, _, name = rest.rpartition(".")
                keys = "@".join(map(_latex_key, (study, arm, metric)))
                place = rf"\csname pv@{name}@{keys}\endcsname"
                lines.append(rf"\expandafter\def{place}{{{_latex_text(text[1])}}}")
    for name, table in shown.items():
        columns = "".join("l" if label in table.text else "r" for label in table.head)
        cells = (" & ".join(map(_latex_text, row)) for row in (table.head, *table.rows))
        rows = " \\\\\n".join(cells)
        place = rf"\csname pv@table@{_latex_key(name)}\endcsname"
        begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
        lines.append(rf"\expandafter\def{place}{{{begin}" + f"\n{rows}\n{end}}}")
    lines.append(r"\newcommand{\paributable}[1]{\csname pv@table@#1\endcsname}")
    return "\n".join(lines) + "\n"


def _latex_key(name: str) -> str:
    """Replace LaTeX special characters with their hexadecimal codes, such as `%` with `<25>`."""
    return re.sub(r"[\\{}%#&$~^]", lambda match: f"<{ord(match[0]):x}>", name)


def _latex_text(text: str) -> str:
    return minus(text).translate(LATEX)
