# ruff: noqa: E501  (lines of logs)
"""A few lines of real files for each reader, and what they say: {name: (file's name, content)}.

Each is cut from the file that its comment names, lines left out and long ones shortened; numbers
are as they stand there.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

# KellerJordan/modded-nanogpt f411b3d, records/track_3_optimization/results/51ece938-....txt: the
# first and last two validations of two of its twenty trials.
MODDED = b"""\
import os
import sys
with open(sys.argv[0]) as f:
    code = f.read() # read the code of this file ASAP, for logging
====================================================================================================
Running PyTorch 2.11.0+cu130 compiled for CUDA 13.0 on NVIDIA H100 80GB HBM3 with world_size 8
====================================================================================================
step:0/3375 val_loss:10.82584 train_time:0.000s step_avg:nanms
step:3250/3375 val_loss:3.28526 train_time:518.419s step_avg:146.43ms
step:3375/3375 val_loss:3.27924 train_time:536.697s step_avg:146.23ms
step:0/3375 val_loss:10.82584 train_time:0.000s step_avg:nanms
step:3250/3375 val_loss:3.28548 train_time:475.532s step_avg:146.14ms
step:3375/3375 val_loss:3.27941 train_time:493.801s step_avg:146.15ms
"""
# The same, records/track_3_optimization/results/20260619_cwd_rowfloor_tailema/A40_seed0_....txt.
MODDED_EMA = b"""\
step:2685/2900 val_loss:3.28259 val_avg_loss:3.28259 val_ema_loss:3.27825 train_time:9886.605s step_avg:3682.16ms
step:2690/2900 val_loss:3.28208 val_avg_loss:3.28208 val_ema_loss:3.27795 train_time:9904.996s step_avg:3682.15ms
"""
# dwarkeshsp/nanochat 23b11f1, speedrun.log: of three stages the first and the last.
NANOCHAT = b"""\
Step 00000 | Validation bpb: 3.3013
step 00000/21400 (0.00%) | loss: 11.090355 | lrm: 1.00 | dt: 39643.02ms | tok/sec: 13,225 | total time: 0.00m
Step 00250 | Validation bpb: 1.2016
step 21399/21400 (100.00%) | loss: 2.719005 | lrm: 0.00 | dt: 475.63ms | tok/sec: 1,102,299 | total time: 170.39m
Step 21400 | Validation bpb: 0.8118
Step 21400 | CORE metric: 0.2086
Total training time: 170.39m
Minimum validation bpb: 0.8118
Step 00000 | Validation loss: 1.009291
Step 00629/00651 | Training loss: 1.066134| lrm: 0.033794| num_tokens: 13,882
Step 00650 | Validation loss: 1.011768
Step 00650 | mmlu_acc: 0.310547, arc_easy_acc: 0.393555
"""
# ShashankBommana/DNABERT-2 fb82c1f, trainer_state.json, of its log_history the first three entries.
TRAINER_STATE = b"""\
{
  "best_metric": 0.23172695934772491,
  "epoch": 4.751619870410368,
  "global_step": 2200,
  "log_history": [
    {"epoch": 0.22, "learning_rate": 2.9350993377483443e-05, "loss": 0.4605, "step": 100},
    {"epoch": 0.43, "learning_rate": 2.8026490066225165e-05, "loss": 0.3215, "step": 200},
    {"epoch": 0.43, "eval_accuracy": 0.8912925905895078, "eval_loss": 0.31392547488212585,
     "eval_runtime": 62.2861, "step": 200}
  ],
  "max_steps": 2315,
  "num_train_epochs": 5
}
"""
# EleutherAI/pythia a19eecb, evals/pythia-v1/pythia-70m/zero-shot/70m_step1000.json, one task.
LM_EVAL_OLD = b"""\
{
  "results": {
    "hendrycksTest-astronomy": {
      "acc": 0.20394736842105263,
      "acc_stderr": 0.032790004063100495,
      "acc_norm": 0.28289473684210525
    }
  },
  "versions": {"hendrycksTest-astronomy": 0},
  "config": {"model_args": "pretrained=EleutherAI/pythia-v1.1-70m,revision=step1000"}
}
"""
# The form of lm_eval 0.4; its own writer is asked in test_lm_eval_itself.
LM_EVAL = json.dumps(
    {
        "results": {"copa": {"alias": "copa", "acc,none": 0.5, "acc_stderr,none": 0.5}},
        "task_hashes": {"copa": "ab12"},
        "config": {"model_args": "pretrained=x", "random_seed": 0},
        "lm_eval_version": "0.4.13",
        "model_name": "x",
    },
    indent=2,
).encode()
SAMPLES = b"""\
{"doc_id": 0, "target": "0", "filter": "none", "metrics": ["acc"], "doc_hash": "10658aeacfe4f619f3d1131098c4cbb2", "acc": 1.0}
{"doc_id": 1, "target": "1", "filter": "none", "metrics": ["acc"], "doc_hash": "eb5c68533d3faadc7406cfd070c25595", "acc": 0.0}
"""
TABLE = b"""\
variant,seed,loss,rate
base,1,3.125,0.1
base,2,3.25,0.1
new,1,3.0,0.2
new,2,nan,0.2
"""
# A public log of karpathy/nanoGPT's train.py on a Mac, config/train_shakespeare_char.py.
NANOGPT = b"""\
Overriding config with config/train_shakespeare_char.py:
# train a miniature character-level shakespeare model
learning_rate = 1e-3 # with baby networks can afford to go a bit higher
max_iters = 5000
lr_decay_iters = 5000 # make equal to max_iters usually

