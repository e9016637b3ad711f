"""A program that is not ours, from ten lines of TOML to a verdict."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus import trial
from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.programs import process
from paribus.programs.process import Output, run_program
from paribus.study.load import parse_study
from paribus.trainers.command import trainer
from paribus.trainers.command.records import COMPARISONS, ProgramEvidence
from paribus.trainers.command.scores import Finder, Report, number, read_report, read_rest
from paribus.trainers.command.sections import MetricSource
from paribus.trainers.command.sources import find_source, prepare_folder
from paribus.verification import verify

from ..tools import git, is_alive, refused, verb

pytestmark = pytest.mark.usefixtures("one_process")

# Seeds give other noise, and lr an effect; what it is told to do wrong is in `do`.
PROGRAM = """
import random, sys
seed, lr, do = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
noise = random.Random(seed).random()
for step in range(0, 60, 2):
    print(f"step {step} loss {3 - step / 30 + noise / 10:.4f}")
if do == "crash":
    print("CUDA error: out of luck", file=sys.stderr)
    sys.exit(3)
score = 1 + noise / 10 - lr + (random.Random(f"{seed} {lr}").random() - .5) / 1000
if do == "sleep":
    import time
    time.sleep(60)
if do == "nan":
    score = float("nan")
if do == "seedless":
    score = 1.25
if do != "quiet":
    print(f"val_bpb: {score:.6f}")
"""
STUDY = r"""
name = "gain"
seeds = [1, 2, 3]
[trainer]
kind = "command"
command = ["{python}", "train.py", "{seed}", "{lr}", "{do}", "{folder}"]
[metrics.val_bpb]
stdout = 'val_bpb: (\S+)'
better = "lower"
margin = 0.002
[set]
lr = 0.02
do = "well"
[arms.baseline]
[arms.hot]
set.lr = 0.03
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a program and a study of it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "study.toml").write_text(STUDY)
    return tmp_path


def changed(folder, *pairs):
    """Load the study with texts replaced, each of which it must have."""
    text = STUDY
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    (folder / "study.toml").write_text(text)
    return paribus.load_study(folder / "study.toml")


# What a study file says


