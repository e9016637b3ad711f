"""The store: whole files or none, seals that tell tampering, folders that hold one study."""

import shutil

import numpy as np
import pyarrow as pa
import pytest

from paribus.files import write_bytes
from paribus.results import ResultsFolder, TrialFolder, load_results
from paribus.results.formats import column, write_json, write_table
from paribus.results.read import answers_in
from paribus.schema import KEY, SCHEMA

from ..tools import refused


def test_failed_writes_leave_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_json(path, {"b": 1})

    def fails(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fails)
    with refused("system", match="space left"):
        write_bytes(path, b"new")
    assert path.read_text() == f'{{\n  "b": 1,\n  "{KEY}": {SCHEMA}\n}}\n'
    assert list(tmp_path.iterdir()) == [path]


def sealed(folder: TrialFolder) -> TrialFolder:
    for name in ("trial.json", "initial.json", "evaluation.json", "environment.json"):
        folder.write_json(name, {"name": name})
    folder.write_columns(
        "steps.parquet",
        {"step": np.arange(3), "train_loss": np.ones(3)},
    )
    wide = ("probes", "curve", "evaluation", "tasks", "items")
    for name in (f"{one}.parquet" for one in wide):
        folder.write_columns(name, {"step": np.arange(2)})
    folder.write_columns("blocks.parquet", {"correct": np.ones(2)})
    folder.write_weights({"w": np.ones((2, 2), np.float32)})
    folder.finish()
    return folder


@pytest.mark.parametrize(
    "name",
    ["trial.json", "steps.parquet", "weights.safetensors"],
)
def test_a_changed_or_missing_record_is_named(tmp_path, name):
    folder = sealed(TrialFolder(tmp_path / "t", "baseline", 1))
    content = (folder.path / name).read_bytes()
    (folder.path / name).write_bytes(content.replace(b"a", b"b", 1) + b" ")
    with refused("changed", match=f"{name} was changed"):
        folder.verify()
    (folder.path / name).unlink()
    with refused("changed", match=f"{name} is missing"):
        folder.verify()
    write_json(folder.path / "manifest.json", {})
    with refused("changed", match="every record"):
        folder.verify()


def test_a_folder_holds_one_study_with_its_arms_in_order(tmp_path, small_study):
    change = {"set": {"model.embedding.norm": "layernorm"}}
    study = small_study(arms={"zeta": {}, "alpha": change}, baseline="zeta")
    ResultsFolder(tmp_path / "ordered").create(study)
    read = ResultsFolder(tmp_path / "ordered").read_study()
    assert list(read.arms) == ["zeta", "alpha"] and read.digest == study.digest
    folder = ResultsFolder(tmp_path / "results")
    folder.create(small_study())
    folder.create(small_study(title="Better words"))  # describes, does not change
    assert folder.read_study().title == "Better words"
    with refused("different", match=r"iterations = 8,"):
        folder.create(small_study({"training.iterations": 9}))


@pytest.mark.parametrize("source", ["baseline/seed-1", "baseline/seed-2", "layernorm/seed-1"])
def test_a_copied_trial_is_no_trial(small_study, fabricate, source):
    results = fabricate(small_study(), lambda arm, seed: 2.0)
    target = results.path / "trials" / "rmsnorm" / "seed-1"
    shutil.rmtree(target)
    shutil.copytree(results.path / "trials" / source, target)
    with refused("changed", match="rmsnorm/seed-1"):
        load_results(results.path)


def test_other_folders_are_not_taken(tmp_path, small_study):
    (tmp_path / "file").write_text("x")
    with refused("different", match="a file"):
        ResultsFolder(tmp_path / "file").require_same(small_study())
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("x")
    with refused("different", match="contains files"):
        ResultsFolder(tmp_path / "home").require_same(small_study())
    with refused("missing", match="results folder"):
        load_results(tmp_path / "home")


@pytest.mark.parametrize(
    "values",
    [
        np.arange(20, dtype=np.int32)[::2],
        np.array([1.0, np.nan, 3.0], np.float32),
        np.full(9, np.nan),
        np.where(np.arange(100) % 7 == 0, np.nan, 1.0),
        np.array([True, False]),
        np.array(["a", "é日本", ""]),
        np.zeros(0, "U1"),
    ],
)
def test_a_column_is_what_pyarrow_makes_of_it(values):
    made, theirs = column(values), pa.array(values, mask=values != values)
    made.validate(full=True)
    assert made.type == theirs.type
    assert made.equals(theirs)


def test_answers_are_the_share_of_shots_in_the_order_asked(tmp_path):
    trial = ResultsFolder(tmp_path).trial("baseline", 1)
    asked = [(0, 7, True), (0, 2, False), (3, 7, False), (3, 2, False), (3, 9, True)]
    columns = {
        "task": ["typo"] * 5,
        "shots": [shots for shots, *_ in asked],
        "item": [item for _, item, _ in asked],
        "correct": [right for *_, right in asked],
    }
    write_table(trial.path / "items.parquet", pa.table(columns))
    answers = answers_in(trial.read_columns("items.parquet"))["typo"]
    np.testing.assert_array_equal(answers.right, [0.5, 0, 1])  # 7, 2 and 9
    assert answers.asked == 5
