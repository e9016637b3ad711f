"""A paper that a person writes: Markdown with values, tables and figures of studies in braces.

    ---
    title: Does normalising embeddings help small language models?
    author: [A. Author]
    bibliography: paper.bib
    studies: {tuned: ../results/tuned, long: ../results/tuned-long}
    numbers: {ours: ours.json}
    digits: 3
    literal: [2019, "GPT-3"]
    ---
    Over more steps it changed by {{ change("long", "layernorm", "test_loss") }} [@LeScao2022].

Jinja fills the braces (`bound`), pandoc turns the Markdown into Typst.
`paper.lock.json`, beside the paper, has every value as it was when the paper was last set.
"""

from __future__ import annotations

import json
import re
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from paribus.digests import canonical_json
from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.files import write_bytes
from paribus.report.paper.bound import MOST_DIGITS, Bound, Markdown, Words, printed
from paribus.report.paper.typesetting import needs_fonts, to_pdf, write_figures
from paribus.untrusted_io import read_json, read_text

INSTALL = "install it: pip install 'paribus[paper]'"
MOST_BYTES = 4 * 1024 * 1024
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
CAPTION = re.compile(r"caption\s*=\s*(?P<quote>[\"'])(?P<text>.*?)(?P=quote)", re.DOTALL)
# An x in front says times, as in x61; other letters make a name, as in H100.
NUMBER = re.compile(r"(?<![A-Za-z_\d.])x?[-+−]?(?:\d+|\.\d+)(?:[.,]\d+)*(?:[eE][-+]?\d+)?%?")  # noqa: RUF001
CITATION = re.compile(r"(?<![\w\\])-?@([A-Za-z0-9_][\w:.#$%&+?<>~/-]*)")
IMAGE = re.compile(r"!\[[^\]]*\]\(([^)\s]+)")
ABSTRACT = re.compile(r"\A\s*# Abstract[^\n]*\n(.*?)(?=^# |\Z)", re.DOTALL | re.MULTILINE)


class Source(BaseModel):
    """A paper's file: its front matter, and its Markdown, whose lines are the file's."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    title: str = ""
    author: list[str] = []
    abstract: str = ""
    bibliography: str = ""
    studies: dict[str, str] = {}
    numbers: dict[str, str] = {}
    digits: int = Field(default=MOST_DIGITS, ge=0, le=MOST_DIGITS)
    literal: list[int | float | str] = []
    _path: Path = PrivateAttr()
    _body: str = PrivateAttr()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def body(self) -> str:
        """Its Markdown."""
        return self._body

    @property
    def works(self) -> Path:
        """The bibliography."""
        return self.path.parent / self.bibliography

    @property
    def lock(self) -> Path:
        """The file of what every value was."""
        return self.path.with_name(f"{self.path.stem}.lock.json")

    def bound(self) -> Bound:
        """Return what its braces can say."""
        home = self.path.parent
        studies, files = (
            {name: home / path for name, path in of.items()} for of in (self.studies, self.numbers)
        )
        return Bound(studies, files, self.digits)


@dataclass(frozen=True)
class Rendered:
    """A paper with its braces filled.

    Attributes:
        unbound: what braces gave that is of no study, such as a number written in them.
    """

    markdown: str
    abstract: str
    unbound: list[str]


def read_source(path: Path) -> Source:
    """Read a paper's file. Raises ParibusError in one line for a front matter that is none."""
    if path.is_dir():
        raise ParibusError(f"{path} is a folder; a paper is a Markdown file")
    text = read_text(path, MOST_BYTES).replace("\r\n", "\n")
    found = HEAD.match(text)
    if found is None:
        raise ParibusError(
            f"{path} begins with no front matter: lines of YAML between two lines of ---"
        )
    try:
        import yaml
    except ImportError:
        raise ParibusError(f"a paper's front matter needs PyYAML; {INSTALL}") from None
    try:
        source = Source.model_validate(yaml.safe_load(found[1]))
    except (yaml.YAMLError, RecursionError) as error:
        raise ParibusError(f"{path}: the front matter is no YAML: {error}") from None
    except ValidationError as error:
        raise ParibusError(f"{path}: {explain(error, Source)}") from None
    source._path, source._body = path, "\n" * found[0].count("\n") + text[found.end() :]
    return source


def render(source: Source, bound: Bound) -> Rendered:
    """Fill the braces. Raises ParibusError with the line of a name that does not exist."""
    unbound: list[str] = []
    bound.begin()

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
        raise ParibusError(
            f"{source.path}:{error.lineno}: braces that cannot be read ({error.message}); they "
            'hold one call and are closed, such as {{ change("study", "arm") }}'
        ) from None
    except jinja2.UndefinedError as error:
        name = re.search(r"'(\w+)' is undefined", str(error))
        known = nearest(name[1], functions) if name else "correct it"
        raise ParibusError(f"{_where(source, error)}: {error.message}: {known}") from None
    except (
        ParibusError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        jinja2.TemplateError,
    ) as error:
        raise ParibusError(f"{_where(source, error)}: {error}") from None
    if (found := ABSTRACT.match(body)) and not abstract:
        abstract, body = found[1].strip(), body[found.end() :]
    left = sorted(bound.asked - bound.labels - set(re.findall(r"\{#([\w:-]+)", body)))
    if left:
        raise ParibusError(f"{source.path}: ref('{left[0]}'): {nearest(left[0], bound.labels)}")
    _require_works(source, f"{abstract}\n{body}")
    return Rendered(body, abstract, [one for one in unbound if re.search(r"\d", one)])


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
    if not source.bibliography:
        raise ParibusError(
            f"{_cited_at(source, cited[0])}: @{cited[0]} is cited and the front matter names no "
            "bibliography; state one, such as bibliography: paper.bib"
        )
    works = set(re.findall(r"@\w+\s*\{\s*([^,\s]+)", read_text(source.works, MOST_BYTES)))
    for key in cited:
        if key not in works:
            raise ParibusError(
                f"{_cited_at(source, key)}: @{key} is not in {source.bibliography}: "
                f"{nearest(key, works)}"
            )


