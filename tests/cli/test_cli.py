"""The command line as a person meets it: 80 columns, one line for a mistake, exit codes."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paribus.cli import VERBS, main
from paribus.study import load_study, shipped_studies
from paribus.study.load import EXAMPLES

from ..build import write_results
from ..tools import in_one_process, verb

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


def write_study(folder: Path) -> Path:
    (folder / "text.txt").write_text("all else equal, does it help? " * 60)
    (folder / "study.toml").write_text(STUDY)
    return folder


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a study."""
    monkeypatch.chdir(tmp_path)
    return write_study(tmp_path)


@pytest.fixture
def results(folder):
    """Results of the study, made up."""
    study = load_study(folder / "study.toml")
    return write_results(folder / "r", study, lambda arm, seed: 2.0 + seed / len(arm)).path


def test_help_names_every_verb_and_nothing_heavy_is_loaded_before_it_is_needed():
    code = (
        "import sys, paribus.cli\n"
        "paribus.cli.main(['--help'])\n"
        "heavy = {'torch', 'scipy', 'numpy', 'pandas', 'altair', 'pyarrow', 'pydantic'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()\n"
        "assert dir(paribus) == sorted([*paribus.__all__, '__version__'])\n"
        "paribus.load_study('quickstart'), paribus.run, paribus.load_results\n"
        "import paribus.analysis, paribus.report, paribus.statistics\n"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert [name for name in VERBS if f" {name} " not in shown] == []


def test_the_whole_way_from_the_command_line(folder):
    code, out, err = verb("register", "study.toml")
    assert code == 0, err
    told = " ".join(out.split())
    assert told.count("warning: ") == 1 and "superiority" in told
    home = folder / "results" / "tiny"
    assert (home / "registration.json").is_file() and not (home / "trials").exists()
    for arguments, word in (
        (("report", "--no-page", home), "no trial"),
        (("run", "study.toml", "--set", "inference.alpha=0.01"), "inference.alpha: 0.05"),
    ):
        code, out, err = verb(*arguments)
        assert (code, out, err.count("\n")) == (2, "", 1) and word in err

    with in_one_process():
        code, ran, err = verb("run", "study.toml", "--workers", "1")
    assert code == 0, err
    for word in ("4/4 trials", "DESCRIPTIVE  layernorm", "8 of 9 controls", "report.html"):
        assert word in ran
    assert (home / "report.pdf").read_bytes().startswith(b"%PDF")
    (home / "report.html").unlink()
    code, again, _ = verb("report", home, "--verbose", "--no-pdf")
    assert code == 0 and (home / "report.html").is_file()
    *lines, page = again.splitlines()
    assert page.startswith("page: ")  # paths are not wrapped
    assert max(map(len, lines)) <= 80
    card = ran[ran.index("Is this") : ran.index("page: ")]
    assert "\n".join(card.splitlines()[:3]) in again
    assert "else equal?" in again and "else equal?" not in card

    assert "24 there, 25 here" in verb("run", "study.toml", "--set", "training.iterations=25")[2]
    (home / "trials" / "baseline" / "seed-1" / "evaluation.json").write_text("{}")
    code, _, err = verb("report", home)
    assert code == 2 and "evaluation.json" in err


def test_a_verdict_that_is_invalid_exits_3(results):
    shutil.rmtree(results / "trials" / "layernorm" / "seed-2")
    status = json.loads(verb("status", results, "--json")[1])
    assert status["schema_version"] == 1 and status["unfinished"] == ["layernorm/seed-2"]
    code, out, err = verb("report", "--no-page", results)
    assert (code, err) == (3, "") and "INVALID" in out


def test_planning(results):
    def plan(*how: object) -> str:
        code, out, err = verb("plan", "study.toml", "--tflops", "100", *how)
        assert code == 0, err
        return out

    planned = plan("--pilot", results)
    for words in ("tokens", "FLOPs", "device-hours", "pilot"):
        assert words in planned
    assert "warning" in plan("--sd", "1.0") and "0.0100" in plan("--sd", "0.01")


def test_check_says_what_differs(folder):
    with in_one_process():
        code, out, err = verb("check", "study.toml")
    assert code == 0, err
    for words in ("none → layernorm", "FLOPs", "was tried"):
        assert words in out
    assert "[red]idea[/red]" in out  # text from a study file is not markup
    assert max(map(len, out.splitlines())) <= 80
    assert not (folder / "results").exists()


def test_check_without_a_study_lists_what_ships():
    code, out, _ = verb("check")
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    rows = [line.split() for line in out.splitlines() if "  " in line.strip()]
    names = list(shipped_studies())
    assert names[0] == "quickstart" and set(names) < {row[0] for row in rows}
    assert {file.stem for file in EXAMPLES.rglob("*.toml")} == set(names)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "quickstrt"], "'quickstart'"),
        (["run", "quickstart", "--arms", "x"], "--arms"),
        (["plan", "--prices", "3"], "--prices"),
        (["plan", "quickstart", "--price", "-1"], "--price"),
        (["plan", "quickstart", "--tflops", "0"], "--tflops"),
        (["run", "quickstart", "--workers"], "--workers"),
        (["export", "results", "out"], "--trial"),
        (["rn"], "Unknown command"),
        (["run", "quickstart", "--set", "training.iteratons=3"], "'iterations'"),
        (["run", "quickstart", "--workers", "many"], "--workers"),
        (["status", "."], "results folder"),
    ],
)
def test_mistakes_get_one_line_and_two(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = verb(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("paribus: ") and message in err
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
    assert error.startswith("paribus: interrupted") and error.count("\n") == 1


def test_a_folder_that_is_gone_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(["plan", "./s.toml"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
