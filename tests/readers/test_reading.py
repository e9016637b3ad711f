"""From paths to runs: which files, which reader, what is refused, skipped and counted once."""

import gzip
import json
import sys
from pathlib import Path

import pytest

from paribus.readers import read

from .excerpts import MODDED, MODDED_EMA, NANOGPT, TRAINER_STATE

OWN = """
from paribus.readers import Run, reader

@reader("mine", says="loss=...", detects=lambda source: source.name.endswith(".mine"))
def mine(source):
    for line in source.lines():
        yield Run("", scores={"loss": float(line.partition(b"=")[2])})
"""


@pytest.fixture
def logs(tmp_path):
    for name, content in (
        ("a/log.txt", MODDED),
        ("a/notes.md", MODDED),
        ("a/picture.png", b"\x89PNG\0"),
        ("b/train_seed7.log", NANOGPT),
        ("b/table.csv", b"x,y\n1,2\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_a_folder(logs):
    reading = read(logs)
    assert [Path(run.source).name for run in reading.runs] == [
        "log.txt",
        "log.txt#2",
        "train_seed7.log",
    ]
    skipped = sorted(Path(path).name for path, _ in reading.skipped)
    assert skipped == ["notes.md", "picture.png", "table.csv"]
    assert not reading.refused and reading.files == 5


def test_tables_of_a_folder_are_read_where_columns_are_named(logs):
    reading = read(logs, scores=("y",))
    assert [run.scores for run in reading.runs if run.reader == "table"] == [{"y": 2.0}]


def test_packed_files_are_read(tmp_path):
    (tmp_path / "log.txt.gz").write_bytes(gzip.compress(MODDED))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"arm,loss\na,1\nb,2\n"))
    reading = read(tmp_path, scores=("loss",))
    assert [run.reader for run in reading.runs] == ["modded-nanogpt"] * 2 + ["table"] * 2
    (tmp_path / "bad.csv.gz").write_bytes(b"no such thing")
    assert "cannot" in read(tmp_path / "bad.csv.gz").refused[0][1]
    (tmp_path / "a.csv.zst").write_bytes(b"(\xb5/\xfd")
    assert "unpack" in read(tmp_path / "a.csv.zst").refused[0][1]


def test_an_own_reader(logs, monkeypatch):
    (logs / "readers_of_mine.py").write_text(OWN)
    (logs / "x.mine").write_text("loss=1.5\nloss=2.5\n")
    monkeypatch.chdir(logs)
    reading = read("x.mine", "readers_of_mine.py:mine")
    assert [run.scores["loss"] for run in reading.runs] == [1.5, 2.5]
    (logs / "x.mine").write_text("loss=abc\n")
    (refusal,) = read("x.mine", "readers_of_mine.py:mine").refused
    assert "ValueError" in refusal[1]


def test_standard_output_beside_the_log_counts_once(tmp_path):
    trial = MODDED[: MODDED.index(b"step:0/", MODDED.index(b"step:0/") + 1)]
    (tmp_path / "a.stdout").write_bytes(trial[trial.index(b"step:0/") :])
    (tmp_path / "b.txt").write_bytes(trial)
    reading = read(tmp_path)
    (run,) = reading.runs
    assert "source_digest" in run.facts
    assert len(reading.copies) == 1
    # A log that was cut says no more than the whole one.
    (tmp_path / "a.stdout").write_bytes(trial[trial.index(b"step:0/") :] * 2)
    (tmp_path / "c.txt").write_bytes(trial.replace(b"536.697s", b"531.102s"))
    assert len(read(tmp_path).runs) == 2  # the same values in other times: it ran twice


def test_equal_results_of_other_samples_are_two_runs(tmp_path):
    for folder, right in {"a": (1, 0), "b": (0, 1)}.items():
        (tmp_path / folder).mkdir()
        results = {"results": {"arc": {"acc,none": 0.5}}, "lm_eval_version": "0.4.13"}
        date = "2025-01-01T00-00-00.000000"
        (tmp_path / folder / f"results_{date}.json").write_text(json.dumps(results))
        lines = [json.dumps({"doc_id": at, "acc": one}) for at, one in enumerate(right)]
        (tmp_path / folder / f"samples_arc_{date}.jsonl").write_text("\n".join(lines) + "\n")
    reading = read(tmp_path)
    assert len(reading.runs) == 2 and not reading.copies


@pytest.mark.parametrize("folder", ["run", "lr=1e-3#2"])
@pytest.mark.parametrize("last", [1, 2])
def test_checkpoints_of_few_evaluations_count_once(last, folder, tmp_path):
    for run, by in (("a", 0.0), ("b", 0.01)):
        for name, n in (("checkpoint-1", 1), ("checkpoint-2", last), ("", last)):
            home = tmp_path / folder / run / name
            home.mkdir(parents=True, exist_ok=True)
            history = [{"eval_loss": 3 - by - at / 7, "step": at} for at in range(1, n + 1)]
            state = {"log_history": history, "global_step": n}
            (home / "trainer_state.json").write_text(json.dumps(state))
    reading = read(tmp_path)
    assert len(reading.runs) == 2 and len(reading.copies) == 4
    assert {run.scores["eval_loss"] for run in reading.runs} == {3 - last / 7, 2.99 - last / 7}


def test_a_form_that_two_readers_know(tmp_path):
    both = b"Step 00250 | Validation bpb: 0.745\n" + MODDED_EMA
    (tmp_path / "log.txt").write_bytes(both)
    assert "several" in read(tmp_path).refused[0][1]
    assert read(tmp_path, "nanochat").runs[0].scores == {"val_bpb": 0.745}


def test_seeds_in_paths(tmp_path):
    for name, seed in (("run-seed_12/trainer_state.json", 12), ("SEED=3.json", None)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TRAINER_STATE)
        found = read(tmp_path / name, "hugging-face").runs[0].facts
        assert found["seed"] == (seed or 3)


def test_two_processes_read_what_one_does(tmp_path, monkeypatch):
    lines = [f"iter {at % 50}: loss {3 + at / 700}, time 1ms\n" for at in range(1_000)]
    log = NANOGPT + b"".join(line.encode() for line in lines) + b"iter 50: loss 3."
    (tmp_path / "log.txt").write_bytes(log)
    (tmp_path / "t.csv").write_text("arm,loss\na,1\nb,2\n")

    def values() -> list[object]:
        runs = read([tmp_path / name for name in ("log.txt", "t.csv")]).runs
        curves = [{name: own.tolist() for name, own in run.curves.items()} for run in runs]
        return [(run.source, run.scores, run.facts) for run in runs] + curves

    expected = values()
    monkeypatch.setattr(sys.modules["paribus.readers.read"], "LARGE_BYTES", 0)
    monkeypatch.setattr("paribus.readers.port.PIECE_BYTES", 1_000)
    assert values() == expected and len(expected) > 40
