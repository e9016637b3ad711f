"""Sentences on a trial of the trainer that ships: its model, data and training, from trial.json.

Page and paper state nothing of them but these. A part, corpus, optimizer or loss that has no words
below is called by its name, one of the user's own by its import path and the digest of its source,
and a key of the setting that no sentence is about is printed as it is (`Facts.further`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paribus import numbers
from paribus.digests import flatten
from paribus.engine.setting import SMALLEST_SCALE
from paribus.numbers import plural
from paribus.report.words import listed
from paribus.results import Results
from paribus.study import Study

# What parts are called, by site and name.
WORDS: dict[str, dict[str, str]] = {
    "norm": {
        "layernorm": "LayerNorm",
        "rmsnorm": "RMSNorm",
        "center": "centring (the mean taken away)",
        "fixed_scale": "a fixed scale",
        "rms_free": "RMS normalization without a gain",
    },
    "positions": {
        "learned": "learned absolute positions",
        "rotary": "rotary positions",
        "none": "no positions",
    },
    "mlp": {
        "gelu": "GELU",
        "gelu_tanh": "GELU (by tanh)",
        "swiglu": "SwiGLU",
        "relu2": "squared ReLU",
    },
    "optimizer": {"adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD"},
    "schedule": {"constant": "a constant schedule", "cosine": "a cosine schedule"},
    "loss": {"cross_entropy": "cross-entropy"},
    "corpus": {
        "shakespeare": "the collected Shakespeare text",
        "pydoc": "the language reference that comes with Python",
        "text": "the user's own text",
        "jsonl": "the user's own text, in files of JSON lines",
        "parquet": "the user's own text, in Parquet files",
        "huggingface": "a data set of the Hugging Face hub",
        "fineweb-edu": "educational web text (FineWeb-Edu)",
        "tinystories": "short synthetic stories (TinyStories)",
        "wikitext-103": "good and featured articles of Wikipedia (WikiText-103, raw)",
        "enwik8": "the first 100,000,000 bytes of an English Wikipedia in XML (enwik8)",
    },
    "precision": {
        "float32": "float32",
        "bfloat16": "mixed: float32 weights and optimizer, bfloat16 matrix products",
        "float16": "mixed: float32 weights and optimizer, float16 matrix products",
        "auto": "not settled yet",
    },
    "decay": {
        "matrices": "on all matrices, embeddings included",
        "linear": "on all matrices but embeddings",
    },
}

# What is so of a model where no key of its setting states it.
BUILT_IN: dict[str, Any] = {
    "norm.kind": "layernorm",
    "norm.placement": "pre",
    "norm.eps": None,
    "positions.kind": "learned",
    "mlp.kind": "gelu",
    "head.tied": True,
    "head.softcap": None,
    "attention.kind": "causal",
    "attention.n_kv_head": None,
    "attention.qk_norm": "none",
    "attention.softcap": None,
    "attention.window": None,
}

# Where a user's own module stands, by site.
SITES = {
    "embedding": "the stage before the first block",
    "block_norm": "the norm before each sub-layer",
    "attention": "attention",
    "mlp": "the MLP",
    "positions": "the positions",
    "head": "the head",
    "final_norm": "the norm after the last block",
}

# Keys of `data` that say more than where the text is from: other sentences are about them.
OF_DATA = frozenset(
    {
        *("corpus", "path", "tokenizer", "seq_len", "order", "pack", "deduplicate"),
        *("validation_fraction", "validation_path", "validation_tokens"),
        *("test_fraction", "test_path", "sources", "mixture", "curriculum"),
    }
)

OF_OPTIMIZERS = {
    "learning_rate": "a learning rate of {}",
    "betas": "β of {}",
    "eps": "ε of {}",
    "weight_decay": "a weight decay of {}",
    "options": "the options {}",
    "groups": "groups of parameters with settings of their own ({})",
}


def called(site: str, name: str) -> str:
    """Return what the part `name` is called; one without words by its name."""
    return WORDS[site].get(name, f"“{name}”")


def capped(limit: float | None, what: str) -> str:
    """Return `, logits softly capped at 30`; empty without a limit."""
    return "" if limit is None else f", {what} softly capped at {plain(limit)}"


class Worded(str):
    """Words of ours, which are not quoted."""


def plain(value: Any) -> str:
    """Return a value of a setting as a reader writes it."""
    if isinstance(value, Worded):
        return value
    if isinstance(value, dict):
        stated = {key: inner for key, inner in value.items() if inner not in ({}, None)}
        return listed([f"{key} {plain(inner)}" for key, inner in stated.items()])
    if isinstance(value, (list, tuple)):
        return listed([plain(inner) for inner in value])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"“{value}”" if isinstance(value, str) else str(value).lower()
    return numbers.compact(value)


def sources(digests: dict[str, str]) -> str:
    """Return the parts of an own module: the digest of each file's part in it."""
    return ", ".join(f"{digest[:12]} of {file}" for file, digest in digests.items())


