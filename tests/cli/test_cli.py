"""The command line as a person meets it: 80 columns, one line for a mistake, exit codes."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from paribus.cli import VERBS, main, options
from paribus.engine.cost import Cost
from paribus.engine.data.corpora import all_corpora
from paribus.engine.execution.start import estimate
from paribus.engine.format import DOWNLOADED
from paribus.study import shipped_studies
from paribus.study.load import EXAMPLES

STUDY = """
name = "tiny"
question = "Is this <b>bold</b> [red]idea[/red] any good?"
seeds = [1, 2]
data = {corpus = "text", path = "text.txt", seq_len = 16}
model = {n_layer = 1, n_head = 2, d_model = 16}
training = {iterations = 24, batch_size = 2}
tasks = {names = []}
[arms.baseline]
[arms.layernorm]
set."model.embedding.norm" = "layernorm"
"""


Done = subprocess.CompletedProcess[str]
SHELL = {"COLUMNS": "80", "NO_COLOR": "1"}


def paribus(*arguments: object, cwd: Path | None = None) -> Done:
    """The command line in a process of its own, as a shell starts it."""
    return subprocess.run(
        [sys.executable, "-m", "paribus", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | SHELL,
        timeout=120,
    )


def verb(*arguments: object, cwd: Path) -> Done:
    """The same in this process, which spares its start."""
    with (
        chdir(cwd),
        patch.dict(os.environ, SHELL),
        patch.object(options.console, "stderr", False),
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
    ):
        code = main([*map(str, arguments)])
    return Done(arguments, code, out.getvalue(), err.getvalue())


def write_study(folder: Path) -> Path:
    (folder / "text.txt").write_text("all else equal, does it help? " * 60)
    (folder / "study.toml").write_text(STUDY)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_study(tmp_path)


@dataclass(frozen=True)
class Way:
    """A study on its way: what was said, and what lay in its folder once it was registered."""

    folder: Path
    registered: Done
    there: set[str]
    early: Done
    edited: Done
    ran: Done


@pytest.fixture(scope="module")
def way(tmp_path_factory):
    """Registered, analysed too early, run with another rule, and run. Who writes takes a copy."""
    folder = write_study(tmp_path_factory.mktemp("way"))
    registered = verb("register", "study.toml", cwd=folder)
    there = {path.name for path in (folder / "results" / "tiny").iterdir()}
    early = verb("report", "--no-page", "results/tiny", cwd=folder)
    rule = ("--set", "inference.alpha=0.01")
    edited = verb("run", "study.toml", *rule, "--workers", "1", cwd=folder)
    ran = paribus("run", "study.toml", "--workers", "1", cwd=folder)
    return Way(folder, registered, there, early, edited, ran)


@pytest.fixture(scope="module")
def costs():
    return []


@pytest.fixture
def costed(monkeypatch, costs):
    """What STUDY costs is measured once; it starts a worker, and would come out the same."""

    def measured(*arguments: Any, **options: Any) -> Cost:
        if not costs:
            costs.append(estimate(*arguments, **options))
        return costs[0]

    monkeypatch.setattr("paribus.engine.execution.start.estimate", measured)


@pytest.fixture
def copy(way, tmp_path):
    """Its folder, to be written to."""
    return shutil.copytree(way.folder, tmp_path / "copy")


def test_help_names_every_verb_and_loads_nothing_heavy():
    done = paribus("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert verb in done.stdout
    code = (
        "import sys, paribus.cli\n"
        "try: paribus.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'scipy', 'numpy', 'pandas', 'altair', 'pyarrow', 'pydantic'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_importing_paribus_and_reading_results_loads_no_torch():
    code = (
        "import sys, paribus\n"
        "assert dir(paribus) == sorted([*paribus.__all__, '__version__'])\n"
        "paribus.load_study('quickstart'), paribus.run, paribus.load_results\n"
        "import paribus.analysis, paribus.report, paribus.statistics\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_registering_comes_before_everything_else(way):
    assert way.registered.returncode == 0, way.registered.stderr
    said = " ".join(way.registered.stdout.split())
    assert said.count("warning: ") == 2 and "superiority" in said and "0.02" in said
    assert "registration.json" in way.there
    assert "trials" not in way.there
    assert (way.early.returncode, way.early.stderr.count("\n")) == (2, 1)
    assert "no trial" in way.early.stderr
    assert way.edited.returncode == 2
    assert "inference.alpha: 0.05 there, 0.01 here" in way.edited.stderr


def test_the_whole_way_from_the_command_line(way, copy):
    ran = way.ran
    assert ran.returncode == 0, ran.stderr
    assert max(map(len, ran.stdout.splitlines())) <= 120  # progress lines are not wrapped
    for words in (
        "4/4 trials",
        "timing the arms in turn",
        "analysing\ndrawing the page and the PDF\n",
        "DESCRIPTIVE  layernorm",
        "4 of 4 trials; 8 of 9 controls hold.",
        "report.html",
        "report.pdf",
    ):
        assert words in ran.stdout
    results = copy / "results" / "tiny"
    assert (results / "report.html").is_file()
    assert (results / "tables" / "scores.csv").read_text().count("\n") == 5

    status = verb("status", results, cwd=copy)
    assert "4 trials" in status.stdout
    (results / "report.html").unlink()
    again = verb("report", results, "--verbose", cwd=copy)
    assert again.returncode == 0
    assert (results / "report.html").is_file()
    *lines, page, pdf = again.stdout.splitlines()
    assert page.startswith("page: ") and pdf.startswith("PDF: ")  # paths are not wrapped
    assert max(map(len, lines)) <= 80
    card = ran.stdout[ran.stdout.index("Is this") : ran.stdout.index("page: ")]
    assert "\n".join(card.splitlines()[:3]) in again.stdout
    for words in ("Not measured in this study: macro accuracy", "all else equal?"):
        assert words in again.stdout and words not in ran.stdout.partition("Is this")[2]
    assert (results / "report.pdf").read_bytes().startswith(b"%PDF")

    other = verb("run", "study.toml", "--set", "training.iterations=25", cwd=copy)
    assert other.returncode == 2
    assert "different study (training.iterations: 24 there, 25 here)" in other.stderr

    (results / "trials" / "baseline" / "seed-1" / "evaluation.json").write_text("{}")
    tampered = paribus("report", results, cwd=copy)
    assert tampered.returncode == 2
    assert "evaluation.json" in tampered.stderr


def test_a_verdict_that_is_invalid_exits_3(copy):
    results = copy / "results" / "tiny"
    shutil.rmtree(results / "trials" / "layernorm" / "seed-2")
    for how in (["--no-page"], []):
        done = verb("report", *how, results, cwd=copy)
        assert done.returncode == 3, done.stderr
        assert "INVALID" in done.stdout and done.stderr == ""


def test_planning(way, costed):
    results = way.folder / "results" / "tiny"
    plan = lambda *how: verb(  # noqa: E731
        "plan", "study.toml", *how, "--workers", "1", cwd=way.folder
    )
    planned = plan("--pilot", results)
    assert planned.returncode == 0, planned.stderr
    for words in ("tokens in all", "FLOPs in all", "device-hours", "2 seed pairs detect"):
        assert words in planned.stdout
    assert "pilot" in planned.stdout
    assert "warning" in plan("--sd", "1.0").stdout


def test_check_says_what_differs(folder):
    shown = verb("check", "study.toml", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    for words in ("none → layernorm", "FLOPs", "every arm was tried"):
        assert words in shown.stdout
    assert "[red]idea[/red]" in shown.stdout  # text from a study file is not markup
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert not (folder / "results").exists()


def test_check_without_a_study_lists_what_ships(tmp_path):
    listed = verb("check", cwd=tmp_path)
    assert listed.returncode == 0
    assert max(map(len, listed.stdout.splitlines())) <= 80
    rows = [line.split() for line in listed.stdout.splitlines() if "  " in line.strip()]
    names = [row[0] for row in rows if row[-1] in ("once", "no")]
    assert names[0] == "quickstart" and set(names) == set(shipped_studies())
    assert set(DOWNLOADED) < set(all_corpora())
    # Each file lies in the folder of a group.
    assert {file.stem for file in EXAMPLES.rglob("*.toml")} == set(names)


def test_json_answers_have_one_form(way, folder, costed, tmp_path):
    results = way.folder / "results" / "tiny"
    for arguments in (
        ("plan", "study.toml", "--workers", "1"),
        ("check", "study.toml"),
        ("status", results),
        ("verify", results),
    ):
        done = verb(*arguments, "--json", cwd=folder)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["schema_version"] == 1
    planned = verb("plan", "study.toml", "--workers", "1", "--sd", "0.01", "--json", cwd=folder)
    (detects,) = json.loads(planned.stdout)["detects"]
    assert detects["sd"] == 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "quickstrt"], "'quickstart'"),
        (["run", "quickstart", "--arms", "x"], "--arms"),
        (["plan", "--prices", "3"], "--prices"),
        (["run", "quickstart", "--workers"], "run needs --workers"),
        (["export", "results", "out"], "export needs --trial"),
        (["rn"], "Unknown command"),
        (["run", "quickstart", "--set", "training.iteratons=3"], "'iterations'"),
        (["run", "quickstart", "--workers", "many"], "--workers"),
        (["status", "."], "results folder"),
    ],
)
def test_mistakes_get_one_line_and_two(arguments, message, tmp_path):
    done = verb(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("paribus: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_inside_a_verb_is_one_line(name, monkeypatch, capsys):
    monkeypatch.setattr("paribus.study.shipped_studies", lambda: signal.raise_signal(name))
    # A shell lets what it starts in the background ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["check"]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    error = capsys.readouterr().err
    assert error.startswith("paribus: interrupted;") and error.count("\n") == 1


def test_an_error_of_the_system_says_what_it_is_about(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os, sys; os.rmdir(os.getcwd()); from paribus.cli import main;"
        "sys.exit(main(['plan', './s.toml']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=gone, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    with open("/dev/full", "w") as full:
        verb = [sys.executable, "-m", "paribus", "check"]
        done = subprocess.run(verb, stdout=full, stderr=subprocess.PIPE, text=True)
    assert "space left" in done.stderr
