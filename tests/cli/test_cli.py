"""The command line as a person meets it: 80 columns, one line for a mistake, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
name = "tiny"
question = "Is this <b>bold</b> [red]idea[/red] any good?"
seeds = [1, 2]
data = {corpus = "text", path = "text.txt", seq_len = 16}
model = {n_layer = 1, n_head = 2, d_model = 16}
training = {iterations = 24, batch_size = 2}
[arms.baseline]
[arms.layernorm]
set."model.embedding.norm" = "layernorm"
"""


def paribus(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paribus", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=os.environ | {"COLUMNS": "80", "NO_COLOR": "1"},
        timeout=120,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text("all else equal, does it help? " * 60)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def test_help_names_every_verb_and_loads_nothing_heavy() -> None:
    done = paribus("--help")
    assert done.returncode == 0
    for verb in ("studies", "show", "run", "status", "report"):
        assert verb in done.stdout
    code = (
        "import sys, paribus.cli\n"
        "try: paribus.cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'scipy', 'numpy', 'pandas', 'altair', 'pyarrow', 'pydantic'}\n"
        "assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_importing_paribus_and_reading_results_loads_no_torch() -> None:
    code = (
        "import sys, paribus\n"
        "paribus.load_study('quickstart'), paribus.run, paribus.load_results\n"
        "import paribus.analysis, paribus.report, paribus.statistics\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_whole_way_from_the_command_line(folder: Path) -> None:
    ran = paribus("run", "study.toml", "--workers", "1", cwd=folder)
    assert ran.returncode == 0, ran.stderr
    assert max(map(len, ran.stdout.splitlines())) <= 120  # progress lines are not wrapped
    for words in ("4/4 trials", "validation loss", "layernorm", "all else equal?", "report.html"):
        assert words in ran.stdout
    results = folder / "results" / "tiny"
    assert (results / "report.html").is_file()
    assert (results / "tables" / "scores.csv").read_text().count("\n") == 5

    status = paribus("status", results, cwd=folder)
    assert "4 of 4 trials are finished" in status.stdout
    (results / "report.html").unlink()
    again = paribus("report", results, cwd=folder)
    assert again.returncode == 0
    assert (results / "report.html").is_file()
    assert max(map(len, again.stdout.splitlines()[:-1])) <= 80

    other = paribus("run", "study.toml", "--set", "training.iterations=25", cwd=folder)
    assert other.returncode == 2
    assert "different study (training.iterations: 24 there, 25 here)" in other.stderr

    (results / "trials" / "baseline" / "seed-1" / "evaluation.json").write_text("{}")
    tampered = paribus("report", results, cwd=folder)
    assert tampered.returncode == 2
    assert "evaluation.json was changed" in tampered.stderr


def test_show_says_what_differs_and_what_it_costs(folder: Path) -> None:
    shown = paribus("show", "study.toml", "--workers", "1", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    for words in ("none -> layernorm", "tokens per trial", "FLOP", "expected time", "training.opt"):
        assert words in shown.stdout
    assert "[red]idea[/red]" in shown.stdout  # text from a study file is not markup
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_studies_lists_what_ships() -> None:
    listed = paribus("studies")
    assert listed.returncode == 0
    for name in ("quickstart", "embedding-norm", "embedding-norm-pilot"):
        assert name in listed.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "quickstrt"], "did you mean 'quickstart'"),
        (["run"], "requires an argument"),
        (["rn"], "Unknown command"),
        (["run", "quickstart", "--set", "training.iteratons=3"], "did you mean 'iterations'"),
        (["run", "quickstart", "--set", "training"], "must be key=value"),
        (["run", "quickstart", "--workers", "many"], "--workers"),
        (["run", "quickstart", "--device", "tpu"], "--device"),
        (["run", "missing.toml"], "no study file"),
        (["status", "."], "no results folder"),
        (["report", "nowhere"], "no results folder"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    done = paribus(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("paribus: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not list(tmp_path.iterdir())
