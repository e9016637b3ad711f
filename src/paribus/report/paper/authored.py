"""A paper that a person writes: Markdown with values, tables and figures of studies in braces.

    ---
    title: Does normalising embeddings help small language models?
    author: [A. Author]
    bibliography: paper.bib
    studies: {tuned: ../results/tuned, long: ../results/tuned-long}
    digits: 3
    literal: [2019, "GPT-3"]
    ---
    Over more steps it changed by {{ change("long", "layernorm", "test_loss") }} [@LeScao2022].

Jinja fills the braces (`bound`), pandoc turns the Markdown into Typst for the PDF and into LaTeX.
`paper.lock.json`, beside the paper, has every value as it was when the paper was last set.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from paribus.digests import canonical_json
from paribus.errors import ParibusError, nearest
from paribus.files import write_bytes
from paribus.report.paper.bound import Bound, Format, Markdown, Words, printed
from paribus.report.paper.typesetting import Fonts, to_pdf, write_figures
from paribus.untrusted_io import read_json, read_text

INSTALL = "install it: pip install 'paribus[paper]'"
MOST_BYTES = 4 * 1024 * 1024
KEYS = ("title", "author", "bibliography", "studies", "digits", "literal", "abstract")
LOCK_SCHEMA = 1
CONTEXT = 30  # characters around a number that is bound to nothing
HEAD = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*\n", re.DOTALL)
# What holds no statement of the author's: comments, code that is shown, braces, citations, targets
# of links, attributes, addresses, numbers of lists and notes.
UNSTATED = re.compile(
    r"<!--.*?-->|^(`{3,}|~{3,})(?!\s*\{=).*?^\1|`[^`\n]+`(?!\{=)|\{\{.*?\}\}|\{%.*?%\}"
    r"|\[[^\]\n]*@[^\]]*\]|@[\w:.-]+|(?<=\])\([^)\n]*\)|\{[#.=][^}\n]*\}|\{[^}\n]*=[^}\n]*\}"
    r"|https?://\S+|^[ \t]*\d+[.)][ \t]|\[\^[^\]\n]*\]",
    re.DOTALL | re.MULTILINE,
)
NUMBER = re.compile(r"(?<![A-Za-z_\d.])[-+−]?\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?%?")  # noqa: RUF001
CITATION = re.compile(r"(?<![\w\\])-?@([A-Za-z0-9_][\w:.#$%&+?<>~/-]*)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)")
ABSTRACT = re.compile(r"\A\s*# Abstract[^\n]*\n(.*?)(?=^# |\Z)", re.DOTALL | re.MULTILINE)
# What pdfTeX has no letter for.
IN_LATEX = {
    "−": r"\ensuremath{-}",  # noqa: RUF001
    "≤": r"\ensuremath{\leq}",
    "≥": r"\ensuremath{\geq}",
    "→": r"\ensuremath{\rightarrow}",
    "×": r"\ensuremath{\times}",  # noqa: RUF001
    "β": r"\ensuremath{\beta}",
    "ε": r"\ensuremath{\epsilon}",
    "Δ": r"\ensuremath{\Delta}",
    "²": r"\ensuremath{^2}",
    "✓": r"\ensuremath{\surd}",
    "✗": r"\ensuremath{\times}",
}


@dataclass(frozen=True)
class Source:
    """A paper's file: its front matter, checked, and its Markdown, whose lines are the file's."""

    path: Path
    title: str
    authors: tuple[str, ...]
    studies: dict[str, Path]
    bibliography: Path | None
    digits: int
    literal: tuple[str, ...]
    abstract: str
    body: str

    @property
    def lock(self) -> Path:
        """The file of what every value was."""
        return self.path.with_name(f"{self.path.stem}.lock.json")


@dataclass(frozen=True)
class Rendered:
    """A paper with its braces filled.

    Attributes:
        values: what braces gave, by the call.
        unbound: what braces gave that is of no study, such as a number written in them.
    """

    markdown: str
    abstract: str
    values: dict[str, str]
    unbound: list[str] = field(default_factory=list)


def read_source(path: Path) -> Source:
    """Read a paper's file. Raises ParibusError in one line for a front matter that is none."""
    if path.is_dir():
        raise ParibusError(
            f"{path} is a folder; `paribus paper --new {path}` writes a first draft on the study "
            "in it"
        )
    text = read_text(path, MOST_BYTES).replace("\r\n", "\n")
    found = HEAD.match(text)
    if found is None:
        raise ParibusError(
            f"{path} begins with no front matter: lines of YAML between two lines of ---"
        )
    head = _yaml(found[1], path)
    unknown = next((key for key in head if key not in KEYS), None)
    if unknown is not None:
        raise ParibusError(f"{path}: unknown key '{unknown}': {nearest(str(unknown), KEYS)}")
    studies = head.get("studies") or {}
    if not isinstance(studies, dict) or not all(isinstance(one, str) for one in studies.values()):
        raise ParibusError(f"{path}: studies is a table of names and paths")
    bibliography, digits = head.get("bibliography"), head.get("digits", 12)
    if not isinstance(bibliography, str | None) or not isinstance(digits, int) or digits < 0:
        raise ParibusError(f"{path}: bibliography is a path, digits a whole number")
    lines = "\n" * found[0].count("\n")
    return Source(
        path,
        str(head.get("title") or path.stem),
        tuple(map(str, _listed(head.get("author")))),
        {str(name): path.parent / folder for name, folder in studies.items()},
        path.parent / bibliography if bibliography else None,
        digits,
        tuple(map(str, _listed(head.get("literal")))),
        str(head.get("abstract") or ""),
        lines + text[found.end() :],
    )


