"""Each reader on excerpts of real files: what they say, where they are cut, and damaged."""

import json
import math
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from paribus.readers import Reading, Run, read
from paribus.study.runs import RunsSection

from ..tools import refused
from .excerpts import (
    EXCERPTS,
    LIGHTEVAL,
    LM_EVAL,
    LM_EVAL_OLD,
    MLFLOW,
    MODDED,
    MODDED_EMA,
    NANOGPT,
    SAMPLES,
    SAMPLES_NAME,
    inspect_log,
)

COLUMNS: dict[str, Any] = {"scores": ("loss",), "section": RunsSection(arm="variant")}


def written(folder: Path, name: str, content: bytes) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def runs(folder: Path, name: str, content: bytes) -> list[Run]:
    reading = read(written(folder, name, content), **COLUMNS)
    assert not reading.refused, reading.refused
    return reading.runs


@pytest.mark.parametrize("name", EXCERPTS)
def test_a_file_is_recognised_by_one_reader(name, tmp_path):
    found = read(written(tmp_path, *EXCERPTS[name])).runs
    assert {run.reader for run in found} == {name}


def test_modded_nanogpt(tmp_path):
    first, second = runs(tmp_path, "log.txt", MODDED)
    assert first.scores == {"val_loss": 3.27924} and second.scores == {"val_loss": 3.27941}
    assert second.source == f"{first.source}#2"
    assert first.at("val_loss", 3250) == 3.28526 and first.at("val_loss", 3300) is None
    facts = {"train_seconds": 536.697, "steps": 3375, "planned_steps": 3375}
    facts |= {"pytorch": "2.11.0+cu130", "device": "NVIDIA H100 80GB HBM3"}
    assert facts.items() <= first.facts.items()
    assert str(first.facts["source_digest"]).startswith(str(second.facts["arm"]))
    other = MODDED.replace(b"import sys\n", b"import sys, math\n")
    logs = (MODDED, other, MODDED.replace(b"\n", b"\r\n"))
    digests = [runs(tmp_path, "log.txt", log)[0].facts["source_digest"] for log in logs]
    assert digests[0] != digests[1] and digests[0] == digests[2]
    (run,) = runs(tmp_path, "seed0.txt", MODDED_EMA)
    assert (run.at("val_ema_loss", 2690), run.at("val_loss", 2690)) == (3.27795, 3.28208)
    assert run.facts["seed"] == 0 and "source_digest" not in run.facts


def test_nanochat_stages_are_runs(tmp_path):
    base, tuned = runs(tmp_path, *EXCERPTS["nanochat"])
    bits = {"val_bpb": 0.8118, "min_val_bpb": 0.8118}
    assert base.scores == bits | {"train_loss": 2.719005, "core_metric": 0.2086}
    assert base.facts["train_seconds"] == pytest.approx(170.39 * 60)
    assert base.curves["val_bpb"][1].tolist() == [250, 1.2016]
    assert (tuned.scores["val_loss"], tuned.scores["arc_easy_acc"]) == (1.011768, 0.393555)
    assert tuned.facts["stage"] == 2


def test_a_log_of_several_trainings_of_nanogpt(tmp_path):
    later = NANOGPT.replace(b"1.7326", b"nan").replace(
        b"tokens per", b"Overriding: seed = 8\ntokens per"
    )
    first, second = runs(tmp_path, "log.txt", NANOGPT + later)
    assert "seed" not in first.facts and second.facts["seed"] == 8
    assert math.isnan(second.scores["val_loss"]) and len(second.curves["val_loss"]) == 3
    (cut,) = runs(tmp_path, "cut.txt", NANOGPT.partition(b", val loss 1.7326")[0])
    assert cut.scores["val_loss"] == 2.0676 and "cut" in cut.facts


