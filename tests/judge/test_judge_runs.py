"""`paribus judge`: published answers through the whole pipeline, error rates, and bad input."""

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import paribus
from paribus.cli import main
from paribus.decision import Verdicts
from paribus.errors import ParibusError
from paribus.readers.facts import find_size
from paribus.readers.judge import direction
from paribus.report.model import build_report
from paribus.results import extend
from paribus.runs.run import register
from paribus.study import load_study
from paribus.verification import verify

from ..tools import codes, eventually, refused, rows as rows_of, verb

# R datasets::sleep; Darwin's maize, in inches, as in Fisher (1935) and R's HistData::ZeaMays.
DRUG_1 = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
DRUG_2 = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
CROSS = [23.5, 12, 21, 22, 19.125, 21.5, 22.125, 20.375, 18.25, 21.625, 23.25, 21, 22.125, 23, 12]
SELF = [17.375, 20.375, 20, 20, 18.375, 18.625, 18.625, 15.25, 16.5, 18, 16.25, 18, 12.75, 15.5, 18]
# Of the article on Welch's t-test in the English Wikipedia.
SMALL = [19.8, 20.4, 19.6, 17.8, 18.5, 18.9, 18.3, 18.9, 19.5, 22.0]
LARGE = [28.2, 26.6, 20.1, 23.3, 25.2, 22.1, 17.7, 27.6, 20.6, 13.7, 23.2, 17.5, 20.6, 18.0]
LARGE += [23.9, 21.6, 24.3, 20.4, 24.0, 13.2]
BASE = [3.012, 2.987, 3.003, 2.995, 3.021]


def table(**arms: Sequence[float]) -> dict[str, list[Any]]:
    """A table with the columns variant, seed and loss."""
    return {
        "variant": [arm for arm, values in arms.items() for _ in values],
        "seed": [seed for values in arms.values() for seed in range(1, len(values) + 1)],
        "loss": [value for values in arms.values() for value in values],
    }


def columns(names: str, rows: Iterable[Sequence[Any]]) -> dict[str, list[Any]]:
    """Return rows as a table of columns."""
    return dict(zip(names.split(), map(list, zip(*rows, strict=True)), strict=True))


def found(verdicts: Verdicts) -> dict[str, str]:
    """Return what was found about the runs, by code."""
    return dict(verdicts.analysis.runs.notes)


def judge(data: Any, **options: Any) -> Verdicts:
    about = {"arm": "variant", "score": "loss", "baseline": "base", "margin": 0.02}
    return paribus.judge(data, **about | options)


