"""Seeded fuzzers of what somebody else wrote: studies, tokenizers, results folders.

Each is a function of (number) alone, so that a failure is repeated by its number.
"""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import tomllib
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.files import file_digest
from paribus.results.trial_folder import CANONICAL
from paribus.study import parse_study
from paribus.untrusted_io import parse_toml

# Values that have broken something somewhere.
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    "",
    " ",
    "none",
    "auto",
    "\x00",
    "\x1b[31m",
    "\ud800",
    "\ufffe",
    "\u202e",
    "a" * 300,
    "é" * 200,
    "../..",
    "/dev/zero",
    ".",
    "con",
    "=1+1",
    "{{ 7 * 7 }}",
    "<script>",
    "file.py:Class",
    "os:system",
    "x:",
    ":x",
    0,
    -1,
    1,
    2,
    2**31,
    2**63 - 1,
    2**63,
    2**64,
    10**12,
    10**400,
    int("9" * 4000),
    0.0,
    -0.0,
    0.5,
    1e-320,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
    [],
    [[]],
    {},
    {"": ""},
    {"a": {"b": {"c": 1}}},
    [1, 1],
    [0] * 2000,
    ["a", 1, None],
)
STUDY = """
name = "fuzzed"
seeds = [1, 2]
[data]
corpus = "pydoc"
[training]
iterations = 30
[arms.baseline]
[arms.b]
title = "B"
set."model.embedding.norm" = "layernorm"
[[endpoints]]
metric = "validation_loss"
primary = true
margin = 0.02
[probes]
every = { logits = 5 }
[tasks]
shots = [0, 3]
"""
SHIPPED = [
    example.read_text("utf-8")
    for folder in sorted((resources.files("paribus.study") / "examples").iterdir(), key=str)
    for example in sorted(folder.iterdir(), key=str)
    if example.name.endswith(".toml")
]


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (table or list, key) of a value, at any depth."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], dict | list):
                waiting.append(node[key])
    return found


def mutate_tree(tree: Any, rng: random.Random) -> None:
    """Change one place of a value, in place: another value, none, one more, or one of another."""
    spots = places(tree)
    if not spots:
        return
    node, key = rng.choice(spots)
    match rng.randrange(5):
        case 0 | 1:
            node[key] = copy.deepcopy(rng.choice(HOSTILE))
        case 2:
            del node[key]
        case 3 if isinstance(node, dict):
            name = rng.choice(
                [k for _, k in spots if isinstance(k, str)] + ["", "x", "a.b", "\x00"]
            )
            node[name] = copy.deepcopy(rng.choice(HOSTILE))
        case _:
            other, at = rng.choice(spots)
            node[key] = copy.deepcopy(other[at]) if at in range(len(other)) or at in other else None


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat or insert some bytes."""
    data = bytearray(content)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        length = rng.randrange(1, 40)
        match rng.randrange(5):
            case 0 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length] * rng.randrange(1, 50)
            case 3:
                data[at:at] = rng.randbytes(length)
            case _:
                data[at:at] = rng.choice([b"[", b"{", b'"', b"=", b".", b"\n", b"'''", b"\\u"]) * (
                    rng.choice([1, 2, 100])
                )
    return bytes(data)


def fuzzed_study(number: int) -> str:
    """Load study `number`: "read" or "refused". Any exception but ParibusError passes through."""
    rng = random.Random(number)
    text = STUDY if rng.random() < 0.9 else rng.choice(SHIPPED)
    try:
        if rng.random() < 0.5:
            try:
                table = parse_toml(mutate_bytes(text.encode(), rng).decode(), "study")
            except UnicodeDecodeError:
                return "refused"
        else:
            table = tomllib.loads(text)
            for _ in range(rng.randrange(1, 4)):
                mutate_tree(table, rng)
        study = parse_study(table, folder=Path())
        # What is accepted has one spelling, and is accepted again.
        again = parse_study(study.model_dump(mode="json"), folder=Path())
        assert again.digest == study.digest
    except ParibusError as error:
        require_one_line(error)
        return "refused"
    return "read"


def require_one_line(error: ParibusError) -> None:
    text = str(error)
    assert text.isprintable(), repr(text)
    assert 0 < len(text) < 1500


def fuzzed_tokenizer(number: int, original: bytes, file: Path) -> str:
    """Read and use tokenizer `number`, a mutation of `original`: "read" or "refused"."""
    from paribus.engine.data.tokenizer import BpeTokenizer

    rng = random.Random(number)
    if rng.random() < 0.4:
        content = mutate_bytes(original, rng)
    else:
        tree = json.loads(original)
        for _ in range(rng.randrange(1, 4)):
            mutate_tree(tree, rng)
        content = json.dumps(tree).encode("utf-8", "surrogatepass")
    file.write_bytes(content)
    try:
        tokenizer = BpeTokenizer.read(file)
        ids = tokenizer.encode_checked("the quick brown fox.\n" * 3, "it")
        assert len(ids) == 0 or int(ids.max()) < tokenizer.vocab_size
        assert len(tokenizer.vocabulary) == len(tokenizer.characters_per_token)
    except ParibusError as error:
        require_one_line(error)
        return "refused"
    return "read"


Damage = Callable[[Path, random.Random], None]


def _empty(path: Path, rng: random.Random) -> None:
    path.write_bytes(b"")


def _cut(path: Path, rng: random.Random) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content))])


def _flip(path: Path, rng: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def _scramble(path: Path, rng: random.Random) -> None:
    path.write_bytes(mutate_bytes(path.read_bytes(), rng))


def _replace(path: Path, rng: random.Random) -> None:
    path.write_text(
        rng.choice(["[]", "{}", "null", "3", '"x"', "[" * 10**5, "NaN", '{"a": [{}]}', "\ufeff{}"])
    )


def _pipe(path: Path, rng: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _device(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _loop(path: Path, rng: random.Random) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _remove(path: Path, rng: random.Random) -> None:
    path.unlink()


def _rewrite(path: Path, rng: random.Random) -> None:
    """Valid JSON of another content."""
    if path.suffix != ".json":
        return _scramble(path, rng)
    tree = json.loads(path.read_text())
    for _ in range(rng.randrange(1, 3)):
        mutate_tree(tree, rng)
    path.write_bytes(json.dumps(tree).encode("utf-8", "surrogatepass"))
    return None


def _swap(path: Path, rng: random.Random) -> None:
    """The content of another file of its kind."""
    others = sorted(p for p in path.parent.iterdir() if p.suffix == path.suffix and p != path)
    if others:
        shutil.copy(rng.choice(others), path)


DAMAGES: tuple[Damage, ...] = (
    *(_empty, _cut, _flip, _scramble, _replace, _pipe, _folder),
    *(_device, _loop, _remove, _rewrite, _rewrite, _rewrite, _swap),
)


def damage_folder(number: int, folder: Path) -> tuple[str, bool]:
    """Damage one file of a results folder; (what was done, whether it was sealed again)."""
    rng = random.Random(number)
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (".lock", "report.html")
    )
    path, damage = rng.choice(files), rng.choice(DAMAGES)
    damage(path, rng)
    manifest = path.parent / "manifest.json"
    is_record = path.name in CANONICAL and path.is_file() and manifest.is_file()
    resealed = is_record and rng.random() < 0.5
    if resealed:
        sealed = json.loads(manifest.read_text())
        manifest.write_text(json.dumps(sealed | {path.name: file_digest(path)}))
    done = f"{damage.__name__} {path.relative_to(folder)}{', sealed again' if resealed else ''}"
    return done, resealed


def counted(outcomes: Iterator[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts
