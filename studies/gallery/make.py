"""The study files of the gallery, from one base: `python studies/gallery/make.py` writes them.

Each is one question, tuned over rate x warmup, on eight seeds, at the size of the flagship. The
text is made by `debian_pages.py`. README.md says what each takes.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
IDEAS = "../../examples/architecture/ideas.py"
# The tuned pairs: learning rates of most studies, those of `optimizers`, and warmups. These are the
# eight points of the Sobol search that was registered: rates from 3e-4 to 2e-2 (of `optimizers`
# from 1e-4 to 3e-2), warmups from 0 to 90.
RATES = (0.0006899, 0.01485, 0.004571, 0.002188, 0.001192, 0.002934, 0.007097, 0.0005052)
WIDER_RATES = (0.0003099, 0.02003, 0.004042, 0.001485, 0.0006515, 0.002213, 0.007346, 0.0002029)
WARMUPS = (88, 17, 53, 33, 66, 39, 75, 11)
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
{select}combinations = [
{pairs}]

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

RATE, WARMUP = "training.optimizer.learning_rate", "training.schedule.warmup"
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


def study(name: str) -> str:
    """Return the text of a study file."""
    question, arms = QUESTIONS[name]
    told = "".join(
        f"\n[arms.{arm}]\n" + "".join(f'set."{key}" = {value}\n' for key, value in sets.items())
        for arm, sets in arms.items()
    )
    rates = WIDER_RATES if name == "optimizers" else RATES
    pairs = "".join(
        f'  {{ "{RATE}" = {rate}, "{WARMUP}" = {warmup} }},\n'
        for rate, warmup in zip(rates, WARMUPS, strict=True)
    )
    metric, more, select = "validation_loss", "", ""
    if name == "tokens":  # which are not alike: text and its bytes are
        metric, more = "bits_per_byte", 'budget = "bytes"\n'
        select = f'select = "{metric}"\n'
    return BASE.format(
        **{"name": name, "question": question, "baseline": next(iter(arms)), "metric": metric},
        **{"more": more, "select": select, "pairs": pairs, "arms": told},
    )


def main() -> None:
    """Write them all."""
    for name in QUESTIONS:
        (HERE / f"{name}.toml").write_text(study(name), "utf-8")


if __name__ == "__main__":
    main()