def write(path: Path, data: dict[str, list[Any]]) -> Path:
    rows = zip(*data.values(), strict=True)
    lines = [",".join(data), *(",".join(map(str, row)) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def drawn(n: int, shifts: dict[str, float], seed: int = 0, sd: float = 0.01) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return table(**{arm: (3.2 + by + rng.normal(0, sd, n)).tolist() for arm, by in shifts.items()})


@pytest.mark.parametrize(
    ("data", "options", "statistic", "df", "p"),
    [
        # R: t.test(extra ~ group, data = sleep): group 1 minus group 2.
        (table(one=DRUG_1, two=DRUG_2), {"baseline": "two"}, -1.8608, 17.776, 0.07939),
        # R: t.test(cross, self, paired = TRUE).
        (table(cross=CROSS, self=SELF), {"baseline": "self", "pair": True}, 2.148, 14, 0.0497),
        (table(base=LARGE, small=SMALL), {}, -2.22, 24.5, 0.036),
    ],
)
def test_published_answers(data, options, statistic, df, p):
    verdicts = judge(data, margin=1.0, **options)
    basis = verdicts.analysis.contrasts[0].by_run.decided.basis
    assert basis.statistic() == pytest.approx(statistic, rel=2e-3)
    assert basis.df == pytest.approx(df, rel=2e-3)
    assert verdicts[0].p == pytest.approx(p, abs=5e-4)
    if df == 17.776:
        ends = (verdicts[0].low, verdicts[0].high)
        assert ends == pytest.approx((-3.3654832, 0.2054832), abs=5e-8)


@pytest.mark.parametrize("word", ["mean", "Std", "overall"])
def test_a_row_that_sums_up_others_is_no_run(word):
    data = drawn(6, {"base": 0.0, "new": -0.05})
    data["seed"] = [*map(str, data["seed"]), word, word]
    data["variant"] += ["base", "new"]
    data["loss"] += [3.2, 3.15]
    with refused("incomparable", match=f"'{word}' seems to sum"):
        judge(data)
    data["Unnamed: 0"] = data.pop("seed")  # the index of a frame
    with refused("incomparable", match=f"'{word}' seems to sum"):
        judge(data)


def test_means_over_other_items_are_not_compared():
    rng = np.random.default_rng(2)
    rows = [
        (arm, seed, item, int(rng.random() < right))
        for arm, n, right in (("base", 60, 0.3), ("new", 40, 0.7))
        for seed in range(5)
        for item in range(n)
    ]
    data = columns("variant seed item right", rows)
    options: dict[str, Any] = {"score": "right", "better": "higher", "item": "item"}
    with refused("incomparable", match="different items"):
        judge(data, **options)
    same = {name: [row[at] for row in rows if row[2] < 40] for at, name in enumerate(data)}
    assert judge(same, **options)[0].word == "BETTER"


def test_pairs_share_what_is_named():
    order = np.random.default_rng(1).permutation(30)
    rows = [("self", f"pot-{at}", value) for at, value in enumerate(SELF)]
    rows += [("cross", f"pot-{at}", value) for at, value in enumerate(CROSS)]
    names = ("variant", "pot", "loss")
    data = {name: [rows[at][k] for at in order] for k, name in enumerate(names)}
    data["seed"] = list(range(30))
    about = {"better": "higher", "baseline": "self", "margin": 2.0}
    by_pot = judge(data, pair="pot", **about)[0]
    assert by_pot.p == pytest.approx(0.0497, abs=5e-5) and by_pot.n == 15
    with refused("conflict", match="remove one"):
        judge(data, pair="pot", seed="seed", **about)
    with refused("missing", match="'pots'"):
        judge(data, pair="pots", **about)


@pytest.mark.parametrize("baseline", [0, 0.0, "0", np.int64(0)])
def test_arms_may_be_numbers(baseline):
    data = drawn(5, {"0": 0.0, "1": -0.05})
    data["variant"] = list(map(int, data["variant"]))
    (said,) = judge(data, baseline=baseline)
    assert (said.arm, said.reference, said.word) == ("1", "0", "BETTER")


def test_runs_keep_their_own_seeds():
    data = drawn(5, {"base": 0.0, "new": -0.05})
    data["seed"] = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    verdicts = judge(data)
    analysis = verdicts.analysis
    found = {one.arm: list(one.values) for one in analysis.summaries}
    assert found == {"base": [0, 1, 2, 3, 4], "new": [10, 11, 12, 13, 14]}
    assert verdicts[0].n == 5 and analysis.n_trials == 10 and not analysis.left_out
    # What tells no two runs apart is not a number of theirs.
    named = judge(data | {"seed": list("abcdefghij")}).analysis
    assert {one.arm: list(one.values) for one in named.summaries}["base"] == [1, 2, 3, 4, 5]
    assert named.contrasts[0].decided == analysis.contrasts[0].decided


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("others", [{}, {"b": 0.0, "c": 0.01}])
def test_an_arm_that_lost_seeds_is_the_gravest_caution(others, pair):
    data = drawn(8, {"base": 0.0, "a": -0.1} | others)
    rows = [row for row in zip(*data.values(), strict=True) if row[0] != "a" or row[1] < 6]
    verdicts = judge(columns("variant seed loss", rows), pair=pair)
    report = build_report(verdicts)
    assert [*found(verdicts)] == ["lost_seeds"]
    assert report.gravest.code == "unequal"
    assert any(fact.split()[0] == "3" for fact in report.facts) == pair
    assert ("5 against 8" in rows_of(verdicts)["a"].change) != pair


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "categories"])
def test_tables_of_every_kind_give_the_same(kind):
    data = drawn(5, {"base": 0.0, "new": -0.03})
    frame: Any = pa.table(data)
    if kind in ("pandas", "polars"):
        frame = pytest.importorskip(kind).DataFrame(data)
    elif kind == "categories":
        frame = frame.set_column(0, "variant", frame["variant"].dictionary_encode())
    verdicts, expected = judge(frame), judge(data)
    assert (verdicts[0].word, verdicts[0].p) == ("BETTER", expected[0].p)
    assert "BETTER" in verdicts._repr_markdown_()


