"""The command line as a person meets it: 80 columns, one line for a mistake, exit codes."""

import contextlib
import json
import shutil
import signal
import subprocess
import sys

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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a study."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("all else equal, does it help? " * 60)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


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
        "import paribus.statistics\n"
        "assert not {'torch', 'scipy.stats', 'pandas', 'statsmodels'} & sys.modules.keys()\n"
        "paribus.load_study('quickstart'), paribus.run, paribus.load_results\n"
        "import paribus.analysis, paribus.report\n"
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
        (("report", "--no-page", home), "no finished trial"),
        (("run", "study.toml", "--set", "inference.alpha=0.01"), "inference.alpha = 0.05"),
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

    assert "= 24, not 25" in verb("run", "study.toml", "--set", "training.iterations=25")[2]
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
    for words in ("tokens", "FLOPs", "device-hours", "pilot", "4e+13", "time on 1 device"):
        assert words in planned
    half = plan("--utilisation", "0.5", "--count", "8", "--price", "2.5")
    assert all(words in half for words in ("5e+13", "time on 8 devices", "price"))
    assert "warning" in plan("--sd", "1.0") and "0.0100" in plan("--sd", "0.01")


def test_error_rates_are_those_of_studies_of_the_baseline_against_itself(folder, monkeypatch):
    def train(study, path, _where):
        """Train nothing; the first study has an effect by chance."""
        effect = 1.0 * path.name.endswith("1")
        loss = lambda arm, seed: 2.0 + effect * (arm != "baseline") + seed**2 % 7 / 1e3  # noqa: E731
        return write_results(path, study, lambda arm, seed: loss(arm, seed) + len(arm) * seed / 1e3)

    monkeypatch.setattr("paribus.cli.commands.train", train)
    code, out, err = verb("run", "study.toml", "--null", "2", "--set", "seeds=[1, 2, 3, 4, 5]")
    assert code == 0, err
    assert "1.3% to 98.7%" in out.replace("\n", " ")
    assert (folder / "results" / "tiny-null" / "2" / "study.json").exists()


def test_check_says_what_differs(folder):
    with in_one_process():
        code, out, err = verb("check", "study.toml")
    assert code == 0, err
    for words in ("none → layernorm", "FLOPs", "ran one step"):
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


OWN = """
import sys, warnings
from torch import nn

class Refused(nn.Module):
    def __init__(self, model):
        print("a library that talks", file=sys.stderr)
        warnings.warn("and warns")
        super().__init__()

    def forward(self, x):
        return x[..., :1]
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("run quickstrt", "'quickstart'"),
        ("run quickstart --arms x", "--arms"),
        ("run quickstart --workers", "--workers"),
        ("plan quickstart --count 8", "require --tflops"),
        ("plan quickstart --tflops 989 --utilisation 1.5", "--utilisation"),
        ("plan quickstart --tflops 989 --workers 2", "--count"),
        ("export results out", "--trial"),
        ("rn", "Unknown command"),
        ("run quickstart --set training.iteratons=3", "'iterations'"),
        ("run quickstart --workers many", "--workers"),
        ("status .", "results folder"),
        ("run syntax.toml", "valid TOML"),
        ("run study.toml --set data.path=nowhere.txt", "not exist"),
        ("run study.toml --set decision.rule=luck", "'luck'"),
        ("run study.toml --set model.modules.mlp=own.py:Refused", "must return (2, 16, 16)"),
        ("run study.toml --results other", "no study"),
        ("run study.toml --results text.txt/deeper", "cannot write"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(arguments, words, folder, caplog):
    (folder / "own.py").write_text(OWN)
    (folder / "syntax.toml").write_text("[")
    (folder / "other").mkdir()
    (folder / "other" / "letter.txt").touch()
    before = sorted(folder.rglob("*"))
    talks = "own.py" in arguments  # and so needs a process of its own
    with contextlib.nullcontext() if talks else in_one_process():
        code, out, err = verb(*arguments.split())
    # Warnings, of which a study of two seeds has some, come once nothing refuses it.
    assert (code, out, err.count("\n")) == (2, "", 1) and not caplog.messages
    assert err.startswith("paribus: ") and words in err
    left = [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts]
    assert left == before


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
