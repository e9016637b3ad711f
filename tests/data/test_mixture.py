"""Mixtures: shares that are exact at every step, sources apart, and what may not be mixed."""

import gzip

import numpy as np
import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from paribus.engine.data import batch, consumption, load_dataset, open_test
from paribus.engine.data.duplicates import count_in_training
from paribus.engine.data.order import Mixture, Windows
from paribus.engine.setting import Data
from paribus.engine.setting.data import MIXTURE_PARTS

from ..tools import refused


def text(seed: int, n: int, letters: str = "abcdefgh \n") -> str:
    return "".join(np.random.default_rng(seed).choice(list(letters), size=n))


@pytest.fixture
def folder(tmp_path):
    for i, letters in enumerate(("abcdefgh \n", "ABCDEFGH é", "01234567,.")):
        (tmp_path / f"t{i}").write_text(text(i, 2000 - 500 * i, letters), encoding="utf-8")
    (tmp_path / "t3").write_text(text(3, 800), encoding="utf-8")
    return tmp_path


SOURCES = {"upper": {"path": "t1"}, "digits": {"path": "t2"}}


def data(**keys: object) -> Data:
    given = {"corpus": "text", "path": "t0", "seq_len": 16, "sources": SOURCES}
    return Data(**(given | {"mixture": {"corpus": 0.5, "upper": 0.3, "digits": 0.2}} | keys))


@given(st.lists(st.integers(1, MIXTURE_PARTS - 1), max_size=5, unique=True), st.data())
def test_of_any_first_windows_each_source_has_its_share(cuts, draw):
    parts = np.diff([0, *sorted(cuts), MIXTURE_PARTS])
    shares = {str(i): part / MIXTURE_PARTS for i, part in enumerate(parts)}
    mixture = Mixture({name: Windows(100, 4) for name in shares}, shares, dict.fromkeys(shares, 0))
    n, size = draw.draw(st.integers(1, 25_000)), draw.draw(st.integers(1, 64))
    counts = mixture.counts(n)
    assert counts.sum() == n
    assert np.abs(counts - n * parts / MIXTURE_PARTS).max() < 1
    t = n // size
    drawn = np.bincount(mixture.sources(t, size), minlength=len(parts))
    assert (drawn == mixture.counts((t + 1) * size) - mixture.counts(t * size)).all()


@pytest.mark.parametrize("order", ["sampled", "epoch"])
def test_a_window_is_of_one_source_and_shares_are_kept(order, folder):
    found = load_dataset(data(order=order), folder)
    mixture = found.windows
    assert isinstance(mixture, Mixture)
    alphabets = [set("abcdefgh \n"), set("ABCDEFGH é"), set("01234567,.")]
    counts = np.zeros(len(mixture.windows), int)
    for t in range(30):
        drawn = batch(found.train, 1, t, 4, 16, mixture)
        sources = mixture.sources(t, 4)
        counts += np.bincount(sources, minlength=len(counts))
        for row, one in zip(drawn, sources, strict=True):
            assert set(found.tokenizer.decode(row)) <= alphabets[one]
        shares = np.array(list(found.windows.shares.values()))
        assert np.abs(counts - (t + 1) * 4 * shares).max() < 1
    told = consumption(found, 1, 30, 4, 16)["sources"]
    assert [of["windows"] for of in told.values()] == counts.tolist()
    assert [of["tokens"] for of in told.values()] == (16 * counts).tolist()
    seen = np.concatenate([batch(found.train, 1, t, 4, 16, mixture)[:, 1:] for t in range(30)])
    total = found.tokenizer.bytes_per_token[seen].sum()
    assert sum(of["bytes"] for of in told.values()) == total


def test_every_window_of_each_source_comes_once_in_its_epoch(folder):
    found = load_dataset(data(order="epoch"), folder)
    assert isinstance(found.windows, Mixture)
    starts = np.concatenate([found.windows.starts(3, t, 8) for t in range(200)])
    offsets = [*found.windows.offsets.values(), len(found.train)]
    pairs = zip(found.windows.windows.values(), offsets, offsets[1:], strict=False)
    for windows, first, last in pairs:
        here = starts[(starts >= first) & (starts < last)]
        assert len(here) > len(windows)
        assert len(set(here[: len(windows)].tolist())) == len(windows)