def test_the_card_is_exploratory_and_leaves_nothing_behind(tmp_path, capsys):
    file = write(tmp_path / "runs.csv", drawn(5, {"base": 0.0, "new": -0.03}))
    options = ["--arm", "variant", "--score", "loss", "--margin", "0.02", "--exit-verdict"]
    page = tmp_path / "page.html"
    assert main(["judge", str(file), *options, "--page", str(page)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Exploratory: ") and "not recorded" in out
    assert main(["judge", str(file), *options, "--markdown"]) == 0
    assert "| **BETTER**" in capsys.readouterr().out
    assert main(["judge", str(file), *options, "--baseline", "new"]) == 11
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "runs.csv"]


def test_a_refused_file_is_quoted_in_a_few_safe_characters(tmp_path):
    file = write(tmp_path / "runs.csv", drawn(5, {"base": 0.0, "new": -0.03}))
    other = tmp_path / "\x1b[2Jother.csv"
    other.write_text("arm,seed,loss\nbase,1,2\n\x1b[2J\x1b[32mBETTER" + "\ufffd" * 900 + ",1,2,3\n")
    options = ("--arm", "variant", "--score", "loss", "--verbose")
    for paths in ([file, other], [other]):
        code, *printed = verb("judge", *paths, *options)
        assert code == (0 if file in paths else 2)
        text = "".join(printed)
        assert "\x1b" not in text and r"\x1b[2J" in text and text.count("\ufffd") < 160


STUDY = """
name = "registered"
trainer = "runs"
baseline = "base"
seeds = [1, 2, 3, 4, 5]
endpoints = [{ metric = "loss", primary = true, margin = 0.02 }]
[runs]
paths = ["runs.csv"]
arm = "variant"
seed = "seed"
[runs.scores.loss]
better = "lower"
[arms.base]
[arms.new]
"""
PAIRED = 'inference.test = "paired_t"\n[runs]'


FIVE = drawn(5, {"base": 0.0, "new": -0.03})


def register_at(home: Path, *changes: tuple[str, str]) -> None:
    """Register the study in `home`, with its results beside it."""
    text = STUDY
    for old, new in changes:
        text = text.replace(old, new)
    (home / "study.toml").write_text(text)
    register(load_study(home / "study.toml"), home / "results")


def write_later(path: Path, data: dict[str, list[Any]]) -> Path:
    """Write a table that is a minute younger than the registration beside it."""
    later = (path.parent / "results" / "registration.json").stat().st_mtime + 60
    os.utime(write(path, data), (later, later))
    return path


def judge_at(home: Path, *options: object) -> tuple[int, str, str]:
    options = (*options, "--results", home / "results") if "--results" not in options else options
    return verb("judge", "--study", home / "study.toml", *options)


def test_a_study_that_was_registered_before_is_not_exploratory(tmp_path):
    register_at(tmp_path)
    file = write_later(tmp_path / "runs.csv", FIVE)
    code, out, _ = judge_at(tmp_path)
    assert code == 0 and "xploratory" not in out
    assert verify(tmp_path / "results").findings == []
    # Its folder is judged again without the files.
    file.unlink()
    assert verb("judge", "--study", tmp_path / "results")[1] == out


@pytest.mark.parametrize("are_new", [True, False])
def test_only_files_of_a_second_stage_must_be_younger_than_its_registration(are_new, tmp_path):
    results = tmp_path / "results"
    register_at(tmp_path, ("runs.csv", "*.csv"), ("0.02", "1e-4"), ("[runs]", PAIRED))
    record = json.loads((results / "registration.json").read_text())
    first = datetime.fromisoformat(record["registered_at"]).timestamp()
    data = drawn(10, {"base": 0.0, "new": -0.001})
    for is_second, name in ((False, "a.csv"), (True, "b.csv")):
        if is_second:
            eventually(lambda: time.time() >= first + 1)
            extend(results, 5)
        rows = [at for at, seed in enumerate(data["seed"]) if (seed > 5) == is_second]
        part = {key: [values[at] for at in rows] for key, values in data.items()}
        file = write(tmp_path / name, part)
        if not (is_second and are_new):
            os.utime(file, (first, first))
        code, out, _ = judge_at(tmp_path)
        assert code == 0 and ("xploratory" in out) == (is_second and not are_new)
    assert verify(results).findings == []


def test_runs_that_the_study_asks_for_are_needed(tmp_path):
    register_at(tmp_path)
    code, out, _ = judge_at(tmp_path)
    assert code == 0 and "runs.csv" in out  # there are none yet
    write_later(tmp_path / "runs.csv", FIVE | {"seed": [1, 2, 3, 4, 5, 77, 1, 2, 3, 4]})
    code, _, err = judge_at(tmp_path)
    assert code == 2 and "arm 'new'" in err
    write(tmp_path / "runs.csv", table(base=[3.21, 3.22, 3.2, 3.19, 3.2], new=[3.1, 3.12]))
    with refused("missing", match="3 runs"):
        paribus.run(load_study(tmp_path / "study.toml"), tmp_path / "results")


def test_files_that_change_after_the_verdict_are_told(tmp_path, caplog):
    (tmp_path / "study.toml").write_text(STUDY)
    file, results = write(tmp_path / "runs.csv", FIVE), tmp_path / "results"
    os.utime(file, (1e9, 1e9))
    code, out, _ = judge_at(tmp_path)
    assert code == 0 and out.startswith("Exploratory: ")
    assert verify(results).findings == []
    file.write_text(file.read_text().replace("3.1", "3.3"))
    (finding,) = verify(results).findings
    assert "runs.csv" in finding
    code, _, err = judge_at(tmp_path)
    assert code == 2 and "changed" in err
    assert verb("report", "--no-page", results)[0] == 0
    assert "changed" in caplog.text
    # Judged into another folder it is the verdict on what there is.
    assert judge_at(tmp_path, "--results", tmp_path / "anew")[0] == 0


@pytest.mark.parametrize("is_registered", [True, False])
def test_a_verdict_on_other_files_is_not_given(is_registered, tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    mine = write(tmp_path / "runs.csv", FIVE)
    other = write(tmp_path / "other.csv", drawn(5, {"base": 0.0, "new": 0.03}))
    options = ["--arm", "variant", "--score", "loss", "--results", tmp_path / "results"]
    if is_registered:
        options = ["--study", tmp_path / "study.toml", *options[-2:]]
    assert verb("judge", mine, *options)[0] == 0
    code, _, err = verb("judge", other, *options)
    assert code == 2 and "other.csv" in err
    assert verb("judge", mine, *options)[0] == 0


@pytest.mark.parametrize("how", ["folder", "label"])
def test_a_table_for_each_run(how, tmp_path):
    for arm, by in {"base": 0.0, "new": -0.03}.items():
        for seed, loss in enumerate(drawn(5, {arm: by}, seed=len(arm))["loss"]):
            file = tmp_path / arm / f"seed_{seed}" / "metrics.csv"
            file.parent.mkdir(parents=True)
            file.write_text(f"step,loss\n0,11.0\n10,{loss}\n")
    labelled = [f"{arm}={tmp_path}/{arm}/*/*.csv" for arm in ("base", "new")]
    words = ["judge", *([tmp_path, "--arm", "folder"] if how == "folder" else labelled), "--json"]
    verdict = json.loads(verb(*words)[1])["verdicts"][0]
    assert (verdict["word"], verdict["n"]) == ("BETTER", 5)
    # Several runs in a file that nothing tells apart are asked about.
    file.write_text("step,loss\n0,11.0\n10,3.2\n0,11.0\n10,3.3\n")
    code, out, _ = verb(*words)
    assert code == 0 and "--seed" in out


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("tokens_per_second", (1000, 640)),
        ("step_time", (0.64, 1.0)),
        ("seconds", (640, 1000)),
        ("n_params", (100, 156)),
        ("train/total_flos", (1e18, 1.56e18)),
    ],
)
def test_a_speed_or_size_is_the_arms_cost(column, values, tmp_path):
    data = drawn(6, {"base": 0.0, "org/a": -0.05, "org-a": -0.05})
    measured = dict(zip(("base", "org/a"), values, strict=True))
    data[column] = [
        measured.get(arm, values[0]) * (1 + seed / 1000)
        for arm, seed in zip(data["variant"], data["seed"], strict=True)
    ]
    files = [str(write(tmp_path / "runs.csv", data))]
    verdicts = paribus.judge(files, arm="variant", baseline="base")
    (block,) = build_report(verdicts).blocks
    more = {row.label: "56%" in row.note for row in block.rows}
    assert more == {"org/a": True, "org-a": False}
    assert {verdict.cost for verdict in verdicts} == {"not measured" if find_size(column) else ""}


