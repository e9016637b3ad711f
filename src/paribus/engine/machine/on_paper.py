"""A study planned on paper: what it would take on devices that are not here.

Nothing is built, measured or read but the vocabulary, so the answer takes no longer for a model of
a billion parameters. Every number is of a formula that is written here with its source, and is
compared in the tests with a model that is built, and with memory that is measured.

Axes: L layers, D channels, H heads of queries, G of keys and values, K channels of a head, W inner
width of an MLP, T window, V vocabulary, S devices of a trial.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from paribus.engine.format import DOWNLOADED
from paribus.engine.setting import Data, Setting, rows_of
from paribus.engine.setting.architecture import CAUSAL
from paribus.errors import ParibusError, nearest, require_positive
from paribus.study import Study, tuning_study
from paribus.study.tuning_study import arm_of

GIB = 2**30


class Card(NamedTuple):
    """An accelerator, as its maker describes it: dense products without sparsity.

    Attributes:
        title: what readers call it.
        memory_bytes: of one.
        flops: per second, by the precision of products.
    """

    title: str
    memory_bytes: int
    flops: dict[str, float]


def _card(title: str, gib: int, lower: float, full: float) -> Card:
    of = {"bfloat16": lower * 1e12, "float16": lower * 1e12, "float32": full * 1e12}
    return Card(title, gib * GIB, of)


# NVIDIA's data sheets, SXM forms. Half of what they print where that is "with sparsity". float32 is
# that of plain products: this engine asks for no TF32.
CARDS = {
    "a100": _card("NVIDIA A100 80 GB", 80, 312, 19.5),
    "h100": _card("NVIDIA H100 SXM", 80, 989.4, 66.9),
    "h200": _card("NVIDIA H200 SXM", 141, 989.4, 66.9),
    "b200": _card("NVIDIA B200", 180, 2_250, 75),
}

UTILISATION = 0.4
"""Of the peak, where nobody states it: what well-kept code reaches with a billion parameters on
A100 and H100 (PaLM's MFU, Chowdhery et al. 2022, appendix B; 46% of theirs)."""
ASSUMED_VOCABULARY = 50_257
"""GPT-2's (Radford et al. 2019), where the tokenizer is not there yet."""

MOST_READ = 2**27
"""Bytes of files that are read for their characters: some seconds, compressed ones more."""

STREAM = 4  # bytes of a number of the residual stream, which is float32 whatever products are in
WEIGHT = 4  # of a weight, its gradient and each number that an optimizer keeps
PRODUCT = {"float32": 4, "bfloat16": 2, "float16": 2, "auto": 2}
KEPT_CHECKPOINTS = 2
# Of SOAP 8: two moments, and four matrices of the sides of one that is four times as high as wide
# are 8.5 numbers for each of it, of a square one 4. Adafactor's means of rows are next to nothing.
SLOTS = {
    **{"adamw": 2, "cautious_adamw": 2, "schedule_free": 2, "soap": 8},
    **{"muon": 1, "lion": 1, "sgd": 1, "adafactor": 0},
}
# Parameters of a norm over one channel, with and without a bias.
NORMS = {"layernorm": (2, 1), "rmsnorm": (1, 1)}
WITHOUT_PARAMETERS = frozenset({"none", "center", "fixed_scale", "rms_free"})


@dataclass(frozen=True)
class Sizes:
    """Parameters of a model of built-in parts.

    Attributes:
        block: of one block.
        shared: of all else: tables, the norms around the blocks, a head of its own.
        multiplied: in matrices that a token is multiplied with, over the whole model.
        matrices: of these, in blocks: what Muon is for.
    """

    block: int
    shared: int
    layers: int
    multiplied: int
    matrices: int

    @property
    def all(self) -> int:
        """Trainable parameters."""
        return self.layers * self.block + self.shared


def sizes(setting: Setting, vocab_size: int) -> Sizes:
    """Return the parameters of the model of `setting`, counted by its keys.

    Raises ParibusError where a part is the user's own, whose size is in its code.
    """
    model, own = setting.model, setting.model.modules.named
    if own or model.attention.kind != CAUSAL:
        site, path = next(iter(own.items()), ("attention", model.attention.kind))
        raise ParibusError(
            f"'{path}' at model.{site} has no size on paper; name a built-in part, or plan where "
            "the study runs, without --count"
        )
    D, L, T = model.d_model, model.n_layer, setting.data.seq_len
    heads = model.n_head + 2 * model.n_kv_head
    bias = int(model.bias)
    W, maps = inner_width(setting)
    attention = D * heads * model.head_width + D * D
    mlp = maps * D * W
    biases = bias * (heads * model.head_width + D + (maps - 1) * W + D)
    norms = 2 * _norm(model.norm.kind, D, model.bias)
    norms += 2 * _norm(model.attention.qk_norm, model.head_width, model.bias)
    shared = vocab_size * D * (1 if model.head.tied else 2)
    shared += T * D if model.positions.kind == "learned" else 0
    shared += _norm(model.embedding.norm, D, True)
    shared += _norm(model.norm.kind, D, model.bias) if model.norm.placement == "pre" else 0
    matrices = L * (attention + mlp)
    return Sizes(
        block=attention + mlp + biases + norms,
        shared=shared,
        layers=L,
        multiplied=matrices + vocab_size * D,
        matrices=matrices,
    )


DRY_STEPS = 6  # passes of some rows, all in all
CPU_FLOPS = 2e10  # per second, of a slow core
LONGEST_DRY_RUN = 60.0  # seconds


def is_large(setting: Setting, vocab_size: int, rows: int) -> bool:
    """Tell whether a dry run of so many rows takes a core more than a minute; of parts whose size
    is not known, no."""
    try:
        flops = flops_per_token(setting, vocab_size) * rows * setting.data.seq_len * DRY_STEPS
    except ParibusError:
        return False
    return flops > CPU_FLOPS * LONGEST_DRY_RUN


def inner_width(setting: Setting) -> tuple[int, int]:
    """Return the inner width of the MLP, and how many matrices it has (Shazeer 2020)."""
    model = setting.model
    D, W, bias = model.d_model, model.mlp.ratio * model.d_model, int(model.bias)
    if model.mlp.kind != "swiglu":
        return W, 2
    if model.mlp.match_parameters:
        W = max(1, round((2 * D + bias) * W / (3 * D + 2 * bias)))
    return W, 3


def _norm(kind: str, width: int, bias: bool) -> int:
    """Return the parameters of a norm. Raises ParibusError for one whose size is not known."""
    if kind in WITHOUT_PARAMETERS:
        return 0
    if kind not in NORMS:
        raise ParibusError(f"the norm '{kind}' has no size on paper; known are {sorted(NORMS)}")
    return width * NORMS[kind][0 if bias else 1]


def flops_per_token(setting: Setting, vocab_size: int) -> int:
    """Return operations of training per token: 6 N + 12 L D T.

    N are weights that a token is multiplied with, forward once and backward twice, and each is a
    multiplication and an addition (Kaplan et al. 2020, section 2.1); attention scores and mixing
    are the whole square (Chowdhery et al. 2022, appendix B). What checkpointing computes again is
    not counted: it is no progress.
    """
    of = sizes(setting, vocab_size)
    return 6 * of.multiplied + 12 * of.layers * setting.model.d_model * setting.data.seq_len


def block_bytes_per_token(setting: Setting) -> int:
    """Return what a block keeps of a token for its backward pass, without checkpointing.

    After Korthikanti et al. 2022 (arXiv 2205.05198, section 4.1), for fused attention and for a
    residual stream in float32: what enters both norms, 4 D each; in the type of products what both
    norms give, queries, keys and values, what attention gives, and what the MLP's activation reads
    and gives; of attention a float32 for each head.
    """
    model = setting.model
    D, H, heads = model.d_model, model.n_head, model.n_head + 2 * model.n_kv_head
    W, maps = inner_width(setting)
    e = PRODUCT[setting.training.precision]
    inner = 2 * W if maps == 2 else 4 * W  # gate, SiLU of it, the other factor, their product
    kept = 2 * STREAM * D + e * (2 * D + heads * model.head_width + D + inner) + 4 * H + 16
    if setting.training.dropout or model.attention.softcap or model.attention.window:
        # Scores are written out: products, their softmax in float32, and what is mixed with.
        kept += H * setting.data.seq_len * (4 + 2 * e)
        kept += 2 * D  # what was dropped, a byte each
    return kept


def logit_bytes(setting: Setting) -> int:
    """Return what one logit takes where the loss turns round: itself, its log-probability in
    float32, and the gradients of both."""
    return PRODUCT[setting.training.precision] + 3 * 4


@dataclass(frozen=True)
class Memory:
    """The most bytes that a device holds while a trial is trained, and what they are.

    Attributes:
        weights, gradients, optimizer: of the parameters that lie here.
        gathered: weights that come from other devices for the block at work, and the next one, and
            their gradients; of one device a copy of all, and nothing where trials are side by side.
        activations: what blocks keep for the backward pass.
        logits: and their gradients.
    """

    weights: int
    gradients: int
    optimizer: int
    gathered: int
    activations: int
    logits: int

    @property
    def total(self) -> int:
        """All of it; without what the driver, kernels and the allocator's gaps take."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, int]:
        """By name, in the order in which they are told."""
        return {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "gathered blocks": self.gathered,
            "activations": self.activations,
            "logits": self.logits,
        }


def memory(
    setting: Setting,
    vocab_size: int,
    *,
    devices: int = 1,
    checkpointing: bool = False,
    sharded: bool = True,
) -> Memory:
    """Return what a device holds that trains its part of one trial.

    Weights, gradients and slots are float32, and 1 / S of each lies on a device (ZeRO stage 3:
    Rajbhandari et al. 2020, section 5.3; Zhao et al. 2023, FSDP). Of a trial that is not `sharded`
    gradients are there twice while they are joined and clipped. With `checkpointing` a block keeps
    what enters it alone, and the one at work all (Chen et al. 2016).
    """
    of, training, model = sizes(setting, vocab_size), setting.training, setting.model
    here = math.ceil(of.all / devices)
    sequences = math.ceil(training.largest_batch / devices)
    sequences = min(sequences, training.micro_batch or sequences)
    tokens = sequences * setting.data.seq_len
    block = block_bytes_per_token(setting)
    kept = of.layers * STREAM * model.d_model + block if checkpointing else of.layers * block
    ends = 3 * STREAM * model.d_model  # the embedding stage, and the last norm's two sides
    gathered = 2 * WEIGHT * (2 * of.block + of.shared) if devices > 1 else 0
    if sharded and devices == 1:  # gathered once, and kept, as nobody else has any of it
        gathered = WEIGHT * of.all
    return Memory(
        weights=WEIGHT * here,
        gradients=WEIGHT * here * (1 if sharded else 2),
        optimizer=math.ceil(WEIGHT * slot_numbers(setting, of) / devices),
        gathered=gathered,
        activations=tokens * (kept + ends),
        logits=tokens * vocab_size * logit_bytes(setting),
    )


def slot_numbers(setting: Setting, of: Sizes) -> int:
    """Return how many numbers the optimizer and an average of weights keep; an optimizer of the
    user's own is taken for AdamW, an average for one set of weights."""
    name = setting.training.optimizer.name
    each = SLOTS.get(name, SLOTS["adamw"])
    rest = of.all - of.matrices if name in ("muon", "soap") else 0
    averaged, options = setting.training.average.kind, setting.training.average.options
    sets = {"none": 0, "lawa": options.get("snapshots", 5)}.get(averaged, 1)
    return each * (of.all - rest) + SLOTS["adamw"] * rest + int(sets) * of.all


@dataclass(frozen=True)
class ArmOnPaper:
    """One arm: a trial of it.

    Attributes:
        parameters, tokens, iterations: of a trial.
        flops: of its training.
        memory: of the fullest device.
        device_hours: of its training, at the stated utilisation.
        weights_bytes: of what it leaves, kept steps included.
    """

    parameters: int
    tokens: int
    iterations: int
    flops: float
    memory: Memory
    device_hours: float
    weights_bytes: int


@dataclass(frozen=True)
class OnPaper:
    """What a study takes.

    Attributes:
        card: what it would run on.
        count: so many of them, of which so many are `used`: the others are too few for a trial, or
            there are no more trials.
        devices_per_trial: of these.
        trials: that decide, and tuning_trials before them.
        vocabulary: of the tokenizer; `assumed` where that is not there.
        utilisation: of the card's peak, as stated.
        peak_flops: of one card, in the precision that is trained in.
        arms: by name.
        tokens, flops, device_hours: of all trials, those of tuning too.
        hours: from beginning to end, where every device always has a trial as long as there are
            any.
        text_bytes: tokens as they are cached, of the longest trial, if none is read twice.
        checkpoint_bytes: of trials in training, at once.
        weights_bytes: of all that are kept.
        price: of a device for an hour; None where nobody states it.
    """

    card: Card
    count: int
    used: int
    devices_per_trial: int
    checkpointing: bool
    trials: int
    tuning_trials: int
    vocabulary: int
    assumed: bool
    utilisation: float
    peak_flops: float
    arms: dict[str, ArmOnPaper]
    tokens: int
    flops: float
    device_hours: float
    hours: float
    text_bytes: int
    checkpoint_bytes: int
    weights_bytes: int
    price: float | None

    @property
    def cost(self) -> float | None:
        """Device-hours times the price."""
        return None if self.price is None else self.price * self.device_hours

    @property
    def disk_bytes(self) -> int:
        """Of text, checkpoints and weights, at most at once."""
        return self.text_bytes + self.checkpoint_bytes + self.weights_bytes

    @property
    def fullest_arm(self) -> str:
        """The arm that takes most memory; the first of several."""
        return max(self.arms, key=lambda arm: self.arms[arm].memory.total)

    @property
    def fullest(self) -> Memory:
        """Of that arm."""
        return self.arms[self.fullest_arm].memory

    @property
    def fits(self) -> bool:
        """Whether a device holds it, with a tenth of its memory left to gaps and kernels."""
        return self.fullest.total <= 0.9 * self.card.memory_bytes

    @property
    def record(self) -> dict[str, Any]:
        """Plain JSON types."""
        from dataclasses import asdict

        return asdict(self) | {
            "card": self.card.title,
            "cost": self.cost,
            "disk_bytes": self.disk_bytes,
            "fits": self.fits,
        }


def plan_on_paper(
    study: Study,
    card: str,
    *,
    count: int | None = None,
    price: float | None = None,
    utilisation: float = UTILISATION,
    vocabulary: Callable[[Setting], int | None] | None = None,
) -> OnPaper:
    """Return what `study` takes on `count` devices called `card` (one of CARDS).

    `vocabulary` gives that of a setting, or None where its tokenizer is not there: then
    ASSUMED_VOCABULARY is taken, and it is said. Raises ParibusError.
    """
    require_positive(count=count)
    if card not in CARDS:
        raise ParibusError(f"--device {card} is unknown: {nearest(card, CARDS)}")
    if not 0 < utilisation <= 1:
        raise ParibusError(
            f"--utilisation {utilisation:g} is no share of a device's peak; state one above 0 and "
            "up to 1, such as 0.4"
        )
    if price is not None and not 0 <= price < math.inf:
        raise ParibusError(f"--price {price:g} is no price of a GPU-hour; state a number from 0 on")
    found, each = CARDS[card], study.resources.devices_per_trial or 1
    count = count or each
    if count < each:
        raise ParibusError(
            f"--count {count} is fewer than resources.devices_per_trial = {each}; state as many, "
            "or fewer devices for a trial"
        )
    settings: dict[str, Setting] = {arm: study.setting(arm) for arm in study.arms}
    if study.resources.devices_per_trial is not None:
        for one in settings.values():
            rows_of(one, each)
    known = {arm: (vocabulary or vocabulary_of(study))(one) for arm, one in settings.items()}
    arms = {
        arm: _arm(study, one, known[arm] or ASSUMED_VOCABULARY, found, each, utilisation)
        for arm, one in settings.items()
    }
    trials = [arms[arm] for arm, _ in study.trials]
    tuned = _tuned(study, arms)
    hours = sum(of.device_hours for of in trials) + sum(hours for hours, _, _ in tuned)
    at_once = min(count // each, max(len(trials), len(tuned)))
    numbers = {arm: sizes(one, known[arm] or ASSUMED_VOCABULARY) for arm, one in settings.items()}
    state = WEIGHT * max(of.all + slot_numbers(settings[arm], of) for arm, of in numbers.items())
    longest = max(of.tokens for of in arms.values())
    peak = found.flops[_precision(settings[study.baseline])]
    return OnPaper(
        card=found,
        count=count,
        used=at_once * each,
        devices_per_trial=each,
        checkpointing=study.resources.checkpoint_activations,
        trials=len(trials),
        tuning_trials=len(tuned),
        vocabulary=max(size or ASSUMED_VOCABULARY for size in known.values()),
        assumed=None in known.values(),
        utilisation=utilisation,
        peak_flops=peak,
        arms=arms,
        tokens=sum(of.tokens for of in trials) + sum(tokens for _, tokens, _ in tuned),
        flops=sum(of.flops for of in trials) + sum(flops for _, _, flops in tuned),
        device_hours=hours,
        hours=last_end((hours / each for hours, _, _ in tuned), count // each)
        + last_end((of.device_hours / each for of in trials), count // each),
        text_bytes=longest * (2 if max(size or 0 for size in known.values()) <= 2**16 else 4),
        checkpoint_bytes=at_once * KEPT_CHECKPOINTS * state,
        weights_bytes=sum(of.weights_bytes for of in trials),
        price=price,
    )


def _arm(
    study: Study, setting: Setting, vocab_size: int, card: Card, devices: int, utilisation: float
) -> ArmOnPaper:
    flops = float(flops_per_token(setting, vocab_size) * setting.tokens)
    peak = card.flops[_precision(setting)]
    parameters = sizes(setting, vocab_size).all
    return ArmOnPaper(
        parameters=parameters,
        tokens=setting.tokens,
        iterations=setting.iterations,
        flops=flops,
        memory=memory(
            setting,
            vocab_size,
            devices=devices,
            checkpointing=study.resources.checkpoint_activations,
            sharded=study.resources.devices_per_trial is not None,
        ),
        device_hours=flops / (peak * utilisation) / 3600,
        weights_bytes=WEIGHT * parameters * (1 + len(setting.kept_steps)),
    )


def _precision(setting: Setting) -> str:
    """Return what products are in; "auto" is bfloat16 on every card there is here."""
    precision = setting.training.precision
    return "bfloat16" if precision == "auto" else precision


def _tuned(study: Study, arms: dict[str, ArmOnPaper]) -> list[tuple[float, int, float]]:
    """Return (device-hours, tokens, FLOPs) of every trial that tunes; its grid may grow."""
    if study.tuning is None:
        return []
    tuning = tuning_study(study, study.tuning.candidates)
    found = []
    for candidate, _ in tuning.trials:
        tokens = tuning.setting(candidate).tokens
        of = arms[arm_of(candidate)]
        share = tokens / of.tokens
        found.append((of.device_hours * share, tokens, of.flops * share))
    return found * (len(study.seeds) if study.tunes_anew else 1)


def last_end(times: Iterable[float], places: int) -> float:
    """Return when the last of these is done, each taken by the first place that is free."""
    free_at = [0.0] * places
    for each in times:
        heapq.heapreplace(free_at, free_at[0] + each)
    return max(free_at)


def vocabulary_of(study: Study) -> Callable[[Setting], int | None]:
    """Return what reads the vocabulary of a setting's tokenizer, where that is there: of
    characters, the text is read as a run reads it, where it is at hand and short."""
    from paribus.engine.data.split import Texts
    from paribus.engine.data.tokenizer import tokenizer_of

    known: dict[str, int | None] = {}

    def found(data: Data) -> int | None:
        file = data.tokenizer_file
        if data.tokenizer != "character":
            is_there = file is None or (study.folder / file).exists()
            return tokenizer_of(data, "", False, study.folder).vocab_size if is_there else None
        of = [data, *map(data.of_source, data.other_sources)]
        of += [
            data.model_copy(update={"path": path})
            for path in (data.validation_path, data.test_path)
            if path is not None
        ]
        if sum(_bytes_to_read(one, study.folder) for one in of) > MOST_READ:
            return None
        return Texts.read(data, study.folder).tokenizer.vocab_size

    def read(setting: Setting) -> int | None:
        key = setting.data.model_dump_json()
        if key not in known:
            known[key] = found(setting.data)
        return known[key]

    return read


def _bytes_to_read(data: Data, folder: Path) -> float:
    """Return the size of the files that the corpus of `data` is read from; endless where one is
    missing, where they would be downloaded, and of a user's own corpus, which may do either."""
    from paribus.engine.data.corpora import find_corpus

    if ":" in data.corpus:
        return math.inf
    corpus = find_corpus(data, folder)
    try:
        files = corpus.files(data, folder) if corpus.files else []
        size = sum(file.stat().st_size for file in files)
    except (ParibusError, OSError):
        return math.inf
    return math.inf if data.corpus in DOWNLOADED and not files else size
