"""README and documentation are true: examples run, the tree is the tree, verbs are verbs."""

import re

import pytest
import torch

import paribus
from paribus.engine.check import check_arm
from paribus.engine.data import CharacterTokenizer, load_dataset
from paribus.engine.model import count_parameters
from paribus.engine.probes import study_probes
from paribus.engine.training import Trainer
from paribus.study import Study

from .test_documentation import FENCE, PAGES, ROOT

README = "\n".join(page.read_text() for page in PAGES)

# What the pages' fragments are put into.
STUDY = """name = "averages"
seeds = [1, 2, 3, 4, 5]

[data]
corpus = "text"
path = "my-text.txt"

[training]
iterations = 100

"""


def block(language: str, containing: str) -> str:
    blocks = FENCE.findall(README)
    return next(text for kind, text in blocks if kind == language and containing in text)


@pytest.fixture
def written(tmp_path):
    """`written(tables, code)`: the study of these tables, beside its text and `ideas.py`."""

    def write(tables: str, code: str) -> Study:
        (tmp_path / "study.toml").write_text(STUDY + tables)
        (tmp_path / "ideas.py").write_text(code)
        (tmp_path / "my-text.txt").write_text("all else equal " * 200)
        return paribus.load_study(tmp_path / "study.toml")

    return write


def test_the_own_idea_of_the_readme_can_be_run(written, tmp_path):
    tables = block("toml", "ideas.py:CausalAverage")
    study = written(tables, block("python", "class CausalAverage"))
    vocab_size = CharacterTokenizer.from_text("all else equal ").vocab_size
    parameters = {
        arm: count_parameters(study.setting(arm), vocab_size, study.folder) for arm in study.arms
    }
    assert parameters["baseline"] == parameters["average"] + 8 * 2 * (128 * 128 + 128)
    dataset = load_dataset(study.data, tmp_path)
    (warning,) = check_arm(study, "average", dataset, torch.device("cpu"), 1)
    assert "has only 300 tokens (2 windows)" in warning


def test_the_own_probe_of_the_readme_measures(written, tmp_path):
    tables = "[arms.baseline]\n" + block("toml", "[probes]")
    study = written(tables, block("python", "def quiet"))
    probes = {probe.name: probe for probe in study_probes(study)}
    assert "logits" not in probes
    assert probes["residual_norm"].every == 5
    own = probes["quiet_units"]
    stack = Trainer(
        study.setting("baseline"), [1, 2], load_dataset(study.data, tmp_path), probes=[own]
    )
    stack.step()
    measured = stack.state(1).measured[0, -2:]
    assert 0 < measured[0] < measured[1] <= 1
    assert len(block("python", "def quiet").strip().splitlines()) <= 14


def test_the_own_optimizer_and_loss_of_the_readme_train(written, tmp_path):
    arms = block("toml", "[arms.signum]") + block("toml", "[arms.confident]")
    ideas = block("python", "def signum") + block("python", "def confident")
    study = written("[model]\nn_layer = 1\n[arms.baseline]\n" + arms, ideas)
    dataset = load_dataset(study.data, tmp_path)
    for arm, slots in (
        ("signum", {"momentum_buffer"}),
        ("confident", {"exp_avg", "exp_avg_sq"}),
        ("muon", {"momentum_buffer", "exp_avg", "exp_avg_sq"}),
    ):
        trainer = Trainer(study.setting(arm), [1, 2], dataset, folder=tmp_path)
        trainer.step()
        assert trainer.replicas.slots.keys() == slots
        assert ("train_objective" in trainer.columns) == (arm == "confident")


@pytest.mark.skipif(not (ROOT / "src").exists(), reason="needs a checkout")
def test_the_tree_is_the_tree():
    tree = block("", "study/        what a study is")
    listed = set(re.findall(r"^  (\w[\w./]+)", tree, flags=re.MULTILINE))
    there = {
        path.name + ("/" if path.is_dir() else "")
        for path in (ROOT / "src" / "paribus").iterdir()
        if not path.name.startswith(("_", "py.typed"))
    }
    assert listed == there


def test_links_and_pictures_lead_somewhere():
    pages = [*PAGES, *(ROOT / "studies").glob("*.md"), ROOT / "SECURITY.md"]
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text())
        if "://" not in link
    ]
    assert len(links) > 20
    assert [
        f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()
    ] == []