def test_a_folder_of_tables_is_read_as_its_files_are(tmp_path):
    data = drawn(6, {"base": 0.0, "new": -0.05})
    for arm, seed, loss in zip(*data.values(), strict=True):
        (tmp_path / arm).mkdir(exist_ok=True)
        (tmp_path / arm / f"seed-{seed}.csv").write_text(f"loss\n{loss}\n")
    (tmp_path / "README.md").write_text("runs")
    verdicts = paribus.judge(str(tmp_path), arm="folder")
    assert [verdict.word for verdict in verdicts] == ["BETTER"]


def test_crashed_runs_are_data_or_left_out_and_counted():
    data = drawn(7, {"base": 0.0, "new": -0.05})
    for place in (7, 8):
        data["loss"][place] = math.nan  # two runs of the arm
    first = judge(data)
    assert first[0].word == "BETTER"  # also with both at the worst finite score
    assert "diverged" in codes(first)
    without = judge(data, crashed="exclude")
    assert without[0].word == "BETTER" and "excluded" in codes(without)
    assert without.analysis.excluded == {"new": 2}
    report = build_report(without)
    assert report.gravest is not None and report.gravest.code == "excluded"
    assert report.facts[0].split()[:3] == ["12", "of", "14"]
    everyone = drawn(6, {"base": 0.0, "new": -0.05})
    everyone["loss"][6:] = [math.inf] * 6
    assert judge(everyone)[0].word == "WORSE"


