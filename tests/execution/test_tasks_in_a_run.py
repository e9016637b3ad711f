"""Tasks of a whole run, our own and the harness's on stand-ins laid out as the hub's: made before
its registration, answered by every trial, and more of them."""

import json
import shutil
from pathlib import Path

import pytest

import paribus
from paribus.engine.evaluation.harness.standard import describe_standard
from paribus.engine.execution.start import read_data, settled_tasks
from paribus.engine.execution.trial.record import ask_tasks
from paribus.engine.tasks import STANDARD_FILE
from paribus.results import ResultsFolder
from paribus.results.formats import write_json
from paribus.study import Study
from paribus.verification.verify import registration_findings

from ..conftest import studies_in
from ..evaluation.harness.conftest import Uniform
from ..standins import write_hub
from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")

WINDOW = 64
OWN, STANDARD = ["typo", "word_cut"], ["lambada_openai", "piqa"]
TASKS = {"names": OWN, "items": 6, "shots": [0, 1], "standard": STANDARD, "standard_data": "hub"}


def study_in(folder: Path, **tasks: object) -> Study:
    """Tiny models on real text, which has enough of everything to ask about."""
    overrides = {
        "data.corpus": "pydoc",
        "data.path": None,
        "data.seq_len": WINDOW,
        "model.n_layer": 1,
        "arms": {"baseline": {}, "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}}},
        "endpoints": [
            {"metric": "macro_accuracy", "primary": True, "margin": 0.1},
            {"metric": "task_accuracy/piqa"},
        ],
        "tasks": TASKS | tasks,
    }
    return studies_in(folder)(overrides, seeds=[1])


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    write_hub(folder / "hub")
    return paribus.run(study_in(folder), folder / "r", workers=1)


def test_a_study_answers_its_share(results):
    cell = ["arm", "seed", "task", "shots"]
    shares = results.items.group_by(cell).aggregate([("correct", "mean"), ("item", "count")])
    answered = {tuple(row[key] for key in cell): row for row in shares.to_pylist()}
    tasks: dict[tuple[str, str], list[float]] = {}
    for row in results.tasks.to_pylist():
        share = answered[tuple(row[key] for key in cell)]
        assert row["accuracy"] == pytest.approx(share["correct_mean"])
        assert share["item_count"] == (6 if row["task"] in OWN else 2)
        tasks.setdefault((row["arm"], row["task"]), []).append(row["accuracy"])
    for row in results.scores.to_pylist():
        by_task = {task: tasks[row["arm"], task] for task in (*OWN, *STANDARD)}
        means = [sum(accuracies) / len(accuracies) for accuracies in by_task.values()]
        assert row["macro_accuracy"] == pytest.approx(sum(means) / 4)
        assert row["task_accuracy/piqa"] == pytest.approx(means[-1])
        assert {len(by_task[task]) for task in OWN} == {2}

    registered = json.loads((results.path / "registration.json").read_text())["tasks"]
    assert registered["names"] == OWN and list(registered["standard"]) == STANDARD
    piqa = registered["standard"]["piqa"]
    assert piqa["dataset"] == "baber/piqa" and piqa["documents"] == 2
    assert len(piqa["data_sha256"]) == 64 and isinstance(piqa["version"], int | float)
    for trial in results.trials.values():  # asked of the very data that were registered
        pins = trial["tasks"]["pins"]
        assert pins["tasks"]["piqa"] == piqa and pins["version"] == "0.4.13"
        assert pins["suite_sha256"] == registered["suite_sha256"]
    contrasts = paribus.analyse(results).tasks
    assert {contrast.declared.task for contrast in contrasts} == {*OWN, *STANDARD}
    assert {c.state for c in results.controls if c.name == "questions"} == {"held"}
    assert not [line for line in registration_findings(results) if "tasks" in line]


def test_a_study_can_answer_more(results):
    more = paribus.evaluate(results.path, tasks=["real_word"], shots=[0, 3], workers=2)
    assert set(more.tasks["shots"].to_pylist()) == {0}  # three do not fit the window
    assert set(more.tasks["task"].to_pylist()) == {"real_word"}
    before = {path: path.stat().st_mtime_ns for path in more.path.rglob("about.json")}
    again = paribus.evaluate(results.path, tasks=["real_word"], shots=[0, 3])
    assert again.tasks.equals(more.tasks)  # answered already: nothing is asked twice
    assert before == {path: path.stat().st_mtime_ns for path in more.path.rglob("about.json")}
    paribus.load_results(results.path)  # what was sealed is as it was
    # Nor is an answer taken that somebody changed: a table of one trial in another's place.
    one, other = sorted(more.path.glob("trials/*/*/items.parquet"))[:2]
    one.write_bytes(other.read_bytes())
    with pytest.raises(paribus.ParibusError, match=r"items\.parquet"):
        paribus.evaluate(results.path, tasks=["real_word"], shots=[0, 3])

    for wrong, code in (
        ({"tasks": ["real_wurd"]}, "unknown"),
        ({"tasks": ["agreement"]}, "too_few"),
        ({"shots": [40]}, "value"),
    ):
        with refused(code):
            paribus.evaluate(results.path, workers=1, **wrong)


def test_a_suite_that_was_changed_is_not_asked(results, tmp_path):
    changed = shutil.copytree(results.path, tmp_path / "r")
    with (changed / "tasks" / "typo.jsonl").open("a") as file:
        file.write('{"context": "a", "choices": ["b", "c"], "answer": 0}\n')
    with pytest.raises(paribus.ParibusError, match=r"typo\.jsonl"):
        paribus.run(results.study, changed, workers=1)


def test_a_finished_study_runs_on_without_its_data_sets(results, tmp_path):
    study = study_in(tmp_path)  # where there is no folder "hub"
    registered = settled_tasks(study, ResultsFolder(results.path), read_data(study))
    assert list(registered["standard"]) == STANDARD


def test_other_data_than_registered_stop_the_run(dataset, tmp_path):
    write_hub(tmp_path / "hub")
    study = study_in(tmp_path, names=[], standard=["piqa"], shots=[0])
    model = Uniform(dataset.vocab_size)
    described = describe_standard(["piqa"], (0,), None, tmp_path / "hub")
    write_json(tmp_path / STANDARD_FILE, described)
    answers = ask_tasks(study, model, dataset, WINDOW, tmp_path)
    assert answers is not None and {row["task"] for row in answers.cells} == {"piqa"}
    described["piqa"]["data_sha256"] = "0" * 64
    write_json(tmp_path / STANDARD_FILE, described)
    with pytest.raises(paribus.ParibusError, match=r"'piqa'.*data_sha256"):
        ask_tasks(study, model, dataset, WINDOW, tmp_path)