def _cited_at(source: Source, key: str) -> str:
    """Return the file, and the line of it that cites `key`."""
    place = source.body.find(f"@{key}")
    return (
        f"{source.path}:{source.body.count(chr(10), 0, place) + 1}"
        if place >= 0
        else str(source.path)
    )


def literals(source: Source) -> Iterator[str]:
    """Yield every number of the text that is bound to nothing, with its line and its neighbours."""
    parts = {"": source.body, ": title": source.title, ": abstract": source.abstract}
    for name, part in parts.items():
        text = UNSTATED.sub(_without_captions, part)
        for literal in sorted(map(str, source.literal), key=len, reverse=True):
            marked = rf"(?<![\w.]){re.escape(literal)}(?![\w]|[.,]\d)"
            text = re.sub(marked, "\x00" * len(literal), text)
        for number in NUMBER.finditer(text):
            line = number.string.count("\n", 0, number.start()) + 1
            where = f"{source.path}{name or f':{line}'}"
            start, end = max(0, number.start() - CONTEXT), number.end() + CONTEXT
            around = " ".join(part[start:end].split())
            yield f"{where}: {number[0]} is bound to nothing: ... {around} ..."


def _without_captions(found: re.Match[str]) -> str:
    """Return what holds no statement blanked, but for the captions in it: the author wrote them."""
    blank = list(re.sub(r"[^\n]", "\x00", found[0]))
    if found[0].startswith("{{"):
        for caption in CAPTION.finditer(found[0]):
            start, stop = caption.span("text")
            blank[start:stop] = caption["text"]
    return "".join(blank)


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
    bound = source.bound()
    rendered = render(source, bound)
    said = [f"{path}: braces give {one}, which is of no study" for one in rendered.unbound]
    return [*literals(source), *said, *changed(source, bound.values)]


def set_paper(path: Path, pdf: Path) -> list[str]:
    """Set a paper as PDF; returns what changed since the last time, and writes what is so now to
    the lock file."""
    source = read_source(path)
    try:
        import pypandoc

        pypandoc.get_pandoc_version()
    except (ImportError, OSError):
        raise ParibusError(f"a paper in Markdown is read by pandoc; {INSTALL}") from None
    bound = source.bound()
    with tempfile.TemporaryDirectory() as scratch:
        write_bytes(pdf, _typst(source, bound, Path(scratch)))
    lines = list(changed(source, bound.values))
    lock = {"schema": LOCK_SCHEMA, "values": bound.values}
    write_bytes(source.lock, canonical_json(lock).encode())
    return lines


def _typst(source: Source, bound: Bound, folder: Path) -> bytes:
    template = folder / "template.typ"
    write_bytes(template, files("paribus.report.paper").joinpath("authored.typ").read_bytes())
    text = _pandoc(source, bound, template)
    fonts = needs_fonts(text)
    write_bytes(folder / "paper.typ", text.encode())
    _put_beside(source, bound, folder, fonts)
    return to_pdf(folder / "paper.typ", fonts, str(source.path))


def _pandoc(source: Source, bound: Bound, template: Path) -> str:
    import pypandoc

    rendered = render(source, bound)
    head: dict[str, Any] = {"title": source.title or source.path.stem, "author": source.author}
    if rendered.abstract:
        head["abstract"] = rendered.abstract
    if source.bibliography:
        head["bibliography"] = "references.bib"
    # JSON is YAML, and pandoc reads the strings of a front matter as Markdown.
    text = f"---\n{json.dumps(head, ensure_ascii=False)}\n---\n\n{rendered.markdown}"
    options = ["--standalone", "--sandbox", "--wrap=preserve", f"--template={template}"]
    try:
        return pypandoc.convert_text(text, "typst", "markdown-auto_identifiers", options)
    except RuntimeError as error:
        raise ParibusError(f"{source.path}: pandoc could not read it: {error}") from None


def _put_beside(source: Source, bound: Bound, folder: Path, system: bool) -> None:
    """Write figures, the bibliography, and pictures of the author's own."""
    wanted = [(name, figure, width) for name, (figure, width) in bound.drawn.items()]
    write_figures(folder / "figures", wanted, system)
    if source.bibliography:
        works = read_text(source.works, MOST_BYTES)
        write_bytes(folder / "references.bib", works.encode())
    home = source.path.parent.resolve()
    for name in IMAGE.findall(source.body):
        picture = (home / name).resolve()
        if picture.is_relative_to(home) and picture.is_file():
            write_bytes(folder / picture.relative_to(home), picture.read_bytes())