@pytest.mark.parametrize("crashed", ["data", "exclude"])
@pytest.mark.parametrize(
    ("state", "step", "score", "is_early"),
    [
        ("running", 200, "3.27", True),
        ("crashed", 1000, "3.27", False),  # at the end
        ("failed", 300, "NaN", False),  # it diverged
        ("PRUNED", 300, "3.27", True),
        ("CANCELLED by 1000", 300, "3.27", True),
        ("finished", 200, "3.27", False),
    ],
)
def test_runs_that_have_not_finished_do_not_count(state, step, score, is_early, crashed, tmp_path):
    """Columns as wandb exports them: State, and _step, the last one."""
    rows = [
        f"{arm}-{seed},finished,{arm},{seed},{3.28 - 0.01 * (arm == 'new') + seed / 2000},1000"
        for arm, seed in product(("base", "new"), range(6))
    ]
    rows[-1] = f"new-5,{state},new,5,{score},{step}"
    file = tmp_path / "wandb.csv"
    file.write_text("\n".join(["Name,State,arm,seed,loss,_step", *rows]) + "\n")
    options: dict[str, Any] = {"score": "loss", "baseline": "base", "crashed": crashed}
    if is_early and crashed == "data":
        with refused("unfinished", match="new-5") as raised:
            paribus.judge(str(file), **options)
        assert f"{state.lower()}, at step {step}" in str(raised.value)
        return
    verdicts = paribus.judge(str(file), **options)
    is_lost = crashed == "exclude" and (is_early or score == "NaN")
    assert verdicts.analysis.excluded == ({"new": 1} if is_lost else {})
    assert ("other_lengths" in found(verdicts)) == (step < 1000 and not is_lost)


def test_equal_scores_at_all_seeds_are_asked_about_and_not_tested():
    data = table(base=[3.2, 3.21, 3.19, 3.2, 3.22], new=[3.1234] * 5)
    said = judge(data)[0]
    assert said.word == "UNRESOLVED" and said.p is None
    # An integer is not a surprise.
    whole = table(base=[3, 4, 3, 5, 4], new=[2] * 5)
    assert judge(whole)[0].p is not None


@pytest.mark.parametrize(
    ("name", "better"),
    [
        *((n, "lower") for n in ("val_loss", "eval/lm/CE loss", "valLoss", "accuracy_drop", "mse")),
        *((n, "higher") for n in ("lossless_acc", "arc/acc_norm", "pass@1", "final.exact_match")),
        *((n, None) for n in ("neg_loss", "perplexity_improvement", "acc_stderr", "inaccuracy")),
        *((n, None) for n in ("steps_to_accuracy", "memory_per_accuracy", "score", "access_time")),
    ],
)
def test_a_name_says_which_direction_is_better_or_it_is_asked(name, better):
    if better:
        assert direction(name) == better
        return
    with refused("ambiguous", match="pass --better"):
        direction(name)