tokens per iteration will be: 16,384
number of parameters: 10.65M
step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2639, time 90787.59ms, mfu -100.00%
iter 10: loss 3.1459, time 756.15ms, mfu 0.49%
step 250: train loss 1.9639, val loss 2.0676
saving checkpoint to out-shakespeare-char
iter 250: loss 2.0307, time 90796.41ms, mfu 0.43%
iter 260: loss 1.9755, time 832.52ms, mfu 0.43%
step 500: train loss 1.5304, val loss 1.7326
saving checkpoint to out-shakespeare-char
"""

# Made up in the form of Weights & Biases' charts; columns as in public scripts that read some.
WANDB_CHART = b"""\
"Step","base-s1 - val/loss","base-s1 - val/loss__MIN","base-s1 - val/loss__MAX","new seed 2 - val/loss","new seed 2 - val/loss__MIN","new seed 2 - val/loss__MAX"
"100","3.6269","3.6269","3.6269","3.5810","3.5800","3.5820"
"200","3.3701","3.3701","3.3701","3.3643","3.3643","3.3643"
"300","3.2961","3.2961","3.2961","","",""
"""

# The forms below are made up, by the source files that the readers' declarations name.
MEGATRON = b"""\
  eval_iters ...................................... 5
 [2026-11-20 04:01:40] iteration      100/    1000 | consumed samples:         3200 | elapsed time per iteration (ms): 312.5 | learning rate: 3.000000E-04 | global batch size:    32 | lm loss: 5.058401E+00 | loss scale: 1.0 | grad norm: 0.465 | number of skipped iterations:   0 | number of nan iterations:   0 |
 validation loss at iteration 100 | lm loss value: 5.151000E+00 | lm loss PPL: 1.726040E+02 |
 [2026-11-20 04:03:20] iteration      200/    1000 | consumed samples:         6400 | elapsed time per iteration (ms): 312.5 | learning rate: 3.000000E-04 | global batch size:    32 | loss scale: 1.0 | grad norm: nan | number of skipped iterations:   0 | number of nan iterations:   1 |