@dataclass(frozen=True)
class ModelFacts:
    """Sentences and clauses about built-in parts of the model, and the names of others.

    Attributes:
        setting: the model's part of the setting, as recorded.
        digests: of the source of the user's own modules, by site and file.
    """

    setting: dict[str, Any]
    digests: Mapping[str, dict[str, str]]

    @cached_property
    def own(self) -> dict[str, str]:
        """Return the user's own modules: import path by site."""
        return {site: path for site, path in self.setting["modules"].items() if path}

    @cached_property
    def _stated(self) -> dict[str, Any]:
        """Return the model's setting by dotted key, with what is built in."""
        return BUILT_IN | flatten(self.setting)

    @property
    def norms(self) -> str:
        """Return the norms in blocks and after the last; empty where both are the user's own."""
        name, parts = called("norm", self._stated["norm.kind"]), []
        pre = self._stated["norm.placement"] == "pre"
        if "block_norm" not in self.own:
            parts.append("before each sub-layer" if pre else "after each residual sum")
        if "final_norm" not in self.own and pre:
            parts.append("after the last block")
        eps = self._stated["norm.eps"]
        about = "" if eps is None else f" (ε of {plain(eps)})"
        return f"{name} {' and '.join(parts)}{about}" if parts else ""

    @property
    def has_layernorm(self) -> bool:
        """Tell if the blocks or what follows them have a built-in LayerNorm."""
        return bool(self.norms) and self._stated["norm.kind"] == "layernorm"

    @property
    def is_pre_layernorm(self) -> bool:
        """Tell if that LayerNorm stands before each sub-layer."""
        pre = self._stated["norm.placement"] == "pre"
        return pre and self.has_layernorm and "block_norm" not in self.own

    @property
    def shape(self) -> str:
        """Return blocks, width, heads, MLP, positions and head: those that are built in."""
        model = self._stated
        told = [f"{model['n_layer']} blocks of width {model['d_model']}"]
        if "attention" not in self.own:
            told[0] += f" with {self._attention}"
        if "mlp" not in self.own:
            ratio = model["mlp.ratio"]
            matched = model["mlp.kind"] == "swiglu" and model.get("mlp.match_parameters")
            told.append(
                f"an MLP of {ratio} times the width with {called('mlp', model['mlp.kind'])}"
                + (" (made narrower to match the parameters of an ungated one)" if matched else "")
            )
        kind = model["positions.kind"]
        # An attention or embedding of the user's own may have the study's positions, or may not.
        within = "attention" if kind == "rotary" else "embedding"
        if not {"embedding", "positions", within} & self.own.keys():
            theta = model.get("positions.theta") if kind == "rotary" else None
            told.append(
                called("positions", kind) + (f" (base {plain(theta)})" if theta is not None else "")
            )
        if "head" not in self.own:
            tied = (
                "one matrix for input and output embeddings"
                if model["head.tied"]
                else "separate matrices for input and output embeddings"
            )
            told.append(tied + capped(model["head.softcap"], "logits"))
        return f"The model has {listed(told)}."

    @property
    def _attention(self) -> str:
        """Return `8 attention heads each`, and what else attention has."""
        model = self._stated
        kind = model["attention.kind"]
        text = f"{model['n_head']} attention heads each"
        if kind != BUILT_IN["attention.kind"]:
            return f"{text} of “{kind}” attention"
        if model["attention.n_kv_head"] is not None:
            text += f", {model['attention.n_kv_head']} of them for keys and values"
        if model["attention.qk_norm"] != "none":
            text += f", queries and keys normalised by {called('norm', model['attention.qk_norm'])}"
        text += capped(model["attention.softcap"], "scores")
        if model["attention.window"] is not None:
            text += f", in a window of {model['attention.window']} tokens"
        return text

    @property
    def embedding(self) -> str:
        """Return what enters the first block."""
        if "embedding" in self.own:
            return ""
        stage = self.setting["embedding"]
        if stage["norm"] == "none":
            return "Embeddings enter the first block as they are, without a norm."
        eps = "" if stage["eps"] is None else f" (ε of {plain(stage['eps'])})"
        what = {"sum": "The sum of token and position embeddings", "tokens": "Token embeddings"}
        where = what.get(stage["norm_at"], f"Embeddings at “{stage['norm_at']}”")
        return f"{where} are normalised by {called('norm', stage['norm'])}{eps}."

    @property
    def replaced(self) -> str:
        """Return the user's own modules; empty without any."""
        if not self.own:
            return ""
        told = [
            f"{SITES.get(site, f'the site “{site}”')} is “{path}”"
            + (f" (source digest {sources(self.digests[site])})" if site in self.digests else "")
            for site, path in self.own.items()
        ]
        return f"The user's own modules stand in the place of built-in parts: {listed(told)}."

    @property
    def initial(self) -> str:
        """Return how weights begin."""
        init = self.setting["init"]
        text = (
            f"Weights start from normal distributions with standard deviation {plain(init['std'])}"
        )
        if "embedding" not in self.own:
            text += f", token embeddings {plain(init['token_std'])}"
            if self._stated["positions.kind"] == "learned" and "positions" not in self.own:
                text += f" and positions {plain(init['position_std'])}"
        if init["scale_residual"]:
            text += (
                "; projections into the residual stream are scaled down by the square root of "
                "twice the number of blocks"
            )
        if init["salt"]:
            text += f"; their random streams carry the salt {init['salt']}"
        return f"{text}."


