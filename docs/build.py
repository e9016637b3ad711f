"""Build the documentation site: pages of this folder, and what the code itself knows.

    python docs/build.py OUT
    python docs/build.py --write

The first copies this folder and mkdocs.yml into OUT, puts generated text after each line
`<!-- generated: NAME -->`, and builds OUT/site; a broken link is an error. With `--pages` it stops
before the site. The second updates the generated text in this folder, so that the reference can be
read in a clone; a test checks that it is up to date. Both need `pip install '.[docs,train]'`.
"""

from __future__ import annotations

import argparse
import ast
import base64
import dataclasses
import inspect
import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import docstring_parser
import yaml
from pydantic import BaseModel, RootModel
from pydantic.dataclasses import is_pydantic_dataclass, rebuild_dataclass

DOCS = Path(__file__).parent
END = "<!-- end of generated text -->"
MARK = re.compile(
    rf"^<!-- generated: ([a-z-]+) -->$(?:\n.*?^{END}$)?", flags=re.MULTILINE | re.DOTALL
)
SITE_ONLY = {"notebook"}  # a clone has the notebook itself
STUDY = re.compile(r"\]\(\.\./\.\./studies/gallery/([\w-]+)\)")  # whose card is copied beside
PAGES = (".md", ".txt")
LEFT_OUT = shutil.ignore_patterns("*.py", "__pycache__", ".ipynb_checkpoints", "paper")


def pages(out: Path, source: Path = DOCS) -> Path:
    """Copy the pages of `source` to `out`/docs, filled in; returns mkdocs.yml beside them."""
    shutil.copytree(source, out / "docs", ignore=LEFT_OUT, dirs_exist_ok=True)
    shutil.copy(source.parent / "mkdocs.yml", out)
    (there := out / "docs/explanation/gallery").mkdir(exist_ok=True)
    for card in (source.parent / "studies/gallery").glob("*/README.md"):
        shutil.copy(card, there / f"{card.parent.name}.md")
    for path in sorted((out / "docs").rglob("*")):
        if path.suffix in PAGES:
            path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    return out / "mkdocs.yml"


def filled(text: str) -> str:
    """Return a page with what is generated in the place of its marks, and links to studies' cards
    as they are copied beside it."""
    return MARK.sub(lambda mark: GENERATED[mark[1]](), STUDY.sub(r"](gallery/\1.md)", text))


def updated(text: str) -> str:
    """Return a page of this folder with its generated text up to date."""

    def generated(mark: re.Match[str]) -> str:
        if mark[1] in SITE_ONLY:
            return mark[0]
        return f"<!-- generated: {mark[1]} -->\n\n{GENERATED[mark[1]]()}\n\n{END}"

    return MARK.sub(generated, text)


