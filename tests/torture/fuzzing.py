"""Seeded damage of a results folder: a function of a number, by which a failure is repeated."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paribus.files import file_digest
from paribus.results.trial_folder import CANONICAL

# Values that have broken something somewhere.
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    "",
    "\x00",
    "\ud800",
    "a" * 300,
    "../..",
    "<script>",
    "file.py:Class",
    -1,
    2**64,
    10**400,
    1e308,
    float("nan"),
    [],
    {"a": {"b": {"c": 1}}},
    [0] * 2000,
)


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
