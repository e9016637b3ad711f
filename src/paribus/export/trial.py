"""One trained trial as a Hugging Face folder, written whole or not at all.

<out>/
  config.json  generation_config.json  model.safetensors    GPT-2's names and layout
  tokenizer.json  tokenizer_config.json
  modeling_paribus.py     only where the model is no plain GPT-2
  README.md               which trial this is, and how to load it
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import safetensors.numpy

from paribus.data import Dataset, load_dataset
from paribus.errors import ParibusError, nearest
from paribus.export.card import card
from paribus.export.gpt2 import (
    MODEL_CODE,
    gpt2_config,
    gpt2_weights,
    is_plain,
    require_exportable,
)
from paribus.export.tokenizer import tokenizer_config, tokenizer_json
from paribus.files import whole_folder, write_bytes
from paribus.results import Results, TrialFolder, load_results
from paribus.results.files import write_json
from paribus.study import Setting, require_trust

Where = str | os.PathLike[str]


def export_trial(
    results: Where,
    arm: str,
    seed: int,
    out: Where,
    *,
    folder: Where | None = None,
    trust: bool = False,
) -> Path:
    """Write the trained model of (arm, seed) to the new folder `out`, in Hugging Face's format.

    Args:
        results: the results folder of the study.
        folder: where a relative `data.path` of the study starts, which is the folder of its file;
            by default the current one. The text is read for its vocabulary, and its digests must be
            those in the records.

        trust: run the custom code that the results folder names, if it names any.

    Returns `out`. Logits are those of our own model up to float32 rounding. Raises ParibusError for
    an unknown or unfinished trial, changed records, another text, a module of the user's own, and
    an `out` that holds something.
    """
    loaded, out = load_results(results, trust=trust), Path(out)
    trial = _find(loaded, arm, seed)
    setting = loaded.study.setting(arm)
    require_exportable(setting, trial.label)
    require_trust(loaded.study)  # a corpus may be custom code
    _require_free(out)
    dataset = _dataset(loaded, trial, setting, Path(folder or Path.cwd()))
    with whole_folder(out) as partial:
        _write_model(partial, trial, setting, dataset)
        _write_tokenizer(partial, setting, dataset)
        write_bytes(partial / "README.md", card(loaded, trial, dataset).encode())
    return out


def _find(results: Results, arm: str, seed: int) -> TrialFolder:
    study = results.study
    if arm not in study.arms:
        raise ParibusError(f"arm '{arm}' is not in {results.path}: {nearest(arm, study.arms)}")
    if seed not in study.seeds:
        known = ", ".join(map(str, study.seeds))
        raise ParibusError(f"seed {seed} is not in {results.path}: it has {known}")
    for trial in results.finished:
        if (trial.arm, trial.seed) == (arm, seed):
            return trial
    raise ParibusError(
        f"trial {arm}/seed-{seed} of {results.path} is not finished; run the study again to "
        "finish it"
    )


def _dataset(results: Results, trial: TrialFolder, setting: Setting, folder: Path) -> Dataset:
    """The text that the trial was trained on: the records hold its digests, not its vocabulary."""
    path = setting.data.path
    if path is not None and not (folder / path).exists():
        raise ParibusError(
            f"the study's text '{path}' is not in {folder}; say where the study file lies with "
            "--folder"
        )
    dataset = load_dataset(setting.data, folder)
    recorded = results.trials[trial.arm, trial.seed]["data"]["digests"]
    for name, digest in dataset.digests.items():
        if recorded.get(name) != digest:
            raise ParibusError(
                f"the {name} of '{path or setting.data.corpus}' is not the one that trial "
                f"{trial.label} was trained on (digest {digest[:12]}, and "
                f"{str(recorded.get(name))[:12]} in its records); restore the text"
            )
    return dataset


def _write_model(out: Path, trial: TrialFolder, setting: Setting, dataset: Dataset) -> None:
    config = gpt2_config(setting, dataset.vocab_size, dataset.tokenizer.end_of_document)
    weights = gpt2_weights(setting, trial.read_weights())
    special = ("bos_token_id", "eos_token_id", "pad_token_id")
    write_json(out / "config.json", config)
    write_json(out / "generation_config.json", {name: config[name] for name in special})
    content = safetensors.numpy.save(weights, metadata={"format": "pt"})
    write_bytes(out / "model.safetensors", content)
    if not is_plain(setting):
        code = resources.files("paribus.export").joinpath(MODEL_CODE).read_bytes()
        write_bytes(out / MODEL_CODE, code)


def _write_tokenizer(out: Path, setting: Setting, dataset: Dataset) -> None:
    write_bytes(out / "tokenizer.json", tokenizer_json(dataset.tokenizer))
    about = tokenizer_config(dataset.tokenizer, setting.data.seq_len)
    write_json(out / "tokenizer_config.json", about)


def _require_free(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ParibusError(f"{out} is a file; choose another folder to export to")
    if out.is_dir() and any(out.iterdir()):
        raise ParibusError(f"{out} is not empty; choose another folder to export to")