def _yaml(text: str, path: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise ParibusError(f"a paper's front matter needs PyYAML; {INSTALL}") from None
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        where = str(error).replace("\n", " ")
        raise ParibusError(f"{path}: the front matter is no YAML: {where}") from None
    if not isinstance(found, dict):
        raise ParibusError(f"{path}: the front matter is no table of keys")
    return found


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def render(source: Source, bound: Bound) -> Rendered:
    """Fill the braces. Raises ParibusError with the line of a name that does not exist."""
    unbound: list[str] = []

    def finalize(said: Any) -> str:
        if not isinstance(said, Words | Markdown):
            unbound.append(str(said))
        return printed(said)

    # Braces and a hash begin an attribute of a heading, so comments are those of HTML.
    jinja = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        comment_start_string="<!--",
        comment_end_string="-->",
        keep_trailing_newline=True,
    )
    functions = bound.functions()
    try:
        body = jinja.from_string(source.body).render(functions)
        abstract = jinja.from_string(source.abstract).render(functions)
    except jinja2.TemplateSyntaxError as error:
        raise ParibusError(f"{source.path}:{error.lineno}: {error.message}") from None
    except jinja2.UndefinedError as error:
        name = re.search(r"'(\w+)' is undefined", str(error))
        known = nearest(name[1], functions) if name else "correct it"
        raise ParibusError(f"{_where(source, error)}: {error.message}: {known}") from None
    except (ParibusError, TypeError, ValueError, jinja2.TemplateError) as error:
        raise ParibusError(f"{_where(source, error)}: {error}") from None
    if (found := ABSTRACT.match(body)) and not abstract:
        abstract, body = found[1].strip(), body[found.end() :]
    left = sorted(bound.asked - bound.labels - set(re.findall(r"\{#([\w:-]+)", source.body)))
    if left:
        raise ParibusError(f"{source.path}: ref('{left[0]}'): {nearest(left[0], bound.labels)}")
    _require_works(source, f"{abstract}\n{body}")
    return Rendered(body, abstract, dict(bound.values), [one for one in unbound if one.strip()])


