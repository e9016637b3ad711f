"""Atomic export of a trial's trained model to a Hugging Face folder.

<out>/
  config.json  generation_config.json  model.safetensors
  tokenizer.json  tokenizer_config.json
  modeling_paribus.py  own_*.py     unless the model is a standard GPT-2 or Llama
  README.md               identity and scores of the trial, and how to load the model
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import safetensors.numpy
from tokenizers import AddedToken, Tokenizer as HuggingFaceTokenizer, decoders, models

from paribus.engine.data import STAND_INS, CharacterTokenizer, Tokenizer
from paribus.engine.data.split import Texts
from paribus.engine.data.tokenizer import END_OF_DOCUMENT, BpeTokenizer
from paribus.engine.export.hugging_face import hugging_face_model, is_gpt2, is_llama, remote_code
from paribus.engine.setting import Setting
from paribus.errors import ParibusError
from paribus.files import whole_folder, write_bytes
from paribus.numbers import fixed
from paribus.results import Results, TrialFolder, load_results
from paribus.results.formats import write_plain_json
from paribus.study import require_trust
from paribus.study.protocol import require_stacked

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
    """Export a trial's trained model to a folder in Hugging Face format.

    The exported model computes the same logits as the original, up to float32 rounding.

    Args:
        results: Results folder of the study.
        arm: Arm of the trial.
        seed: Seed of the trial.
        out: New or empty folder.
        folder: Folder against which the study's relative paths are resolved; by default the folder
            recorded in the results, or the working directory. The study's text is read for its
            vocabulary, and custom modules are copied; both must match the recorded digests.
        step: Training step whose weights are exported; by default the last.
        trust: Whether to run custom code named in the results folder.

    Returns `out`. Raises ParibusError for an unknown or unfinished trial, changed records, a
    different vocabulary or source code, or an `out` that is not empty.
    """
    loaded, out = load_results(results, trust=trust), Path(out)
    trial = _trial(loaded, arm, seed)
    require_stacked(loaded.study, "exporting a model")
    setting = loaded.study.setting(arm)
    require_trust(loaded.study)  # a corpus may be custom code
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ParibusError(f"{out} is not empty; choose a new or empty folder", code="exists")
    text, kept = loaded.study.data.path, loaded.study.folder
    if folder is None:
        folder = Path.cwd() if text is not None and not (kept / text).exists() else kept
    tokenizer = _tokenizer(loaded, trial, setting, Path(folder))
    is_plain = is_gpt2(setting) or is_llama(setting)
    record = loaded.trials[trial.arm, trial.seed]
    code = {} if is_plain else remote_code(setting, Path(folder), trial.label, record)
    config, tensors = hugging_face_model(setting, tokenizer.vocab_size, trial.read_weights(step))
    # Set even without such a token, because the default may be a token in another vocabulary.
    end = tokenizer.end_of_document
    special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), end)
    contents = code | {
        "model.safetensors": safetensors.numpy.save(tensors, metadata={"format": "pt"}),
        "tokenizer.json": tokenizer_json(tokenizer),
        "README.md": _readme(loaded, trial, step, is_plain=is_plain).encode(),
    }
    with whole_folder(out) as partial:
        write_plain_json(partial / "config.json", config | special)
        write_plain_json(partial / "generation_config.json", special)
        options = tokenizer_config(tokenizer, setting.data.seq_len)
        write_plain_json(partial / "tokenizer_config.json", options)
        for name, content in contents.items():
            write_bytes(partial / name, content)
    return out


def _trial(results: Results, arm: str, seed: int) -> TrialFolder:
    """Return a finished trial, or raise ParibusError if it does not exist."""
    for trial in results.finished:
        if (trial.arm, trial.seed) == (arm, seed):
            return trial
    raise ParibusError(
        f"{results.path} has no finished trial {arm}/seed-{seed}; choose a finished trial of the "
        f"arms {', '.join(results.study.arms)}",
        code="unfinished",
    )


def _tokenizer(results: Results, trial: TrialFolder, setting: Setting, folder: Path) -> Tokenizer:
    """Rebuild the trial's tokenizer from the study's text.

    The records contain only the digest of the vocabulary. Raises ParibusError if the text is
    missing, or if the digest differs.
    """
    path = setting.data.path
    if path is not None and not (folder / path).exists():
        raise ParibusError(
            f"the study's text '{path}' is not in {folder}; pass the folder of the study file "
            "with --folder",
            code="missing",
        )
    tokenizer = Texts.read(setting.data, folder).tokenizer
    recorded = results.trials[trial.arm, trial.seed]["data"]["digests"]["vocabulary"]
    if tokenizer.digest != recorded:
        raise ParibusError(
            f"the vocabulary of '{path or setting.data.corpus}' has the digest "
            f"{tokenizer.digest[:12]}, but trial {trial.label} was trained with {recorded[:12]}; "
            "restore the original text",
            code="changed",
        )
    return tokenizer


def tokenizer_json(tokenizer: Tokenizer) -> bytes:
    """Return the content of a tokenizer.json file equivalent to `tokenizer`.

    A BPE tokenizer already has this file. A character tokenizer is converted to a BPE model without
    merges. Unknown characters are replaced as in `ParibusLM`, or dropped if the vocabulary has no
    replacement. The text of the end-of-document token is encoded as that token.
    """
    if isinstance(tokenizer, BpeTokenizer):
        return tokenizer.content
    assert isinstance(tokenizer, CharacterTokenizer)
    vocabulary = {text: number for number, text in enumerate(tokenizer.vocabulary)}
    stand_in = next((text for text in STAND_INS if text in tokenizer.characters), None)
    fast = HuggingFaceTokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=stand_in))
    fast.decoder = decoders.Fuse()  # the default puts spaces between tokens
    if tokenizer.end_of_document is not None:
        fast.add_special_tokens([AddedToken(END_OF_DOCUMENT, normalized=False)])
    return fast.to_str(pretty=True).encode()


def tokenizer_config(tokenizer: Tokenizer, seq_len: int) -> dict[str, Any]:
    """Return the content of tokenizer_config.json.

    The end-of-document token is the only special token, because decoding may skip special tokens.
    """
    end = tokenizer.end_of_document
    special = None if end is None else tokenizer.vocabulary[end]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": seq_len,
        "clean_up_tokenization_spaces": False,
        **dict.fromkeys(("bos_token", "eos_token", "pad_token"), special),
        "unk_token": None,
    }


def _readme(results: Results, trial: TrialFolder, step: int | None, *, is_plain: bool) -> str:
    """Return a README.md with the trial's identity and scores, and code that loads the model."""
    study, record = results.study, results.trials[trial.arm, trial.seed]
    loss = trial.read_json("evaluation.json")["validation_loss"]
    facts = {
        "study": f"{study.name}: {study.question or study.title or ''}",
        "differs from its reference in": "; ".join(
            f"`{key}`: {text}" for key, text in study.difference_texts(trial.arm).items()
        ),
        "weights": f"after step {step or record['iterations']}",
        "validation loss after the last step": loss and f"{fixed(loss, 4)} nats/token",
        "SHA-256 of the study": study.digest,
        "SHA-256 of the trial's weights": trial.read_json("manifest.json")["weights.safetensors"],
    }
    lines = "\n".join(f"- {name}: {value}" for name, value in facts.items() if value)
    trusted = "" if is_plain else ", trust_remote_code=True"
    return f"""---
library_name: transformers
tags: [paribus]
---

# {trial.label}

{lines}

```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model = AutoModelForCausalLM.from_pretrained("THIS_FOLDER"{trusted})
tokenizer = AutoTokenizer.from_pretrained("THIS_FOLDER"{trusted})
```
"""