def test_a_file_is_a_study_in_the_form_of_every_other(folder):
    study = changed(
        folder,
        ("seeds = [1, 2, 3]", "seeds = [1, 2, 3, 4, 5]"),
        ("set.lr = 0.03", 'set.lr = 0.03\n[arms.idea]\nref = "main~1"\nenv.FAST = "1"'),
    )
    assert study.trainer == "command" and study.metrics == ("val_bpb",)
    assert (study.primary.metric, study.primary.margin) == ("val_bpb", 0.002)
    assert study.differences("hot") == {"set.lr": (0.02, 0.03)}
    assert study.differences("idea") == {
        "program.ref": ("", "main~1"),
        "program.env.FAST": (None, "1"),
    }
    again = parse_study(json.loads(json.dumps(study.model_dump(mode="json"))), folder=folder)
    assert again.digest == study.digest
    overrides = {"trainer.timeout_minutes": 2.0, "set.lr": 0.5, "metrics.val_bpb.margin": 0.01}
    other = paribus.load_study(folder / "study.toml", overrides)
    assert other.program.timeout_minutes == 2 and other.primary.margin == 0.01
    assert other.setting("baseline").set["lr"] == 0.5


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ('"{lr}"', '"{lrr}"', "unknown"),
        ('"{lr}"', '"0.1"', "value"),
        ("set.lr = 0.03", "set.lrr = 0.03", "unknown"),
        ('kind = "command"', 'kind = "comand"', "unknown"),
        ("better =", 'file = "x"\nbetter =', "value"),
        (r"(\S+)", r"([0-9.]+)", "value"),
        (r"(\S+)", r"(?P<step>\d+) (?P<value>-?\d+\.\d*)", "value"),
        (r"(\S+)", r"\S+", "value"),
        (r"(\S+)", "(", "value"),
        ("[set]", "[[endpoints]]\nmetric = 'val_bpb'\nmargin = 1.0\n[set]", "conflict"),
        ("[set]", "retry = 2\n[set]", "value"),
        ('kind = "command"', 'kind = "command"\nretry = 2', "value"),
        ('kind = "command"', 'kind = "command"\ntimeout_minutes = "soon"', "value"),
        ('kind = "command"', 'kind = "command"\ndeclares = { date = ["x"] }', "value"),
        ("set.lr = 0.03", 'set."trainer.timeout_minutes" = 3', "unknown"),
        ("set.lr = 0.03", "set.lr = { a = 1 }", "value"),
        ("[set]", "[tuning]\ngrid = { rate = [1, 2] }\n[set]", "unknown"),
        ("lr = 0.02", "lr = 0.02\nseed = 3", "conflict"),
        ('kind = "command"', 'kind = "command"\nfolder = "gone"', "missing"),
        ('kind = "command"', 'kind = "command"\nconfig = "gone.yaml"', "missing"),
        ("set.lr = 0.03", 'ref = "main"', "unsupported"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(folder, old, new, code):
    assert old in STUDY
    (folder / "study.toml").write_text(STUDY.replace(old, new, 1))
    with pytest.raises(ParibusError) as raised:
        paribus.run(paribus.load_study("study.toml"), "r")
    assert raised.value.code == code
    assert not (folder / "r").exists()


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("set.lr = 0.03", 'refs = "main"', "'ref'"),
        ("set.lr = 0.03", 'branch = "main"', "command, .*env, folder, ref"),
        ("set.lr = 0.03", "lr = 0.03", "'set.lr'"),
        ("set.lr = 0.03", "set.width = 3", "width in .set."),
        ("set.lr = 0.03", "", "set, ref, env"),
        ("margin = 0.002", "", "metrics.val_bpb has no margin"),
        ('kind = "command"', "", "add kind"),
    ],
)
def test_a_mistake_names_the_key_that_is_meant(folder, old, new, key):
    with pytest.raises(ParibusError, match=key):
        changed(folder, (old, new))


def test_values_are_arguments_and_never_a_shell_s(folder):
    nasty = "a b'; touch hacked; echo \"$HOME {x}"
    study = changed(folder, ('do = "well"', f"do = '''{nasty}'''"))
    setting = study.setting("hot")
    assert setting.argv(setting.values("hot", "3", "out", ""))[2:] == ["3", "0.03", nasty, "out"]


EXAMPLES = sorted((Path(__file__).parents[2] / "examples" / "any-trainer").glob("*.toml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_study_files_of_other_trainers_load(file):
    study = paribus.load_study(file)
    assert study.trainer == "command" and all(map(study.differences, dict(study.contrasts)))


# Numbers in what is printed


def heard(pattern, *lines):
    finder = Finder(MetricSource(stdout=pattern))
    for line in lines:
        finder.read_line(line)
    return finder


def in_rows(rows, key, step=""):
    finder = Finder(MetricSource())
    finder.read_rows(rows, key, step)
    return finder


def test_values_by_pattern():
    lines = ("step 10: loss 3.0", "loss 0", "step 20: loss 1.25", "x step 30: loss 1.5.")
    pattern = r"step (?P<step>[\d,]+): loss (?P<value>\S+)"
    finder = heard(pattern, *lines)
    assert (finder.n, finder.value, finder.step) == (3, 1.5, 30)
    assert finder.points == [(10, 3.0), (20, 1.25), (30, 1.5)]


def test_a_text_in_the_place_of_a_number_does_not_leave_the_one_before():
    lost = heard(r"loss (\S+)", "loss 1.5", "loss abc")
    assert (lost.n, lost.value, lost.unread) == (0, None, "abc")
    gone = heard(r"loss (\S+)", "loss 1.5", "loss nan")
    assert gone.n == 2 and gone.value is not None and math.isnan(gone.value)
    rows = [{"step": 100, "loss": 1.5}, {"step": 200, "loss": None}, {"other": 1}]
    null = in_rows(rows, "loss", "step")
    assert null.value is not None and math.isnan(null.value) and null.step == 200
    assert in_rows([{"loss": 1.5}, {"loss": "diverged"}], "loss").unread == "diverged"


@pytest.mark.parametrize("line", ["loss: 6.57e-06", "loss: 1.5.2", "loss: 2,44x", "loss: 1.5E7"])
def test_a_pattern_that_ends_within_a_number_has_read_none(line):
    pattern = r"loss: ([0-9.]*[0-9]|nan)"
    finder = heard(pattern, "loss: 1.5", line)
    assert (finder.n, finder.value) == (0, None) and finder.unread
    finder.read_line("loss: 1.25")
    assert finder.value == 1.25
    assert heard(r"loss: (\S+)", "loss: 6.57e-06").value == 6.57e-06


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,234", 1234), ("-12,345.5", -12345.5), ("1,234,567.", 1234567), ("1.5,", 1.5),
     ("0,985", None), ("2,01", None), ("1,2345", None), ("1,23,456", None), ("12e-3", 0.012)],
)  # fmt: skip
def test_a_comma_is_between_thousands_or_no_number(text, value):
    assert number(text) == value
    finder = heard(r"loss (\S+)", f"loss {text}")
    assert finder.value == value and bool(finder.unread) == (value is None)