def test_a_chart_of_wandb_has_a_run_for_each_line(tmp_path):
    base, new = runs(tmp_path, *EXCERPTS["wandb-chart"])
    assert base.scores == {"val/loss": 3.2961} and base.at("val/loss", 100) == 3.6269
    assert base.facts == {"run": "base-s1", "arm": "base", "seed": 1, "steps": 300}
    assert new.facts == {"run": "new seed 2", "arm": "new", "seed": 2, "steps": 200}
    assert new.curves["val/loss"].tolist() == [[100, 3.581], [200, 3.3643]]
    name, chart = EXCERPTS["wandb-chart"]
    twice = read(written(tmp_path, name, chart.replace(b"new seed 2", b"base-s1")))
    assert not twice.runs and "same name" in twice.refused[0][1]


LAST: dict[str, dict[str, float]] = {
    "hugging-face": {
        "eval_loss": 0.31392547488212585,
        "eval_accuracy": 0.8912925905895078,
        "loss": 0.3215,
    },
    "torchtitan": {"loss": 8.12345, "val_loss": 7.2345, "grad_norm": 1.2345},
    "olmo-core": {"train/CE loss": 2.801, "c4_en-validation/CE loss": 2.95},
    "litgpt": {"train_loss": 3.256, "val_loss": 3.3324},
    "tensorboard-csv": {"val_loss": 3.25},
    "inspect-ai": {"match/accuracy": 0.75},
    "lightning": {"train_loss": 3.5, "val_loss": 3.25},
    "keras": {"accuracy": 0.5, "loss": 3.0, "val_loss": 3.25},
    "ray-tune": {"val_loss": 3.25},
    "levanter-summary": {"summary.eval/loss": 3.25, "summary.train/loss": 3.5},
    "llmc": {"val_loss": math.nan, "hellaswag": 0.2941, "train_loss": 10.9},
    "levanter": {"eval/loss": math.nan, "train/loss": 4.25},
    "megatron": {"lm_loss": math.nan, "val_loss": 5.151, "grad_norm": math.nan},
    "nanogpt": {"val_loss": 1.7326, "eval_train_loss": 1.5304, "train_loss": 1.9755}
    | {"iter_time": 0.83252},
}
CONFIG = "config/train_shakespeare_char.py"
FACTS: dict[str, dict[str, Any]] = {
    "megatron": {"planned_steps": 1000, "global_batch_size": 32, "eval_iters": 5},
    "llmc": {"sequence length": 64, "val_max_steps": 20},
    "torchtitan": {"global_batch_size": 64, "sequence_length": 2048, "planned_steps": 10},
    "hugging-face": {"planned_steps": 2315, "steps": 2200},
    "litgpt": {"seed": 7},
    "nanogpt": {"seed": 3, "config": CONFIG, "planned_steps": 5000, "tokens_per_iter": 16384},
}


@pytest.mark.parametrize("name", LAST)
def test_last_values_of_other_forms(name, tmp_path):
    (run,) = read(written(tmp_path, *EXCERPTS[name])).runs
    assert run.scores == pytest.approx(LAST[name], nan_ok=True)
    assert FACTS.get(name, {}).items() <= run.facts.items()
    assert len(run.curves.get("val_loss", [])) == 2 or name != "litgpt"


@pytest.mark.parametrize(("more", "decides"), [("", "c4_en-validation/CE loss"), ("pile", "")])
def test_one_evaluation_decides_and_of_several_it_is_asked(more, decides, tmp_path):
    name, log = EXCERPTS["olmo-core"]
    more = more and f"    {more}-validation/CE loss=2.5\n"
    (run,) = runs(tmp_path, name, log + more.encode())
    assert run.decides == decides


def test_a_zero_beside_a_gradient_norm_of_nan_is_nan(tmp_path):
    (run,) = runs(tmp_path, *EXCERPTS["hugging-face-output"])
    assert math.isnan(run.scores["loss"]) and run.scores["eval_loss"] == 3.25
    assert run.facts["zeroed"] == "loss"
    assert run.curves["loss"][0].tolist() == [0.5, 4.75]