def test_other_shares_leave_held_out_text_and_tokenizer(folder):
    one, other = (
        load_dataset(data(tokenizer="byte", mixture=mixture), folder)
        for mixture in ({"corpus": 1.0}, {"upper": 0.25, "digits": 0.75})
    )
    assert one.digests["validation_text"] == other.digests["validation_text"]
    assert one.digests["validation"] == other.digests["validation"]
    text = other.tokenizer.decode(other.train[:])
    assert not set("abcdefgh") & set(text)
    assert other.record["train_bytes"] == len(text.encode())
    expected = 0.25 * 1 + 0.75 * 1
    assert other.bytes_per_token == pytest.approx(expected)


def test_held_out_text_is_cut_from_every_source(folder):
    corpus = (folder / "t0").read_text()
    (folder / "t1").write_text(text(9, 1500) + corpus[-150:] + text(10, 500), encoding="utf-8")
    left = load_dataset(data(), folder)
    assert count_in_training(left.train, left.validation[:]) == 150
    clean = load_dataset(data(deduplicate="held-out", test_fraction=0.2), folder)
    sealed = open_test(clean.test, {"digest": clean.digests["test"]})
    for part in (clean.validation[:], sealed[:]):
        assert not count_in_training(clean.train, part)
    # The lines in which a run of 50 bytes ends: up to 49 bytes before the first may stay.
    assert clean.deduplicated["train_bytes_cut"] >= 150 - 49
    assert clean.deduplicated.get("bytes_dropped", 0) == 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"mixture": {"corpus": 0.5, "upper": 0.4}}, "0.9"),
        ({"mixture": {"corpus": 0.5, "uper": 0.5}}, "'uper'"),
        ({"mixture": {"corpus": 1 / 3, "upper": 2 / 3}}, "0.0001"),
    ],
)
def test_mixtures_that_cannot_be_are_refused(keys, message):
    with pytest.raises(ValidationError, match=message):
        data(**keys)


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ({"sources": SOURCES | {"upper": {"path": "t0"}}}, "conflict"),
        ({"validation_path": "t2"}, "conflict"),
        ({"validation_path": "t3", "test_path": "t3"}, "conflict"),
        ({"mixture": {"digits": 1.0}, "seq_len": 1000, "validation_fraction": 0.6}, "too_few"),
        (
            {"corpus": "pydoc", "path": None, "sources": SOURCES | {"upper": {"corpus": "pydoc"}}},
            "conflict",
        ),
    ],
)
def test_held_out_text_is_in_no_source(keys, code, folder):
    with refused(code):
        load_dataset(data(**keys), folder)


@pytest.mark.parametrize("how", ["copy", "compressed", "subfolder"])
@pytest.mark.parametrize("part", ["validation", "test"])
def test_held_out_text_is_trained_on_under_no_other_name(part, how, folder):
    content, again = (folder / "t3").read_bytes(), folder / "again"
    if how == "subfolder":
        (again / "below").mkdir(parents=True)
        (again / "below" / "x.txt").write_bytes(content)
    else:
        again = again.with_suffix(".gz" if how == "compressed" else "")
        again.write_bytes(gzip.compress(content) if how == "compressed" else content)
    other = "test" if part == "validation" else "validation"
    for keys in (
        {"sources": SOURCES | {"upper": {"path": again.name}}},
        {"path": again.name},
        {f"{other}_path": again.name},
    ):
        with refused("conflict"):
            load_dataset(data(**{f"{part}_path": "t3"}, **keys), folder)


def test_a_copy_of_the_part_that_is_cut_off_is_refused(folder):
    (folder / "whole").write_text((folder / "t0").read_text())
    part = load_dataset(data(validation_fraction=0.25), folder)
    (folder / "part").write_text(part.tokenizer.decode(part.validation[:]))
    for name in ("whole", "part"):
        sources = SOURCES | {"upper": {"path": name}}
        with refused("conflict"):
            load_dataset(data(sources=sources, validation_fraction=0.25), folder)
