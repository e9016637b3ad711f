"""The user's own measures and tasks in a whole run: recorded, kept, and refused where they fail."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest
import torch

import paribus
from paribus.analysis import analyse
from paribus.engine.check import check_arm
from paribus.engine.data import load_dataset
from paribus.engine.tasks import own_tasks, write_suite
from paribus.report.figures import draw
from paribus.results import ResultsFolder, read_registration
from paribus.study import Study
from paribus.study.trust import custom_code

from ..conftest import studies_in
from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")

IDEAS = """
import itertools
import numpy as np
from paribus.engine.evaluation import measure
from paribus.engine.tasks import Question, task

@measure("surprise", unit="share")
def surprise(predictions):
    return (predictions.loss_nats > 1).sum(), len(predictions)

def halves(seq_len):
    return "first", "second"

@measure("by_half", unit="share", parts=(halves,))
def by_half(predictions):
    half = predictions.position >= predictions.seq_len // 2
    return [
        (predictions.correct[half == late].sum(), (half == late).sum()) for late in (False, True)
    ]

@measure("raises", unit="1")
def raises(predictions):
    raise KeyError("no such thing")

@measure("meddles", unit="1")
def meddles(predictions):
    predictions.loss_nats[:] = 0
    return 1.0, 1

def plain(predictions):
    return 1.0

@task("last_letter", n_choices=2)
def last_letter(held_out, rng, length):
    for site in held_out.sites(rng, length - 8, 8):
        yield Question(site.context, site.span, (site.span[:-1] + "z",))

@task("uneven", n_choices=2)
def uneven(held_out, rng, length):
    yield Question("context", "right", ("wrong one",))

@task("typo", n_choices=2)
def typo(held_out, rng, length):
    return iter(())

"""


def study_in(folder: Path, *measures: str, precision: str = "float32", **tables: object) -> Study:
    (folder / "ideas.py").write_text(IDEAS)
    own = {"own": [f"ideas.py:{name}" for name in measures], "precision": precision}
    return studies_in(folder)(evaluation=own, **tables)


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run with two own measures and an own task; `ideas.py` lies beside it."""
    folder = tmp_path_factory.mktemp("measured")
    study = study_in(
        folder,
        *("surprise", "by_half"),
        precision="bfloat16",
        data={"corpus": "text", "path": "text.txt", "seq_len": 32},
        tasks={"own": ["ideas.py:last_letter"], "items": 8},
        endpoints=[
            {"metric": "task_accuracy/last_letter", "primary": True, "margin": 0.05},
            {"metric": "task_accuracy/typo"},
            {"metric": "surprise"},
        ],
        inference={"target": "new items"},
        arms={"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
    )
    return paribus.run(study, folder / "r", workers=1)


def test_an_own_task_is_an_endpoint(measured):
    analysis = analyse(measured)
    contrast = analysis.contrast("layernorm", "task_accuracy/last_letter")
    declared = contrast.declared
    assert (declared.label, declared.better) == ("task accuracy: last_letter", "higher")
    cells: dict[tuple[str, int], list[float]] = {}
    for row in measured.tasks.to_pylist():
        if row["task"] == "last_letter":
            cells.setdefault((row["arm"], row["seed"]), []).append(row["accuracy"])
    scores = {
        (row["arm"], row["seed"]): row["task_accuracy/last_letter"]
        for row in measured.scores.to_pylist()
    }
    assert scores == {key: pytest.approx(np.mean(values)) for key, values in cells.items()}
    assert contrast.by_run and contrast.items_about
    expected = np.mean([scores["layernorm", s] - scores["baseline", s] for s in (1, 2)])
    assert contrast.by_run.mean == pytest.approx(expected)
    assert contrast.decided.mean == pytest.approx(expected)
    assert "pairs-task_accuracy-last_letter" in {f.name for f in draw(measured, analysis)}
    # Measures that have parts alone are no columns of numbers that are not there.
    assert "by_half" not in measured.scores.column_names


def test_own_measures_and_tasks_are_recorded_with_their_source(measured):
    table = measured.evaluation
    for name, parts in (("surprise", {"all"}), ("by_half", {"first", "second"})):
        own = table.filter(pc.equal(table["measure"], name))
        assert set(own["part"].to_pylist()) == parts
        assert len(own) == len(measured.study.trials) * len(parts)
    first = measured.finished[0]
    assert first.read_json("evaluation.json")["surprise"] > 0
    assert "last_letter" in measured.tasks["task"].to_pylist()

    trial = measured.trials[first.arm, first.seed]
    assert trial["own_measures"].keys() == {"ideas.py:surprise", "ideas.py:by_half"}
    assert list(trial["own_tasks"]) == ["ideas.py:last_letter"]
    known = read_registration(ResultsFolder(measured.path))
    assert known["own_measures"] == trial["own_measures"]
    assert (measured.path / "sources" / "ideas.py").is_file()
    assert custom_code(measured.study) == (
        *("ideas.py:surprise", "ideas.py:by_half", "ideas.py:last_letter"),
    )


@pytest.mark.parametrize("name", ["raises", "meddles"])
def test_a_bad_measure_fails_in_the_dry_run(name, tmp_path):
    study = study_in(tmp_path, name)
    dataset = load_dataset(study.data, study.folder)
    with refused("own_code", match=name):
        check_arm(study, "baseline", dataset, torch.device("cpu"), 1)


@pytest.mark.parametrize(
    ("name", "code"),
    [("uneven", "own_code"), ("typo", "value"), ("plain", "unknown"), ("odd_name", "own_code")],
)
def test_a_bad_task_is_refused(name, code, tmp_path):
    study = study_in(tmp_path)
    if name == "odd_name":
        (tmp_path / "ideas.py").write_text(IDEAS + '\ntask("odd name", n_choices=2)(uneven)\n')
        name = "uneven"
    dataset = load_dataset(study.data, study.folder)
    with refused(code):
        own = own_tasks([f"ideas.py:{name}"], study.folder)
        write_suite(tmp_path / "tasks", dataset, 0, 32, n_least=8, own=own)
