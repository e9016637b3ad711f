"""An exported trial has our logits, ids and texts, and is written whole or not at all."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import safetensors.numpy
import torch
from transformers import AutoTokenizer

import paribus
from paribus.engine.data import load_dataset
from paribus.engine.data.tokenizer import END_OF_DOCUMENT
from paribus.engine.model import build_model, load_parameters
from paribus.results import load_results
from paribus.study import parse_study

from ..build import write_results
from ..tools import in_one_process, made_once, refused
from .test_parts import load

WINDOW = 96
LINES = [
    "All else equal, does it help?",
    "The quick brown fox jumps over 13 lazy dogs;\tthey mix bold ink.",
    "Über façade: «日本» ok_not.",
]
TEXT = "".join(f"{LINES[i % 3]} {i}\n" for i in range(120))
ARMS = {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}}
STUDY: dict[str, Any] = {
    "name": "small",
    "question": "Is {this} | that better?",
    "seeds": [1],
    "data": {"corpus": "text", "path": "text", "seq_len": WINDOW, "validation_fraction": 0.4},
    "model": {"n_layer": 2, "n_head": 2, "d_model": 32, "init": {"std": 0.2}},
    "training": {"iterations": 8, "batch_size": 4, "optimizer": {"learning_rate": 0.01}},
    "stability": {"smoothing_steps": 2, "median_steps": 3, "spike_steps": 2},
    "tasks": {"names": []},
    "arms": ARMS,
}
FILES = {
    "README.md",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}
each_arm = pytest.mark.parametrize("arm", ARMS)


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Three documents in `text`, and `results` of every arm trained a little on them."""

    def train(folder: Path) -> None:
        (folder / "text").mkdir()
        for document in range(3):
            (folder / "text" / f"{document}.txt").write_text(TEXT, encoding="utf-8")
        with in_one_process():
            study = parse_study(STUDY, folder=folder)
            paribus.run(study, folder / "results", workers=1, device="cpu")

    return made_once(tmp_path_factory, "trained-by-export", train)


@pytest.fixture(scope="session")
def dataset(folder):
    return load_dataset(parse_study(STUDY, folder=folder).data, folder)


@pytest.fixture(scope="session")
def exported(folder, tmp_path_factory):
    """{arm: the folder of its trial}."""
    root = tmp_path_factory.mktemp("exported")
    return {arm: export(folder, arm, root / arm) for arm in ARMS}


def export(folder: Path, arm: str, out: Path) -> Path:
    return paribus.export_trial(folder / "results", arm, 1, out, folder=folder)