@dataclass(frozen=True)
class Facts:
    """The facts of one trial's record.

    Attributes:
        trial: its trial.json; of a study without a finished trial, its setting alone.
        environment: its environment.json; empty without one.
    """

    trial: dict[str, Any]
    environment: dict[str, Any]

    @classmethod
    def of(cls, results: Results) -> Facts:
        """Return the facts of a finished trial of the baseline, or of its setting alone."""
        study = results.study
        for folder in results.finished:
            if folder.arm == study.baseline:
                record = results.trials[folder.arm, folder.seed]
                return cls(record, folder.read_json("environment.json"))
        return cls({"setting": study.setting(study.baseline).model_dump(mode="json")}, {})

    @cached_property
    def model(self) -> ModelFacts:
        """Return the facts of the model."""
        return ModelFacts(self.trial["setting"]["model"], self.trial.get("own_modules", {}))

    @property
    def training(self) -> dict[str, Any]:
        """Return the setting of training, as recorded."""
        return self.trial["setting"]["training"]

    @property
    def data(self) -> dict[str, Any]:
        """Return the setting of the data, as recorded."""
        return self.trial["setting"]["data"]

    @property
    def parameters(self) -> int | None:
        """Return their number; None before a trial of the baseline is finished."""
        return self.trial.get("parameters")

    @property
    def text(self) -> str:
        """Return `the collected Shakespeare text, by character`."""
        words = called("corpus", self.data["corpus"])
        if self.data["corpus"] not in WORDS["corpus"]:
            words = f"the corpus {words}"
        about = [f"“{self.data['path']}”"] if self.data["path"] is not None else []
        about += [
            f"{key} {plain(value)}"
            for key, value in self.data.items()
            if key not in OF_DATA and value is not None
        ]
        words += f" ({', '.join(about)})" if about else ""
        return f"{words}, {self.tokenizer}"

    @property
    def tokenizer(self) -> str:
        """Return `by character`, or by which file's tokens."""
        name = self.data["tokenizer"]
        built_in = {"character": "by character", "byte": "by byte"}
        return built_in.get(name, f"in tokens of “{name}”")

    @property
    def split(self) -> str:
        """Return how the text is split, with its sizes; empty before a trial is finished."""
        record, data = self.trial.get("data"), self.data
        if not record:
            return ""
        n = f"{record['validation_tokens']:,} tokens"
        sealed = data.get("test_path") or data.get("test_fraction")
        if data.get("validation_path"):
            held = f"{n} of “{data['validation_path']}” for validation"
        else:
            place = "the next" if data.get("test_fraction") else "the last"
            held = f"{place} {data['validation_fraction']:g} of it, {n}, for validation"
        if data.get("validation_tokens"):
            held += f" (at most {data['validation_tokens']:,} are evaluated)"
        if sealed:
            part = f"the last {sealed:g} of it" if not isinstance(sealed, str) else f"“{sealed}”"
            held += f", while {part} is sealed until the verdict"
        documents = (
            f" It has {record['n_documents']:,} documents." if record["n_documents"] > 1 else ""
        )
        return (
            f": {record['train_tokens']:,} tokens of it for training and {held}, with a vocabulary "
            f"of {record['vocab_size']:,}.{documents}{self.mixture} Training windows "
            f"{self.windows}. "
            f"{self.repeats} The corpus has the digest {record['digests']['corpus'][:12]}"
        )

    @property
    def repeats(self) -> str:
        """Return what became of repeated text."""
        how = self.data.get("deduplicate", "none")
        taken = {
            "none": "Repeated text was left in.",
            "held-out": "Repeated text was left in, but for what the held-out text has too.",
            "exact": "Documents and passages that repeat an earlier one exactly were taken out.",
            "near": "Documents and passages that repeat an earlier one, nearly, were taken out.",
        }
        return taken.get(how, f"Repeated text was treated by “{how}”.")

    @property
    def mixture(self) -> str:
        """Return how sources are mixed, and what was consumed of each; empty of one text."""
        shares, sources = self.data.get("mixture"), self.data.get("sources")
        if not shares and not sources:
            return ""
        text = " Training windows are of this text alone." if not shares else ""
        if shares:
            text = f" Windows for training are mixed: {plain(shares)}, where corpus is this text."
        if sources:
            text += f" Other sources are {plain(sources)}."
        consumed = self.trial.get("consumed", {}).get("sources", {})
        if len(consumed) > 1:
            told = [
                f"{of['tokens']:,} tokens ({of['bytes']:,} bytes) of {name}"
                for name, of in consumed.items()
            ]
            text += f" A trial consumed {listed(told)}."
        return text

    @property
    def held_out(self) -> str:
        """Return where validation text is from."""
        path = self.data.get("validation_path")
        where = f"is “{path}”" if path else "comes from the same corpus, after the training text,"
        return f"Validation text {where} and is read in windows"

    @property
    def windows(self) -> str:
        """Return where training windows begin, and in which order they come."""
        order, pack = self.data.get("order", "sampled"), self.data.get("pack", "stream")
        key = self.data.get("curriculum")
        by = "" if key is None else f", of documents sorted by {plain(key)}"
        orders = {
            "sampled": f"are drawn with replacement{by}",
            "epoch": f"come once in every epoch{by}",
            "curriculum": f"come from the first to the last once in a run{by},",
        }
        packs = {"stream": "anywhere in the text", "documents": "with a document where it fits"}
        return f"{orders.get(order, f'“{order}”')} and begin {packs.get(pack, f'“{pack}”')}"

    @property
    def iterations(self) -> int:
        """Return steps of a trial as the setting states them, or as its budget comes to."""
        stated = self.training["iterations"]
        return stated or self.training["tokens"] // self.tokens_per_step

    @property
    def tokens_per_step(self) -> int:
        """Return tokens of a batch: windows times their length."""
        return self.training["batch_size"] * self.data["seq_len"]

    @property
    def tokens(self) -> int:
        """Return training tokens of a trial."""
        return self.iterations * self.tokens_per_step

    @property
    def budget(self) -> str:
        """Return the unit of equal budgets, where it is not tokens."""
        unit = self.training["budget"]
        if unit == "tokens":
            return ""
        told = {
            "bytes": "bytes of text, to the nearest step on average, so that an arm with other "
            "tokens has other iterations",
            "flops": "FLOPs of matrix products, to the nearest step, so that an arm whose steps "
            "have more of them has fewer iterations",
            "seconds": "seconds, to the nearest step, by what a step of each arm was measured to "
            "take before the study was registered, so that a slower arm has fewer iterations",
        }
        return f"; budgets match in {told.get(unit, unit)}"

    @property
    def optimizer(self) -> str:
        """Return `AdamW with a learning rate of 3e-4, β of 0.9 and 0.95`."""
        stated = dict(self.training["optimizer"])
        name, decay = stated.pop("name"), stated.pop("decay", None)
        # A finished trial records what each optimizer was given, defaults included.
        used = {one["optimizer"]: one["options"] for one in self.trial.get("optimizer", ())}
        if used and "adamw" not in used:
            stated = {key: value for key, value in stated.items() if key not in ("betas", "eps")}
        if name != "adamw" and name in used:
            stated["options"] = used[name]
        if decay and stated.get("weight_decay") is not None:
            size = plain(stated["weight_decay"])
            stated["weight_decay"] = Worded(f"{size} {called('decay', decay)}")
        # Words in their order; keys without any after them.
        order = [*OF_OPTIMIZERS, *stated]
        told = [
            OF_OPTIMIZERS.get(key, f"{key} of {{}}").format(plain(value))
            for key, value in sorted(stated.items(), key=lambda item: order.index(item[0]))
            if value not in (None, {}, [])
        ]
        return f"{called('optimizer', name)} with {listed(told)}"

    @property
    def loss(self) -> str:
        """Return the loss, where it is not plain cross-entropy."""
        stated = dict(self.training.get("loss", {}))
        name = stated.pop("name", "cross_entropy")
        told = [f"{key} {plain(value)}" for key, value in stated.items() if value]
        if name == "cross_entropy" and not told:
            return ""
        return f"Learned from is {called('loss', name)}{' with ' if told else ''}{listed(told)}."

    @property
    def schedule(self) -> str:
        """Return `a cosine schedule down to 0.1 of the peak after 100 iterations of warmup`."""
        schedule = self.training["schedule"]
        kind = schedule["kind"]
        text = called("schedule", kind)
        if kind not in WORDS["schedule"]:
            text = f"the schedule {text}"
        if kind != "constant":
            text += f" down to {schedule['final_fraction']:g} of the peak"
        if schedule["warmup"]:
            text += f" after {schedule['warmup']:,} iterations of warmup"
        return text

    @property
    def clipping(self) -> str:
        """Return what becomes of large gradients, as a clause."""
        limit = self.training["grad_clip"]
        return (
            f"gradients are clipped to a total norm of {plain(limit)}"
            if limit
            else "gradients are not clipped"
        )

    @property
    def precision(self) -> str:
        """Return the precision of training, as a clause."""
        return called("precision", self.training["precision"])

    @property
    def dropout(self) -> str:
        """Return the rate of dropout, as a clause."""
        rate = self.training["dropout"]
        return f"dropout is {plain(rate)}" if rate else "there is no dropout"

    @property
    def further(self) -> str:
        """Return keys of the setting that no sentence is about, by name; empty without any."""
        flat = flatten(self.trial["setting"])
        rest = [
            f"{key} is {plain(value)}"
            for key, value in flat.items()
            if not _is_told(key) and value not in (None, {}, [])
        ]
        return f"Of the setting also: {listed(rest)}." if rest else ""

    @property
    def machine(self) -> str:
        """Return device, software and replicas side by side; empty before a trial is finished."""
        found = self.environment
        if not found:
            return ""
        versions = ", ".join(f"{n} {version}" for n, version in found.get("packages", {}).items())
        side = found.get("stack", 1)
        return (
            f"Trials ran on {found.get('device', 'an unnamed device')} "
            f"({found.get('processor', 'unnamed processor')}) with Python "
            f"{found.get('python', '')}, {versions}"
            + (f", {side} replicas side by side" if side > 1 else "")
            + "."
        )


