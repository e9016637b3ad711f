"""`paribus verify`: what agrees passes, and each thing that does not is found and named."""

import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import paribus
from paribus.cli import main
from paribus.results import ResultsFolder, TrialFolder
from paribus.results.formats import read_json, write_json, write_table
from paribus.results.registration import supersede
from paribus.results.store import root_digest
from paribus.verification.scores import score_findings
from paribus.verification.verify import registration_findings

from ..tools import refused

TRIAL = Path("trials", "baseline", "seed-1")


@pytest.fixture
def decided(copy):
    """A copy with analysis.json and verdict.json, to be written to."""
    main(["report", "--no-page", str(copy)])
    return copy


def trial_of(path: Path) -> TrialFolder:
    return ResultsFolder(path).trial("baseline", 1)


def seal(path: Path) -> None:
    """Write the manifest anew, as somebody with intent would."""
    trial_of(path).finish()


def test_a_folder_that_agrees_passes(trained, decided):
    found = paribus.verify(decided)
    assert found.findings == []
    assert found.root == paribus.verify(trained.results.path).root == root_digest(decided)
    before = {p: p.stat().st_mtime_ns for p in decided.rglob("*")}
    assert main(["verify", str(decided)]) == 0
    assert {p: p.stat().st_mtime_ns for p in decided.rglob("*")} == before


def test_a_shell_computes_the_same_root(copy):
    (copy / "registration-1.json").write_text("{}")
    command = (
        "sha256sum registration*.json manifest.json trials/*/*/manifest.json "
        "| LC_ALL=C sort -k 2 | sha256sum"
    )
    said = subprocess.run(
        ["bash", "-c", command], cwd=copy, capture_output=True, text=True, check=True
    )
    assert said.stdout.split()[0] == root_digest(copy)
    for name in ("registration.json", "manifest.json", TRIAL / "manifest.json"):
        before = root_digest(copy)
        (copy / name).write_bytes((copy / name).read_bytes() + b" ")
        assert root_digest(copy) != before


def drop_a_byte(path: Path) -> None:
    file = path / TRIAL / "weights.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def change_a_speed(path: Path) -> None:
    table = pq.read_table(path / "throughput.parquet")
    faster = pa.array(np.array(table["seconds"]) / 2)
    write_table(path / "throughput.parquet", table.set_column(4, "seconds", faster))


def state_another_loss(path: Path) -> None:
    scores = trial_of(path).read_json("evaluation.json")
    trial_of(path).write_json("evaluation.json", scores | {"validation_loss": 1.0})
    seal(path)


def change_windows(path: Path) -> None:
    table = trial_of(path).read_columns("blocks.parquet")
    hits = pa.array(np.array(table["correct"]) + 1)
    write_table(path / TRIAL / "blocks.parquet", table.set_column(2, "correct", hits))
    seal(path)


def edit(name: str, change: Callable[[dict], None]) -> Callable[[Path], None]:
    def act(path: Path) -> None:
        value = json.loads((path / name).read_text())
        change(value)
        write_json(path / name, value)

    return act


def rewrite(pattern: str, new: str) -> Callable[[Path], object]:
    """Replace the first match of a pattern in analysis.json."""

    def act(path: Path) -> None:
        text = (path / "analysis.json").read_text()
        (path / "analysis.json").write_text(re.sub(pattern, new, text, count=1))

    return act


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_a_byte, "weights.safetensors"),
        (change_a_speed, "throughput.parquet"),
        (state_another_loss, "validation_loss"),
        (change_windows, "baseline/seed-1: correct is "),
        (lambda path: (path / "throughput.parquet").unlink(), "parquet"),
        (lambda path: (path / "manifest.json").unlink(), "throughput.parquet"),
        (lambda path: (path / "registration.json").unlink(), "registration.json"),
        (edit("registration.json", lambda r: r.update(seeds=[1])), "'seeds' differs"),
        (edit("registration.json", lambda r: r.update(number=2)), "registration-1.json"),
        (edit("analysis.json", lambda a: a["contrasts"][0].update(holm_p=0.5)), "0.holm_p"),
        (rewrite('"schema_version"', '"schema"'), "analysis.json"),
        (rewrite(r'"mean": [-0-9.e]+', '"mean": 1e999'), "1e999 is"),
        (edit("verdict.json", lambda v: v["verdicts"][0].update(row="12")), "verdicts.0.row"),
    ],
)
def test_each_contradiction_is_a_finding(damage, words, decided, capsys):
    damage(decided)
    capsys.readouterr()
    assert main(["verify", str(decided)]) == 3
    said = capsys.readouterr().out
    assert "checked: " in said and words in said