def logits_of(folder: Path, arm: str, tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Those of our own model with the weights of the trial."""
    results = load_results(folder / "results")
    model = build_model(results.study.setting(arm), vocab_size)
    (trial,) = (trial for trial in results.finished if trial.arm == arm)
    load_parameters(model, trial.read_weights())
    with torch.no_grad():
        return model.eval()(tokens)


@each_arm
@torch.no_grad()
def test_logits_are_ours(arm, folder, dataset, exported):
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, dataset.vocab_size, (3, WINDOW), generator=generator)
    ours = logits_of(folder, arm, tokens, dataset.vocab_size)
    theirs = load(exported[arm])(tokens).logits
    assert theirs.dtype == torch.float32
    assert ours.std() > 0.1  # else equality would say little
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)


def test_it_can_be_trained_on_and_saved_again(exported, tmp_path):
    tokens = torch.arange(2 * WINDOW).view(2, WINDOW) % 20
    model = load(exported["layernorm"])
    assert model.head is None  # tied: the token matrix, and no parameter of its own
    model(tokens, labels=tokens).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(load(tmp_path / "again")(tokens).logits, model(tokens).logits)


STRANGER = """
import json, sys
import transformers
for name in sys.argv[1:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    ids = tokenizer("All else equal,", return_tensors="pt")["input_ids"]
    print(json.dumps(model(ids).logits[0, -1].tolist()))
assert "paribus" not in sys.modules
"""


@pytest.mark.slow
def test_a_stranger_loads_it(folder, dataset, exported, offline, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, *map(str, exported.values())],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"HF_HOME": str(tmp_path), "HF_MODULES_CACHE": str(tmp_path / "modules")},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    tokens = torch.from_numpy(dataset.tokenizer.encode("All else equal,"))[None]
    for arm, line in zip(exported, done.stdout.splitlines(), strict=True):
        ours = logits_of(folder, arm, tokens, dataset.vocab_size)[0, -1]
        torch.testing.assert_close(torch.tensor(json.loads(line)), ours, rtol=0, atol=1e-5)


@each_arm
def test_the_tokenizer_is_ours(arm, dataset, exported):
    ours, theirs = dataset.tokenizer, AutoTokenizer.from_pretrained(exported[arm])
    assert len(theirs) == theirs.vocab_size == ours.vocab_size
    assert theirs.model_max_length == WINDOW
    assert theirs.convert_ids_to_tokens(range(len(theirs))) == ours.vocabulary
    odd = ["", " ", "\n", "  All  else\t\n\n equal , ?", "Über façade: «日本»", "a" * 5000, TEXT]
    for text in odd:
        ids = theirs(text)["input_ids"]
        assert ids == ours.encode(text).tolist()
        for skip in (True, False):
            assert theirs.decode(ids, skip_special_tokens=skip) == text
    end = ours.end_of_document
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (end, end, end)
    ids = theirs(f"All{END_OF_DOCUMENT}equal")["input_ids"]
    assert ids.count(end) == 1
    assert theirs.decode(ids, skip_special_tokens=True) == "Allequal"


def test_equal_files(folder, exported, tmp_path):
    assert {path.name for path in exported["baseline"].iterdir()} == FILES
    remote = {path.name for path in exported["layernorm"].iterdir()}
    assert remote == FILES | {"modeling_paribus.py"}
    (tmp_path / "again").mkdir()  # an empty folder may be there
    again = export(folder, "layernorm", tmp_path / "again")
    for path in exported["layernorm"].iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again"]
    # The tied head is not stored twice.
    weights = safetensors.numpy.load_file(exported["baseline"] / "model.safetensors")
    assert "lm_head.weight" not in weights


def test_a_folder_that_holds_something_is_left_alone(folder, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "mine.txt"):
        with refused("exists"):
            export(folder, "baseline", out)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_another_text_and_changed_records_are_refused(folder, tmp_path):
    trial, out = (folder / "results", "baseline", 1), tmp_path / "out"
    with refused("missing", match="--folder"):
        paribus.export_trial(*trial, out, folder=tmp_path)
    shutil.copytree(folder / "text", tmp_path / "text")
    (tmp_path / "text" / "0.txt").write_text("Another letter: ß", encoding="utf-8")
    with refused("changed", match="baseline/seed-1"):
        paribus.export_trial(*trial, out, folder=tmp_path)
    copy = shutil.copytree(folder / "results", tmp_path / "results")
    weights = copy / "trials" / "baseline" / "seed-1" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x07")
    with refused("changed", match="was changed"):
        paribus.export_trial(copy, "baseline", 1, out, folder=folder)
    assert not out.exists()


def test_unfinished_or_edited_trials_are_refused(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text("from torch.nn import Identity as RMS")
    own = {"set": {"model.modules.block_norm": "ideas.py:RMS"}}
    study = small_study(arms={"baseline": {}, "own": own})
    results = write_results(tmp_path / "made", study, lambda arm, seed: 2.0, skip=[("baseline", 2)])
    with refused("unfinished", match="baseline/seed-2"):
        paribus.export_trial(results.path, "baseline", 2, tmp_path / "out", folder=tmp_path)
    (tmp_path / "ideas.py").write_text("from torch.nn import SiLU as RMS")
    with refused("changed", match=r"= 'ideas\.py:RMS'"):
        paribus.export_trial(results.path, "own", 1, tmp_path / "out", folder=tmp_path, trust=True)
    assert not (tmp_path / "out").exists()


def test_one_document_has_no_special_tokens(small_study, tmp_path):
    study = small_study()
    results = write_results(tmp_path / "made", study, lambda arm, seed: 2.0)
    out = tmp_path / "out"
    paribus.export_trial(results.path, "baseline", 1, out, folder=tmp_path)
    config = json.loads((out / "config.json").read_text())
    tokenizer = load_dataset(study.data, tmp_path).tokenizer
    assert config["vocab_size"] == tokenizer.vocab_size == len(tokenizer.characters)
    assert config["bos_token_id"] is config["eos_token_id"] is config["pad_token_id"] is None
