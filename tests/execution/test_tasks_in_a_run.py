"""Tasks of a whole run: made before its registration, answered by every trial, and more of them."""

import json
import shutil
from pathlib import Path

import pytest

import paribus
from paribus.study import Study

from ..conftest import studies_in
from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")

WINDOW = 64


def study_in(folder: Path, **tasks: object) -> Study:
    """Tiny models on real text, which has enough of everything to ask about."""
    overrides = {
        "data.corpus": "pydoc",
        "data.path": None,
        "data.seq_len": WINDOW,
        "model.n_layer": 1,
        "arms": {"baseline": {}, "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}}},
        "tasks": {"items": 6, "shots": [0, 1]} | tasks,
    }
    return studies_in(folder)(overrides)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    return paribus.run(study_in(folder, names=["typo", "word_cut"]), folder / "r", workers=1)


def test_a_study_answers_its_share_and_can_answer_more(results):
    study = results.study
    assert results.tasks.num_rows == len(study.trials) * 2 * 2
    assert results.items.num_rows == len(study.trials) * 2 * 2 * 6
    cell = ["arm", "seed", "task", "shots"]
    shares = results.items.group_by(cell).aggregate([("correct", "sum")]).to_pylist()
    right = {tuple(row[key] for key in cell): row["correct_sum"] for row in shares}
    for row in results.tasks.to_pylist():
        assert row["accuracy"] == right[tuple(row[key] for key in cell)] / 6
    scores = {(s["arm"], s["seed"]): s["macro_accuracy"] for s in results.scores.to_pylist()}
    cells = [
        r["accuracy"] for r in results.tasks.to_pylist() if (r["arm"], r["seed"]) == ("baseline", 1)
    ]
    assert scores["baseline", 1] == pytest.approx(sum(cells) / 4)

    registered = json.loads((results.path / "registration.json").read_text())
    assert registered["tasks"]["names"] == ["typo", "word_cut"]
    about = results.trials["baseline", 1]["tasks"]
    assert about["pins"]["suite_sha256"] == registered["tasks"]["suite_sha256"]
    assert about["pins"]["version"] == "0.4.13"
    assert {c.state for c in results.controls if c.name == "questions"} == {"held"}
    assert len(paribus.analyse(results).tasks) == 2

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