REGISTERED = "registration.json"


def test_a_superseded_registration_keeps_its_bytes(copy):
    supersede(ResultsFolder(copy), read_json(copy / REGISTERED), {})
    results = paribus.load_results(copy)
    assert list(registration_findings(results)) == []
    edit("registration-1.json", lambda r: r.update(code="x"))(copy)
    (changed,) = registration_findings(results)
    assert "registration-1.json" in changed
    (copy / "registration-1.json").unlink()
    assert list(registration_findings(results)) == [changed]


def test_what_a_finished_study_lacks_is_told(copy):
    shutil.rmtree(copy / TRIAL)
    (missing,) = paribus.verify(copy).unfinished
    assert missing.startswith("baseline/seed-1 ")


def test_a_changed_speed_is_refused_wherever_it_counts(copy):
    change_a_speed(copy)
    with refused("changed", match=r"throughput\.parquet"):
        _ = paribus.load_results(copy).throughput
    (copy / "manifest.json").unlink()  # as an interruption between the two leaves it
    assert len(paribus.load_results(copy).throughput) == 0


def test_questions_are_counted_again(tmp_path, monkeypatch):
    """Against numbers by hand: two of three right, a macro accuracy of (2/3 + 1/2) / 2."""
    trial = TrialFolder(tmp_path, "a", 1)
    ratio = {"total": "correct", "count": "predicted", "scale": 1.0}
    read, record = TrialFolder.read_json, {"metrics": {"validation_accuracy": {"items": ratio}}}
    monkeypatch.setattr(
        TrialFolder,
        "read_json",
        lambda self, name: record if name == "trial.json" else read(self, name),
    )
    windows = {"loss_sum_nats": [3.0], "correct": [1], "predicted": [2]}
    windows |= {"brier_sum": [1.0], "characters": [2]}
    trial.write_columns("blocks.parquet", {k: np.array(v) for k, v in windows.items()})
    measure = {"measure": "calibration_error", "part": "all", "value": 0.25, "total": 0.0}
    columns = {k: np.array([v]) for k, v in {**measure, "count": 2.0, "unit": "share"}.items()}
    trial.write_columns("evaluation.parquet", columns)
    answers = [("x", 0, True), ("x", 0, True), ("x", 0, False), ("y", 1, True), ("y", 1, False)]
    names = ("task", "shots", "correct")
    items = [dict(zip(names, a, strict=True), item=i) for i, a in enumerate(answers)]
    write_table(tmp_path / "items.parquet", pa.Table.from_pylist(items))
    cells = [
        {"task": "x", "shots": 0, "items": 3, "correct": 2, "accuracy": 2 / 3},
        {"task": "y", "shots": 1, "items": 2, "correct": 1, "accuracy": 1 / 2},
    ]
    write_table(tmp_path / "tasks.parquet", pa.Table.from_pylist(cells))
    points = {"step": [0, 8], "loss_sum_nats": [4.0, 3.0], "predicted": [1, 1]}  # of a part
    write_table(tmp_path / "curve.parquet", pa.table(points))
    right = {
        "validation_loss": 1.5,
        "validation_perplexity": math.exp(1.5),
        "validation_accuracy": 0.5,
        "calibration_error": 0.25,
        "macro_accuracy": (2 / 3 + 1 / 2) / 2,
    }
    trial.write_json("evaluation.json", right)
    assert list(score_findings(trial)) == []
    for name in right:
        trial.write_json("evaluation.json", right | {name: 0.9})
        (finding,) = score_findings(trial)
        assert f"{name} is 0.9" in finding
    trial.write_json("evaluation.json", right | {"validation_loss": None})
    assert len(list(score_findings(trial))) == 1
    trial.write_json("evaluation.json", right)
    cells[0]["correct"] = 3
    write_table(tmp_path / "tasks.parquet", pa.Table.from_pylist(cells[:1]))
    said = " ".join(score_findings(trial))
    assert "items.parquet" in said
    assert "1 shots" in said