def _where(source: Source, error: BaseException) -> str:
    """Return the file, and the line of it that an error comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    line = next((one.lineno for one in reversed(frames) if one.filename == "<template>"), None)
    return f"{source.path}:{line}" if line else str(source.path)


def _require_works(source: Source, text: str) -> None:
    """Raise ParibusError for a citation of what the bibliography does not have."""
    text = re.sub(r"`[^`\n]*`|\\@", " ", text)
    cited = [key.rstrip(".:,;-") for key in CITATION.findall(text)]
    if not cited:
        return
    if source.bibliography is None:
        raise ParibusError(f"{source.path} cites @{cited[0]} and names no bibliography")
    works = set(re.findall(r"@\w+\s*\{\s*([^,\s]+)", read_text(source.bibliography, MOST_BYTES)))
    for key in cited:
        if key not in works:
            raise ParibusError(f"{source.path}: unknown work @{key}: {nearest(key, works)}")


def literals(source: Source) -> Iterator[str]:
    """Yield every number of the text that is bound to nothing, with its line and its neighbours."""
    for part, offset in ((source.body, 0), (source.abstract, None)):
        text = UNSTATED.sub(lambda found: re.sub(r"[^\n]", "\x00", found[0]), part)
        for literal in sorted(source.literal, key=len, reverse=True):
            marked = rf"(?<![\w.]){re.escape(literal)}(?![\w]|[.,]\d)"
            text = re.sub(marked, "\x00" * len(literal), text)
        for number in NUMBER.finditer(text):
            line = number.string.count("\n", 0, number.start()) + 1
            where = f"{source.path}:{line}" if offset == 0 else f"{source.path}: abstract"
            start, end = max(0, number.start() - CONTEXT), number.end() + CONTEXT
            around = " ".join(part[start:end].split())
            yield f"{where}: {number[0]} is bound to nothing: ... {around} ..."


def changed(source: Source, values: dict[str, str]) -> Iterator[str]:
    """Yield what is another value than when the paper was last set."""
    if not source.lock.exists():
        return
    lock = read_json(source.lock)
    before = lock.get("values") if isinstance(lock, dict) else None
    if not isinstance(before, dict) or lock.get("schema") != LOCK_SCHEMA:
        raise ParibusError(f"{source.lock} is no lock file of a paper; delete it")
    for call, value in values.items():
        if call in before and before[call] != value:
            yield f"changed: {call} was {before[call]}, is {value}"


def check(path: Path) -> list[str]:
    """Return every finding: literal numbers, and values that changed since the paper was set."""
    source = read_source(path)
    with Bound(source.studies, source.digits) as bound:
        rendered = render(source, bound)
    given = [one for one in rendered.unbound if re.search(r"\d", one)]
    said = [f"{path}: braces give {one}, which is of no study" for one in given]
    return [*literals(source), *said, *changed(source, rendered.values)]


def set_paper(path: Path, pdf: Path | None = None, latex: Path | None = None) -> list[str]:
    """Set a paper as PDF, as LaTeX in a folder, or as both; returns what changed since the last
    time, and writes what is so now to the lock file."""
    source = read_source(path)
    _require_pandoc()
    lines: list[str] = []
    wanted: list[tuple[Format, Path]] = [("typst", pdf)] if pdf else []
    wanted += [("latex", latex)] if latex else []
    with Bound(source.studies, source.digits) as bound:
        for form, target in wanted:
            bound.form = form
            bound.labels.clear()
            bound.drawn.clear()
            rendered = render(source, bound)
            if form == "typst":
                with tempfile.TemporaryDirectory() as scratch:
                    write_bytes(target, _typst(source, rendered, bound, Path(scratch)))
            else:
                _latex(source, rendered, bound, target)
            lines = list(changed(source, rendered.values))
            lock = {"schema": LOCK_SCHEMA, "values": rendered.values}
    write_bytes(source.lock, canonical_json(lock).encode())
    return lines


def _typst(source: Source, rendered: Rendered, bound: Bound, folder: Path) -> bytes:
    (folder / "template.typ").write_bytes(_beside("authored.typ"))
    text = _pandoc(source, rendered, "typst", [f"--template={folder / 'template.typ'}"])
    fonts = Fonts.of(text)
    write_bytes(folder / "paper.typ", fonts.spelled(text).encode())
    _put_beside(source, bound, folder, fonts)
    return to_pdf(folder / "paper.typ", fonts, str(source.path))


def _latex(source: Source, rendered: Rendered, bound: Bound, folder: Path) -> None:
    """Write `paper.tex` with natbib, its figures as PDF, and the bibliography."""
    variables = ["-Vdocumentclass=article", "-Vgeometry:margin=2.5cm", "-Vbiblio-style=plainnat"]
    text = _pandoc(source, rendered, "latex", ["--natbib", *variables])
    for letter, macro in IN_LATEX.items():
        text = text.replace(letter, macro)
    write_bytes(folder / "paper.tex", text.encode())
    _put_beside(source, bound, folder, Fonts.of(""))


def _pandoc(source: Source, rendered: Rendered, form: Format, arguments: list[str]) -> str:
    import pypandoc

    head: dict[str, Any] = {"title": source.title, "author": list(source.authors)}
    if rendered.abstract:
        head["abstract"] = rendered.abstract
    if source.bibliography:
        head["bibliography"] = "references.bib"
    # JSON is YAML, and pandoc reads the strings of a front matter as Markdown.
    text = f"---\n{json.dumps(head, ensure_ascii=False)}\n---\n\n{rendered.markdown}"
    try:
        return pypandoc.convert_text(
            text,
            form,
            format="markdown-auto_identifiers",
            extra_args=["--standalone", "--sandbox", "--wrap=preserve", *arguments],
        )
    except RuntimeError as error:
        raise ParibusError(f"{source.path}: pandoc could not read it: {error}") from None


def _put_beside(source: Source, bound: Bound, folder: Path, fonts: Fonts) -> None:
    """Write figures, the bibliography, and pictures of the author's own."""
    wanted = [(name, figure, width) for name, (figure, width) in bound.drawn.items()]
    write_figures(folder / "figures", wanted, fonts)
    if source.bibliography:
        text = read_text(source.bibliography, MOST_BYTES)
        write_bytes(folder / "references.bib", text.encode())
    home = source.path.parent.resolve()
    for name in IMAGE.findall(source.body):
        picture = (home / name).resolve()
        if picture.is_relative_to(home) and picture.is_file():
            target = folder / picture.relative_to(home)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture, target)


def _require_pandoc() -> None:
    try:
        import pypandoc

        pypandoc.get_pandoc_version()
    except (ImportError, OSError):
        raise ParibusError(f"a paper in Markdown is read by pandoc; {INSTALL}") from None


def _beside(name: str) -> bytes:
    return files("paribus.report.paper").joinpath(name).read_bytes()
