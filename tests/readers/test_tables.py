"""Tables of anybody's: wide and long, curves and items, and what nothing tells apart."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import paribus
from paribus.errors import ParibusError
from paribus.readers import Run, read, runs_of
from paribus.study.runs import RunsSection

from ..tools import refused


def table(
    folder: Path, text: str, name: str = "runs.csv", scores: tuple[str, ...] = (), **columns: Any
) -> list[Run]:
    (folder / name).write_text(text)
    reading = read(folder / name, section=RunsSection(**columns), scores=scores)
    if reading.refused:
        raise ParibusError(reading.refused[0][1])
    return reading.runs


WIDE = "variant,seed,loss,accuracy,rate\nbase,1,3.1,0.5,0.1\nbase,2,3.2,,0.1\nnew,1,nan,0.25,0.2\n"


def test_wide(tmp_path):
    first, second, third = table(
        tmp_path, WIDE, scores=("loss", "accuracy"), arm="variant", seed="seed"
    )
    assert first.scores == {"loss": 3.1, "accuracy": 0.5}
    assert first.facts == {"arm": "base", "seed": 1, "rate": 0.1}
    assert second.scores == {"loss": 3.2}  # an empty cell is not a score
    assert math.isnan(third.scores["loss"])  # and a NaN is one


def test_long_with_steps(tmp_path):
    text = (
        "arm,seed,step,name,value\na,1,20,loss,3.0\na,1,10,loss,3.5\na,1,20,acc,0.5\n"
        "b,1,10,loss,2.5\n"
    )
    one, other = table(
        tmp_path, text, arm="arm", seed="seed", step="step", metric="name", value="value"
    )
    assert {name: curve.tolist() for name, curve in one.curves.items()} == {
        "loss": [[10, 3.5], [20, 3.0]],
        "acc": [[20, 0.5]],
    }
    assert one.scores == {"loss": 3.0, "acc": 0.5}
    assert other.scores == {"loss": 2.5}
    assert other.facts["steps"] == 10


def test_items(tmp_path):
    text = (
        '{"m": "a", "doc": 1, "acc": 1}\n{"m": "a", "doc": 2, "acc": 0}\n'
        '{"m": "b", "doc": 1, "acc": NaN}\n'
    )
    one, other = table(tmp_path, text, "items.jsonl", scores=("acc",), arm="m", item="doc")
    assert one.items == {"acc": {"1": 1.0, "2": 0.0}}
    assert one.scores == {"acc": 0.5}
    assert math.isnan(other.items["acc"]["1"])


def test_parquet_and_a_frame(tmp_path):
    # Of integers with a gap pandas makes floats: seed 1 is 1 all the same.
    frame = pd.DataFrame({"a": ["x", "x", "y"], "s": [1, 2, None], "v": [1.5, 2.5, 3.5]})
    frame.to_parquet(tmp_path / "t.parquet")
    section = RunsSection(arm="a", seed="s")
    for found in (
        read(tmp_path / "t.parquet", section=section, scores=("v",)).runs,
        runs_of(pa.table(frame), section, ("v",), "the frame"),
    ):
        assert [run.scores["v"] for run in found] == [1.5, 2.5, 3.5]
        assert found[0].facts == {"arm": "x", "seed": 1}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"scores": ("los",)}, "'loss'"),
        ({"scores": ("variant",)}, "row 1: 'base'"),
        ({"metric": "variant", "value": "loss", "seed": "rate"}, "several rows"),
        ({"metric": "variant"}, "together"),
        ({"scores": ("loss",), "step": "seed", "item": "seed"}, "only one of"),
        ({"scores": ("loss",), "step": "accuracy", "arm": "variant"}, "no step"),
    ],
)
def test_what_cannot_be_read(columns, told, tmp_path):
    with pytest.raises(ParibusError, match=told):
        table(tmp_path, WIDE, **columns)


def test_columns_of_one_name_and_short_rows(tmp_path):
    for text, why in (("loss,loss\n1,2\n", "than one column"), ("arm,loss\na,1\nb\n", "cannot")):
        with pytest.raises(ParibusError, match=why):
            table(tmp_path, text, scores=("loss",))


@pytest.mark.parametrize(("cut", "n"), [(1, 3), (2, 3), (8, 2), (9, 2), (10, 2)])
def test_a_last_line_without_its_end_is_told(cut, n, tmp_path):
    (tmp_path / "runs.csv").write_text("arm,loss\na,3.2512\nb,3.2534\na,3.2578\n"[:-cut])
    reading = read(tmp_path / "runs.csv", scores=("loss",))
    assert [run.scores["loss"] for run in reading.runs[:2]] == [3.2512, 3.2534]
    assert len(reading.runs) == n and ("cut" in reading.runs[-1].facts) == (cut != 9)


def test_json_lines_and_lists(tmp_path):
    file = tmp_path / "runs.jsonl"
    file.write_text('{"loss": 1}\n{"loss": 2}\n{"lo')
    reading = read(file, scores=("loss",))
    assert [run.scores["loss"] for run in reading.runs] == [1, 2]
    assert "cut" in reading.runs[-1].facts
    file.write_text('{"loss": 1}\n{"lo\n')
    assert read(file, scores=("loss",)).refused
    file.write_text('{"eval": {"loss": 1, "top": {"k": 2}}, "lr": {}}\n')
    (run,) = read(file, scores=("eval.loss", "eval.top.k")).runs
    assert run.scores == {"eval.loss": 1, "eval.top.k": 2}
    file = tmp_path / "runs.json"
    file.write_text('[{"arm": "a", "loss": 1.0}, {"arm": "b", "loss": null}]')
    first, second = read(str(file), scores=("loss",)).runs
    assert (first.scores["loss"], second.scores) == (1.0, {})
    file.write_text('[{"arm": "a", "loss": 1}, 3]')
    assert read(str(file), scores=("loss",)).skipped


def test_a_column_called_seed_may_mean_nothing(tmp_path):
    text = "arm,pot,seed,loss\na,1,7,3.25\nb,1,8,3.5\n"
    found = table(tmp_path, text, scores=("loss",), seed="pot")
    assert [run.facts["seed"] for run in found] == [1, 1]


@pytest.mark.parametrize(
    ("columns", "key"),
    [("arm,seed,_step", "base,1,"), ("name,_step", "base-s1,"), ("epoch,_step", "0,")],
)
def test_the_step_of_wandb_is_the_step(columns, key, tmp_path):
    keys = [key, key.replace("base", "new")] if "base" in key else [key]
    rows = [f"{own}{step},{3 + step}\n" for own in keys for step in (0, 10, 20, 10, 20, 30)]
    (tmp_path / "h.csv").write_text(f"{columns},loss\n" + "".join(rows))
    found = read(tmp_path / "h.csv").runs
    assert [run.scores["loss"] for run in found] == [33] * len(keys)
    assert key == "0," or [run.facts["arm"] for run in found] == ["base", "new"]


def is_refused(name: str, steps: list[int]) -> bool:
    """Return whether rows of one arm are refused as those of a curve along a column."""
    data = {"loss": [3 - at / 7 for at in range(len(steps))], name: steps}
    arms = {"arm": ["base"] * len(steps) + ["new"] * len(steps)}
    both = arms | {key: [*values, *values] for key, values in data.items()}
    try:
        paribus.judge(both, score="loss", baseline="base")
    except ParibusError as error:
        return f"--step '{name}'" in str(error)
    return False


@pytest.mark.parametrize(
    ("name", "steps", "is_curve"),
    [
        *((name, [0, 1, 2, 3], True) for name in ("epochs", "n_iter", "training_iteration")),
        *((name, [0, 1, 2, 3], True) for name in ("tokens_seen", "totalSteps", "steps", "Updates")),
        ("timestamp", [*range(9)], False),  # runs have one each
        *((name, [*range(6)] * 2, False) for name in ("rng", "Unnamed: 0", "data_seed", "id")),
        ("_step", [100, 200, 300, 400], True),
        ("_step", [300, 200, 100], True),  # an export of the newest first
        ("_step", [0, 1, 2, 0, 1, 2, 3], True),  # two runs, one after the other
        ("_step", [600, 600, 600, 600], False),  # each ended there
        ("_step", [300, 100, 400, 200], True),  # in any order
    ],
)
def test_rows_of_a_curve_are_no_runs(name, steps, is_curve):
    assert is_refused(name, steps) == is_curve


def test_a_card_does_without_pandas(tmp_path):
    rows = [f"{arm},{seed},{3 + seed / 7}" for arm in ("base", "new") for seed in range(3)]
    (tmp_path / "r.csv").write_text("\n".join(["arm,seed,loss", *rows]) + "\n")
    program = (
        "import sys; from paribus.cli import main; main(['judge', 'r.csv', '--score', 'loss'])\n"
        "assert 'pyarrow' in sys.modules and 'pandas' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr


def verdict(data: Any, **options: Any) -> tuple[str, int]:
    verdicts = paribus.judge(data, **{"score": "loss", "baseline": "base"} | options)
    return verdicts[0].word, len(verdicts.analysis.study.seeds)


LOSSES = [3.212, 3.193, 3.203, 3.189, 3.209, 3.198]
PLAIN = {"arm": ["base"] * 6 + ["new"] * 6, "seed": [*range(6)] * 2}
PLAIN |= {"loss": [by + loss for by in (0, -0.03) for loss in LOSSES]}
SPEEDS = [30.35 + 1.37 * (n * n % 13) / 7 + n / 900 for n in range(12)]


@pytest.mark.parametrize(
    "columns",
    [
        {"seed": [2**53 + n for n in range(6)] * 2},
        {"seed": [2**63 + n for n in range(6)] * 2, "pair": "seed"},
        {"loss": [f"{10 * loss:.2f}%" for loss in PLAIN["loss"]]},
        {"loss": [f"{int(1000 * loss):,}" for loss in PLAIN["loss"]]},
        {"loss": [True] * 6 + [False] * 5 + [True]},
        *({name: SPEEDS} for name in ("prompts_per_second", "avg_prompt_len", "final_lr", "norm")),
        *(
            {name: [0, 1, 2, 0, 1, 0, 4, 1, 0, 2, 1, 0]}
            for name in ("template_errors", "n_shots_hit")
        ),
    ],
)
def test_honest_columns(columns, tmp_path):
    frame = pd.DataFrame(PLAIN | {k: v for k, v in columns.items() if k != "pair"})
    file = tmp_path / "runs.csv"
    frame.to_csv(file, index=False)
    pair = columns.get("pair")
    assert verdict(str(file), pair=pair) == verdict(frame, pair=pair) == ("BETTER", 6)


def test_columns_of_arms_rows_of_scores_and_other_encodings(tmp_path):
    frame, file = pd.DataFrame(PLAIN), tmp_path / "runs.csv"
    wide = frame.pivot(index="seed", columns="arm", values="loss").reset_index()
    assert verdict(wide, pair=True) == ("BETTER", 6)
    with refused("ambiguous", match="--score"):
        paribus.judge(wide)
    long = frame.assign(acc=0.5).melt(["arm", "seed"], var_name="metric")
    assert verdict(long) == ("BETTER", 6)
    file.write_text(frame.to_csv(index=False), "utf-16")
    assert verdict(str(file)) == ("BETTER", 6)
    frame.to_csv(file, index=False, sep=";", decimal=",")
    assert verdict(str(file)) == ("BETTER", 6)
    means = frame.groupby("arm", as_index=False).mean().assign(seed="mean")
    pd.concat([frame, means]).to_csv(file, index=False)
    with refused("incomparable", match="--where 'seed!=mean'"):
        verdict(str(file))
    assert verdict(str(file), where=["seed!=mean"]) == ("BETTER", 6)


@pytest.mark.parametrize(
    "pattern",
    [
        *("{}-seed{}.txt", "{}_{}.log", "{}-2024010{}/log.txt", "{}/2024-01-0{}/10-30-00/log.txt"),
        *("{}/2024-01-0{}_10-00/log.txt", "{}/Jan0{}_10-00-00_host/log.txt"),
    ],
)
def test_arms_by_file_names_and_folders_with_dates(pattern, tmp_path):
    for arm, seed, loss in zip(*PLAIN.values(), strict=True):
        file = tmp_path / pattern.format(arm, seed)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"step 0: train loss 4.0, val loss {loss:.4f}\n")
    assert verdict(str(tmp_path), score="val_loss") == ("BETTER", 6)
