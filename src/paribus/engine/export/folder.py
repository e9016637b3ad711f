"""Export one trained trial as a Hugging Face folder, written completely or not at all.

<out>/
  config.json  generation_config.json  model.safetensors
  tokenizer.json  tokenizer_config.json
  modeling_paribus.py  own_*.py     unless the model is a plain GPT-2 or Llama
  README.md               identity and scores of the trial, and how to load it"""

from __future__ import annotations

import os
from pathlib import Path

import safetensors.numpy

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.export.hugging_face import (
    hugging_face_model,
    is_gpt2,
    is_llama,
    remote_code,
)
from paribus.engine.export.tokenizer_json import tokenizer_config, tokenizer_json
from paribus.engine.setting import Setting
from paribus.errors import ParibusError
from paribus.files import whole_folder, write_bytes
from paribus.numbers import fixed
from paribus.results import Results, TrialFolder, load_results
from paribus.results.formats import write_plain_json
from paribus.study import require_trust
from paribus.study.trainer import require_stacked

Where = str | os.PathLike[str]


def export_trial(
    results: Where,
    arm: str,
    seed: int,
    out: Where,
    *,
    folder: Where | None = None,
    step: int | None = None,
    trust: bool = False,
) -> Path:
    """Write the trained model of (arm, seed) to the new folder `out`, in Hugging Face's format.

    Args:
        results: Results folder of the study.
        arm: The arm.
        seed: The seed.
        out: A new or empty folder.
        folder: Folder in which relative paths of the study start; by default the one that the
            results folder keeps, or the current one. The text is read for its vocabulary and custom
            parts are copied; the digests of both must be those in the records.
        step: Step whose weights are exported; by default the last.
        trust: Run the custom code that the results folder names, if any.

    Returns `out`. Its logits are those of our own model up to float32 rounding. Raises ParibusError
    for an unknown or unfinished trial, changed records, another text or source, and an `out` that
    is not empty.
    """
    loaded, out = load_results(results, trust=trust), Path(out)
    trial = _trial(loaded, arm, seed)
    require_stacked(loaded.study, "exporting a model")
    setting = loaded.study.setting(arm)
    require_trust(loaded.study)  # a corpus may be custom code
    if out.exists() and not out.is_dir():
        raise ParibusError(f"{out} is a file; choose another folder", code="exists")
    if out.is_dir() and any(out.iterdir()):
        raise ParibusError(f"{out} is not empty; choose another folder", code="exists")
    text, kept = loaded.study.data.path, loaded.study.folder
    if folder is None:
        folder = Path.cwd() if text is not None and not (kept / text).exists() else kept
    dataset = _dataset(loaded, trial, setting, Path(folder))
    is_plain = is_gpt2(setting) or is_llama(setting)
    record = loaded.trials[trial.arm, trial.seed]
    code = {} if is_plain else remote_code(setting, Path(folder), trial.label, record)
    weights = trial.read_weights(step)
    readme = _readme(loaded, trial, step)
    with whole_folder(out) as partial:
        config, tensors = hugging_face_model(setting, dataset.vocab_size, weights)
        # Set also without such a token: the default may be a token of another vocabulary.
        end = dataset.tokenizer.end_of_document
        special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)
        write_plain_json(partial / "config.json", config | special)
        write_plain_json(partial / "generation_config.json", special)
        tokenizer = tokenizer_config(dataset.tokenizer, setting.data.seq_len)
        write_plain_json(partial / "tokenizer_config.json", tokenizer)
        contents = code | {
            "model.safetensors": safetensors.numpy.save(tensors, metadata={"format": "pt"}),
            "tokenizer.json": tokenizer_json(dataset.tokenizer),
            "README.md": readme.encode(),
        }
        for name, content in contents.items():
            write_bytes(partial / name, content)
    return out


def _trial(results: Results, arm: str, seed: int) -> TrialFolder:
    """Return a finished trial. Raises ParibusError."""
    for trial in results.finished:
        if (trial.arm, trial.seed) == (arm, seed):
            return trial
    if (arm, seed) in results.study.trials:
        raise ParibusError(
            f"trial {arm}/seed-{seed} of {results.path} is not finished; run the study again",
            code="unfinished",
        )
    raise ParibusError(
        f"{results.path} has no trial {arm}/seed-{seed}; its arms are "
        f"{', '.join(results.study.arms)}",
        code="unknown",
    )


def _dataset(results: Results, trial: TrialFolder, setting: Setting, folder: Path) -> Dataset:
    """Return the text of the trial, whose vocabulary is not in the records."""
    path = setting.data.path
    if path is not None and not (folder / path).exists():
        raise ParibusError(
            f"the study's text '{path}' is not in {folder}; name the folder of the study file with "
            "--folder",
            code="missing",
        )
    dataset = load_dataset(setting.data, folder)
    recorded = results.trials[trial.arm, trial.seed]["data"]["digests"]
    for name, digest in dataset.digests.items():
        if recorded.get(name) != digest:
            raise ParibusError(
                f"the {name} of '{path or setting.data.corpus}' has the digest {digest[:12]}, but "
                f"trial {trial.label} was trained on {str(recorded.get(name))[:12]}; restore the "
                "text",
                code="changed",
            )
    return dataset


def _readme(results: Results, trial: TrialFolder, step: int | None) -> str:
    """Return what the folder says of itself: which trial it is, and how to load it."""
    study, record = results.study, results.trials[trial.arm, trial.seed]
    setting = study.setting(trial.arm)
    is_plain = is_gpt2(setting) or is_llama(setting)
    loss = trial.read_json("evaluation.json")["validation_loss"]
    facts = {
        "study": f"{study.name}: {study.question or study.title or ''}",
        "differs from its reference in": "; ".join(
            f"`{key}`: {theirs} → {ours}"
            for key, (theirs, ours) in study.differences(trial.arm).items()
        ),
        "weights": f"after step {step or record['iterations']}",
        "training tokens": f"{record['tokens']:,}",
        "validation loss after the last step": ""
        if loss is None
        else f"{fixed(loss, 4)} nats/token",
        "SHA-256 of the study": study.digest,
        "SHA-256 of the text": record["data"]["digests"]["corpus"],
        "SHA-256 of the trial's weights": trial.read_json("manifest.json")["weights.safetensors"],
    }
    lines = [f"- {name}: {value}" for name, value in facts.items() if value]
    arguments = '"THIS_FOLDER"' + ("" if is_plain else ", trust_remote_code=True")
    code = [
        "```python",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        "",
        f"model = AutoModelForCausalLM.from_pretrained({arguments})",
        f"tokenizer = AutoTokenizer.from_pretrained({arguments})",
        "```",
    ]
    head = ["---", "library_name: transformers", "tags: [paribus]", "---", ""]
    return "\n".join([*head, f"# {trial.label}", "", *lines, "", *code, ""])