def generated_pages() -> list[Path]:
    """Return the pages of this folder that contain generated text."""
    texts = {
        path: path.read_text(encoding="utf-8")
        for path in sorted(DOCS.rglob("*.*"))
        if path.suffix in PAGES
    }
    return [path for path, text in texts.items() if MARK.search(text)]


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table in Markdown."""
    lines = [list(head)]
    lines += [["---"] * len(lines[0]), *([_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


# Commands


def commands() -> str:
    """Return every verb with its options, as `--help` has them."""
    from paribus.cli import app

    made = app.generate_docs(output_format="markdown")
    return made[made.index("**Commands**") :]


def exit_codes() -> str:
    """Return what the command line exits with, and with `--exit-verdict`."""
    from paribus.cli import main
    from paribus.decision import WORDS

    told = " ".join((inspect.getdoc(main) or "").split("\n\n")[1].split())
    codes = [part.partition(": ") for part in told.rstrip(".").split("; ")]
    rows = [(f"`{code}`", what) for code, _, what in codes if code.isdigit()]
    verdicts = [(f"`{code}`", word) for word, code in WORDS.items()]
    return (
        f"{table(('code', 'when'), rows)}\n\nWith `--exit-verdict` it says the verdict instead. Of "
        "several, the code is that of the word furthest down:\n\n"
        + table(("code", "word"), verdicts)
    )


def verbs() -> str:
    """Return a line for each verb."""
    from paribus.cli import VERBS

    return "\n".join(f"- `paribus {name}`: {_summary(verb)}" for name, verb in VERBS.items())


# The study file


def study_file() -> str:
    """Return every key with its type, default and meaning, table by table."""
    from paribus.engine.format import Sections
    from paribus.study import Study
    from paribus.study.runs import RunsSetting

    tables = [*_tables(Study, ""), *_tables(Sections, ""), *_tables(RunsSetting, "")]
    return "\n\n".join(tables)


def command() -> str:
    """Return every key of the trainer `command`: its own table, and that of a metric."""
    from paribus.trainers.command.sections import CommandMetric, Program

    return "\n\n".join([*_tables(Program, "trainer"), *_tables(CommandMetric, "metrics.NAME")])


# Of a study that is under way: no study file states them.
WRITTEN = {"stages", "tuning.chosen"}
# Of what a study file says otherwise: `seeds` may be a table, which a study has as its plan.
STATED_AS = {"plan": "seeds"}


def backends() -> str:
    """Return the options of every scheduler, those first that all have."""
    from paribus.runs.executors.jobs import JobOptions
    from paribus.runs.executors.ray import RayOptions
    from paribus.runs.executors.slurm import SlurmOptions

    known_to_all = set(JobOptions.model_fields)
    shown = (
        ("`slurm` and `ray`", JobOptions, set[str]()),
        ("`slurm`", SlurmOptions, known_to_all),
        ("`ray`", RayOptions, known_to_all),
    )
    parts = []
    for name, model, known in shown:
        schema, said = model.model_json_schema(), meanings(model)
        rows = [
            (
                f"`{key}`",
                _type(schema["properties"][key], schema.get("$defs", {})),
                _value(field.get_default(call_default_factory=True), None),
                said.get(key, ""),
            )
            for key, field in model.model_fields.items()
            if key not in known
        ]
        parts.append(f"### {name}\n\n{table(('option', 'type', 'default', 'meaning'), rows)}")
    return "\n\n".join(parts)


def _tables(model: type[BaseModel], path: str) -> Iterator[str]:
    """Yield a section for `model`, and one for each table within."""
    schema, said = model.model_json_schema(), meanings(model)
    known = schema.get("$defs", {})
    rows, inner = [], []
    for name, field in model.model_fields.items():
        written = field.alias or name
        key = f"{path}.{written}" if path else written
        if key in WRITTEN:
            continue
        if (within := _model_in(field.annotation)) is not None:
            inner.append((within, STATED_AS.get(key, key) + _index(field.annotation)))
        if key in STATED_AS:
            continue
        stated = schema["properties"][written]
        required = written in schema.get("required", ())
        default = "required" if required else _value(stated.get("default"), within)
        meaning = said.get(name) or (_summary(within) if within else "")
        rows.append((f"`{written}`", _type(stated, known), default, meaning))
    if path:
        bracket = f"[[{path.removesuffix('[]')}]]" if path.endswith("[]") else f"[{path}]"
        yield f"## `{bracket}`\n\n{_markdown(_summary(model))}"
    yield table(("key", "type", "default", "meaning"), rows)
    for within, key in inner:
        yield from _tables(within, key)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


def _index(annotation: Any) -> str:
    """Return how the tables of a key are told apart: by a name, by their order, or not at all."""
    shown = str(annotation)
    if shown.startswith("dict"):
        return ".NAME"
    return "[]" if "tuple" in shown else ""


NAMES = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "object": "table",
    "array": "list",
}


def _type(schema: dict[str, Any], known: dict[str, Any]) -> str:
    """Return a JSON schema in words."""
    if "$ref" in schema:
        return _type(known[schema["$ref"].rpartition("/")[2]], known)
    if "enum" in schema or "const" in schema:
        return ", ".join(_toml(one) for one in schema.get("enum", [schema.get("const")]))
    if options := schema.get("anyOf") or schema.get("oneOf"):
        there = [_type(one, known) for one in options if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(there))
    if schema.get("type") == "array":
        items = schema.get("prefixItems", [schema.get("items", {})])
        return f"list of {_type(items[0], known)}" if items[0] else "list"
    words = NAMES.get(schema.get("type", ""), "any value")
    bounds = [
        f"{sign} {schema[key]:,}"
        for key, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if key in schema and abs(schema[key]) < 2**60
    ]
    return f"{words} {', '.join(bounds)}".rstrip()


def _value(default: Any, within: Any) -> str:
    """Return a default as a study file would have it; of tables, what they say themselves."""
    if default is None:
        return "left out"
    if default in ({}, []):
        return "empty"
    if within is not None and isinstance(default, dict):
        return "as below"
    if isinstance(default, list) and default and isinstance(default[0], dict):
        return ", ".join(f"`{one.get('metric', one)}`" for one in default)
    return f"`{_toml(default)}`"


def _toml(value: Any) -> str:
    return json.dumps(value)


@cache
def meanings(cls: type) -> dict[str, str]:
    """Return what the text under each field of a class says, by the field's name."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        if not base.__module__.startswith("paribus"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, after in pairwise(body):
            if not (isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr)):
                continue
            if isinstance(after.value, ast.Constant):
                text = ast.literal_eval(after.value)
                if isinstance(text, str):
                    found[ast.unparse(field.target)] = inspect.cleandoc(text)
    return found


