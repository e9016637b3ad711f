"""The command line as a person meets it: 80 columns, one line for a mistake, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paribus.cli import VERBS

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
    for words in (
        "4/4 trials",
        "validation loss",
        "layernorm",
        "all else equal?",
        "report.html",
        "paper.pdf",
    ):
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
    assert max(map(len, again.stdout.splitlines()[:-2])) <= 80  # paths are not wrapped
    assert (results / "paper.pdf").read_bytes().startswith(b"%PDF")

    other = paribus("run", "study.toml", "--set", "training.iterations=25", cwd=folder)
    assert other.returncode == 2
    assert "different study (training.iterations: 24 there, 25 here)" in other.stderr

    (results / "trials" / "baseline" / "seed-1" / "evaluation.json").write_text("{}")
    tampered = paribus("report", results, cwd=folder)
    assert tampered.returncode == 2
    assert "evaluation.json was changed" in tampered.stderr


def test_registering_planning_analysing_deciding(folder: Path) -> None:
    registered = paribus("register", "study.toml", cwd=folder)
    assert registered.returncode == 0, registered.stderr
    results = folder / "results" / "tiny"
    assert (results / "registration.json").is_file()
    assert not (results / "trials").exists()
    early = paribus("analyse", results, cwd=folder)
    assert (early.returncode, early.stderr.count("\n")) == (2, 1)
    assert "no trial" in early.stderr

    edited = paribus("run", "study.toml", "--set", "inference.alpha=0.01", cwd=folder)
    assert edited.returncode == 2
    assert "inference.alpha: 0.05 there, 0.01 here" in edited.stderr

    assert paribus("run", "study.toml", "--workers", "1", cwd=folder).returncode == 0
    analysed = paribus("analyse", results, cwd=folder)
    assert analysed.returncode == 0, analysed.stderr
    for words in (
        "Holm p over the family",
        "sign-flip p",
        "Hedges g_z",
        "stability",
        "for new items",
    ):
        assert words in analysed.stdout
    assert max(map(len, analysed.stdout.splitlines())) <= 80
    analysis = json.loads((results / "analysis.json").read_text())
    assert len(analysis["contrasts"][0]["paired"]["pairs"]) == 2

    decided = paribus("decide", results, cwd=folder)
    assert "DESCRIPTIVE ONLY (row 1)" in decided.stdout
    verdict = json.loads((results / "verdict.json").read_text())[0]
    assert (verdict["row"], verdict["evidence"]["n"]) == (1, 2)

    planned = paribus("plan", "study.toml", "--pilot", results, "--workers", "1", cwd=folder)
    assert planned.returncode == 0, planned.stderr
    for words in ("tokens in all", "FLOPs per trial", "memory of a worker", "2 seed pairs detect"):
        assert words in planned.stdout
    assert "pilot" in planned.stdout
    stated = paribus("plan", "study.toml", "--sd", "1.0", "--workers", "1", cwd=folder)
    assert "warning" in stated.stdout


def test_the_baseline_against_itself(folder: Path) -> None:
    done = paribus("null", "study.toml", "--replicates", "2", "--workers", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "A/A: 2 replicates of 2 seed pairs" in done.stdout
    null = json.loads((folder / "results" / "tiny-null" / "null.json").read_text())
    assert len(null["p_values"]) == 2
    assert all(0 < p <= 1 for p in null["p_values"])
    assert null["rates"][0]["interval"]["high"] == 1 or null["rates"][0]["count"] < 2


def test_show_says_what_differs_and_what_it_costs(folder: Path) -> None:
    shown = paribus("show", "study.toml", "--workers", "1", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    for words in ("none -> layernorm", "tokens per trial", "FLOP", "expected time", "training.opt"):
        assert words in shown.stdout
    assert "[red]idea[/red]" in shown.stdout  # text from a study file is not markup
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_bench_prints_what_it_writes(folder: Path) -> None:
    """Every number of the tables, to the digits shown, is in the JSON."""
    arguments = ("--arm", "layernorm", "--workers", "1", "--stack", "1", "2", "--json", "b.json")
    done = paribus("bench", "study.toml", "--steps", "4", *arguments, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    found = json.loads((folder / "b.json").read_text())
    assert [row["stack"] for row in found["speeds"]] == [1, 2]
    machine = found["machine"]
    words = [found["date"], machine["packages"]["torch"], "tiny, layernorm", "float32", "4 steps"]
    words += [f"{machine['cores']} cores", "1 worker ", f"{found['parameters']:,} parameters"]
    for row in found["speeds"]:
        words += [f"{row['tokens_per_second']:,.0f}", f"{row['share']:.0%}"]
        words += [f"{row['memory_bytes'] / 2**20:,.0f}"]
    shown = " ".join(done.stdout.split())
    for word in (*words, *found["speeds"][0]["phase_seconds"], "held-out evaluation"):
        assert word in shown
    assert not (folder / "results").exists()


def test_help_of_bench_loads_no_torch() -> None:
    code = (
        "import sys, paribus.cli\n"
        "try: paribus.cli.main(['bench', '--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "--stack" in done.stdout


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
        (["bench", "--arm", "layrnorm"], "did you mean 'layernorm'"),
        (["bench", "--stack", "0"], "stack = 0 must be at least 1"),
        (["bench", "--steps", "1000"], "steps = 1000 must be from 1 to 97"),
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
