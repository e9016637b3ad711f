"""A study at a size that two cores finish in minutes, with every path of the large one.

The arms, seeds, endpoints, tests and rule stay. The model, the budget and the text become small:
the text is a stand-in of the form that the large study reads (Parquet files, a byte-level BPE
tokenizer made of it, repeated documents for deduplication, more than fits one array), and the
standard tasks are asked of stand-ins laid out as the hub's data sets. What comes out is no answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from paribus.digests import package_digest
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.files import cache_folder, whole_folder
from paribus.rng import stream
from paribus.study import Study, parse_study
from paribus.study.null_study import shortened

LAYERS, HEADS, WIDTH, WINDOW, STEPS = 2, 2, 16, 128, 30
EVERY = 10  # steps between points of a curve and of probes
FRACTION, VALIDATION_TOKENS, CURVE_TOKENS = 0.05, 4096, 1024
VOCABULARY = 512
RANKS, SEQUENCES = 2, 4  # sequences of a batch for each rank, in micro-batches of two
FILES, VARIANTS = 4, 6  # of the text: half a megabyte, so often with its words in another order
REPEATED = 20  # every so many documents there is one that was there already
# Keys that arms cannot have of their own where all of them become small.
SIZES = (
    *("data.", "training.iterations", "training.tokens", "training.micro_batch"),
    *("model.n_layer", "model.n_head", "model.d_model", "training.keep"),
)
BATCH, SCHEDULE = "training.batch_size", "training.schedule"  # which become small with their arm


def shrunk(study: Study) -> Study:
    """Return `study` at that size; what it reads is written to the cache, once.

    Raises ParibusError where its arms differ in what becomes small.
    """
    for arm, spec in study.arms.items():
        if own := next((key for key in spec.set if key.startswith(SIZES)), None):
            raise ParibusError(
                f"--shrink makes one small study of all arms, and arm '{arm}' sets {own}; try it "
                "with --set in place of --shrink"
            )
    if study.trainer != "stacked":
        raise ParibusError(f"--shrink is of the trainer that ships, and this is '{study.trainer}'")
    home = _standins()
    table: dict[str, Any] = study.model_dump() | {"name": shortened(study.name, "-shrunk")}
    table["data"] |= _data(study.data, home)
    table["model"] |= {"n_layer": LAYERS, "n_head": HEADS, "d_model": WIDTH}
    if table["model"]["attention"]["n_kv_head"]:
        table["model"]["attention"]["n_kv_head"] = 1
    devices = study.resources.devices_per_trial
    table["resources"] |= {"devices_per_trial": RANKS if devices else None}
    steps = max(STEPS, study.stability.steps_needed)
    training = table["training"]
    share = steps / study.setting(study.baseline).budget_iterations
    training["schedule"] = _small(SCHEDULE, training["schedule"], share)
    for spec in table["arms"].values():
        spec["set"] = {key: _small(key, value, share) for key, value in spec["set"].items()}
    training |= {
        "iterations": steps,
        "tokens": None,
        "step_cost": None,
        "batch_size": _small(BATCH, training["batch_size"], share),
        "micro_batch": 2 if training["micro_batch"] else None,
        "keep": (),
        "keep_every": EVERY if training["keep"] or training["keep_every"] else None,
    }
    if table["evaluation"]["every"] is not None:
        table["evaluation"]["every"] = EVERY
    table["evaluation"]["curve_tokens"] = CURVE_TOKENS
    every = table["probes"]["every"]
    table["probes"]["every"] = {name: min(of, EVERY) for name, of in every.items()}
    if table["tasks"]["standard"]:
        table["tasks"] |= {"standard_items": 2, "standard_data": str(home / "hub")}
    table["tasks"]["items"] = 4
    # The stand-ins have no more solved examples than two.
    table["tasks"]["shots"] = tuple(dict.fromkeys(min(n, 1) for n in study.tasks.shots))
    if table["tuning"] is not None:
        tuning = table["tuning"] | {"iterations": None}
        for key, values in tuning["grid"].items():
            tuning["grid"][key] = list(dict.fromkeys(_small(key, of, share) for of in values))
        for key, of in tuning["ranges"].items():
            of |= {end: _small(key, of[end], share) for end in ("low", "high")}
        table["tuning"] = tuning
    return parse_study(table, folder=study.folder, label=f"{study.name}, shrunk")


def _small(key: str, value: Any, share: float) -> Any:
    """Return a value of the study or of an arm as it is in `share` of the steps."""
    if key == SCHEDULE:
        return {name: _small(f"{key}.{name}", of, share) for name, of in value.items()}
    if key == f"{SCHEDULE}.warmup":
        return max(round(value * share), 1) if value else 0
    if key.startswith(f"{BATCH}."):
        last = key.rpartition(".")[2]
        return _small(BATCH, {last: value}, share)[last]
    if key == BATCH:
        largest = SEQUENCES * RANKS
        grows = isinstance(value, dict)
        if not grows:
            return largest
        shape = value.get("shape", "linear")  # there are no sizes in between
        named = {"shape": shape if isinstance(shape, str) else ()}
        return {**value, "from": largest // 2, "to": largest} | named
    return value


def _data(data: Data, home: Path) -> dict[str, Any]:
    """Return what of `data` becomes small; its order, packing and deduplication stay."""
    return {
        "corpus": "parquet",
        "path": str(home / "text"),
        "column": "text",
        "name": None,
        "subset": None,
        "split": None,
        "revision": None,
        "sources": {},
        "mixture": {},
        "phases": (),
        "tokenizer": data.tokenizer if data.tokenizer_file is None else str(home / "bpe.json"),
        "seq_len": WINDOW,
        "validation_path": None,
        "validation_fraction": FRACTION,
        "validation_tokens": VALIDATION_TOKENS,
        "test_path": None,
        "test_fraction": FRACTION if data.test_fraction or data.test_path else 0.0,
    }


def _standins() -> Path:
    """Return the folder of the stand-ins, in the cache; they are written where they are not."""
    home = cache_folder() / "shrunk" / package_digest()[:16]
    if not home.is_dir():
        with whole_folder(home) as folder:
            _write(folder)
    return home


def _write(folder: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    from paribus.engine.data.train_tokenizer import train_tokenizer
    from paribus.engine.evaluation.harness.standins import write_hub

    (folder / "text").mkdir()
    documents = list(_documents())
    for number in range(FILES):
        part = documents[number::FILES]
        path = folder / "text" / f"part-{number}.parquet"
        parquet.write_table(pa.table({"text": part}), path)
    data = Data(corpus="parquet", path=str(folder / "text"), column="text")
    train_tokenizer(data, folder, VOCABULARY, folder / "bpe.json")
    write_hub(folder / "hub")


def _documents() -> Iterator[str]:
    """Yield the documents of `pydoc`, then with their words in other orders; some twice."""
    from paribus.engine.data.corpora import read_corpus

    texts = list(read_corpus(Data(corpus="pydoc"), Path.cwd()))
    n = 0
    for variant in range(VARIANTS):
        rng = stream(variant, "shrunk", "words")
        for text in texts:
            words = text.split(" ")
            if variant:
                rng.shuffle(words)
            yield (made := " ".join(words))
            n += 1
            if n % REPEATED == 0:
                yield made
