"""One trained trial as a Hugging Face folder, written whole or not at all.

<out>/
  config.json  generation_config.json  model.safetensors
  tokenizer.json  tokenizer_config.json
  modeling_paribus.py  own_*.py     only where the model is no plain GPT-2 or Llama
  README.md               which trial this is, and how to load it"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import safetensors.numpy

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.export.hugging_face import (
    in_their_words,
    is_gpt2,
    is_llama,
    packages_of,
    remote_code,
)
from paribus.engine.export.tokenizer_json import tokenizer_config, tokenizer_json, vocabulary_notes
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, nearest
from paribus.files import whole_folder, write_bytes
from paribus.numbers import fixed
from paribus.results import Results, TrialFolder, load_results
from paribus.results.formats import write_plain_json
from paribus.study import require_trust
from paribus.study.trainer import require_stacked

CARD = """\
---
library_name: transformers
pipeline_tag: text-generation
tags: [paribus]
---

# {label} of the study `{study}`

{title}

One trained model of a controlled comparison, exported by paribus.

| | |
| --- | --- |
{rows}

## Loading it

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained({arguments})
tokenizer = AutoTokenizer.from_pretrained({arguments})
```

{notes}
"""


def card(
    results: Results,
    trial: TrialFolder,
    dataset: Dataset,
    step: int | None = None,
    average_last: int = 1,
    packages: Sequence[str] = (),
) -> str:
    """Markdown: which trial this is, how it scored, how it is loaded, and what to mind.

    packages: what the code beside it imports, besides torch and transformers.
    """
    study = results.study
    setting = study.setting(trial.arm)
    kind = "GPT-2" if is_gpt2(setting) else "Llama" if is_llama(setting) else ""
    plain = bool(kind)
    code = f"The model is a plain {kind}."
    if not plain:
        own = ", ".join(f"`{path}`" for path in setting.model.modules.named.values())
        code = "The model is a Transformer whose code is in `modeling_paribus.py`"
        code += f", with parts of its author's own ({own})." if own else "."
        if own:
            code += " Each new token reads the whole text again: such parts are given no cache"
            looks = setting.model.modules.named.keys() & {"embedding", "positions", "attention"}
            code += "." if looks else " unless they say `cached = True`."
        if packages:
            named = ", ".join(f"`{name}`" for name in packages)
            code += f" They import {named}: install what has these where the model is loaded."
    facts = _facts(results, trial)
    if step is not None or average_last != 1:
        steps = [one or facts["steps"] for one in trial.require_weights(step, average_last)]
        mean = "the mean of the weights" if average_last > 1 else "the weights"
        facts["these weights"] = (
            f"{mean} after step {', '.join(map(str, steps))} of {facts['steps']}; what is said of "
            "the trial is of the last step"
        )
    return CARD.format(
        label=trial.label,
        study=study.name,
        title=study.question or study.title or "",
        rows="\n".join(f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items()),
        arguments='"THIS_FOLDER"' if plain else '"THIS_FOLDER", trust_remote_code=True',
        notes="\n".join(f"- {note}" for note in (code, *vocabulary_notes(dataset.tokenizer))),
    )


def _facts(results: Results, trial: TrialFolder) -> dict[str, str]:
    study, record = results.study, results.trials[trial.arm, trial.seed]
    differs = "; ".join(
        f"`{key}`: {theirs} → {ours}"
        for key, (theirs, ours) in study.differences(trial.arm).items()
    )
    facts = {
        "arm": trial.arm,
        f"differs from `{study.reference(trial.arm)}` in": differs,
        "seed": str(trial.seed),
        "steps": str(record["iterations"]),
        "training tokens": f"{record['tokens']:,}",
        "window": f"{record['setting']['data']['seq_len']} tokens",
        "diverged at step": "" if record["diverged_at"] is None else str(record["diverged_at"]),
    }
    scores = trial.read_json("evaluation.json")
    if scores["validation_loss"] is not None:
        facts["validation loss"] = f"{fixed(scores['validation_loss'], 4)} nats/token"
    manifest = trial.read_json("manifest.json")
    facts["SHA-256 of the study"] = f"`{study.digest}`"
    facts["SHA-256 of the text"] = f"`{record['data']['digests']['corpus']}`"
    facts["SHA-256 of the trial's own weights"] = f"`{manifest['weights.safetensors']}`"
    return {name: value for name, value in facts.items() if value}


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


Where = str | os.PathLike[str]


def export_trial(
    results: Where,
    arm: str,
    seed: int,
    out: Where,
    *,
    folder: Where | None = None,
    step: int | None = None,
    average_last: int = 1,
    trust: bool = False,
) -> Path:
    """Write the trained model of (arm, seed) to the new folder `out`, in Hugging Face's format.

    Args:
        results: the results folder of the study.
        folder: where relative paths of the study start, which is the folder of its file; by
            default what the results folder keeps of it, or else the current one. The text is read
            for its vocabulary, the user's own parts are copied; the digests of both must be those
            in the records.
        step, average_last: which weights, as for `TrialFolder.read_weights`; by default the trained
            ones. The folder's README says which.
        trust: run the custom code that the results folder names, if it names any.

    Returns `out`. Logits are those of our own model up to float32 rounding. Raises ParibusError for
    an unknown or unfinished trial, changed records, another text or source, and an `out` that
    holds something.
    """
    loaded, out = load_results(results, trust=trust), Path(out)
    trial = _find(loaded, arm, seed)
    require_stacked(loaded.study, "exporting a model")
    setting = loaded.study.setting(arm)
    require_trust(loaded.study)  # a corpus may be custom code
    _require_free(out)
    home = Path(folder or _home(loaded))
    dataset = _dataset(loaded, trial, setting, home)
    record = loaded.trials[trial.arm, trial.seed]
    plain = is_gpt2(setting) or is_llama(setting)
    code = {} if plain else remote_code(setting, home, trial.label, record)
    weights = trial.read_weights(step, average_last=average_last)
    with whole_folder(out) as partial:
        _write_model(partial, weights, setting, dataset)
        for name, content in code.items():
            write_bytes(partial / name, content)
        _write_tokenizer(partial, setting, dataset)
        packages = packages_of(setting, code)
        about = card(loaded, trial, dataset, step, average_last, packages)
        write_bytes(partial / "README.md", about.encode())
    return out


def _home(results: Results) -> Path:
    """Return where files of the study are kept; the current folder where its text is not."""
    path, kept = results.study.data.path, results.study.folder
    return Path.cwd() if path is not None and not (kept / path).exists() else kept


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
    """Return the text of the trial: the records hold its digests, not its vocabulary."""
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


def _write_model(
    out: Path, trained: dict[str, np.ndarray], setting: Setting, dataset: Dataset
) -> None:
    config, weights = in_their_words(setting, dataset.vocab_size, trained)
    # Stated also where there is none: the default may be a token of another vocabulary.
    end = dataset.tokenizer.end_of_document
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)
    write_plain_json(out / "config.json", config | special)
    write_plain_json(out / "generation_config.json", special)
    content = safetensors.numpy.save(weights, metadata={"format": "pt"})
    write_bytes(out / "model.safetensors", content)


def _write_tokenizer(out: Path, setting: Setting, dataset: Dataset) -> None:
    write_bytes(out / "tokenizer.json", tokenizer_json(dataset.tokenizer))
    about = tokenizer_config(dataset.tokenizer, setting.data.seq_len)
    write_plain_json(out / "tokenizer_config.json", about)


def _require_free(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise ParibusError(f"{out} is a file; choose another folder to export to")
    if out.is_dir() and any(out.iterdir()):
        raise ParibusError(f"{out} is not empty; choose another folder to export to")