def test_items_of_evaluations(tmp_path):
    (run,) = runs(tmp_path, *EXCERPTS["inspect-ai"])
    assert run.items["match/accuracy"] == {"a": 1.0, "b": 0.5} and run.facts["seed"] == 3
    reading = read(written(tmp_path, "cancelled.eval", inspect_log("cancelled")))
    assert "cancelled" in reading.refused[0][1]


@pytest.mark.parametrize(
    ("name", "content", "facts"),
    [
        ("lm-eval", {"fewshot_as_multiturn": True, "date": 1.0}, "evaluation:fewshot_as_multiturn"),
        ("lm-eval", {"chat_template": "a\nb"}, "evaluation:chat_template"),
        (
            "lm-eval",
            {"config": {"limit": 9, "batch_size": 8}},
            "evaluation:limit harness:batch_size",
        ),
        ("lm-eval", {"config": {"model_args": "dtype=f,pretrained=/x"}}, "model_args.dtype"),
        ("lm-eval", {"configs": {"copa": {"stop": {"n": 0}}}}, "evaluation:stop.n/copa"),
        ("lm-eval", {"group_subtasks": {"all": ["copa"]}}, "evaluation:task_hash.copa/all"),
        ("inspect-ai", {"task_args": {"x": 5}, "created": "today"}, "evaluation:task_args.x"),
        ("inspect-ai", {"plan": {"config": {"top_p": 1}}}, "evaluation:generate_config.top_p"),
        ("inspect-ai", {"dataset": {"location": "/a", "n": 7}}, "evaluation:dataset.n"),
        ("inspect-ai", {"config": {"epochs": 2, "max_samples": 9}}, "harness:epochs"),
    ],
)
def test_settings_of_an_evaluation_are_facts(name, content, facts, tmp_path):
    file, plain = EXCERPTS[name]
    log = json.dumps(json.loads(LM_EVAL) | content).encode()
    log = log if name == "lm-eval" else inspect_log(**content)
    (before,), (after,) = (runs(tmp_path, file, own) for own in (plain, log))
    assert after.facts.keys() - before.facts.keys() == {*facts.split()}


def mlflow_run(home: Path, name: str, lines: str, status: int = 3) -> Path:
    written(home, f"{name}/params/seed", b"7")
    written(home, f"{name}/metrics/val_loss", lines.encode())
    meta = MLFLOW.replace(b"status: 3", b"status: %d" % status).replace(b"n5", name.encode())
    return written(home, f"{name}/meta.yaml", meta)


def test_mlflow_takes_the_largest_step(tmp_path):
    mlflow_run(tmp_path, "a", "10 3.5 1000\n11 3.7 900\n9 3.6 1000\n")
    mlflow_run(tmp_path, "b", "10 nan 1000\n", status=4)
    deleted = mlflow_run(tmp_path, "c", "10 3.5 1000\n")
    deleted.write_bytes(deleted.read_bytes().replace(b"active", b"deleted"))
    reading = read(tmp_path)
    first, second = reading.runs
    assert (first.scores, first.facts["seed"], first.facts["steps"]) == ({"val_loss": 3.5}, 7, 1000)
    assert second.facts["unfinished"] == "failed"
    assert any("deleted" in why for _, why in reading.skipped)


def test_trackio_has_nan_as_text(tmp_path):
    file = tmp_path / "project.db"
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE metrics (id, timestamp, run_name, step, metrics, run_id)")
        database.execute("CREATE TABLE configs (run_id, run_name, config)")
        for step, loss in ((1, "3.5"), (2, '"NaN"')):
            for run_id in ("a", "b"):  # two runs of one name
                row = (step, f"t{step}", "base-1", step, f'{{"loss": {loss}}}', run_id)
                database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", row)
        for run_id in ("a", "without-metrics"):
            row = (run_id, "base-1", '{"lr": 0.1}')
            database.execute("INSERT INTO configs VALUES (?, ?, ?)", row)
    run, other = read(file).runs
    assert "config.lr" not in other.facts
    assert run.curves["loss"][0].tolist() == [1, 3.5] and math.isnan(run.scores["loss"])
    assert run.facts["config.lr"] == 0.1 and run.reader == "trackio"