def test_the_last_value_is_that_of_the_last_step():
    rows: list[Any] = [{"step": at, "loss": loss} for at, loss in ((100, 3), (300, 2), (100, 2.5))]
    values = in_rows(rows, "loss", "step")
    assert (values.value, values.step, values.n) == (2, 300, 3) and values.points[-1] == (100, 2.5)
    # As a program does that went on from there.
    assert in_rows([*rows, {"step": 300, "loss": 1.5}], "loss", "step").value == 1.5
    assert in_rows(rows, "loss").value == 2.5  # its steps are not stated
    logged = Report(logged=[{"step": 300, "loss": 2.0}, {"step": 100, "loss": 2.5}])
    finder = Finder(MetricSource())
    read_rest("loss", finder, Path(), logged, "")
    assert finder.value == 2


def test_a_file_of_csv_is_read_by_its_columns(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,loss,val\n1,2.5,\n2,,1.5\n3,1.25,\n")
    finder = Finder(MetricSource(file="metrics.csv", step="step"))
    read_rest("loss", finder, tmp_path, Report(), "")
    assert finder.points == [(1, 2.5), (3, 1.25)]


# The program as a process


def test_gigabytes_of_output_leave_a_bounded_log(tmp_path):
    log, line = Output(tmp_path / "log", len, 1 << 20), b"%07d " + b"x" * 55 + b"\n"
    n = (8 << 20) // 64
    for first in range(0, n, 1024):
        log.write(b"".join(line % i for i in range(first, first + 1024)))
    log.close()
    kept = (tmp_path / "log").read_bytes()
    whole, again = b"".join(line % i for i in range(n)), Output(tmp_path / "again", len, 1 << 20)
    for start in range(0, len(whole), 50_001):  # other pieces of the same output
        again.write(whole[start : start + 50_001])
    again.close()
    assert (tmp_path / "again").read_bytes() == kept
    assert len(kept) <= (1 << 20) + 64 and log.n_bytes == n * 64
    head, mark, tail = kept.partition(b"\n[paribus: ")
    said = int(tail.split()[0].replace(b",", b""))
    tail = tail[tail.index(b"\n") + 1 :]
    assert mark and said == log.n_left_out == n * 64 - len(head) - len(tail)
    assert head == b"".join(line % i for i in range(len(head) // 64))
    assert tail == b"".join(line % i for i in range(n - len(tail) // 64, n))


def run_shell(tmp_path, script, listen=len, timeout=None):
    output = Output(tmp_path / "log", listen)
    words = ["/bin/sh", "-c", script]
    return run_program(words, folder=tmp_path, env=os.environ, output=output, timeout=timeout)


def test_lines_of_any_kind_are_heard(tmp_path):
    heard: list[str] = []
    script = r"printf 'a\rb\n\n\377c\nno end'; echo e >&2; exit 7"
    end = run_shell(tmp_path, script, listen=heard.append)
    assert heard == ["a", "b", "\N{REPLACEMENT CHARACTER}c", "no ende"]
    assert end.code == 7


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_program_leaves_behind_ends_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LINGER_SECONDS", 0.1)
    end = run_shell(tmp_path, "trap '' TERM; (sleep 600 & echo $! > pid); exit 0")
    assert end.code == 0
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_program_is_asked_to_end_and_then_made_to(tmp_path, monkeypatch):
    end = run_shell(
        tmp_path, "trap 'echo bye; exit 5' TERM; while :; do sleep 0.05; done", timeout=0.3
    )
    assert (end.timed_out, end.code, end.last[-1]) == (True, 5, "bye")
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    end = run_shell(tmp_path, "trap '' TERM; while :; do sleep 0.05; done", timeout=0.2)
    assert (end.timed_out, end.code) == (True, -9)


# From TOML to verdict


def test_a_program_goes_the_whole_way(folder):
    loss = "train_loss = { stdout = 'step (?P<step>[0-9]+) loss (?P<value>\\S+)' }"
    changed(
        folder,
        ("seeds = [1, 2, 3]", "seeds = { looks = [5, 6] }"),
        ('kind = "command"', f'kind = "command"\n{loss}'),
        ("[set]", "[tuning]\nseeds = [101, 102]\ngrid = { wd = [0.5, 0.1] }\n[set]\nwd = 0.1"),
        ('"{folder}"]', '"{folder}", "{wd}"]'),
    )
    (folder / "train.py").write_text(PROGRAM.replace("- lr +", "- lr + float(sys.argv[5]) +"))
    code, out, err = verb("run", "study.toml", "--results", "r", "--workers", "2", "--no-pdf")
    assert code == 0, err
    assert "BETTER" in out and "hot" in out and "10/10 trials" in out
    results = paribus.load_results("r")
    assert results.study.tuning is not None and results.study.tuning.chosen["hot"] == {
        "set.wd": 0.1
    }
    assert len(results.finished) == 10  # resolved at the first look
    steps = results.trial_steps["hot", 1]
    assert steps["step"].to_pylist() == list(range(0, 60, 2))
    states = {control.name: control.state for control in results.controls}
    assert states == {
        **dict.fromkeys(("setting", "source", "software", "device", "seed", "steps"), "held"),
        **dict.fromkeys(("data", "initial weights", "repeatable"), "not proven"),
        "command": "declared",
    }
    trial = results.trials["hot", 2]
    assert trial["command"][1:5] == ["train.py", "2", "0.03", "well"]
    for name in ("report.html", "verdict.json"):
        assert (folder / "r" / name).stat().st_size > 0
    assert "figure-train_loss" in (folder / "r" / "report.html").read_text()
    code, out, err = verb("verify", "r")
    assert code == 0 and "10 trials" in out, out + err
    # A log that says otherwise than the score is found, whoever sealed it.
    home = folder / "r" / "trials" / "hot" / "seed-1"
    log = home / "output.log"
    log.write_text(log.read_text().replace("val_bpb: 1", "val_bpb: 2"))
    manifest = json.loads((home / "manifest.json").read_text())
    manifest["output.log"] = file_digest(log)
    (home / "manifest.json").write_text(json.dumps(manifest))
    code, out, _ = verb("verify", "r")
    assert code == 3 and "gives 2" in out
    for words in (
        ["status", "r"],
        ["status", "--follow", "r"],
        ["check", "study.toml"],
        ["plan", "study.toml"],
    ):
        code, out, err = verb(*words)
        assert code == 0 and ("hot" in out or "verdict" in out), err


def test_check_runs_each_arm_briefly_and_leaves_nothing(folder, monkeypatch):
    code, out, err = verb("check", "study.toml")
    assert code == 0 and "finished after" in out and "val_bpb 0.9" in out, err
    changed(folder, ('"well"', '"sleep"'))
    monkeypatch.setattr(trainer, "CHECK_SECONDS", 0.2)
    code, out, _ = verb("check", "study.toml")
    assert code == 0 and "after 0.2" in out
    monkeypatch.setattr(trainer, "CHECK_SECONDS", 10.0)
    changed(folder, ('"well"', '"crash"'))
    code, _, err = verb("check", "study.toml")
    assert code == 2 and "exit code 3" in err and "CUDA error" in err
    assert "output.log" not in err and "finished trials" not in err
    assert sorted(one.name for one in folder.iterdir()) == ["study.toml", "train.py"]


@pytest.mark.parametrize(
    ("do", "also", "words"),
    [
        (
            "crash",
            "",
            (
                "trial baseline/seed-1 failed: exit code 3",
                "CUDA error: out of luck",
                "another name",
            ),
        ),
        ("quiet", "", ("'val_bpb'", "step 58 loss")),
        ("sleep", "timeout_minutes = 0.005", ("timed out",)),
    ],
)
def test_a_trial_that_fails_stops_the_run(folder, do, also, words):
    changed(folder, ('"well"', f'"{do}"'), ('kind = "command"', f'kind = "command"\n{also}'))
    code, _, err = verb("run", "study.toml", "--results", "r")
    assert code == 2 and err.count("\n") == 1 and all(one in err for one in words), err
    assert not list((folder / "r").rglob("manifest.json"))
    if do != "sleep":  # which may have ended before it printed a line
        assert Path(err.partition("is in ")[2].partition(";")[0].strip()).is_file()


def test_a_program_that_is_not_there_is_one_line(folder):
    changed(folder, ('"{python}"', '"pythn"'))
    code, _, err = verb("run", "study.toml", "--results", "r")
    assert code == 2 and err.count("\n") == 1 and "'pythn'" in err


@pytest.mark.parametrize("code", [0, 3])
def test_what_ran_while_its_code_was_edited_is_not_sealed(folder, code):
    changed(folder, ('kind = "command"', 'kind = "command"\nfailure = "exclude"'))
    edit = f"open('train.py', 'a').write('#'); open('ran', 'a').write('.'); sys.exit({code})"
    (folder / "train.py").write_text(PROGRAM + edit)
    with refused("value", match="train.py changed"):
        paribus.run(paribus.load_study("study.toml"), "r")
    assert (folder / "ran").read_text() == "." and not (folder / "r" / "worktrees").exists()
    assert not list((folder / "r").rglob("manifest.json"))


def test_failures_that_a_study_excludes_are_left_out_by_name(folder):
    study = changed(
        folder,
        ("seeds = [1, 2, 3]", "seeds = [1, 2, 3, 4, 5]"),
        ('kind = "command"', 'kind = "command"\nfailure = "exclude"'),
        ("[arms.hot]", '[arms.bad]\nset.do = "crash"\n[arms.lost]\nset.do = "nan"\n[arms.hot]'),
    )
    results = paribus.run(study, "r")
    analysis = paribus.analyse(results)
    why = {(one.arm, one.seed): one.why for one in analysis.left_out}
    assert why["bad", 1].startswith("bad failed:")
    assert why["lost", 2].startswith("lost diverged:")
    assert {arm for arm, _ in why} == {"bad", "lost"}
    assert analysis.excluded == {"bad": 5}  # and what ended well without a number is a result
    assert analysis.n_trials == 20 and not analysis.missing
    assert not analysis.all_diverged("bad") and analysis.all_diverged("lost")
    assert not {arm for arm, _ in analysis.events if arm == "bad"}
    # Five pairs are too few to show by events that an arm diverges more often.
    words = {verdict.arm: verdict.word for verdict in paribus.decide(analysis)}
    assert (words["bad"], words["lost"]) == ("DESCRIPTIVE", "UNRESOLVED")
    _, out, _ = verb("status", "r")
    assert "✗ failed:" in out
    assert "5 of bad" in verb("report", "--no-page", "r")[1]
    assert json.loads(verb("report", "--no-page", "r", "--json")[1])["excluded"] == {"bad": 5}
    assert verb("report", "r", "--no-pdf")[0] == 0
    assert "5 runs" in (folder / "r" / "report.html").read_text()


@pytest.mark.parametrize(
    ("steps", "difference", "state"),
    [
        ((9, 9), "broken", "held"),
        ((19, 9), "broken", "not proven"),
        ((19, 9), "declared", "declared"),
        ((None, 9), "broken", "not proven"),
    ],
)
def test_scores_of_other_steps_are_told(steps, difference, state):
    trials = [{"deciding": "loss", "last_steps": {} if n is None else {"loss": n}} for n in steps]
    own, other = (ProgramEvidence("a", 1, trial, {}, None) for trial in trials)
    assert COMPARISONS["steps"](own, other, difference)[0] == state


def test_a_program_that_ignores_its_seed_is_not_tested(folder):
    study = changed(folder, ('"well"', '"seedless"'), ("set.lr = 0.03", 'set.do = "well"'))
    analysis = paribus.analyse(paribus.run(study, "r"))
    assert [one.state for one in analysis.controls if one.name == "seed"] == ["broken"]
    assert [verdict.word for verdict in paribus.decide(analysis)] == ["INVALID"]


def test_a_strangers_command_is_not_run(folder):
    paribus.run(changed(folder, ("[1, 2, 3]", "[1]")), "r")
    before = sorted(folder.rglob("*"))
    code, _, err = verb("run", "r/study.json", "--results", "other")
    assert code == 2 and "pass --trust" in err and "train.py" in err
    assert verb("report", "--no-page", "r")[0] == 0
    recipe = ("r/study.json", "--trust", "--set", f"trainer.folder={folder}", "--no-pdf")
    assert verb("run", *recipe, "--results", "again")[0] == 0
    with refused("different", match=r"\(arms\.hot\.set\.lr = 0\.03, not 0\.04\); give .* another"):
        paribus.run(changed(folder, ("[1, 2, 3]", "[1]"), ("set.lr = 0.03", "set.lr = 0.04")), "r")
    assert not (folder / "other").exists() and len(before) <= len(sorted(folder.rglob("*")))


FILES = """
name = "files"
seeds = [1, 2]
[trainer]
kind = "command"
command = ["/bin/sh", "run.sh", "{seed}", "{folder}"]
env = { SHIFT = "{shift}" }
[metrics.acc]
file = "log.jsonl"
key = "val.acc"
step = "n"
better = "higher"
margin = 0.1
[set]
shift = 5
[arms.baseline]
[arms.x]
set.shift = 7
"""
SCRIPT = """
cd $2
echo '{"n": 1, "val": {"acc": 0.5}}' > log.jsonl
echo "{\\"n\\": 2, \\"val\\": {\\"acc\\": $1.$SHIFT}}" >> log.jsonl
echo '{"n": 3, "val": {"other": 0.1}}' >> log.jsonl
"""


def test_the_environment_and_a_file_of_values(tmp_path):
    (tmp_path / "run.sh").write_text(SCRIPT)
    (tmp_path / "study.toml").write_text(FILES)
    results = paribus.run(paribus.load_study(tmp_path / "study.toml"), tmp_path / "r")
    assert results.scores["acc"].to_pylist() == [1.5, 1.7, 2.5, 2.7]
    curve = results.finished[0].read_columns("series.parquet")
    assert curve["value"].to_pylist() == [0.5, 1.5]
    states = {control.name: control.state for control in results.controls}
    assert states["command"] == "declared"
    assert verify(tmp_path / "r").findings == []


# What a program says of itself

TOLD = """
import random, sys
sys.path.insert(0, {here!r})
import trial
assert trial.active and trial.seed == int(sys.argv[1]), trial.seed
rng = random.Random(trial.seed)
trial.initial({{"a": [rng.random()], "b": [1.0, 2.0] if sys.argv[2] == "same" else [3.0]}})
other = rng if sys.argv[3] == "same" else random.Random(0)
for step in range(5):
    trial.batch([other.randrange(9) for _ in range(4)])
    trial.log(step, loss=2 - step / 10)
trial.report(score=rng.random())
"""
TOLD_STUDY = """
name = "told"
seeds = [1, 2]
[trainer]
kind = "command"
command = ["{python}", "train.py", "{seed}", "{init}", "{data}"]
declares = { data = ["set.data"] }
[metrics.score]
better = "lower"
margin = 0.1
[metrics.loss]
better = "lower"
[set]
init = "same"
data = "same"
why = "no"
[arms.baseline]
[arms.like]
set.why = "yes"
[arms.init]
set.init = "other"
[arms.data]
set.data = "other"
"""


def test_data_and_initial_values_are_proven_by_ten_lines(tmp_path):
    (tmp_path / "trial.py").write_text(Path(paribus.__file__).with_name("trial.py").read_text())
    (tmp_path / "train.py").write_text(TOLD.format(here=str(tmp_path)))
    text = TOLD_STUDY.replace('"{data}"]', '"{data}", "{why}"]')
    (tmp_path / "study.toml").write_text(text)
    results = paribus.run(paribus.load_study(tmp_path / "study.toml"), tmp_path / "r")
    found = {(one.arm, one.name): (one.state, one.detail) for one in results.controls}
    assert found["like", "data"][0] == found["like", "initial weights"][0] == "held"
    assert found["like", "data"][1].startswith("5 identical batches")
    assert found["init", "initial weights"][0] == "broken"
    assert "2 parameters" in found["init", "initial weights"][1]
    assert found["data", "data"][0] == "declared"
    assert results.scores["loss"].to_pylist() == [1.6] * 8
    series = results.finished[0].read_columns("series.parquet")
    assert series["step"].to_pylist() == [0, 1, 2, 3, 4]
    # What was said of a score is read once more, whoever sealed another one.
    assert any("8 trials" in line for line in verify(tmp_path / "r").checked)
    home = results.finished[0]
    scores = home.read_json("evaluation.json")
    home.write_json("evaluation.json", scores | {"score": scores["score"] + 0.5})
    manifest = json.loads((home.path / "manifest.json").read_text())
    manifest["evaluation.json"] = file_digest(home.path / "evaluation.json")
    (home.path / "manifest.json").write_text(json.dumps(manifest))
    assert any("output gives" in one for one in verify(tmp_path / "r").findings)


def test_outside_of_paribus_it_does_nothing(tmp_path):
    code = "from paribus import trial; trial.log(1, a=2); trial.batch([1]); trial.report(b=1);"
    code += "trial.initial({}); assert not trial.active and trial.seed == 0; import sys;"
    code += "assert 'numpy' not in sys.modules and 'pydantic' not in sys.modules"
    env = {name: of for name, of in os.environ.items() if not name.startswith("PARIBUS_")}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=env)
    assert not list(tmp_path.iterdir())


# Commits


@pytest.fixture
def repository(tmp_path):
    """A repository with a program, and a branch with another one."""
    home = tmp_path / "repo"
    (home / "data").mkdir(parents=True)
    (home / "train.sh").write_text('echo "loss: $1.51"\n')
    (home / "data" / "readme").write_text("data")
    for words in (
        ["init", "--quiet", "-b", "main"],
        ["add", "."],
        ["commit", "-qm", "one"],
        ["checkout", "-qb", "idea"],
    ):
        git(home, *words)
    (home / "train.sh").write_text('echo "loss: $1.52"\n')
    git(home, "commit", "-qam", "two")
    git(home, "checkout", "-q", "main")
    return home


IN_GIT = r"""
name = "in-git"
seeds = [1, 2]
[trainer]
kind = "command"
command = ["/bin/sh", "train.sh", "{seed}"]
folder = "repo"
[metrics.loss]
stdout = 'loss: (\S+)'
better = "lower"
margin = 0.01
[arms.baseline]
[arms.idea]
ref = "idea"
"""


def tree(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_commit_is_run_in_a_copy(tmp_path, repository):
    (tmp_path / "study.toml").write_text(IN_GIT)
    before = tree(repository)
    results = paribus.run(paribus.load_study(tmp_path / "study.toml"), tmp_path / "r")
    assert results.scores["loss"].to_pylist() == [1.51, 1.52, 2.51, 2.52]
    assert tree(repository) == before  # the working copy, and .git
    states = {(one.arm, one.name): one for one in results.controls}
    assert states["idea", "source"].state == "declared"
    assert git(repository, "rev-parse", "idea")[:12] in states["idea", "source"].detail
    assert not (tmp_path / "r" / "worktrees").exists()
    # The branch moves on: trials that are still missing are of the registered commit.
    git(repository, "branch", "-qf", "idea", "main")
    shutil.rmtree(results.finished[-1].path)
    again = paribus.run(paribus.load_study(tmp_path / "study.toml"), tmp_path / "r")
    assert again.scores["loss"].to_pylist() == results.scores["loss"].to_pylist()


def test_what_a_killed_run_left_of_a_copy_is_made_again(tmp_path, repository):
    (tmp_path / "study.toml").write_text(IN_GIT)
    study = paribus.load_study(tmp_path / "study.toml")
    source = find_source(study, "idea")
    copy = prepare_folder(study, "idea", source, tmp_path / "copies")
    inode = copy.stat().st_ino
    assert prepare_folder(study, "idea", source, tmp_path / "copies").stat().st_ino == inode
    (copy / "train.sh").write_text("echo loss: 9\n")
    again = prepare_folder(study, "idea", source, tmp_path / "copies")
    assert again == copy and '.52"' in (copy / "train.sh").read_text()
    assert sorted(one.name for one in copy.parent.iterdir()) == [copy.name]


def test_uncommitted_work_is_told_and_goes_into_no_copy(tmp_path, repository):
    (repository / "data" / "readme").write_text("edited")
    (repository / "more.sh").write_text("echo more\n")
    (tmp_path / "study.toml").write_text(IN_GIT)
    results = paribus.run(paribus.load_study(tmp_path / "study.toml"), tmp_path / "r")
    evidence = {arm: results.trials[arm, 1]["controls"]["source"] for arm in results.study.arms}
    assert "uncommitted" in evidence["baseline"] and "uncommitted" not in evidence["idea"]
    assert any("uncommitted" in control.detail for control in results.controls)


@pytest.mark.parametrize("ref", ["idaa", "--all"])
def test_an_unknown_commit_is_refused(tmp_path, repository, ref):
    (tmp_path / "study.toml").write_text(IN_GIT.replace('"idea"', f'"{ref}"'))
    with refused("unknown"):
        paribus.run(paribus.load_study(tmp_path / "study.toml"), tmp_path / "r")


# Workers


def test_initial_values_are_those_before_the_first_step(tmp_path):
    def initial(*lines):
        (tmp_path / "trial.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return read_report(tmp_path).initial

    first, other = {"initial": {"w": "a" * 64}}, {"initial": {"w": "b" * 64}}
    step = {"step": 1, "log": {"loss": 2.0}}
    assert initial(first, step) == initial(first) and len(initial(first)) == 1
    assert initial(step, first) == {}
    assert len({json.dumps(initial(*of)) for of in ([first], [first, other], [other])}) == 3
    with pytest.raises(TypeError):
        trial.batch()


def test_a_template_gives_each_trial_its_configuration_and_a_crash_is_tried_again(folder):
    (folder / "run.sh").write_text(
        "# {{seed}} is as it stands\n"
        "if ! test -e ../{arm}-{seed}; then touch ../{arm}-{seed}; exit 4; fi\n"
        "echo acc {seed}.{shift}\n"
    )
    (folder / "study.toml").write_text(
        'name = "cfg"\nseeds = [1, 2]\n[set]\nshift = 5\n[arms.baseline]\n[arms.x]\nset.shift = 7\n'
        '[metrics.acc]\nstdout = "acc (.+)"\nbetter = "higher"\nmargin = 0.1\n'
        '[trainer]\nkind = "command"\ncommand = ["/bin/sh", "{config}"]\nconfig = "run.sh"\n'
        "retries = 1\n"
    )
    results = paribus.run(paribus.load_study("study.toml"), "r")
    assert results.scores["acc"].to_pylist() == [1.5, 1.7, 2.5, 2.7]
    assert {trial["attempts"] for trial in results.trials.values()} == {2}
    states = {control.name: control.state for control in results.controls}
    assert states["configuration"] == "declared"