# Keys, or the beginnings of keys, that some sentence above is about.
TOLD = (
    "data.",
    *("model.n_layer", "model.n_head", "model.d_model", "model.bias", "model.preset"),
    *("model.embedding.norm", "model.embedding.norm_at", "model.embedding.eps"),
    *("model.init.std", "model.init.token_std", "model.init.position_std", "model.init.salt"),
    *("model.init.scale_residual", "model.modules."),
    *(f"model.{key}" for key in BUILT_IN),
    *("model.mlp.ratio", "model.mlp.match_parameters", "model.positions.theta"),
    *("training.iterations", "training.tokens", "training.batch_size", "training.optimizer."),
    "training.budget",
    *("training.schedule.kind", "training.schedule.warmup", "training.schedule.final_fraction"),
    *("training.loss.", "training.grad_clip", "training.precision", "training.dropout"),
    "training.loss_scale.",
)


def _is_told(key: str) -> bool:
    return key in TOLD or any(told[-1] == "." and key.startswith(told) for told in TOLD)


def facts_of(results: Results) -> dict[str, str]:
    """Return the rows of a table of facts that are about the model, its data and its training."""
    study, facts = results.study, Facts.of(results)
    return {
        "Model": _model(facts),
        "Data": f"{facts.text}{facts.split}.",
        "Held-out text": f"{facts.held_out} of {facts.data['seq_len']} tokens.",
        "Training": f"{facts.iterations:,} iterations of {facts.training['batch_size']} windows of "
        f"{facts.data['seq_len']} tokens, {facts.tokens:,} tokens a trial{facts.budget}; no early "
        "stopping.",
        "Optimizer": f"{facts.optimizer}, under {facts.schedule}; {facts.clipping}; "
        f"{facts.dropout}. {facts.loss}".strip(),
        "Precision": _precision(study, facts),
        "Machine": facts.machine,
    }