@pytest.mark.parametrize("crashed", ["data", "exclude"])
def test_a_run_that_did_not_come_to_the_step_has_not_diverged(crashed):
    rng = np.random.default_rng(4)
    rows = [
        (arm, seed, step, by - step / 1000 + float(rng.normal(0, 0.01)))
        for arm, by, last in (("base", 2.0, 500), ("new", 1.9, 450))
        for seed in range(6)
        for step in range(50, last + 1, 50)
    ]
    about: dict[str, Any] = {"seed": "seed", "step": "step", "at_step": 500, "crashed": crashed}
    data = columns("variant seed step loss", rows)
    with refused("missing", match="step 500") as raised:
        judge(data, **about)
    assert "6 runs" in str(raised.value)
    data["loss"] = [math.nan if row[0] == "new" and row[2] > 300 else row[3] for row in rows]
    if crashed == "data":
        assert judge(data, **about)[0].word == "WORSE"


def test_more_scores_and_targets_are_compared_where_curves_tell(tmp_path, capsys):
    noise = np.random.default_rng(7).normal(0, 0.01, (2, 2, 6))
    data = columns(
        "variant seed step loss acc",
        [
            (arm, seed, step, 4 - (1 + at) * step / 100 + loss, 0.5 + at / 4 + right)
            for at, arm in enumerate(("base", "new"))
            for seed, (loss, right) in enumerate(noise[at].T)
            for step in range(0, 101, 10)
        ],
    )
    file = write(tmp_path / "runs.csv", data)
    options = ["--arm", "variant", "--baseline", "base", "--step", "step", "--json"]
    options += ["--score", "loss", "--score", "acc", "--target", "3.5"]
    assert main(["judge", str(file), *options]) == 0
    told = {one["metric"]: one for one in json.loads(capsys.readouterr().out)["secondary"]}
    means = [np.mean(data["acc"][a:b]) for a, b in ((66, 132), (0, 66))]
    assert told["acc"]["effect"] == pytest.approx(means[0] - means[1]) and told["acc"]["n"] == 6
    assert told["acc"]["adjusted_p"] < 1e-6
    assert told["steps_to_target"]["effect"] == pytest.approx(-25, abs=2)
    # What the baseline never reaches is at least the budget: nothing is shown to be equal.
    never = judge(data, step="step", target=2.5)
    assert never.analysis.contrast("new", "steps_to_target").censored == (0, 6)
    (block,) = (block for block in build_report(never).blocks if block.is_secondary)
    assert "6 of base" in block.rows[0].note
    assert judge(data, step="step", at_step=50)[0].effect == pytest.approx(-0.5, abs=0.02)


def test_pairs_take_out_what_a_seed_has_in_common():
    rng = np.random.default_rng(2)
    common = rng.normal(0, 0.2, 8)
    data = table(base=(3 + common).tolist(), new=(2.97 + common + rng.normal(0, 0.01, 8)).tolist())
    assert judge(data)[0].word == "UNRESOLVED"
    paired = judge(data, pair=True)
    assert paired[0].word == "BETTER" and "pairs_assumed" in codes(paired)
    # A pair that is not whole is left out by name.
    lacking = {name: values[:-1] for name, values in data.items()}
    told = judge(lacking, pair=True)
    assert told[0].n == 7 and [out.seed for out in told.analysis.left_out] == [8]


