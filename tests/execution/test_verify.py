"""`paribus verify`: what agrees passes, and each thing that does not is found and named."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import paribus
from paribus.cli import main
from paribus.engine.data import load_dataset
from paribus.engine.execution.checks.repeat import repeat
from paribus.engine.model.initialization import InitialParameter
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, TrialFolder, settle
from paribus.results.formats import read_json, write_json, write_table
from paribus.results.registration import from_study
from paribus.results.store import root_digest
from paribus.study import Study, parse_study
from paribus.study.study import override
from paribus.verification import with_engine
from paribus.verification.registered import registration_findings
from paribus.verification.scores import score_findings
from paribus.verification.verify import _layout, _parameters
from paribus.verification.with_engine import arm_findings

from .conftest import Trained

TRIAL = Path("trials", "baseline", "seed-1")


@pytest.fixture
def decided(copy: Path) -> Path:
    """A copy with analysis.json and verdict.json, to be written to."""
    main(["report", "--no-page", str(copy)])
    return copy


def trial_of(path: Path) -> TrialFolder:
    return ResultsFolder(path).trial("baseline", 1)


def seal(path: Path) -> None:
    """Write the manifest anew, as somebody with intent would."""
    trial_of(path).finish()


def test_what_trials_share_is_made_once(trained: Trained, monkeypatch) -> None:
    made: list[str] = []

    def counted(name: str):
        original = getattr(with_engine, name)
        monkeypatch.setattr(
            with_engine, name, lambda *a, **k: made.append(name) or original(*a, **k)
        )

    counted("build_model")
    results = paribus.load_results(trained.results.path)
    assert arm_findings(results, trust=False)[0] == []
    arms = results.study.arms
    assert len(results.finished) > len(arms) and made == ["build_model"] * len(arms)


def test_a_folder_that_agrees_passes(trained: Trained, decided: Path) -> None:
    found = paribus.verify(decided)
    assert found.findings == ()
    assert found.root == paribus.verify(trained.results.path).root == root_digest(decided)
    before = {p: p.stat().st_mtime_ns for p in decided.rglob("*")}
    assert main(["verify", str(decided)]) == 0
    assert {p: p.stat().st_mtime_ns for p in decided.rglob("*")} == before


def test_a_shell_computes_the_same_root(copy: Path) -> None:
    (copy / "registration-1.json").write_text("{}")
    command = (
        "sha256sum registration*.json manifest.json trials/*/*/manifest.json "
        "| LC_ALL=C sort -k 2 | sha256sum"
    )
    said = subprocess.run(
        ["bash", "-c", command], cwd=copy, capture_output=True, text=True, check=True
    )
    assert said.stdout.split()[0] == root_digest(copy)
    lines = (copy / "registration.json").read_bytes()
    assert hashlib.sha256(lines).hexdigest() != root_digest(copy)


@pytest.mark.parametrize(
    "name", ["registration.json", "manifest.json", TRIAL / "manifest.json"], ids=str
)
def test_the_root_depends_on_every_registration_and_manifest(name: Path, copy: Path) -> None:
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


def plain(name: str, change: Callable[[dict], object]) -> Callable[[Path], None]:
    """The same without the number of a schema, unless it is there."""

    def act(path: Path) -> None:
        value = json.loads((path / name).read_text())
        change(value)
        (path / name).write_text(json.dumps(value))

    return act


def infinite(path: Path) -> None:
    text = (path / "analysis.json").read_text()
    (path / "analysis.json").write_text(
        re.sub(r'"mean": [-0-9.e]+', '"mean": 1e999', text, count=1)
    )


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (drop_a_byte, "weights.safetensors was changed after it was written"),
        (change_a_speed, "throughput.parquet is missing or was changed after"),
        (state_another_loss, "validation_loss is 1.0 in evaluation.json, and its parts give"),
        (change_windows, "baseline/seed-1: correct is "),
        (lambda path: (path / "throughput.parquet").unlink(), "parquet is missing or was changed"),
        (lambda path: (path / "manifest.json").unlink(), "throughput.parquet is not sealed"),
        (lambda path: (path / TRIAL / "more.json").write_text("{}"), "more.json is no record"),
        (lambda path: (path / "trials" / "x" / "y").mkdir(parents=True), "x/y is no trial"),
        (lambda path: (path / "registration.json").unlink(), "registration.json is missing"),
        (
            lambda path: (path / "registration.json").write_text("[]"),
            "registration.json was written by a development version",
        ),
        (
            edit("registration.json", lambda r: r.update(seeds=[1])),
            r"seeds is not what the st.*: \[1\]",
        ),
        (edit("registration.json", lambda r: r.update(study_digest="x")), "the study was changed"),
        (edit("registration.json", lambda r: r.update(number=2)), "registration-1.json is missing"),
        (
            edit("registration.json", lambda r: r["inference"].update(alpha=0.4)),
            "inference is not what the study gives",
        ),
        (
            edit("analysis.json", lambda a: a["contrasts"][0].update(holm_p=0.5)),
            r"analysis.json is not what the records give: contrasts\.0\.holm_p",
        ),
        (edit("analysis.json", lambda a: a.update(contrasts=[])), "analysis.json is not what"),
        (
            plain("analysis.json", lambda a: a.pop("schema_version")),
            "analysis.json was written by a development version",
        ),
        (plain("verdict.json", lambda v: v["verdicts"].clear()), "verdict.json is not what"),
        (
            infinite,
            "1e999 is no finite number",
        ),
        (
            edit("verdict.json", lambda v: v["verdicts"][0].update(row="12")),
            r"verdict.json is not what the records give: verdicts\.0\.row",
        ),
        (lambda path: (path / "verdict.json").write_text("x"), "verdict.json is not valid JSON"),
    ],
)
def test_each_contradiction_is_a_finding(
    damage: Callable[[Path], object],
    words: str,
    decided: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    damage(decided)
    capsys.readouterr()
    assert main(["verify", str(decided)]) == 3
    said = capsys.readouterr().out
    findings = [line for line in said.splitlines() if line.startswith("does not agree: ")]
    assert findings
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(said)


REGISTERED = "registration.json"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"contrasts": []}, "contrasts is not what the study gives"),
        ({"endpoints": []}, "endpoints is not what the study gives"),
        ({"families": {}}, "families is not what the study gives"),
        ({"precision": {}}, "precision is not what the study gives"),
        ({"repeated": {"x": {"seed": 1, "steps": 1}}}, "repeated is not what the study gives"),
        ({"code": "x"}, "code is not that of trial"),
        ({"device": "cuda"}, "device is not that of trial"),
        ({"own_probes": {"own.py:P": {}}}, "own_probes is not what"),
        ({"sources": {}}, "text.txt is there and was not registered"),
        ({"number": 0}, "number is 0, and the first is 1"),
        ({"number": 10**9}, "registration-1.json is missing"),
        ({"seeds_added_after_results": []}, "is nothing that a registration says"),
    ],
)
def test_a_registration_that_was_edited_is_told(change: dict, words: str, copy: Path) -> None:
    results = paribus.load_results(copy)
    assert list(registration_findings(results)) == []
    edit(REGISTERED, lambda r: r.update(change))(copy)
    assert words in "\n".join(registration_findings(results))


def test_the_chain_of_registrations_is_derived_again(
    small_study: Callable[..., Study], copy: Path
) -> None:
    first = read_json(copy / REGISTERED)
    more = small_study({"evaluation.every": 3}, seeds=[1, 2, 3, 4])
    settle(ResultsFolder(copy), more, {**first, **from_study(more, first["tasks"], first["looks"])})
    results = paribus.load_results(copy)
    assert list(registration_findings(results)) == []

    (copy / "registration-7.json").write_text("{}")
    assert "registration-7.json is no registration" in "\n".join(registration_findings(results))
    (copy / "registration-7.json").unlink()
    for name, change, words in (
        (REGISTERED, {"seeds_added_after_results": []}, "seeds_added_after_results is not [4]"),
        (REGISTERED, {"results_when_registered": ["x/seed-9"]}, "names x/seed-9, which is not"),
        ("registration-1.json", {"number": 3}, "number is 3, and its name says 1"),
        ("registration-1.json", {"code": "x"}, "code is not that of the registration"),
        ("registration-1.json", {"seeds": [1, 2]}, "study_digest is not what the study gives"),
        ("registration-1.json", {"seeds": "x"}, "registration-1.json is not what was written"),
    ):
        before = (copy / name).read_bytes()
        edit(name, lambda r, change=change: r.update(change))(copy)
        assert words in "\n".join(registration_findings(results))
        (copy / name).write_bytes(before)


def test_what_a_finished_study_lacks_is_told(copy: Path) -> None:
    for name in ("throughput.parquet", "manifest.json"):
        (copy / name).rename(copy.parent / name)
    (untimed,) = (f for f in paribus.verify(copy).findings if f.startswith("not timed: "))
    assert "`paribus run` with the same study and folder times the arms" in untimed
    shutil.rmtree(copy / TRIAL)
    assert "incomplete: baseline/seed-1 missing, of 9 trials" in paribus.verify(copy).findings
    for name in ("throughput.parquet", "manifest.json"):
        (copy.parent / name).rename(copy / name)
    said = "\n".join(paribus.verify(copy).findings)
    assert "baseline/seed-1 missing, and was finished when the arms were timed" in said


def test_weights_of_other_parameters_are_told(copy: Path) -> None:
    weights = trial_of(copy).read_weights()
    trial_of(copy).write_weights(dict(list(weights.items())[1:]))
    seal(copy)
    assert list(_parameters(paribus.load_results(copy))) == [
        "trial baseline/seed-1: its weights are not the parameters of initial.json"
    ]


def test_weights_that_the_study_keeps_are_records(
    small_study: Callable[..., Study], tmp_path: Path
) -> None:
    study = small_study({"training.keep": [4]})
    trial = ResultsFolder(tmp_path).trial("baseline", 1)
    trial.path.mkdir(parents=True)
    for name in ("weights-4.safetensors", "weights-5.safetensors", "checkpoint.safetensors"):
        (trial.path / name).touch()
    assert sorted(_layout(study, ResultsFolder(tmp_path), [trial])) == [
        "trial baseline/seed-1: checkpoint.safetensors is no record",
        "trial baseline/seed-1: weights-5.safetensors is no record",
    ]


def test_a_changed_speed_is_refused_wherever_it_counts(copy: Path) -> None:
    change_a_speed(copy)
    with pytest.raises(ParibusError, match=r"throughput\.parquet is missing or was changed"):
        _ = paribus.load_results(copy).throughput
    (copy / "manifest.json").unlink()  # as an interruption between the two leaves it
    assert len(paribus.load_results(copy).throughput) == 0


def test_what_is_no_results_folder_is_bad_input(tmp_path: Path) -> None:
    assert main(["verify", str(tmp_path)]) == 2
    (tmp_path / "study.json").write_text("[]")
    assert main(["verify", str(tmp_path)]) == 2


def test_questions_are_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against numbers by hand: two of three right, a macro accuracy of (2/3 + 1/2) / 2."""
    trial = TrialFolder(tmp_path, "a", 1)
    read, record = TrialFolder.read_json, {"code_length": {}, "metrics": {}}
    monkeypatch.setattr(
        TrialFolder,
        "read_json",
        lambda self, name: record if name == "trial.json" else read(self, name),
    )
    windows = {"loss_sum_nats": [3.0], "correct": [1], "predicted": [2]}
    windows |= {"brier_sum": [1.0], "characters": [2]}
    units = dict.fromkeys(windows, "1")
    trial.write_columns("blocks.parquet", {k: np.array(v) for k, v in windows.items()}, units)
    measure = {"measure": "calibration_error", "part": "all", "value": 0.25, "total": 0.0}
    columns = {k: np.array([v]) for k, v in {**measure, "count": 2.0, "unit": "share"}.items()}
    trial.write_columns("evaluation.parquet", columns, dict.fromkeys(columns, "1"))
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
        assert f"{name} is 0.9 in evaluation.json" in finding
    trial.write_json("evaluation.json", right | {"validation_loss": None})
    assert len(list(score_findings(trial))) == 1
    trial.write_json("evaluation.json", right)
    cells[0]["correct"] = 3
    write_table(tmp_path / "tasks.parquet", pa.Table.from_pylist(cells[:1]))
    said = " ".join(score_findings(trial))
    assert "task x with 0 shots has 3 of 3 right, and items.parquet gives 2 of 3" in said
    assert "answers to y with 1 shots are in no task" in said