def _summary(thing: Any) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def _markdown(text: str) -> str:
    return text.replace("<", "&lt;")


# Endpoints, parts and tasks


def endpoints() -> str:
    """Return all that can be an endpoint of a study, by where it is read."""
    from paribus.engine.execution.trial.endpoints import possible, probe_columns
    from paribus.study import load_study

    study, parts = load_study("quickstart"), []
    titles = {
        "evaluation": "On held-out text, at the end of a trial",
        "tasks": "On single tasks",
        "curve": "Along training (`evaluation.every`)",
        "turns": "Speed and memory, arms timed in turn",
        "steps": "While training: the last value",
        "probes": "Probes: the last value",
    }
    known = possible(study)
    for record, title in titles.items():
        rows = [
            (f"`{one.name}`", one.label, one.unit, one.better)
            for one in known.values()
            if one.record == record
        ]
        parts.append(f"## {title}\n\n{table(('metric', 'is', 'unit', 'better'), rows)}")
    columns = [
        (f"`{name}`", ", ".join(f"`{one}`" for one in found[:3]), str(len(found)))
        for name, found in probe_columns(study).items()
    ]
    head = ("probe", "its columns begin with", "in `quickstart`")
    parts.append(f"### Columns of probes\n\n{table(head, columns)}")
    return "\n\n".join(parts)


def parts() -> str:
    """Return the names that keys may have: what the files of each folder declare."""
    from paribus.declared import declared
    from paribus.engine.data.corpora import Corpus
    from paribus.engine.model.parts import Part
    from paribus.engine.setting.architecture import PRESETS
    from paribus.engine.setting.data import TOKENIZERS
    from paribus.engine.tasks.task import Task
    from paribus.engine.training.averages import Average
    from paribus.engine.training.losses import Loss
    from paribus.engine.training.optimizers import Optimizer
    from paribus.engine.training.schedules import Schedule

    engine, rows = "paribus.engine", []
    for key, package, kind in (
        ("data.corpus", "data.corpora", Corpus),
        ("model.attention.kind", "model.attentions", Part),
        ("model.embedding.norm, model.norm.kind, model.attention.qk_norm", "model.norms", Part),
        ("model.mlp.kind", "model.mlps", Part),
        ("model.positions.kind", "model.positions", Part),
        ("training.optimizer.name", "training.optimizers", Optimizer),
        ("training.schedule.kind", "training.schedules", Schedule),
        ("training.average.kind", "training.averages", Average),
        ("training.loss.name", "training.losses", Loss),
        ("tasks.names", "tasks.generators", Task),
    ):
        rows.append((key, sorted(declared(f"{engine}.{package}", kind))))
    rows += [("data.tokenizer", sorted(TOKENIZERS)), ("model.preset", sorted(PRESETS))]
    return table(("key", "names"), ([_code(key.split(", ")), _code(names)] for key, names in rows))


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


# Rules, words


def words() -> str:
    """Return the truth table of the words."""
    from paribus.decision import TRUTH, WORDS

    rows = [(line.word, line.when, f"`{WORDS[line.word]}`") for line in TRUTH]
    return table(("word", "when (first match)", "`--exit-verdict`"), rows)


def rules() -> str:
    """Return every rule that ships, row by row."""
    from paribus.decision import SHIPPED, shipped_rule

    found = []
    for rule in map(shipped_rule, SHIPPED):
        rows = [
            (row.id, row.when, row.outcome, row.reason or row.when)
            for row in rule.all_rows.values()
        ]
        weighs = ", ".join(f"`{key}`" for key in rule.keys) or "none"
        found.append(
            f"## `{rule.name}`\n\n{rule.title[0].upper()}{rule.title[1:]}. Keys of `[decision]` "
            f"that it weighs: {weighs}.\n\n"
            + table(("row", "when, and no row before it", "outcome", "because"), rows)
        )
    return "\n\n".join(found)


def states() -> str:
    """Return what a row of a rule may ask."""
    from paribus.decision import State

    return _attributes(State)


# Files


