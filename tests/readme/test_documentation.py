"""Each page of the documentation: its studies load, its commands parse, its Python is whole.

Commands are held against the real parser, and their options against its verbs.
"""

import importlib
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

import paribus
from paribus.cli import VERBS, app, main, options
from paribus.decision import find_rule
from paribus.engine.execution.trial.endpoints import endpoint_metrics
from paribus.readers.lines import load_form
from paribus.report.cautions import CAUTIONS
from paribus.report.values import Paper
from paribus.runs.executors import find_backend
from paribus.study import shipped_studies
from paribus.study.load import parse_study

from ..tools import module_at

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
# What a fragment of a study is put into.
BASE: dict[str, Any] = {
    "name": "base",
    "seeds": [1, 2, 3, 4, 5],
    "training": {"iterations": 1000},
    "arms": {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
}
# Names in the places of what a reader would write there.
PLACEHOLDERS = {"VERB", "STUDY", "DIR"}
OTHERS = ("pip install ", "pytest", "typst compile ", "python docs/build.py", "python studies/")


def blocks(language: str) -> list[Any]:
    """Return every block of a language, with the page that it is on."""
    return [
        pytest.param(page, text, id=f"{page.stem}-{n}")
        for page in PAGES
        for n, (kind, text) in enumerate(FENCE.findall(page.read_text(encoding="utf-8")))
        if kind == language
    ]


def write_files(page: Path, folder: Path) -> None:
    """Write the Python of a page under the names that its first lines give."""
    found: dict[str, str] = {}
    for kind, text in FENCE.findall(page.read_text(encoding="utf-8")):
        named = re.match(r"# (\w+\.py)", text)
        if kind == "python" and named:
            found[named[1]] = found.get(named[1], "") + text
    for name, text in found.items():
        (folder / name).write_text(text)


def merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    inner = {k: merged(base[k], v) for k, v in over.items() if _both(base.get(k), v)}
    return base | over | inner


def _both(a: object, b: object) -> bool:
    return isinstance(a, dict) and isinstance(b, dict)


@pytest.mark.parametrize(("page", "text"), blocks("toml"))
def test_a_study_can_be_loaded(page, text, tmp_path):
    write_files(page, tmp_path)
    stated = tomllib.loads(text)
    if "kind" in stated:  # a backend
        (tmp_path / "cluster.toml").write_text(text)
        assert find_backend(str(tmp_path / "cluster.toml")).name == stated["kind"]
        return
    if "recognise" in stated:  # a form of logs
        (tmp_path / "form.toml").write_text(text)
        assert load_form(tmp_path / "form.toml").name == stated["name"]
        return
    if "studies" in stated:  # a paper
        Paper.model_validate(stated)
        return
    is_whole = {"name", "seeds", "arms"} <= stated.keys()
    table = stated if is_whole else merged(BASE, stated)
    study = parse_study(table, folder=tmp_path, label=str(page))
    find_rule(study)
    if study.trainer == "stacked":
        assert endpoint_metrics(study)
        for arm in study.arms:
            assert study.setting(arm).iterations > 0


@pytest.mark.parametrize(("page", "text"), blocks("python"))
def test_python_is_whole(page, text):
    code = compile(text, page.name, "exec")
    if re.match(r"# \w+\.py", text):  # a file of a user's own: what it declares is declared
        exec(code, {"__name__": "documented"})


def commands(text: str) -> list[str]:
    lines = text.replace("\\\n", " ").splitlines()
    return [part.strip() for line in lines for part in line.partition(" #")[0].split("&&")]


@pytest.mark.parametrize(("page", "text"), blocks("sh"))
def test_commands_are_commands(page, text, monkeypatch):
    monkeypatch.setattr(options.console, "stderr", False)  # `--json` would turn it for good
    for command in filter(None, commands(text)):
        if not command.startswith("paribus "):
            words = re.sub(r"^([A-Z_]+=\S+ )+", "", command)
            assert words.startswith(OTHERS), f"{page.name}: {command}"
            continue
        words = shlex.split(command.partition(" > ")[0])[1:]
        app.parse_args(words, exit_on_error=False, print_error=False)
        if words[0] in ("run", "plan", "check") and len(words) > 1:
            assert words[1].endswith(".toml") or words[1] in shipped_studies()


@cache
def known_options() -> set[str]:
    made = app.generate_docs(output_format="markdown")
    return set(re.findall(r"--[a-z][\w-]*", made)) | {"--help", "--version"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_words_in_running_text_are_verbs_and_options(page):
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    for code in re.findall(r"`([^`\n]+)`", prose):
        if verb := re.match(r"paribus ([A-Za-z]\w*)", code):
            assert verb[1] in {*VERBS, "ledger", "campaign", *PLACEHOLDERS}, code
        if re.match(r"paribus |--", code):
            unknown = set(re.findall(r"(?<!\S)--[a-z][\w-]*", code)) - known_options()
            assert not unknown, f"{page.name}: {code}"


# What is generated


@pytest.fixture(scope="module")
def build():
    return module_at(DOCS / "build.py")


def rows(table: str) -> list[list[str]]:
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def test_every_key_verb_and_function_is_there(build):
    keys, verbs, functions = build.study_file(), build.commands(), build.python()
    assert [row for row in rows(keys) if not row[-1]] == []  # each has a meaning
    for section in ("[training.optimizer]", "[[hypotheses]]", "[arms.NAME]", "[seeds]"):
        assert f"## `{section}`" in keys
    for verb in VERBS:
        assert f"## paribus {verb}\n" in verbs
    for name in (*paribus.__all__, *importlib.import_module("paribus.extend").__all__):
        assert f"### `{name}`\n" in functions
    assert {row[0] for row in rows(build.exit_codes())} >= {"`0`", "`2`", "`3`", "`11`", "`130`"}
    assert "## `superiority`" in build.rules() and "`registration.json`" in build.records()


def test_the_codes_of_cautions_are_all_told():
    page = (DOCS / "reference" / "files.md").read_text(encoding="utf-8")
    told = re.search(r"Codes of `cautions`: (.*?)\.", page, flags=re.DOTALL)
    assert told
    assert set(re.findall(r"`(\w+)`", told[1])) == {code for code, *_ in CAUTIONS}


def test_generated_text_is_up_to_date(build):
    for page in build.generated_pages():  # otherwise run `python docs/build.py --write`
        text = page.read_text(encoding="utf-8")
        assert build.updated(text) == text, page.name


def test_the_pages_are_filled_and_listed(build, tmp_path):
    build.pages(tmp_path)
    for path in (tmp_path / "docs").rglob("*.md"):
        assert "<!-- generated" not in path.read_text(encoding="utf-8")
    assert not list(tmp_path.rglob("*.py"))
    gallery = (tmp_path / "docs" / "explanation" / "gallery.md").read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\((gallery/[\w-]+\.md)\)", gallery))
    assert len(linked) == len(list((ROOT / "studies/gallery").glob("*/README.md")))
    assert all((tmp_path / "docs" / "explanation" / one).is_file() for one in linked)
    assert "(how-to/optimizer/)" in (tmp_path / "docs" / "llms.txt").read_text(encoding="utf-8")


def test_every_page_is_in_the_navigation():
    def listed(nav: Any) -> list[str]:
        if isinstance(nav, str):
            return [nav]
        inner = nav.values() if isinstance(nav, dict) else nav
        return [page for one in inner for page in listed(one)]

    pages = (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
    there = [path.as_posix() for path in pages if path.parts[0] != "paper"]  # of the authors
    assert sorted(listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])) == sorted(there)


def test_the_commands_of_the_judge_run(tmp_path, monkeypatch, capsys):
    """The first command of how-to/judge.md, its study, and the arguments of the workflow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options.console, "stderr", False)
    page = (DOCS / "how-to" / "judge.md").read_text(encoding="utf-8")
    found = [(kind, text) for kind, text in FENCE.findall(page) if kind in ("sh", "toml")]
    lines = (ROOT / "examples" / "github-action" / "runs.csv").read_text().splitlines()
    (tmp_path / "runs.csv").write_text("\n".join(lines) + "\n")
    assert main(shlex.split(found[0][1])[1:]) == 0
    told = capsys.readouterr().out
    (shown,) = [text for kind, text in FENCE.findall(page) if not kind]
    assert told.split() == shown.split()
    (tmp_path / "study.toml").write_text(dict(reversed(found))["toml"])
    register, judge = commands(found[-1][1])[-2:]
    assert main(shlex.split(register)[1:]) == 0
    (tmp_path / "runs").mkdir()
    kept = [line for line in lines if not re.match(r"deep|\w+,6,", line)]
    table = "\n".join(kept).replace("loss", "val_loss").replace("base", "old")
    (tmp_path / "runs" / "all.csv").write_text(table + "\n")
    assert main(shlex.split(judge)[1:]) in (0, 11, 12, 13)
    assert "xploratory" not in capsys.readouterr().out
    flow = yaml.safe_load((ROOT / "examples" / "github-action" / "verdict.yml").read_text())
    steps = flow["jobs"]["judge"]["steps"]
    (script,) = [one["run"] for one in steps if "paribus judge" in one.get("run", "")]
    env = flow["env"]
    line = next(one for one in script.replace("\\\n", " ").splitlines() if "judge" in one)
    words = shlex.split(line.partition(" > ")[0])
    filled = [env[word[1:]] if word.startswith("$") else word for word in words]
    assert main(filled[1:]) in (0, 11, 12, 13)
    assert capsys.readouterr().out.startswith("### ")