def test_weights_batches_and_initial_values_are_repeated(
    trained: Trained, copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One worker repeats all; three trials are not what their seeds and weights give."""
    text = trained.study.folder

    def at(arm: str) -> TrialFolder:
        return ResultsFolder(copy).trial(arm, 1)

    weights = at("baseline").read_weights()
    at("baseline").write_weights({k: v + np.float32(1e-3) for k, v in weights.items()})
    initial = at("layernorm").read_json("initial.json")
    next(iter(initial.values()))["sha256"] = "0" * 64
    at("layernorm").write_json("initial.json", initial)
    record = at("rmsnorm").read_json("trial.json")
    at("rmsnorm").write_json("trial.json", record | {"batch_digest": "1" * 64})
    for arm in trained.study.arms:
        at(arm).finish()
    command = ["verify", str(copy), "--trials", "--folder", str(text), "--workers", "1"]
    assert main(command) == 3
    said = capsys.readouterr().out
    assert "baseline/seed-1: its weights give another evaluation on the same kind of mach" in said
    assert "baseline/seed-1: the weights of step 8 give another point of the held-out curve" in said
    assert "layernorm/seed-1: initial values are not those of its seed" in said
    assert "rmsnorm/seed-1: batches are not those of its seed" in said
    repeated = [line for line in said.splitlines() if "seed-2" in line or "seed-3" in line]
    assert repeated == []  # the others agree bit by bit


def test_initial_values_of_an_earlier_paribus_agree(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said less of each parameter; what it said has to be so."""
    now = InitialParameter.record.fget
    assert now
    monkeypatch.setattr(InitialParameter, "record", property(lambda one: now(one) | {"more": 1}))
    study, results = trained.study, trained.results
    folder, dataset = ResultsFolder(results.path), load_dataset(study.data, study.folder)

    def found() -> list[str]:
        return [
            *arm_findings(results, trust=False)[0],
            *repeat(study, folder, dataset, torch.device("cpu"), "baseline", 1),
        ]

    assert found() == []
    monkeypatch.setattr(
        InitialParameter, "record", property(lambda one: now(one) | {"shape": [1], "more": 1})
    )
    assert any("initial values are not those of its seed" in line for line in found())


def test_another_text_is_told(trained: Trained, copy: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("another text altogether, " * 500)
    found = paribus.verify(copy, trials=True, folder=tmp_path, workers=1).findings
    assert len(found) == len(trained.study.trials)
    assert all("the text here is not the one it was trained on" in line for line in found)


@pytest.mark.slow
def test_what_is_said_of_the_text_is_counted_again(
    trained: Trained, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forged data.json agrees with itself: only the text tells."""
    monkeypatch.setattr("paribus.engine.execution.checks.repeat.repeat_trials", lambda *_, **__: [])

    def found() -> tuple[str, ...]:
        return paribus.verify(copy, trials=True, folder=trained.study.folder).findings

    assert found() == ()
    folder, data = ResultsFolder(copy), trained.results.data
    forged = json.loads(json.dumps(data))
    forged["duplicates"]["passage"]["leaked_near"] += 3
    forged["rules"]["near_duplicate_jaccard"] *= 1 + 1e-12  # rounding, of another machine
    del forged["looked_at"]  # as in the first folders
    folder.write_data(forged)
    assert paribus.verify(copy).findings == ()
    (line,) = found()
    n = data["duplicates"]["passage"]["leaked_near"]
    assert f"duplicates.passage.leaked_near is {n + 3}, and the text gives {n}" in line
    folder.write_data({key: value for key, value in data.items() if key != "leakage"})
    assert all("leakage." in line for line in found()) and len(found()) == 2
    sealed = json.loads((copy / "manifest.json").read_text())
    write_json(copy / "manifest.json", {k: v for k, v in sealed.items() if k != "data.json"})
    assert any("data.json is missing" in line for line in found())


def exchanged(copy: Path, one: Path, other: Path) -> None:
    """Two trials in each other's place, whole, saying what their place says, and sealed again."""
    trials = copy / "trials"
    settings = {
        path: json.loads((trials / path / "trial.json").read_text()) for path in (one, other)
    }
    (trials / one).rename(trials / "third")
    (trials / other).rename(trials / one)
    (trials / "third").rename(trials / other)
    for path, theirs in settings.items():
        record = json.loads((trials / path / "trial.json").read_text())
        kept = {key: theirs[key] for key in ("arm", "seed", "setting", "batch_digest")}
        write_json(trials / path / "trial.json", record | kept)
        arm, seed = path.parts
        ResultsFolder(copy).trial(arm, int(seed.removeprefix("seed-"))).finish()


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ("baseline/seed-1", "layernorm/seed-1", "its parts are not those of its arm"),
        ("layernorm/seed-2", "rmsnorm/seed-2", "its parameters are not those of its arm"),
        ("baseline/seed-1", "baseline/seed-3", "the initial values of "),
    ],
)
def test_trials_that_were_exchanged_whole_are_told(
    one: str, other: str, words: str, copy: Path
) -> None:
    exchanged(copy, Path(one), Path(other))
    found = [line for line in paribus.verify(copy).findings if words in line]
    assert [line.split(":")[0] for line in found] == [f"trial {one}", f"trial {other}"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"training.optimizer.learning_rate": 1e-4}, "its learning rate at step 1 is 0.0003"),
        ({"training.iterations": 9}, "it has 8 steps, and its arm 9"),
        ({"training.batch_size": 8}, "it has 512 tokens, and 8 steps of its arm have other"),
        ({"training.optimizer.betas": [0.8, 0.9]}, "its optimizer is not that of its arm"),
        ({"model.init.token_std": 0.5}, "the initial values of embedding.tokens.weight"),
        ({"model.mlp.kind": "relu2"}, "its parts are not those of its arm"),
    ],
)
def test_a_setting_that_was_edited_is_told(
    change: dict[str, object], words: str, trained: Trained
) -> None:
    """What was recorded follows from another setting than the one that the study states now."""
    table = trained.study.model_dump()
    for key, value in change.items():
        override(table, key, value)
    edited = parse_study(table, folder=trained.study.folder)
    found, looked_at = arm_findings(replace(trained.results, study=edited), trust=False)
    assert len([line for line in found if words in line]) == len(trained.study.trials)
    assert looked_at.endswith("of 9 trials by arm and seed")