@pytest.mark.parametrize("name", ["run-base_s3-tag-{}.csv", "base_s3/{}.csv"])
def test_charts_of_tensorboard_are_joined_by_run(name, tmp_path):
    for tag in ("val_loss", "train_loss"):
        written(tmp_path, name.format(tag), EXCERPTS["tensorboard-csv"][1])
    (run,) = read(tmp_path).runs
    assert run.scores == {"val_loss": 3.25, "train_loss": 3.25} and run.decides == "val_loss"


OWN_FORM = """
name = "mine"
about = "it N loss X"
recognise = '^it \\d+ loss '
score = ["loss"]
[[line]]
pattern = '^it (?P<step>\\d+) loss (?P<loss>NUMBER)'
"""


def test_a_form_of_ones_own(tmp_path):
    form = written(tmp_path, "form.toml", OWN_FORM.encode())
    log = written(tmp_path, "a.log", b"it 1 loss 3.5\nit 2 loss 3.25\nit 1 loss 4.5\nit 2 los")
    reading = read(log, str(form))
    assert [run.scores["loss"] for run in reading.runs] == [3.25, 4.5]
    form.write_text(OWN_FORM.replace("(?P<loss>", "(?P<lo", 1))
    assert "mine" in read(log, str(form)).refused[0][1]
    form.write_text(OWN_FORM.replace("'^it", "'(^it", 1))
    with refused("value", match="recognise"):
        read(log, str(form))
    form.write_text(OWN_FORM.replace("about", "says", 1))
    with refused("value", match="about"):
        read(log, str(form))


def test_lm_eval_pairs_by_document_and_hash(tmp_path):
    written(tmp_path, SAMPLES_NAME, SAMPLES)
    reading = read(written(tmp_path, EXCERPTS["lm-eval"][0], LM_EVAL).parent)
    (run,) = reading.runs
    assert run.scores == {"copa/acc": 0.5}
    assert run.items["copa/acc"] == {"0:10658aeacfe4f619": 1.0, "1:eb5c68533d3faadc": 0.0}
    assert run.facts["evaluation:task_hash/copa"] == "ab12"
    assert [Path(path).name for path, _ in reading.skipped] == [SAMPLES_NAME]
    (run,) = runs(tmp_path / "old", "70m_step1000.json", LM_EVAL_OLD)
    accuracy = {"acc": 0.20394736842105263, "acc_norm": 0.28289473684210525}
    assert run.scores == {f"hendrycksTest-astronomy/{name}": v for name, v in accuracy.items()}
    (run,) = runs(tmp_path, "results_x.json", LIGHTEVAL)
    assert run.scores == {"lighteval:arc:25/acc": 0.25}


@pytest.mark.slow
def test_lm_eval_itself(tmp_path):
    from lm_eval.loggers import EvaluationTracker

    tracker = EvaluationTracker(output_path=str(tmp_path))
    metrics = {"alias": "copa", "acc,none": 0.5, "acc_stderr,none": 0.5}
    samples = [
        {
            "doc_id": at,
            "doc": {"text": str(at)},
            "target": "0",
            "arguments": [["a", "b"]],
            "resps": [[[-1.0, False]]],
            "filtered_resps": [[-1.0, False]],
            "filter": "none",
            "metrics": ["acc"],
            "doc_hash": f"{at:064d}",
            "prompt_hash": "p",
            "target_hash": "t",
            "acc": float(at),
        }
        for at in range(2)
    ]
    tracker.general_config_tracker.model_name = tracker.general_config_tracker.model_name_sanitized
    results = {"results": {"copa": metrics}, "versions": {"copa": 1}, "config": {}, "configs": {}}
    tracker.save_results_aggregated(results=results, samples={"copa": samples})
    tracker.save_results_samples(task_name="copa", samples=samples)
    (run,) = read(tmp_path).runs
    assert run.scores == {"copa/acc": 0.5}
    assert list(run.items["copa/acc"].values()) == [0.0, 1.0]


