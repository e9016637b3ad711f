"""A results folder may be anybody's: reading it runs nothing of it, and running it takes a word."""

import json
from contextlib import chdir

import pytest

import paribus
from paribus.cli import main
from paribus.engine.execution.start import estimate, read_data
from paribus.engine.tasks import read_suite, write_suite
from paribus.results import ResultsFolder
from paribus.runs.queue import Task
from paribus.runs.run import ask
from paribus.study import load_study, require_trust

from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")

CODE = """
from pathlib import Path
(Path(__file__).parent / "it-ran").write_text("")
from torch import nn
class Nothing(nn.Identity):
    def __init__(self, model):
        super().__init__()
"""
SITE = "model.modules.attention"


@pytest.fixture
def stranger(small_study, fabricate):
    """A results folder as a stranger sends it: its study names code, which lies in the folder."""
    changes = {"set": {SITE: "own.py:Nothing"}}
    study = small_study(arms={"baseline": {}, "own": changes}, seeds=[1, 2, 3])
    (study.folder / "own.py").write_text(CODE)
    path = fabricate(study, lambda arm, seed: 3.0 + seed / 100).path
    (path / "own.py").write_text(CODE)
    return path


@pytest.mark.parametrize("verb", [["status"], ["report", "--no-pdf"]])
def test_verbs_that_read_run_nothing(verb, stranger, tmp_path):
    with chdir(tmp_path):
        main([*verb, str(stranger)])
    assert not (stranger / "it-ran").exists()


@pytest.mark.parametrize("verb", ["check", "plan", "register", "run", "evaluate", "export"])
def test_verbs_that_run_name_the_code_and_refuse(verb, stranger, tmp_path, capsys):
    target = stranger if verb in ("evaluate", "export") else stranger / "study.json"
    more = {"export": ["out", "--trial", "baseline/seed-1"]}
    before = sorted(stranger.rglob("*"))
    with chdir(tmp_path):
        code = main([verb, str(target), *more.get(verb, [])])
    assert code == 2
    said = capsys.readouterr().err
    assert "own.py:Nothing" in said and "--trust" in said
    assert said.count("\n") == 1
    assert [path for path in sorted(stranger.rglob("*")) if path.name != ".lock"] == before


def test_the_guard_stands_where_workers_start(stranger):
    read = paribus.load_results(stranger).study
    for study in (
        read,
        ResultsFolder(stranger).read_study(),
        load_study(stranger / "study.json"),
        load_study(stranger / "study.json", {"training.iterations": 9}),
    ):
        with refused("untrusted", match="pass --trust"):
            ask(study, stranger, [])
    trusted = load_study(stranger / "study.json", {"training.iterations": 9}, trust=True)
    require_trust(trusted)
    require_trust(paribus.load_results(stranger, trust=True).study)


def test_an_own_corpus_is_custom_code(stranger):
    study = load_study(stranger / "study.json", {"data.corpus": "own.py:texts", "data.path": None})
    for read in (read_data, estimate):
        with refused("untrusted", match=r"own\.py:texts"):
            read(study)
    assert not (stranger / "it-ran").exists()


def test_code_is_named_without_importing_it(stranger):
    table = json.loads((stranger / "study.json").read_text())
    table["model"]["modules"] = {"attention": "antigravity.py:Nothing", "mlp": "none.py:X"}
    table["probes"]["own"] = [f"p{i}.py:x" for i in range(9)]
    (stranger / "study.json").write_text(json.dumps(table))
    with refused("untrusted", match="and 8 more") as e:
        require_trust(load_study(stranger / "study.json"))
    assert "none.py" in str(e.value)


def test_workers_import_nothing_from_the_folder(small_study, tmp_path):
    """`cd` into a stranger's folder and `paribus evaluate .`: its torch.py must not run."""
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    for name in ("torch.py", "numpy.py", "paribus.py"):
        (stranger / name).write_text("raise SystemExit(f'{__file__} ran')")
    study = small_study()
    task = Task("machine", "machine", "at the start", "")
    with chdir(stranger):
        (machine,) = ask(study, tmp_path / "r", [task], device="cpu")
    assert machine["device"] == "cpu"


def test_a_suite_that_was_not_registered_is_not_asked(small_study, fabricate, dataset):
    path = fabricate(small_study(seeds=[1, 2]), lambda arm, seed: 3.0).path
    write_suite(path / "tasks", dataset, 0, 64, n_least=20)
    registered = json.loads((path / "registration.json").read_text())
    registered["tasks"] = {"suite_sha256": "0" * 64, "names": ["typo"], "left_out": {}}
    (path / "registration.json").write_text(json.dumps(registered))
    with refused("changed", match="registered"):
        paribus.evaluate(path, workers=1)
    assert read_suite(path / "tasks").digest != "0" * 64
