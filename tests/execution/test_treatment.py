"""Text as the treatment, from the study file to the verdict: arms that read other text."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus import analyse, decide, run
from paribus.engine.data import load_dataset
from paribus.engine.data.tokenizer import train_tokenizer
from paribus.engine.execution.start import read_data, settled_budgets
from paribus.engine.execution.trial.endpoints import endpoint_metrics
from paribus.engine.setting import Data
from paribus.study import Study

from ..conftest import SMALL, small_text, studies_in
from ..tools import refused

pytestmark = pytest.mark.usefixtures("one_process")

ENDPOINTS = [
    {"metric": "bits_per_byte", "primary": True, "margin": 0.05},
    {"metric": "validation_loss"},
    {"metric": "bits_per_character"},
    {"metric": "macro_accuracy"},
]
ARMS: dict[str, Any] = {
    "baseline": {},
    "bpe": {"set": {"data.tokenizer": "bpe.json"}},
    "mixed": {"set": {"data.mixture": {"corpus": 0.7, "upper": 0.3}}},
    "epochs": {"set": {"data.order": "epoch"}},
}


def write_texts(folder: Path) -> None:
    (folder / "texts").mkdir()
    words = small_text(5000).split(" ")  # none of it twice
    sizes = np.random.default_rng(0).integers(100, 600, size=12)
    at = 0
    for i, size in enumerate(sizes.tolist()):
        (folder / "texts" / f"{i:02}").write_text(" ".join(words[at : at + size]), encoding="utf-8")
        at += size
    (folder / "upper.txt").write_text(small_text(2000).upper(), encoding="utf-8")
    (folder / "held.txt").write_text("A lazy dog mixing ink. " * 40, encoding="utf-8")
    corpus = Data(corpus="text", path="texts")
    train_tokenizer(corpus, folder, 300, folder / "bpe.json")


def treatment(folder: Path, overrides: dict[str, Any] | None = None, **tables: Any) -> Study:
    given = {
        "data": SMALL["data"] | {"path": "texts", "sources": {"upper": {"path": "upper.txt"}}},
        "arms": ARMS,
        "endpoints": ENDPOINTS,
        "training": {"iterations": 12, "batch_size": 4, "budget": "bytes"},
        "tasks": {"names": []},
    }
    return studies_in(folder)(overrides, **(given | tables))


@pytest.fixture
def make(tmp_path):
    write_texts(tmp_path)
    return lambda overrides=None, **tables: treatment(tmp_path, overrides, **tables)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All four arms, trained once, with questions."""
    folder = tmp_path_factory.mktemp("treatment")
    write_texts(folder)
    tables = {"tasks": {"names": ["next_word"], "shots": [0], "items": 4}}
    tables |= {"evaluation": {"every": 0}}
    data = SMALL["data"] | {"path": "texts", "seq_len": 48}
    data |= {"sources": {"upper": {"path": "upper.txt"}}, "validation_fraction": 0.3}
    study = treatment(folder, **tables, data=data)
    return run(study, folder / "results", workers=1, device="cpu")


def test_differences_are_declared_and_held_out_bytes_held(results):
    states = {(c.arm, c.name): c for c in results.controls}
    for arm in ("bpe", "mixed", "epochs"):
        reads_other_text = arm != "epochs"
        assert states[arm, "text"].state == ("declared" if reads_other_text else "held")
        assert states[arm, "batches"].state == "declared"
        held = states[arm, "held-out text"]
        assert held.state == "held" and "SHA-256" in held.detail
        for name in ("setting", "budget", "initial values", "questions", "software", "causality"):
            assert states[arm, name].state == "held", states[arm, name]
    assert "vocabulary" in states["bpe", "text"].detail
    assert " bytes vs. " in states["bpe", "budget"].detail


def test_per_token_numbers_are_not_compared_between_tokenizers(results):
    analysis = analyse(results)
    for metric in ("bits_per_byte", "bits_per_character", "macro_accuracy"):
        assert analysis.contrast("bpe", metric).by_run is not None, metric
    skipped = analysis.contrast("bpe", "validation_loss")
    assert skipped.by_run is None and not skipped.counted
    assert "tokenizers" in skipped.why_not
    assert analysis.contrast("mixed", "validation_loss").by_run is not None
    assert decide(analysis)[0].row


def test_what_was_consumed_of_each_source_is_recorded(results):
    trial = results.trials["mixed", 1]
    sources = trial["consumed"]["sources"]
    windows = {name: of["windows"] for name, of in sources.items()}
    total = trial["iterations"] * 4
    assert sum(windows.values()) == total
    assert abs(windows["upper"] - 0.3 * total) < 1
    assert sum(of["tokens"] for of in sources.values()) == trial["tokens"]
    assert all(of["bytes"] <= of["tokens"] for of in sources.values())
    described = json.loads((results.path / "data.json").read_text())
    assert described["arms"].keys() == {"bpe", "mixed"}
    for arm in ("bpe", "mixed"):
        assert described["arms"][arm]["leakage"]["validation_tokens"] > 0