def test_all_that_is_scheduled_is_computed_again(trained: Trained, copy: Path) -> None:
    table = trained.study.model_dump()
    override(table, "training.schedules.momentum", {"kind": "constant"})
    edited = parse_study(table, folder=trained.study.folder)
    trial, size = trial_of(copy), trained.study.training.batch_size
    plain = trial.read_columns("steps.parquet")

    def found(**columns: list[float]) -> list[str]:
        steps = plain
        for name, values in columns.items():
            steps = steps.append_column(name, pa.array(values, pa.float32()))
        write_table(trial.path / "steps.parquet", steps)
        seal(copy)
        results = replace(paribus.load_results(copy), study=edited)
        ours = f"trial {trial.label}: its "
        return [
            one.removeprefix(ours) for one in arm_findings(results, trust=False)[0] if ours in one
        ]

    assert found() == ["steps have no momentum_fraction, which its arm has a schedule of"]
    assert found(momentum_fraction=[1.0] * 8, batch_size=[size] * 8) == []
    (told,) = found(momentum_fraction=[1.0] * 7 + [0.5], batch_size=[size] * 8)
    assert told == "momentum fraction at step 8 is 0.5, and that of its arm 1"
    (told,) = found(momentum_fraction=[1.0] * 8, batch_size=[size, 5] + [size] * 6)
    assert told == f"batch size at step 2 is 5, and that of its arm {size}"


def test_custom_code_is_not_run_to_look_at_arms(trained: Trained) -> None:
    table = trained.study.model_dump()
    override(table, "model.modules.attention", "nowhere.py:Nothing")
    edited = parse_study(table, folder=trained.study.folder)
    found, looked_at = arm_findings(replace(trained.results, study=edited), trust=False)
    assert found == []
    assert looked_at.endswith(", of 9 with custom code less, for want of --trust")


def test_a_trial_that_diverged_has_no_rates_from_there(trained: Trained, copy: Path) -> None:
    trial = trial_of(copy)
    steps = trial.read_columns("steps.parquet")
    gone = pa.array([*steps["learning_rate"].to_pylist()[:3], *[None] * 5], pa.float32())
    at = steps.column_names.index("learning_rate")
    write_table(trial.path / "steps.parquet", steps.set_column(at, "learning_rate", gone))
    trial.write_json("trial.json", trial.read_json("trial.json") | {"diverged_at": 4})
    seal(copy)
    assert arm_findings(paribus.load_results(copy), trust=False)[0] == []
