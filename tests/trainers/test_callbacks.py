"""What the callbacks of `paribus.trial` say of real trainers, started as paribus starts them."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.trainers.command.scores import Finder, read_report, read_rest
from paribus.trainers.command.sections import MetricSource

HUGGING_FACE = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from paribus import trial
set_seed(trial.seed)
model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=8, n_embd=8, n_layer=1, n_head=1))
data = [{"input_ids": torch.randint(50, (8,)), "labels": torch.zeros(8).long()} for _ in range(16)]
args = TrainingArguments(sys.argv[1], per_device_train_batch_size=4, max_steps=6, logging_steps=2,
    eval_strategy="steps", eval_steps=3, report_to=[], learning_rate=float(sys.argv[2]),
    use_cpu=True, disable_tqdm=True, save_strategy="no", seed=trial.seed)
callbacks = [trial.HuggingFaceCallback()]
Trainer(model, args, train_dataset=data, eval_dataset=data[:4], callbacks=callbacks).train()
"""


def told(tmp_path, program, seed, lr):
    """Run a program as a trial, and return what it reported."""
    home = tmp_path / f"{seed}-{lr}"
    (home / "out").mkdir(parents=True)
    (tmp_path / "train.py").write_text(program)
    env = os.environ | {"PARIBUS_TRIAL": str(home), "PARIBUS_SEED": str(seed)}
    words = [sys.executable, "train.py", str(home / "out"), str(lr)]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return read_report(home)


@pytest.mark.slow
def test_data_and_initial_values_of_a_real_trainer(tmp_path):
    pytest.importorskip("transformers")
    first, hot, other = (
        told(tmp_path, HUGGING_FACE, *of) for of in ((1, 0.01), (1, 0.5), (2, 0.01))
    )
    assert max(first.batches) == 6
    assert first.batches == hot.batches and first.initial == hot.initial
    assert first.batches != other.batches and first.initial != other.initial
    assert len(first.initial) >= 2
    finders = [Finder(MetricSource()) for _ in range(3)]
    for finder, report in zip(finders, (first, hot, other), strict=True):
        read_rest("eval_loss", finder, tmp_path, report, "")
    assert [step for step, _ in finders[0].points] == [3, 6]
    assert len({finder.value for finder in finders}) == 3
    assert len([row for row in first.logged if "loss" in row]) >= 3


def test_a_program_whose_seed_is_fixed_runs_with_another(tmp_path):
    program = "import random, sys\nfor n in (7, 8): random.seed(n); print(random.random())\n"
    (tmp_path / "fixed.py").write_text(program + "print(sys.argv[1:], __name__)\n")
    trial = tmp_path / "trial.py"
    trial.write_text(Path(paribus.__file__).with_name("trial.py").read_text())

    def run(seed, *words):
        env: Mapping[str, Any] = os.environ | {"PARIBUS_SEED": str(seed), "PARIBUS_TRIAL": ""}
        # -S: nothing but the standard library is there, as it would be for such a program.
        command = [sys.executable, "-S", str(trial), *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    import random

    plain = [str(random.Random(n).random()) for n in (7, 8)]
    told = [json.dumps(["-x", "3"]).replace('"', "'") + " __main__"]
    assert run(0, "fixed.py", "-x", "3") == [*plain, *told]
    one, two = run(1, "fixed.py", "-x", "3"), run(2, "-m", "fixed", "-x", "3")
    assert one == run(1, "-m", "fixed", "-x", "3") and one[2:] == two[2:] == told
    assert len({*plain, *one[:2], *two[:2]}) == 6