"""
TORCHTITAN = b"""\
[rank0]:[titan] 2026-11-20 - root - INFO - Trainer is initialized with local batch size 8, global batch size 64, gradient accumulation steps 1, sequence length 2048, total steps 10 (warmup 2)
[rank0]:[titan] 2026-11-20 10:00:00,123 - root - INFO - \x1b[31mstep: 10  \x1b[32mloss:  8.12345  \x1b[38;2;180;60;0mgrad_norm:  1.2345  \x1b[38;2;54;234;195mmemory: 40.12GiB(50.10%)  tps: 7,654\x1b[39m
[rank0]:[titan] 2026-11-20 10:01:00,123 - root - INFO - \x1b[31mvalidate step: 10  \x1b[32mloss:  7.2345  \x1b[38;2;54;234;195mmemory: 40.12GiB(50.10%)  tps: 7,654\x1b[39m
"""
OLMO_CORE = b"""\
2026-11-20 10:00:00 host:0 INFO [step=1000/5000,epoch=1,eta=1h]
    train/CE loss=2.912
    throughput/device/TPS=12,345
2026-11-20 10:01:00 host:0 INFO [step=2000/5000,epoch=1,eta=1h]
    train/CE loss=2.801
2026-11-20 10:02:00 host:0 INFO Finished lm evals in 3.1 seconds. Metrics:
    c4_en-validation/CE loss=2.950
"""
LLMC = b"| sequence length T     | 64                   |\n| val_max_steps | 20 |\ns:0 tel:11.0123\ns:1 trl:10.9 lr:0.0006 norm:0.31\ns:250 tel:3.2901\ns:250 eval:0.2941\ns:500 tel:-nan\n"
LITGPT = b"""\
[rank: 0] Seed set to 7
Epoch 1 | iter 100 step 100 | loss train: 3.456, val: n/a | iter time: 123.45 ms (step) remaining time: 0:01:00
iter 100: val loss 3.4321, val time: 123.45 ms
Epoch 1 | iter 200 step 200 | loss train: 3.256, val: 3.432 | iter time: 123.45 ms (step) remaining time: 0:01:00
iter 200: val loss 3.3324, val time: 123.45 ms
Saving checkpoint
Final evaluation | val loss: 3.332 | val ppl: 28.0
"""
HF_OUTPUT = b"""\
{'loss': 4.75, 'grad_norm': 98.5, 'learning_rate': 5e-06, 'epoch': 0.5}
{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 4e-06, 'epoch': 1.0}
{'eval_loss': 3.25, 'eval_runtime': 1.5, 'epoch': 1.0}
"""
LEVANTER = b"""\
2026-11-20 INFO {"tracker": "json_logger", "event": "log", "step": 10, "metrics": {"train/loss": 5.25, "eval/loss": 5.5}}
2026-11-20 INFO {"tracker": "json_logger", "event": "log", "step": 20, "metrics": {"train/loss": 4.25, "eval/loss": NaN}}
"""
TB_CSV = b"Wall time,Step,Value\n1700000100.5,100,3.5625\n1700000200.5,200,3.25\n"
LIGHTEVAL = json.dumps(
    {
        "config_general": {"model_name": "x", "max_samples": None},
        "results": {"lighteval:arc:25": {"acc": 0.25, "acc_stderr": 0.01}, "all": {"acc": 0.25}},
    }
).encode()
MLFLOW = (
    b"artifact_uri: file:///x\nlifecycle_stage: active\nrun_id: n5\nrun_name: new-5\nstatus: 3\n"
)


def inspect_log(status: str = "success", plan: Any = None, **settings: Any) -> bytes:
    """Return a log of inspect_ai: two samples, each asked twice."""
    scores = [{"name": "match", "metrics": {"accuracy": {"value": 0.75}, "stderr": {"value": 0.1}}}]
    header = {
        "status": status,
        "eval": {"model": "hf/new-seed3", "task": "gsm"} | settings,
        "plan": plan,
        "results": {"scores": scores},
    }
    samples = [
        {"id": name, "epoch": epoch, "scores": {"match": {"value": grade}}}
        for name, epoch, grade in (("a", 1, "C"), ("a", 2, "C"), ("b", 1, "I"), ("b", 2, "C"))
    ]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("header.json", json.dumps(header))
        archive.writestr("summaries.json", json.dumps(samples))
    return packed.getvalue()


LIGHTNING = b"epoch,step,train_loss,val_loss\n0,10,3.5,\n0,10,,3.625\n1,20,,3.25\n"
KERAS = b"epoch,accuracy,loss,val_loss\n0,0.25,3.5,3.625\n1,0.375,3.125,NA\n2,0.5,3.0,3.25\n"
RAY = b"""\
{"val_loss": 3.5, "training_iteration": 1, "trial_id": "a", "done": false, "config": {"lr": 0.5}}
{"val_loss": 3.25, "training_iteration": 2, "trial_id": "a", "done": true, "config": {"lr": 0.5}}
"""
LEVANTER_SUMMARY = b"""\
{"config": {"trainer": {"seed": 7}}, "summary": {"_step": 20, "eval/loss": 3.25, "train/loss": 3.5}}
"""

SAMPLES_NAME = "samples_copa_2026-01-16T15-23-47.285735.jsonl"  # beside those of lm-eval
EXCERPTS: dict[str, tuple[str, bytes]] = {
    "megatron": ("train.log", MEGATRON),
    "torchtitan": ("titan.log", TORCHTITAN),
    "olmo-core": ("olmo.log", OLMO_CORE),
    "llmc": ("main.log", LLMC),
    "litgpt": ("litgpt.log", LITGPT),
    "hugging-face-output": ("out.log", HF_OUTPUT),
    "levanter": ("levanter.log", LEVANTER),
    "levanter-summary": ("tracker_metrics.jsonl", LEVANTER_SUMMARY),
    "lightning": ("metrics.csv", LIGHTNING),
    "keras": ("training.log", KERAS),
    "ray-tune": ("result.json", RAY),
    "tensorboard-csv": ("run-base_s3-tag-val_loss.csv", TB_CSV),
    "inspect-ai": ("log.eval", inspect_log()),
    "wandb-chart": ("chart.csv", WANDB_CHART),
    "nanogpt": ("train_seed3.log", NANOGPT),
    "modded-nanogpt": ("log.txt", MODDED),
    "nanochat": ("speedrun.log", NANOCHAT),
    "hugging-face": ("trainer_state.json", TRAINER_STATE),
    "lm-eval": ("results_2026-01-16T15-23-47.285735.json", LM_EVAL),
    "table": ("runs.csv", TABLE),
}
