"""Facts on trials of the trainer that ships: their model, data and training, from trial.json.

Page and paper state nothing of them but these. What a reader asks first is a sentence; every other
key of the setting is listed by its name, as it is.
"""

from __future__ import annotations

from typing import Any

from paribus import numbers
from paribus.digests import flatten
from paribus.engine.setting import SMALLEST_SCALE
from paribus.numbers import plural
from paribus.report.words import listed
from paribus.results import Results
from paribus.study import Study

NORMS = {"layernorm": "LayerNorm", "rmsnorm": "RMSNorm"}
OPTIMIZERS = {"adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD"}
CORPORA = {
    "shakespeare": "the collected Shakespeare text",
    "pydoc": "the language reference that comes with Python",
}
TOKENIZERS = {"character": "by character", "byte": "by byte"}
PRECISIONS = {
    "bfloat16": "mixed: float32 weights and optimizer, bfloat16 matrix products",
    "float16": "mixed: float32 weights and optimizer, float16 matrix products",
    "auto": "not settled yet",
}
REPEATS = {
    "none": "Repeated text was left in.",
    "held-out": "Repeated text was left in, but for what the held-out text has too.",
    "exact": "Documents and passages that repeat an earlier one exactly were taken out.",
    "near": "Documents and passages that repeat an earlier one, nearly, were taken out.",
}
ORDERS = {
    "sampled": "are drawn with replacement",
    "epoch": "come once in every epoch",
}
PACKS = {"stream": "anywhere in the text", "documents": "with a document where it fits"}
BUDGETS = {
    "bytes": "bytes of text, to the nearest step on average, so that an arm with other tokens has "
    "other iterations",
    "flops": "FLOPs of matrix products, to the nearest step, so that an arm whose steps have more "
    "of them has fewer iterations",
}

# Keys that a sentence below is about.
OF_MODEL = ("n_layer", "d_model", "n_head", "modules")
OF_DATA = (
    *("corpus", "path", "tokenizer", "seq_len", "order", "pack", "deduplicate"),
    *("validation_fraction", "validation_path", "validation_tokens", "test_fraction", "test_path"),
)
OF_TRAINING = (
    *("iterations", "tokens", "batch_size", "budget", "optimizer", "schedule", "grad_clip"),
    *("precision", "dropout"),
)


def facts_of(results: Results) -> dict[str, str]:
    """Return the rows of a table of facts that are about the model, its data and its training.

    They are of a finished trial of the baseline, or of its setting alone.
    """
    study = results.study
    trial: dict[str, Any] = {"setting": study.setting(study.baseline).model_dump(mode="json")}
    environment: dict[str, Any] = {}
    for folder in results.finished:
        if folder.arm == study.baseline:
            trial = results.trials[folder.arm, folder.seed]
            environment = folder.read_json("environment.json")
            break
    data, training = trial["setting"]["data"], trial["setting"]["training"]
    batch, seq_len = training["batch_size"], data["seq_len"]
    ramp = batch if isinstance(batch, dict) else None
    largest = ramp["to"] if ramp else batch
    iterations = training["iterations"] or training["tokens"] // (largest * seq_len)
    told = f"{iterations:,} iterations of {batch} windows"
    if ramp:
        told = f"Batches that grow from {ramp['from']} to {largest} windows"
    unit = training["budget"]
    budget = "" if unit == "tokens" else f"; budgets match in {BUDGETS[unit]}"
    path = data.get("validation_path")
    where = f"is “{path}”" if path else "comes from the same corpus, after the training text,"
    return {
        "Model": _model(trial),
        "Data": f"{_text(data)}{_split(data, trial.get('data'))}.",
        "Held-out text": f"Validation text {where} and is read in windows of {seq_len} tokens.",
        "Training": f"{told} of {seq_len} tokens, "
        f"{iterations * largest * seq_len:,} tokens a trial{budget}; no early stopping.",
        "Optimizer": _optimizer(training, trial.get("optimizer", ())),
        "Precision": _precision(study, training["precision"]),
        "Machine": _machine(environment) if environment else "",
    }


def plain(value: Any) -> str:
    """Return a value of a setting as a reader writes it."""
    if isinstance(value, dict):
        return stated(value)
    if isinstance(value, list | tuple):
        return listed([plain(inner) for inner in value])
    if isinstance(value, int | float) and not isinstance(value, bool):
        return numbers.compact(value)
    return f"“{value}”" if isinstance(value, str) else str(value).lower()


