"""The study files of the gallery, from one base: `python studies/gallery/make.py` writes them.

Each is one question, tuned over rate x warmup, on eight seeds, at the size of the flagship. The
text is made by `debian_pages.py`. README.md says what each takes.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
IDEAS = "../../examples/architecture/ideas.py"
RATES = "3e-4", "2e-2"
BASE = """\
# Written by make.py, from one base.
name = "gallery-{name}"
question = "{question}"
seeds = [1, 2, 3, 4, 5, 6, 7, 8]
baseline = "{baseline}"
endpoints = [
  {{ metric = "{metric}", primary = true, margin = 0.02, smallest_effect = 0.02 }},
  {{ metric = "grad_norm" }},
]

[data]
corpus = "text"
path = "handbook/train.txt"
validation_path = "handbook/validation"
test_path = "handbook/sealed"
deduplicate = "held-out"
seq_len = 128

[model]
n_layer = 8
n_head = 8
d_model = 128

[training]
iterations = 300
batch_size = 16
precision = "auto"
schedule = {{ kind = "cosine" }}
{more}
[inference]
choice = "propagated" # registered before errors included lack of fit

[tuning]
seeds = [101, 102, 103]
method = "sobol"
trials = 8
{select}ranges = {{ "training.optimizer.learning_rate" = {{ low = {low}, high = {high} }}, \
"training.schedule.warmup" = {{ low = 0, high = 90, scale = "linear" }} }}

[evaluation]
every = 50

[probes.every]
attention_logits = 0
position_similarity = 0
embedding_similarity = 0
embedding_gain = 0
embedding_norm = 0
gradient_norm = 0
logits = 0
optimizer_slots = 0
below_eps = 0
residual_norm = 0
update_ratio = 100

[tasks]
names = []

[decision]
rule = "equivalence"
{arms}"""

OPTIMIZER, SCHEDULE = "training.optimizer.name", "training.schedule.kind"
Arms = dict[str, dict[str, str]]
QUESTIONS: dict[str, tuple[str, Arms]] = {
    "optimizers": (
        "Which optimizer reaches the lowest loss after 300 steps, each at its best rate?",
        {
            "adamw": {},
            "muon": {OPTIMIZER: '"muon"'},
            "soap": {OPTIMIZER: '"soap"'},
            "lion": {OPTIMIZER: '"lion"'},
            "schedule-free": {OPTIMIZER: '"schedule_free"', SCHEDULE: '"constant"'},
        },
    ),
    "schedules": (
        "Is warmup-stable-decay as good as a cosine?",
        {"cosine": {}, "wsd": {SCHEDULE: '"wsd"'}},
    ),
    "positions": (
        "Learned positions, rotary ones or none?",
        {
            "learned": {},
            "rotary": {"model.positions.kind": '"rotary"'},
            "none": {"model.positions.kind": '"none"'},
        },
    ),
    "mlp": (
        "GELU, SwiGLU or a squared ReLU, at equal parameters?",
        {
            "gelu": {},
            "swiglu": {"model.mlp.kind": '"swiglu"'},
            "relu2": {"model.mlp.kind": '"relu2"'},
        },
    ),
    "qk-norm": (
        "Does a norm of queries and keys help?",
        {"plain": {}, "qk-norm": {"model.attention.qk_norm": '"rmsnorm"'}},
    ),
    "norm-placement": (
        "Norms before or after what a block adds?",
        {"pre": {}, "post": {"model.norm.placement": '"post"'}},
    ),
    "tying": (
        "Does an output matrix of its own help?",
        {"tied": {}, "untied": {"model.head.tied": "false"}},
    ),
    "z-loss": (
        "Does z-loss cost or gain anything where training is stable?",
        {"plain": {}, "z-loss": {"training.loss.z_loss": "1e-4"}},
    ),
    "batch-ramp": (
        "Do batches that grow help, at equal tokens?",
        {
            "constant": {},
            "linear": {"training.batch_size": "{ from = 4, to = 16, until = 0.3 }"},
            "doubling": {
                "training.batch_size": '{ from = 4, to = 16, until = 0.3, shape = "doubling" }'
            },
        },
    ),
    "value-residual": (
        "Do values of the first layer help all others?",
        {"plain": {}, "residual": {"model.modules.attention": f'"{IDEAS}:ValueResidual"'}},
    ),
    "experts": (
        "Do four experts, one for each token, beat one MLP of as many active FLOPs?",
        {
            "mlp": {},
            "experts": {
                "model.modules.mlp": f'"{IDEAS}:MixtureOfExperts"',
                "training.loss.auxiliary.balance": "0.01",
            },
        },
    ),
    "tokens": (
        "Characters or 512 byte pairs, in bits per byte at equal text?",
        {"characters": {}, "pairs": {"data.tokenizer": '"pydoc-512"'}},
    ),
}
LOWS = {"optimizers": ("1e-4", "3e-2")}


def study(name: str) -> str:
    """Return the text of a study file."""
    question, arms = QUESTIONS[name]
    told = "".join(
        f"\n[arms.{arm}]\n" + "".join(f'set."{key}" = {value}\n' for key, value in sets.items())
        for arm, sets in arms.items()
    )
    low, high = LOWS.get(name, RATES)
    metric, more, select = "validation_loss", "", ""
    if name == "tokens":  # which are not alike: text and its bytes are
        metric, more = "bits_per_byte", 'budget = "bytes"\n'
        select = f'select = "{metric}"\n'
    return BASE.format(
        **{"name": name, "question": question, "baseline": next(iter(arms)), "metric": metric},
        **{"more": more, "select": select, "low": low, "high": high, "arms": told},
    )


def main() -> None:
    """Write them all."""
    for name in QUESTIONS:
        (HERE / f"{name}.toml").write_text(study(name), "utf-8")


if __name__ == "__main__":
    main()