def records() -> str:
    """Return JSON records, as they are checked when they are read."""
    from paribus.engine.records import StackedTrialForm
    from paribus.results.records import Registration, Reuse, RunsRecord, Timing, TrialJson

    found = []
    files: dict[str, type[BaseModel]] = {
        "ledger.json": Reuse,
        "manifest.json": RootModel[dict[str, str]],
        "registration.json": Registration,
        "runs.json": RunsRecord,
        "timing.json": Timing,
        "trial.json": TrialJson,
    }
    for name, model in files.items():
        also = StackedTrialForm.model_fields if name == "trial.json" else {}
        fields = {**model.model_fields, **also}
        rows = [
            (f"`{key}`", _kind(field.annotation), "" if field.is_required() else "may be absent")
            for key, field in fields.items()
            if key != "root"
        ]
        if rows:
            found.append(f"### `{name}`\n\n{table(('key', 'type', ''), rows)}")
        elif "root" in fields:
            what = _kind(fields["root"].annotation)
            found.append(f"### `{name}`\n\nA {what}.")
    return "\n\n".join(found)


def _kind(annotation: Any) -> str:
    """Return a Python type as readers of JSON would call it."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "table"
    shown = re.sub(r"[\w.]*\.(\w+)", r"\1", str(annotation)).replace("<class '", "")
    shown = re.sub(r"Annotated\[(\w+),[^\]]*\]\)?\]?", r"\1", shown.replace("'>", ""))
    shown = re.sub(r"\b_\w+", "table", shown)  # of no name that readers know
    return f"`{shown}`"


def columns() -> str:
    """Return columns of Parquet files that readers rely on."""
    from paribus.results.formats import COLUMNS

    rows = ((f"`{name}`", ", ".join(f"`{one}`" for one in of)) for name, of in COLUMNS.items())
    return table(("file", "has at least the columns"), rows)


def verdict() -> str:
    """Return the keys of an entry of `verdicts` in verdict.json."""
    from paribus.decision import Verdict

    return _attributes(Verdict)


def schema() -> str:
    """Return the number that files are written with."""
    from paribus.schema import SCHEMA

    return f"Files are written with `schema_version` {SCHEMA}."


def _attributes(cls: type) -> str:
    texts = [docstring_parser.parse(inspect.cleandoc(base.__doc__ or "")) for base in cls.__mro__]
    params = [param for text in reversed(texts) for param in text.params]
    rows = [(f"`{param.arg_name}`", param.description or "") for param in params]
    return table(("name", "is"), rows)


# Python


def python() -> str:
    """Return the public functions, and what custom parts are written with."""
    found = []
    for name, title in (
        ("paribus", "`import paribus`"),
        ("paribus.extend", "`from paribus.extend import ...`"),
    ):
        module = import_module(name)
        found.append(f"## {title}")
        # Not by the module: `paribus.extend` is a function there, and a module when it is imported.
        homes = {one: import_module(module._HOMES[one]) for one in sorted(module.__all__)}
        found += [_of_python(one, getattr(home, one)) for one, home in homes.items()]
    found.append("## `from paribus.statistics import ...`")
    statistics = import_module("paribus.statistics")
    public = {
        name: thing
        for name, thing in sorted(vars(statistics).items())
        if getattr(thing, "__module__", "").startswith(statistics.__name__)
    }
    rows = [(f"`{name}`", _summary(thing)) for name, thing in public.items()]
    found.append(table(("name", "is"), [row for row in rows if row[1]]))
    return "\n\n".join(found)


def _of_python(name: str, thing: Any) -> str:
    lines = [f"### `{name}`"]
    is_plain = dataclasses.is_dataclass(thing) or not isinstance(thing, type)
    if callable(thing) and is_plain:
        lines.append(f"```text\n{name}{_signature(thing)}\n```")
    said = docstring_parser.parse(inspect.getdoc(thing) or "" if callable(thing) else "")
    lines.append(_markdown(said.description or ""))
    if said.params:
        lines.append("\n".join(_item(one.arg_name, one.description) for one in said.params))
    if said.returns and said.returns.description:
        lines.append(f"Returns {_markdown(said.returns.description)}")
    return "\n\n".join(filter(None, lines))


def _item(name: str, text: str | None) -> str:
    return f"- `{name}`: {_markdown(' '.join((text or '').split()))}"


def _signature(thing: Callable[..., Any]) -> str:
    """Return the arguments of a function, one a line."""
    found, keyword_only = [], False
    if isinstance(thing, type) and is_pydantic_dataclass(thing):
        rebuild_dataclass(thing)  # one whose building is deferred has no arguments before
    for one in inspect.signature(thing).parameters.values():
        if one.kind is one.KEYWORD_ONLY and not keyword_only:
            found.append("*")
            keyword_only = True
        keyword_only = keyword_only or one.kind is one.VAR_POSITIONAL
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        annotation = (
            ""
            if one.annotation is one.empty
            else f": {_shown_type(one.name, one.annotation, thing)}"
        )
        default = "" if one.default is one.empty else f" = {_shown(one.default)}"
        found.append(f"{stars}{one.name}{annotation}{default}")
    gives = inspect.signature(thing).return_annotation
    end = f") -> {gives}" if isinstance(gives, str) else ")"
    short = f"({', '.join(found)}{end}"
    return short if len(short) < 70 else "(\n    " + ",\n    ".join(found) + f",\n{end}"


def _shown_type(name: str, annotation: Any, thing: Any) -> str:
    """Return the type of an argument; of pydantic's dataclasses without their constraints."""
    if not isinstance(annotation, str) and isinstance(thing, type):
        annotation = get_type_hints(thing).get(name, annotation)
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _shown(default: Any) -> str:
    return "..." if callable(default) or " object at " in repr(default) else repr(default)