def _model(facts: Facts) -> str:
    model = facts.model
    form = " in the Pre-LayerNorm form" if model.is_pre_layernorm else ""
    norms = f", with {model.norms}" if model.norms else ""
    biases = "with biases" if model.setting["bias"] else "without biases"
    told = [
        f"A decoder-only Transformer{form}{norms}, {biases}.",
        f"It has {facts.parameters:,} parameters." if facts.parameters else "",
        *(model.shape, model.embedding, model.replaced, model.initial, facts.further),
        f"The model reads windows of {facts.data['seq_len']} tokens.",
    ]
    return " ".join(filter(None, told))


def _precision(study: Study, facts: Facts) -> str:
    """Return the precision of training and reading, and how a loss in float16 is scaled."""
    text = f"{facts.precision}."
    if study.evaluation.precision != "float32":
        text += (
            f" Held-out text is read with {study.evaluation.precision} matrix products in every "
            "arm, and losses are made of its logits in float32."
        )
    trained = [study.setting(arm).training for arm in study.arms]
    for scale in [one.loss_scale for one in trained if one.precision == "float16"][:1]:
        text += (
            f" In float16 the loss scale of a trial begins at {scale.initial:,.0f}, is halved by a "
            "step whose gradient overflows, which is skipped, and is doubled after "
            f"{plural(scale.growth_interval, 'step')} in a row without one; a trial that would "
            f"need less than {SMALLEST_SCALE:g} has diverged."
        )
    return text