def test_bits_per_byte_are_the_loss_over_the_same_bytes(results):
    sizes = set()
    for (arm, seed), trial in results.trials.items():
        blocks, tokens = results.trial_blocks[arm, seed], trial["data"]["validation_tokens"]
        n_bytes = sum(blocks["bytes"].to_pylist())
        bits = sum(blocks["loss_sum_nats"].to_pylist()) / math.log(2)
        row = results.scores.filter(np.array(results.scores["arm"]) == arm).to_pylist()
        value = next(r["bits_per_byte"] for r in row if r["seed"] == seed)
        assert value == pytest.approx(bits / n_bytes)
        assert 0 < value * trial["data"]["validation_bytes"] < tokens * math.log2(2000)
        sizes.add(n_bytes - trial["data"]["validation_bytes"])
    assert min(sizes) >= -8 and max(sizes) < 0  # the first token is not predicted


def test_budgets_in_bytes_come_to_iterations(make):
    study = make({"training.iterations": 400})
    settled = settled_budgets(study)
    assert settled_budgets(settled) == settled
    datasets = read_data(study)
    budgets = {}
    for arm in study.arms:
        setting = settled.setting(arm)
        budgets[arm] = setting.tokens * datasets[setting.data].bytes_per_token
    assert settled.setting("bpe").iterations < 0.6 * 400
    assert settled.setting("baseline").iterations == 400
    step = 64 * datasets[study.setting("bpe").data].bytes_per_token
    for arm, n_bytes in budgets.items():
        assert abs(n_bytes - budgets["baseline"]) <= step / 2 + 1, arm
    in_tokens = make({"training.budget": "tokens"})
    assert settled_budgets(in_tokens) is in_tokens
    with refused("value", match="300 iterations"):
        settled_budgets(
            make(arms=ARMS | {"bpe": {"set": ARMS["bpe"]["set"] | {"training.iterations": 300}}})
        )


def test_a_primary_endpoint_of_single_tokens_is_refused(make):
    endpoints = [{"metric": "validation_loss", "primary": True, "margin": 0.1}]
    with refused("value", match="'baseline'"):
        endpoint_metrics(make(endpoints=endpoints))
    arms = {name: ARMS[name] for name in ("baseline", "mixed", "epochs")}
    assert endpoint_metrics(make(endpoints=endpoints, arms=arms))


@pytest.mark.parametrize(
    ("set_", "code"),
    [
        ({"data.validation_fraction": 0.2}, "value"),
        ({"data.path": "upper.txt"}, "value"),
        ({"data.validation_tokens": 100}, "incomparable"),
        ({"data.mixture": {"corpus": 0.7, "upper": 0.2}}, "value"),
        ({"training.budget": "tokens"}, "value"),
    ],
)
def test_unshared_held_out_text_is_refused(set_, code, make):
    with refused(code):
        read_data(make(arms={"baseline": {}, "x": {"set": set_}}))


def test_held_out_bytes_are_compared_before_registration(make, tmp_path):
    (tmp_path / "lines.jsonl").write_text('{"text": "a lazy dog"}\n' * 90)
    (tmp_path / "held.jsonl").write_text('{"text": "a lazy dog "}\n{"text": "ink mixing"}\n' * 30)
    (tmp_path / "ideas.py").write_text(
        "from paribus.extend import corpus\n"
        "@corpus('other', reads=('path',))\n"
        "def other(data, folder):\n"
        "    held = 'held' in data.path\n"
        "    return ['a lazy dog mixing ' * 20] if held else ['a lazy ink '] * 90\n"
    )
    data = SMALL["data"] | {"corpus": "jsonl", "path": "lines.jsonl"}
    data |= {"validation_path": "held.jsonl"}
    arms = {"baseline": {}, "own": {"set": {"data.corpus": "ideas.py:other"}}}
    study = make(data=data, arms=arms)
    with refused("value", match="'baseline'"):
        run(study, tmp_path / "r", workers=1, device="cpu")
    assert not (tmp_path / "r" / "registration.json").exists()


def test_other_corpora_share_a_validation_text_of_its_own(make):
    arms = {"baseline": {}, "upper": {"set": {"data.path": "upper.txt"}}}
    data = SMALL["data"] | {"path": "texts", "validation_path": "held.txt"}
    study = make(data=data, arms=arms)
    datasets = read_data(study)
    ours, theirs = (datasets[study.setting(arm).data] for arm in ("upper", "baseline"))
    assert ours.digests["validation_text"] == theirs.digests["validation_text"]
    assert ours.digests["train"] != theirs.digests["train"]
    assert load_dataset(study.data, study.folder).digests == theirs.digests
    deduplicated = {"baseline": {}, "once": {"set": {"data.deduplicate": "exact"}}}
    read_data(make(data=data, arms=deduplicated))
