"""The harness's own tasks as a registered part of a study: on stand-ins laid out as the hub's."""

import json
from pathlib import Path

import pytest

import paribus
from paribus.engine.evaluation.harness.standard import describe_standard
from paribus.engine.execution.start import settled_tasks
from paribus.engine.execution.trial.record import ask_tasks
from paribus.engine.tasks import STANDARD_FILE
from paribus.results import ResultsFolder
from paribus.results.formats import write_json
from paribus.study import Study
from paribus.verification.verify import registration_findings

from ..conftest import studies_in
from ..evaluation.harness.conftest import Uniform
from ..standins import write_hub

pytestmark = pytest.mark.usefixtures("one_process")

ASKED = ["lambada_openai", "piqa"]
ARMS = {"baseline": {}, "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}}}


def study_in(folder: Path, **tasks: object) -> Study:
    overrides = {
        "data.corpus": "pydoc",
        "data.path": None,
        "data.seq_len": 64,
        "model.n_layer": 1,
        "arms": ARMS,
        "endpoints": [
            {"metric": "macro_accuracy", "primary": True, "margin": 0.1},
            {"metric": "task_accuracy/piqa"},
        ],
        "tasks": {"names": ["typo"], "items": 4, "shots": [0, 1], "standard": ASKED}
        | {"standard_data": "hub"}
        | tasks,
    }
    return studies_in(folder)(overrides, seeds=[1])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("standard")
    write_hub(folder / "hub")
    return paribus.run(study_in(folder), folder / "r", workers=1)


def test_standard_tasks_are_registered_and_part_of_macro_accuracy(results):
    registered = json.loads((results.path / "registration.json").read_text())
    tasks = registered["tasks"]
    assert tasks["names"] == ["typo"] and list(tasks["standard"]) == ASKED
    piqa = tasks["standard"]["piqa"]
    assert piqa["dataset"] == "baber/piqa" and piqa["documents"] == 2
    assert len(piqa["data_sha256"]) == 64 and isinstance(piqa["version"], int | float)
    for trial in results.trials.values():  # asked of the very data that were registered
        assert trial["tasks"]["pins"]["tasks"]["piqa"] == piqa
        assert trial["tasks"]["pins"]["suite_sha256"] == tasks["suite_sha256"]
    cells = {}
    for row in results.tasks.to_pylist():
        cells.setdefault((row["arm"], row["task"]), []).append(row["accuracy"])
    for row in results.scores.to_pylist():
        means = [sum(cells[row["arm"], task]) / len(cells[row["arm"], task])
                 for task in ("typo", *ASKED)]  # fmt: skip
        assert row["macro_accuracy"] == pytest.approx(sum(means) / 3)
        assert row["task_accuracy/piqa"] == pytest.approx(means[2])
    analysis = paribus.analyse(results)
    tasks = {contrast.metric.removeprefix("task_accuracy/") for contrast in analysis.tasks}
    assert tasks == {"typo", *ASKED}
    controls = {c.name: c.state for c in results.controls if c.arm == "rmsnorm"}
    assert controls["questions"] == "held"
    assert not [line for line in registration_findings(results) if "tasks" in line]


def test_a_finished_study_runs_on_without_its_data_sets(results, tmp_path):
    study = study_in(tmp_path)  # where there is no folder "hub"
    registered = settled_tasks(study, ResultsFolder(results.path), _datasets(study))
    assert list(registered["standard"]) == ASKED


def _datasets(study: Study) -> dict:
    from paribus.engine.data import load_dataset

    return {study.data: load_dataset(study.data, study.folder)}


def test_other_data_than_registered_stop_the_run(dataset, tmp_path):
    write_hub(tmp_path / "hub")
    study = study_in(tmp_path, names=[], standard=["piqa"], shots=[0])
    model = Uniform(dataset.vocab_size)
    described = describe_standard(["piqa"], (0,), None, tmp_path / "hub")
    write_json(tmp_path / STANDARD_FILE, described)
    answers = ask_tasks(study, model, dataset, 64, tmp_path)
    assert answers is not None and {row["task"] for row in answers.cells} == {"piqa"}
    described["piqa"]["data_sha256"] = "0" * 64
    write_json(tmp_path / STANDARD_FILE, described)
    words = "'piqa'.*data_sha256"
    with pytest.raises(paribus.ParibusError, match=words):
        ask_tasks(study, model, dataset, 64, tmp_path)
