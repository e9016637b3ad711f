"""The README.md of an exported folder: every number in it is read from the records."""

from __future__ import annotations

from paribus.engine.data import Dataset
from paribus.engine.export.gpt2 import is_gpt2
from paribus.engine.export.llama import is_llama
from paribus.engine.export.tokenizer_json import vocabulary_notes
from paribus.numbers import fixed
from paribus.results import Results, TrialFolder

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
) -> str:
    """Markdown: which trial this is, how it scored, how it is loaded, and what to mind."""
    study = results.study
    setting = study.setting(trial.arm)
    kind = "GPT-2" if is_gpt2(setting) else "Llama" if is_llama(setting) else ""
    plain = bool(kind)
    code = f"The model is a plain {kind}."
    if not plain:
        own = ", ".join(f"`{path}`" for path in setting.model.modules.named.values())
        code = "The model is a Transformer whose code is in `modeling_paribus.py`"
        code += f", with parts of its author's own ({own})." if own else "."
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