def stated(table: dict[str, Any], without: tuple[str, ...] = ()) -> str:
    """Return the keys of a part of a setting with their values; those that are unset are not."""
    flat = flatten({key: value for key, value in table.items() if key not in without})
    return listed(
        [f"{k} {plain(value)}" for k, value in flat.items() if value not in (None, {}, [])]
    )


def _model(trial: dict[str, Any]) -> str:
    model, digests = trial["setting"]["model"], trial.get("own_modules", {})
    own = {site: path for site, path in model["modules"].items() if path}
    norm = model.get("norm", {})
    is_pre_layernorm = (
        norm.get("kind", "layernorm") == "layernorm"
        and norm.get("placement", "pre") == "pre"
        and "block_norm" not in own
    )
    told = [
        f"A decoder-only Transformer{' in the Pre-LayerNorm form' if is_pre_layernorm else ''}: "
        f"{model['n_layer']} blocks of width {model['d_model']} with {model['n_head']} attention "
        "heads each."
    ]
    if "parameters" in trial:
        told.append(f"It has {trial['parameters']:,} parameters.")
    stage = model["embedding"]["norm"]
    if stage in NORMS and "embedding" not in own:
        told.append(f"Embeddings are normalised by {NORMS[stage]}.")
    for site, path in own.items():
        files = [f"{digest[:12]} of {file}" for file, digest in digests.get(site, {}).items()]
        source = f" (source digest {', '.join(files)})" if files else ""
        told.append(f"At the site {site} stands the user's own module “{path}”{source}.")
    told.append(f"Its setting: {stated(model, OF_MODEL)}.")
    told.append(f"The model reads windows of {trial['setting']['data']['seq_len']} tokens.")
    return " ".join(told)


def _text(data: dict[str, Any]) -> str:
    """Return `the collected Shakespeare text, by character`."""
    words = CORPORA.get(data["corpus"], f"the corpus “{data['corpus']}”")
    about = [f"“{data['path']}”"] if data["path"] is not None else []
    about += filter(None, [stated(data, OF_DATA)])
    words += f" ({', '.join(about)})" if about else ""
    name = data["tokenizer"]
    return f"{words}, {TOKENIZERS.get(name, f'in tokens of “{name}”')}"


def _split(data: dict[str, Any], record: dict[str, Any] | None) -> str:
    """Return how the text is split, with its sizes; empty before a trial is finished."""
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
        part = f"“{sealed}”" if isinstance(sealed, str) else f"the last {sealed:g} of it"
        held += f", while {part} is sealed until the verdict"
    documents = f" It has {record['n_documents']:,} documents." if record["n_documents"] > 1 else ""
    windows = (
        f"{ORDERS[data.get('order', 'sampled')]} and begin {PACKS[data.get('pack', 'stream')]}"
    )
    return (
        f": {record['train_tokens']:,} tokens of it for training and {held}, with a vocabulary of "
        f"{record['vocab_size']:,}.{documents} Training windows {windows}. "
        f"{REPEATS[data.get('deduplicate', 'none')]} "
        f"The corpus has the digest {record['digests']['corpus'][:12]}"
    )


def _optimizer(training: dict[str, Any], record: Any) -> str:
    optimizer, schedule = training["optimizer"], training["schedule"]
    # A finished trial records which optimizers it used: betas and eps are AdamW's.
    used = {group["optimizer"] for group in record}
    unread = ("betas", "eps") if used and "adamw" not in used else ()
    name, limit, dropout = optimizer["name"], training["grad_clip"], training["dropout"]
    told = [
        f"{OPTIMIZERS.get(name, f'“{name}”')} with "
        f"{stated(optimizer, ('name', *unread))}, under a schedule of {stated(schedule)}",
        f"gradients are clipped to a total norm of {plain(limit)}"
        if limit
        else "gradients are not clipped",
        f"dropout is {plain(dropout)}" if dropout else "there is no dropout",
    ]
    rest = stated(training, OF_TRAINING)
    return f"{'; '.join(told)}.{f' Of the training also: {rest}.' if rest else ''}"


def _precision(study: Study, precision: str) -> str:
    """Return the precision of training and reading, and how a loss in float16 is scaled."""
    text = f"{PRECISIONS.get(precision, precision)}."
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


def _machine(environment: dict[str, Any]) -> str:
    versions = ", ".join(f"{n} {version}" for n, version in environment["packages"].items())
    side = environment.get("stack", 1)
    return (
        f"Trials ran on {environment['device']} "
        f"({environment.get('processor', 'unnamed processor')}) with Python "
        f"{environment.get('python', '')}, {versions}"
        f"{f', {side} replicas side by side' if side > 1 else ''}."
    )
