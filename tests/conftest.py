"""Fixtures that many tests share: a small study on a small text, in a folder of its own."""

from __future__ import annotations

import gc
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from paribus.engine.data import load_dataset
from paribus.files import cache_folder
from paribus.study import Study, load_study, parse_study
from paribus.study.study import override

# All that a process of pytest-xdist which runs no test imports is imported for nothing: PyTorch and
# SciPy are not among it.
if TYPE_CHECKING:
    from paribus.results import Results

Maker = Callable[..., Study]  # of a study: what `small_study` and `studies_in` give
Fabricate = Callable[..., "Results"]

# As workers have it: small products are slower on several threads. Read when torch is imported,
# which nothing above does.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Properties are tried on the same examples everywhere.
settings.register_profile("suite", max_examples=60, deadline=None, derandomize=True)
settings.load_profile("suite")

WORDS = "the quick brown fox jumps over a lazy dog mixing bold ink".split()  # noqa: SIM905

# Rooms that take longest come first: at the end, none keeps one process busy alone.
LONG = ("runs", "execution", "trainers", "export", "torture", "evaluation", "training", "report")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--snapshot-update", action="store_true", help="write tests/report/snapshots")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def rank(item: pytest.Item) -> int:
        return next((n for n, room in enumerate(LONG) if room in item.path.parts), len(LONG))

    items.sort(key=rank)


def small_text(n_words: int = 2000) -> str:
    """Text with some structure: words in an order that a linear congruence decides."""
    state, words = 1, []
    for i in range(n_words):
        state = (1103515245 * state + 12345) % 2**31
        words.append(WORDS[state // 65536 % len(WORDS)] + (".\n" if i % 11 == 10 else " "))
    return "".join(words)


SMALL: dict[str, Any] = {
    "name": "small",
    "seeds": [1, 2],
    "data": {"corpus": "text", "path": "text.txt", "seq_len": 16},
    "model": {"n_layer": 2, "n_head": 2, "d_model": 16},
    "training": {"iterations": 8, "batch_size": 4},
    "tasks": {"names": []},
    "evaluation": {"every": 0},
    "stability": {"smoothing_steps": 2, "median_steps": 3, "spike_steps": 2},
    "arms": {
        "baseline": {},
        "layernorm": {"set": {"model.embedding.norm": "layernorm"}},
        "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}},
    },
}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    """Folders of own code, which a process searches from then on, leave with their test."""
    before = sys.path[:]
    try:
        return (yield)
    finally:
        sys.path[:] = before


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What all tests import stays: garbage is not looked for in it again and again.

    Not while it is imported, which took a fifth of the time, and not afterwards: statsmodels, for
    one, collects garbage at every call, half a second each in the whole suite.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def unsynced():
    """No record of a test has to survive a power cut: waiting for the disk took a minute of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("paribus.files.os.fsync", lambda file: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def offline(tmp_path_factory):
    """No network, and caches of our own for libraries of Hugging Face.

    For all tests alike: in another environment workers need another template. So what libraries set
    when they are imported (LM Evaluation Harness, scikit-learn, PyTorch's compiler) is set at once.
    """
    home = tmp_path_factory.mktemp("huggingface")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_OFFLINE", "1")
        patch.setenv("HF_HOME", str(home))
        patch.setenv("HF_MODULES_CACHE", str(home / "modules"))
        patch.setenv("HF_XET_HIGH_PERFORMANCE", "1")
        patch.setenv("KMP_DUPLICATE_LIB_OK", "True")
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(home / "inductor"))
        yield home


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """An empty cache for texts: what older code split and tokenized must not hide a mistake.

    Compiled kernels are shared with other sessions: a digest of their source names them.
    """
    folder = tmp_path_factory.mktemp("cache")
    for shared in ("scripts", f"kernels-{os.getuid()}"):
        (cache_folder() / shared).mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / shared).symlink_to(cache_folder() / shared)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARIBUS_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def ledgers(tmp_path_factory):
    """Folder of ledgers: no test writes the user's. What tests share is recorded in one of them."""
    folder = tmp_path_factory.mktemp("ledgers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARIBUS_LEDGER", str(folder / "shared.jsonl"))
        yield folder


@pytest.fixture(scope="module", autouse=True)
def ledger_of_module(ledgers):
    """One for what the tests of a file share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARIBUS_LEDGER", str(ledgers / f"{secrets.token_hex(8)}.jsonl"))
        yield


@pytest.fixture(autouse=True)
def ledger(ledgers, monkeypatch):
    """The test's own ledger, which is not there yet: no test knows what another has opened."""
    path = ledgers / f"{secrets.token_hex(8)}.jsonl"
    monkeypatch.setenv("PARIBUS_LEDGER", str(path))
    return path


# An own module, as a user writes it: for `model.modules.<site> = "own.py:Nothing"`.
NOTHING = """
from torch import nn

class Nothing(nn.Identity):
    def __init__(self, model):
        super().__init__()
"""


def studies_in(folder: Path) -> Maker:
    """`make({"training.iterations": 3}, arms=...)`: SMALL with overrides, in `folder`."""
    if not (folder / "text.txt").exists():  # others may read it
        (folder / "text.txt").write_text(small_text(), encoding="utf-8")

    def make(overrides: dict[str, Any] | None = None, **tables: Any) -> Study:
        study = parse_study(SMALL | tables, folder=folder)
        table = study.model_dump()
        for key, value in study.format.expand(overrides or {}):
            override(table, key, value, study.format)
        return parse_study(table, folder=folder)

    return make


@pytest.fixture
def small_study(tmp_path):
    """`small_study({"training.iterations": 3}, arms=...)`: SMALL with overrides, in `tmp_path`."""
    return studies_in(tmp_path)


@pytest.fixture
def without_attention(small_study):
    """The small study, with an own module at the site `attention` that does nothing."""
    study = small_study({"model.modules.attention": "own.py:Nothing"})
    (study.folder / "own.py").write_text(NOTHING)
    return study


@pytest.fixture
def small_dataset(small_study):
    study = small_study()
    return load_dataset(study.data, study.folder)


@pytest.fixture
def afresh(monkeypatch):
    """Compiled kernels are forgotten, before and after."""
    from paribus.engine.ops.kernels import calling, compiling

    monkeypatch.setenv(compiling.SWITCH, "auto")
    kept = (compiling.library, calling.kernels)
    for function in kept:
        function.cache_clear()
    yield
    monkeypatch.undo()
    for function in kept:
        function.cache_clear()


@pytest.fixture(scope="session")
def dataset():
    """The text of `quickstart`, with all that it holds out."""
    study = load_study("quickstart")
    return load_dataset(study.data.model_copy(update={"validation_tokens": None}), study.folder)


@pytest.fixture
def fabricate(tmp_path):
    """`fabricate(study, loss, ...)` writes a results folder as `run` does, without training."""
    from .build import write_results

    def make(study: Study, loss: Callable[..., float], folder: str = "made", **kw: Any) -> Results:
        return write_results(tmp_path / folder, study, loss, **kw)

    return make


@pytest.fixture(scope="module")
def one_process() -> Iterator[None]:
    """Runs of this module's tests start no process."""
    from .tools import in_one_process

    with in_one_process():
        yield
