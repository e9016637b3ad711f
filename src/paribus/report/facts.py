"""What a trial's record says of model, data and training, in words.

Page and paper state nothing of them but what stands here, and what stands here is read from the
record (trial.json): a part, corpus, optimizer or loss that has no words (`vocabulary`) is called by
its name, one of the user's own by its import path and the digest of its source, and a key of the
setting that no sentence is about is printed as it is (`Facts.further`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paribus.digests import flatten
from paribus.report.model_facts import ModelFacts
from paribus.report.vocabulary import (
    BUILT_IN,
    OF_DATA,
    OF_OPTIMIZERS,
    WORDS,
    Worded,
    called,
    listed,
    plain,
)
from paribus.results import Results


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
        """Of a finished trial of the baseline where there is one, else of its setting alone."""
        study = results.study
        for folder in results.finished:
            if folder.arm == study.baseline:
                record = results.trials[folder.arm, folder.seed]
                return cls(record, folder.read_json("environment.json"))
        return cls({"setting": study.setting(study.baseline).model_dump(mode="json")}, {})

    @cached_property
    def model(self) -> ModelFacts:
        """Of the model."""
        return ModelFacts(self.trial["setting"]["model"], self.trial.get("own_modules", {}))

    @property
    def training(self) -> dict[str, Any]:
        """The setting of training, as recorded."""
        return self.trial["setting"]["training"]

    @property
    def data(self) -> dict[str, Any]:
        """The setting of the data, as recorded."""
        return self.trial["setting"]["data"]

    @property
    def parameters(self) -> int | None:
        """None before a trial of the baseline is finished."""
        return self.trial.get("parameters")

    @property
    def text(self) -> str:
        """`the collected Shakespeare text, by character`."""
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
        """`by character`, or by which file's tokens."""
        name = self.data["tokenizer"]
        built_in = {"character": "by character", "byte": "by byte"}
        return built_in.get(name, f"in tokens of “{name}”")

    @property
    def split(self) -> str:
        """How the text is split, with its sizes; empty before a trial is finished."""
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
        """What became of repeated text."""
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
        """How sources are mixed, and what was consumed of each; empty of a single text."""
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
        """Where validation text is from."""
        path = self.data.get("validation_path")
        where = f"is “{path}”" if path else "comes from the same corpus, after the training text,"
        return f"Validation text {where} and is read in windows"

    @property
    def windows(self) -> str:
        """Where training windows begin, and in which order they come."""
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
        """As the setting states them, or as its budget of tokens comes to."""
        stated = self.training["iterations"]
        return stated or self.training["tokens"] // self.tokens_per_step

    @property
    def tokens_per_step(self) -> int:
        """Tokens of a batch: windows times their length."""
        return self.training["batch_size"] * self.data["seq_len"]

    @property
    def tokens(self) -> int:
        """Training tokens of a trial."""
        return self.iterations * self.tokens_per_step

    @property
    def budget(self) -> str:
        """What arms have as much of as their reference, where it is not tokens."""
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
        """`AdamW with a learning rate of 3e-4, ... , under a constant schedule`."""
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
        """What is learned from, where it is stated and not plain cross-entropy."""
        stated = dict(self.training.get("loss", {}))
        name = stated.pop("name", "cross_entropy")
        told = [f"{key} {plain(value)}" for key, value in stated.items() if value]
        if name == "cross_entropy" and not told:
            return ""
        return f"Learned from is {called('loss', name)}{' with ' if told else ''}{listed(told)}."

    @property
    def schedule(self) -> str:
        """`a cosine schedule down to 0.1 of the peak after 100 iterations of warmup`."""
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
        """What becomes of large gradients, as a clause."""
        limit = self.training["grad_clip"]
        return (
            f"gradients are clipped to a total norm of {plain(limit)}"
            if limit
            else "gradients are not clipped"
        )

    @property
    def precision(self) -> str:
        """In which precision it was trained, as a clause."""
        return called("precision", self.training["precision"])

    @property
    def dropout(self) -> str:
        """Its rate, as a clause."""
        rate = self.training["dropout"]
        return f"dropout is {plain(rate)}" if rate else "there is no dropout"

    @property
    def further(self) -> str:
        """Every key of the setting that no sentence is about, by its name; empty without any."""
        flat = flatten(self.trial["setting"])
        rest = [
            f"{key} is {plain(value)}"
            for key, value in flat.items()
            if not _is_told(key) and value not in (None, {}, [])
        ]
        return f"Of the setting also: {listed(rest)}." if rest else ""

    @property
    def machine(self) -> str:
        """Device, software and how many replicas were trained side by side; empty without any."""
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
