"""The settings of `embedding-norm-instability`, as its pilot chooses them by the registered rule.

    python studies/instability.py RESULTS_OF_THE_PILOT > embedding-norm-instability.toml

The rule stands in `embedding-norm-instability-pilot.toml`: of each combination of shape and warmup
the lowest rate at which at least two of the three seeds had an event.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import paribus
from paribus.analysis import Table
from paribus.errors import ParibusError
from paribus.study import LEARNING_RATE, Study

LEAST = 2  # seeds of the pilot with an event
NORMS = {
    "layernorm": ("LayerNorm", "LN(E_tok(t) + E_pos(p))"),
    "rmsnorm": ("RMSNorm", "RMSNorm(E_tok(t) + E_pos(p)), trainable scale, no bias"),
}
HEAD = """\
name = "embedding-norm-instability"
title = "Embedding normalization where the baseline is unstable"
question = "Where the baseline is unstable, does normalising the embeddings cure it, at what cost?"
# Some 15 minutes of two cores, estimated. Written by `studies/instability.py`: the settings are
# those that `embedding-norm-instability-pilot` chose by its registered rule, on other seeds and
# from the baseline alone. By exact McNemar, with Holm's method over 8 contrasts, a first cure is
# shown where nine of the 16 seeds are cured and none is harmed.
# The literature's instabilities were those of float16 (`embedding-norm-float16`); here they are
# those of the learning rate (Wortsman et al. 2023).
seeds = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
endpoints = [
  { metric = "validation_loss", primary = true, margin = 0.02, smallest_effect = 0.02 },
  { metric = "macro_accuracy" },
  { metric = "validation_perplexity" },
  { metric = "calibration_error" },
  { metric = "grad_norm" },
]

[data]
corpus = "shakespeare"
seq_len = 64

[model]
n_layer = 4
n_head = 4
d_model = 64

[training]
iterations = 150
batch_size = 16
precision = "auto"

[probes.every]
"""
TASKS = """
[tasks]
items = 16
shots = [0]

[[hypotheses]]
name = "H1b"
statement = "where training is unstable without it, it cures that, perhaps at some cost"
supported_by = ["row 9", "row 9b", "row 11", "row 12"] # cured
contradicted_by = ["row 2"] # shown to cause instability
"""


def chosen(study: Study, events: dict[str, int]) -> list[str]:
    """Choose the arms of the pilot by the rule, in their order; `events` are seeds by arm."""
    lowest: dict[tuple[Any, ...], tuple[float, str]] = {}
    for arm in study.arms:
        setting = study.setting(arm)
        kind = (setting.model.n_layer, setting.training.schedule.warmup)
        rate = setting.training.optimizer.learning_rate
        if events[arm] >= LEAST and rate < lowest.get(kind, (float("inf"), ""))[0]:
            lowest[kind] = (rate, arm)
    kept = {arm for _, arm in lowest.values()}
    return [arm for arm in study.arms if arm in kept]


def study_file(study: Study, arms: list[str]) -> str:
    """Write the study of these settings: the baseline and both norms at each."""
    text = HEAD + "".join(f"{probe} = 0\n" for probe in study.probes.every) + TASKS
    for number, arm in enumerate(arms):
        about = study.arms[arm]
        base = "baseline" if number == 0 else f"baseline-{number + 1}"
        suffix = "" if number == 0 else f"-{number + 1}"
        text += _arm(base, f"baseline, {about.title}", "E_tok(t) + E_pos(p)", base, about.set)
        for norm, (title, formula) in NORMS.items():
            set_ = about.set | {"model.embedding.norm": norm}
            text += _arm(f"{norm}{suffix}", f"{title}, {about.title}", formula, base, set_)
    return text


def _arm(name: str, title: str, formula: str, against: str, set_: dict[str, Any]) -> str:
    lines = [f"[arms.{name}]", f'title = "{title}"', f'description = "{formula}"']
    lines.append(f'reference = "{against}"')
    for key, value in set_.items():
        shown = f'"{value}"' if isinstance(value, str) else repr(value)
        lines.append(f'set."{key}" = {shown}')
    return "\n" + "\n".join(lines) + "\n"


def main() -> int:
    """Print the study file; 2 where the pilot is not finished, or nothing was unstable."""
    try:
        results = paribus.load_results(sys.argv[1])
        if results.unfinished:
            raise ParibusError(f"{Path(sys.argv[1])} is not finished; run the pilot first")
        happened = dict.fromkeys(results.study.arms, 0)
        for (arm, _), one in Table.of(results).events.items():
            happened[arm] += one.diverged or one.spiked
        for arm, count in happened.items():
            rate = results.study.setting(arm).training.optimizer.learning_rate
            print(f"{arm} ({LEARNING_RATE} {rate:g}): {count} seeds", file=sys.stderr)
        arms = chosen(results.study, happened)
        if not arms:
            raise ParibusError("the baseline was unstable nowhere; the pilot wants higher rates")
        print(study_file(results.study, arms), end="")
    except (IndexError, ParibusError) as error:
        print(f"instability.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
