"""The pages of the site that are made from the code: verbs, keys, rules, and `llms.txt`.

A hook of MkDocs: `mkdocs build` calls `on_files`. Nothing of what they say is written twice: help
is the command line's, keys and defaults are the models', rules are the rules'. It needs no PyTorch.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import textwrap
from itertools import pairwise
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from rich.console import Console

from paribus.cli import VERBS, app
from paribus.decision import WORDS
from paribus.decision.rules import RULES
from paribus.engine.setting import Setting
from paribus.study import Study

ROOT = Path(__file__).parent.parent
GROUPS = {"tokenizer": ("train",), "campaign": ("new", "try", "give-up", "status", "end")}
NAMES = [*VERBS, *(f"{group} {verb}" for group, verbs in GROUPS.items() for verb in verbs)]


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages to the site."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Name files of the repository that lie outside the site, in place of links to them."""
    return re.sub(r"\[([^\]]+)\]\((?:\.\./)+([^)]+)\)", r"\1 (`\2`)", markdown)


def pages() -> dict[str, str]:
    """Return the generated pages by their path in the site."""
    return {
        "index.md": home(),
        "reference/verbs.md": verbs(),
        "reference/keys.md": keys(),
        "reference/rules.md": rules(),
        "llms.txt": llms(),
    }


def home() -> str:
    """Return the README, with links as the site has them."""
    text = (ROOT / "README.md").read_text()
    text = re.sub(r"\]\(docs/", "](", text)
    return re.sub(r"\[([^\]]+)\]\(((?:studies|CONTRIBUTING)[^)]*)\)", r"\1 (`\2`)", text)


def help_of(verb: str) -> str:
    """Return what `paribus VERB --help` prints at 100 columns."""
    shown = io.StringIO()
    app.help_print(verb.split(), console=Console(file=shown, width=100, no_color=True))
    return shown.getvalue().rstrip()


def verbs() -> str:
    """Return the page of the command line."""
    told = [f"## {verb}\n\n```text\n{help_of(verb)}\n```" for verb in NAMES]
    codes = "\n".join(
        f"| {of.exit_code} | with `--exit-verdict`: the answer is {word} |"
        for word, of in WORDS.items()
        if word != "INVALID"
    )
    return (
        "# Verbs\n\nWhat `paribus VERB --help` prints. `--json` gives the answer as JSON.\n\n"
        "| exit code | says |\n| --- | --- |\n| 0 | done |\n| 1 | failed, or `paper --check` found "
        "something |\n| 2 | bad input, said in one line |\n| 3 | done, and an arm is INVALID |\n"
        "| 4 | `--budget` or `--max-trials` is used up |\n| 10 | `campaign try`: not kept |\n"
        f"{codes}\n| 130 | interrupted |\n\n" + "\n\n".join(told) + "\n"
    )


def described(model: type[BaseModel]) -> dict[str, str]:
    """Return the text under each field of a model, as its source has it."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (isinstance(base, type) and issubclass(base, BaseModel)) or base is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, text in pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """Return the models that a type is made of."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for one in get_args(annotation) for model in models_in(one)]


def kind(annotation: Any) -> str:
    """Return a type in words of TOML."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(f'"{one}"' if isinstance(one, str) else str(one) for one in args)
    if origin in (Union, UnionType):
        return " or ".join(kind(one) for one in args if one is not NoneType)
    if hasattr(annotation, "__metadata__"):
        return kind(annotation.__origin__)
    if origin in (tuple, list, set, frozenset):
        return f"list of {kind(args[0])}" if args else "list"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "table"
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    return plain.get(annotation, "anything")


def default(field: FieldInfo) -> str:
    """Return a default as TOML has it."""
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel):
        return "its own"
    if value is None or value == "" or value == () or value == {}:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    text = (
        f'"{value}"'
        if isinstance(value, str)
        else str(list(value) if isinstance(value, tuple) else value)
    )
    return f"`{text}`" if len(text) < 60 else "see the source"


def keys() -> str:
    """Return the page of every key that a study file may have."""
    told, done = (
        ["# Keys of a study\n\nEvery table of a study file, from the models that read it."],
        set(),
    )

    def table(title: str, model: type[BaseModel]) -> None:
        if model in done:
            return
        done.add(model)
        texts, rows, inner = described(model), [], []
        for name, field in model.model_fields.items():
            text = texts.get(name, "").replace("|", "\\|")
            rows.append(f"| `{name}` | {kind(field.annotation)} | {default(field)} | {text} |")
            nested = models_in(field.annotation)
            is_free = get_origin(field.annotation) is dict
            inner += [(f"{title}{name}", one, is_free) for one in nested]
        about = (inspect.getdoc(model) or "").split("\n\n")[0].replace("\n", " ")
        head = f"## {title.rstrip('.')}\n\n{about}\n\n" if title else ""
        told.append(
            f"{head}| key | type | default | says |\n| --- | --- | --- | --- |\n" + "\n".join(rows)
        )
        for path, one, is_free in inner:
            table(f"{path}.NAME." if is_free else f"{path}.", one)

    table("", Study)
    for name, field in Setting.model_fields.items():
        for one in models_in(field.annotation):
            table(f"{name}.", one)
    return "\n\n".join(told) + "\n"


def rules() -> str:
    """Return the page of the decision rules that ship, row by row."""
    told = [
        "# Decision rules\n\nA rule says what to do with an arm; the word does not depend on it "
        "([Decisions](../decision.md)). First row that holds wins."
    ]
    for name, rule in RULES.items():
        rows = [f"| {row.id} | {row.when} | {row.outcome} |" for row in rule.all_rows.values()]
        told.append(
            f"## {name}\n\n{rule.adopts}\n\n| row | where | outcome |\n| --- | --- | --- |\n"
            + "\n".join(rows)
        )
    return "\n\n".join(told) + "\n"


def llms() -> str:
    """Return `llms.txt`: a map of the site, and what an agent needs."""
    nav = re.findall(r"^ +- (.+): ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    told = "\n".join(f"- [{title}]({path})" for title, path in nav)
    listed = "\n".join(
        f"- `paribus {name}`: {(inspect.getdoc(verb) or '').splitlines()[0]}"
        for name, verb in VERBS.items()
    )
    return (
        "# paribus\n\n> Does this change to a language model's training really help? Fixed before "
        "the first run, trained on equal batches and initial values, judged in six words.\n\n"
        "For agents: every verb that answers takes `--json`; bad input is one line and exit code "
        "2; `paribus check STUDY` tries a study and leaves nothing; `paribus run STUDY "
        "--no-paper --json --exit-verdict` gives the verdict as JSON and as exit code.\n\n"
        f"## Verbs\n\n{listed}\n\n## Pages\n\n{told}\n"
    )