def tensorboard_file(folder: Path) -> Path:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for step, loss in ((1, 3.5), (2, 3.25)):
        old = Summary.Value(tag="loss", simple_value=loss)
        scalars = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
        new = Summary.Value(
            tag="accuracy", metadata=scalars, tensor=TensorProto(dtype=1, float_val=[loss / 8])
        )
        many = Summary.Value(
            tag="weights",
            tensor=TensorProto(dtype=1, float_val=[1.0, 2.0], tensor_shape={"dim": [{"size": 2}]}),
        )
        writer.add_event(Event(step=step, summary=Summary(value=[old, new, many])))
    writer.close()
    return next(folder.iterdir())


def test_tensorboard(tmp_path):
    first = tensorboard_file(tmp_path)
    (run,) = read(first).runs
    assert run.scores == {"loss": 3.25, "accuracy": 3.25 / 8}
    assert run.curves["loss"].tolist() == [[1, 3.5], [2, 3.25]]
    # Another file of the folder, such as after a restart, is of the same run.
    first.with_name(first.name + ".2").write_bytes(first.read_bytes())
    reading = read(tmp_path)
    assert len(reading.runs) == 1
    ((_, reason),) = reading.skipped
    assert first.name in reason


def said(reading: Reading) -> tuple[set[tuple[str, float, float]], set[float]]:
    """Return all points of curves, and all values of scores and items."""
    curves = {
        (name, *point)
        for run in reading.runs
        for name, curve in run.curves.items()
        for point in curve
    }
    curves = {point for point in curves if not math.isnan(point[-1])}
    values = {value for run in reading.runs for value in run.scores.values()}
    values |= {
        one for run in reading.runs for items in run.items.values() for one in items.values()
    }
    return curves, values


@pytest.mark.parametrize("name", [*EXCERPTS, "tensorboard"])
def test_cut_at_every_byte(name, tmp_path):
    """A file that is cut is refused, or read up to the cut: no number in it is a part of one.

    A table may lack the end of its last line, so there the run says that it may be cut.
    """
    if name == "tensorboard":
        file = tensorboard_file(tmp_path)
    else:
        file = written(tmp_path, *EXCERPTS[name])
    options = COLUMNS if name == "table" else {}
    whole_curves, whole_values = said(read(file, name, **options))
    assert whole_values
    for size in reversed(range(file.stat().st_size)):
        os.truncate(file, size)
        reading = read(file, name, **options)
        assert len(reading.runs) == 0 or not reading.refused
        curves, values = said(reading)
        if any(run.is_row and "cut" in run.facts for run in reading.runs):
            continue
        known = whole_values | {value for *_, value in whole_curves}
        assert curves <= whole_curves
        assert {v for v in values if not math.isnan(v)} <= known, size


@pytest.mark.parametrize("name", EXCERPTS)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_damaged_files_are_refused_or_read(name, tmp_path, data):
    file_name, content = EXCERPTS[name]
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 6))):
        start = data.draw(st.integers(0, len(damaged)))
        length = data.draw(st.integers(0, 12))
        chosen = st.one_of(
            st.binary(max_size=8),
            st.sampled_from(
                [b"\n", b"\0", b"nan", b"1e999", b'"', b"9" * 400, b"\xff\xfe", b"[[["]
            ),
        )
        damaged[start : start + length] = data.draw(chosen)
    file = written(tmp_path, file_name, bytes(damaged))
    for reader in (name, None):
        reading = read(file, reader, **COLUMNS)
        assert reading.files == 1
        assert reading.runs or reading.refused or reading.skipped
        for _, reason in reading.refused:
            assert "\n" not in reason