# Maps for machines


def page_list() -> str:
    """Return a line for each page: its title, its address, its first sentence."""
    nav = yaml.safe_load((DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    return "\n".join(_listed(nav, "##"))


def _listed(nav: list[Any], heading: str) -> Iterator[str]:
    for entry in nav:
        ((title, there),) = entry.items() if isinstance(entry, dict) else ((None, entry),)
        if isinstance(there, list):
            yield f"\n{heading} {title}\n"
            yield from _listed(there, heading + "#")
        else:
            name, about = heading_of(DOCS / there)
            address = re.sub(r"(index)?\.md$", "", there)
            yield f"- [{title or name}]({address or '.'}/): {about}"


def heading_of(page: Path) -> tuple[str, str]:
    """Return the title of a page, and its first sentence."""
    text = page.read_text(encoding="utf-8")
    title = re.search(r"^# (.+)$", text, flags=re.MULTILINE)
    assert title, f"{page} has no title"
    paragraphs = re.split(r"\n\s*\n", text[title.end() :].strip())
    prose = next((one for one in paragraphs if re.match(r"[A-Z\"`*]", one)), "")
    prose = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", " ".join(prose.split()))
    return title[1], re.split(r"(?<=[.?]) ", prose)[0]


# The notebook


def notebook() -> str:
    """Return the executed notebook: its text, its code, and what each cell showed."""
    cells = json.loads((DOCS / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(_executed(cell) for cell in cells)


def _executed(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    parts = [f"```python\n{source}\n```"]
    for output in cell["outputs"]:
        found = {kind: "".join(text) for kind, text in output["data"].items()}
        if picture := found.get("image/svg+xml"):
            data = base64.b64encode(picture.encode()).decode()
            parts.append(
                f'<img alt="{cell["metadata"]["alt"]}" src="data:image/svg+xml;base64,{data}">'
            )
        elif card := found.get("text/markdown"):
            parts.append(card)
        else:
            parts.append(f"```text\n{found['text/plain']}\n```")
    return "\n\n".join(parts)


def readers() -> str:
    """Return the readers that ship."""
    from paribus.readers import shipped_readers

    found = shipped_readers().values()
    return table(("reader", "reads"), ([f"`{one.name}`", one.says] for one in found))


GENERATED: dict[str, Callable[[], str]] = {
    "backends": backends,
    "columns": columns,
    "command": command,
    "commands": commands,
    "endpoints": endpoints,
    "exit-codes": exit_codes,
    "notebook": notebook,
    "pages": page_list,
    "parts": parts,
    "python": python,
    "records": records,
    "rules": rules,
    "readers": readers,
    "schema": schema,
    "states": states,
    "study-file": study_file,
    "verbs": verbs,
    "verdict": verdict,
    "words": words,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", help="an empty or new folder")
    parser.add_argument("--pages", action="store_true", help="stop before the site")
    parser.add_argument("--write", action="store_true", help="update this folder instead")
    asked = parser.parse_args()
    if asked.write:
        for path in generated_pages():
            path.write_text(updated(path.read_text(encoding="utf-8")), encoding="utf-8")
        return 0
    if asked.out is None:
        parser.error("name a folder OUT, or use --write")
    configuration = pages(asked.out)
    if asked.pages:
        return 0
    built = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(configuration)]
    return subprocess.run(built, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