BAD: dict[str, tuple[dict[str, Any], dict[str, list[Any]], str]] = {
    "no such column": ({"arm": "variants"}, {}, "'variant'"),
    "unknown direction": ({"score": "value"}, {"value": [1.0] * 10}, "--better"),
    "words": ({}, {"loss": [3.0] * 9 + ["many"]}, "'many'"),
    "no seed": ({"pair": True}, {"seed": ["x", "y", "z", "u", "v"] * 2}, "integer"),
    "margin": ({"margin": -0.1}, {}, "greater than 0"),
    "crashed": ({"crashed": "x"}, {}, "crashed = 'x'"),
    "step without a column": ({"at_step": 5}, {}, "--at-step"),
    "too large to be squared": (
        {},
        {"loss": [1e300, 2e300, 4e300, 3e300, 5e300, *[2e300] * 4, 1e300]},
        "rescale",
    ),
    "all crashed": ({"crashed": "exclude"}, {"loss": [3.0] * 5 + [math.nan] * 5}, "no finished"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name):
    options, columns, says = BAD[name]
    data = drawn(5, {"base": 0.0, "new": -0.03}) | columns
    if name == "words":
        data["loss"] = list(map(str, data["loss"]))
    with pytest.raises(ParibusError) as told:
        judge(data, **options)
    assert says in str(told.value)


@pytest.mark.parametrize(
    "words",
    [
        ("judge",),
        ("judge", "absent.csv", "--score", "loss"),
        ("judge", "runs.csv"),
        ("judge", "new=runs.csv", "runs.csv", "--score", "loss"),
        ("judge", "base=runs.csv", "new=*.csv", "--score", "loss"),
        ("judge", "--study", "quickstart"),
    ],
    ids=" ".join,
)
def test_bad_commands_are_one_line_and_leave_nothing(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "runs.csv", drawn(5, {"base": 0.0, "new": -0.03}))
    assert main(list(words)) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and said.out == ""
    assert [one.name for one in tmp_path.iterdir()] == ["runs.csv"]


def test_a_page_replaces_nothing_but_a_page(tmp_path):
    file, page = write(tmp_path / "runs.csv", FIVE), tmp_path / "page.html"
    before, options = file.read_bytes(), (file, "--arm", "variant", "--page")
    for name in ("runs.csv", "page.pdf", "none/page.html", "."):
        code, _, err = verb("judge", *options, tmp_path / name)
        assert code == 2 and "--page" in err, name
    assert file.read_bytes() == before and [*tmp_path.iterdir()] == [file]
    assert [verb("judge", *options, page)[0] for _ in range(2)] == [0, 0]


def test_runs_that_options_leave_out_are_counted_and_folders_of_a_pattern_are_read(tmp_path):
    data = drawn(5, {"base": 0.0, "new": -0.03})
    for name in ("base", "new"):
        (tmp_path / name).mkdir()
        rows = [row for row in zip(*data.values(), strict=True) if row[0] == name]
        write(tmp_path / name / "runs.csv", columns("variant seed loss", rows))
    labelled = [f"{name}={tmp_path}/{name[0]}*" for name in ("base", "new")]
    assert "BETTER" in verb("judge", *labelled, "--score", "loss")[1]
    options = ("--arm", "variant", "--score", "loss", "--where", "variant!=base", "--bar", "9")
    assert verb("judge", f"{tmp_path}/*", *options)[0] == 0
    with pytest.raises(ParibusError, match="'OOM' in column 'loss' must be a number"):
        judge(data | {"loss": [*map(str, data["loss"][1:]), "OOM"]})
    rates = {key: values * 2 for key, values in data.items()} | {"lr": [1.0] * 10 + [2.0] * 10}
    rates["loss"][10:] = [loss + 1 for loss in rates["loss"][10:]]
    for options in ({"where": ["lr=1"]}, {"best_of": "lr"}):
        assert "10 of 20 runs excluded by" in build_report(judge(rates, **options)).reading
    with refused("ambiguous", match="--arm model"):
        judge(table(**{f"m{k}": [k] for k in range(6)}) | {"model": [*"aaabbb"]}, baseline=None)


def test_a_plan_of_unpaired_runs_uses_a_pilot_of_unpaired_runs(tmp_path):
    (tmp_path / "study.toml").write_text(STUDY)
    file, pilot = write(tmp_path / "runs.csv", FIVE), tmp_path / "pilot"
    options = (file, "--arm", "variant", "--score", "loss", "--results", pilot)
    assert verb("judge", *options)[0] == 0
    code, out, _ = verb("plan", tmp_path / "study.toml", "--pilot", pilot)
    # R: power.t.test(n = 5, power = 0.8)$delta
    assert code == 0 and "2.02 SDs of one run" in out and "SD of one run 0.0" in out
    assert "loss.margin = None, not 0.1" in verb("judge", *options, "--margin", "0.1")[2]


def test_parts_of_schedules_and_targets_that_no_run_reaches(tmp_path):
    steps = {"base": [2, 4, 6], "new": [2, 4]}
    rows = [(a, s, t, 9 / t + s / 99) for a in steps for s in range(5) for t in steps[a]]
    data = columns("variant seed step loss", rows)
    codes_at = found(judge(data, step="step", at_step=4))
    assert "base at 4 of 6 steps, new at 4 of 4" in codes_at["other_schedules"]
    rows = [row for row in rows if row[2] < 6]
    verdicts = judge(columns("variant seed step loss", rows), step="step", target=1.0)
    contrast = verdicts.analysis.contrast("new", "steps_to_target")
    assert contrast.decided is None and "no run" in contrast.why_not
