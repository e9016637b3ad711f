"""The parts of a text: trained on, validated on, and sealed until the verdict asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from paribus.data import cache
from paribus.data.deduplicate import Parts, deduplicated, joined
from paribus.data.pieces import Piece
from paribus.data.sealed import SealedPart
from paribus.data.shards import sharded, whole_digest
from paribus.data.source import Scan, Source, encoded, tokenized
from paribus.data.tokenizer import CharacterTokenizer, Tokenizer, tokenizer_of
from paribus.data.tokens import ShardedTokens, Tokens, part, tokens_digest
from paribus.digests import digest
from paribus.errors import ParibusError
from paribus.study import Data

Rates = dict[str, int]


@dataclass(frozen=True)
class Texts:
    """The texts of `data`, each gone through once.

    Attributes:
        sources: by name: `corpus`, and where they are files of their own `validation` and `test`.
        found: what is known of each.
        tokenizer: of all of them. The sealed text gives it no characters.
    """

    data: Data
    sources: dict[str, Source]
    found: dict[str, Scan]
    tokenizer: Tokenizer

    @classmethod
    def read(cls, data: Data, folder: Path) -> Texts:
        """Raises ParibusError where a text cannot be read, or the sealed one not be tokenized."""
        sources = {"corpus": Source(data, folder)}
        for name, path in (("validation", data.validation_path), ("test", data.test_path)):
            if path is not None:
                if data.path is None:
                    raise ParibusError(
                        f"data.{name}_path = '{path}' is a file in the form of data.path, and the "
                        f"corpus '{data.corpus}' has none; use data.{name}_fraction"
                    )
                sources[name] = Source(data.model_copy(update={"path": path}), folder)
        found = {name: source.scan() for name, source in sources.items()}
        ends = any(scan.n_documents > 1 for scan in found.values())
        known = set().union(*(s.characters for name, s in found.items() if name != "test"))
        tokenizer = tokenizer_of(data, "".join(sorted(known)), ends, folder)
        sealed = set(found["test"].characters) if "test" in found else set()
        unknown = sorted(sealed - known)
        if unknown and isinstance(tokenizer, CharacterTokenizer):
            raise ParibusError(
                f"the test text has the character {unknown[0]!r}, and the texts for training "
                "and validation do not, so that no model can predict it; take it out, or use a "
                "BPE tokenizer"
            )
        return cls(data, sources, found, tokenizer)

    @property
    def _ends(self) -> bool:
        return any(scan.n_documents > 1 for scan in self.found.values())

    def split(self) -> tuple[Tokens, Tokens, SealedPart | None, Rates]:
        """(train, validation, the sealed test part, what deduplication took out)."""
        if self.data.deduplicate == "none":
            return (*self._in_a_row(), {})
        return self._deduplicated()

    def _own(self, name: str) -> Tokens:
        return tokenized(self.sources[name], self.found[name], self.tokenizer, self._ends)

    def _in_a_row(self) -> tuple[Tokens, Tokens, SealedPart | None]:
        data, tokens = self.data, self._own("corpus")
        n, test = len(tokens), None
        end = int(n * (1 - data.test_fraction))
        if data.test_fraction:
            sealed = part(tokens, end, n)
            test = SealedPart(part_digest(sealed), lambda: sealed)
        if "test" in self.sources:
            test = SealedPart(self.found["test"].digest, lambda: self._own("test"))
        if "validation" in self.sources:
            return part(tokens, 0, end), self._own("validation"), test
        begin = int(n * (1 - data.test_fraction - data.validation_fraction))
        return part(tokens, 0, begin), part(tokens, begin, end), test

    def _deduplicated(self) -> tuple[Tokens, Tokens, SealedPart | None, Rates]:
        is_small = all(scan.pieces is not None for scan in self.found.values())
        about: dict[str, Any] = {
            "deduplicate": self.data.deduplicate,
            "rules": 1,
            "texts": {name: scan.digest for name, scan in self.found.items()},
            "tokenizer": self.tokenizer.digest,
            "validation_fraction": self.data.validation_fraction,
            "test_fraction": self.data.test_fraction,
        }

        def tokens_of(name: str) -> Tokens:
            def make() -> Iterator[np.ndarray]:
                found: list[Piece] = getattr(self._parts, name)
                yield np.zeros(0, self.tokenizer.dtype)
                yield from encoded(found, self.tokenizer, self._ends)

            if is_small:
                return np.concatenate(list(make()))
            return sharded(about | {"part": name}, make, np.dtype(self.tokenizer.dtype))

        train, validation, test = map(tokens_of, ("train", "validation", "test"))
        key = digest(about | {"what": "rates"})
        rates = None if is_small else cache.recall(key)
        if rates is None:
            rates = self._parts.rates
            if not is_small:
                cache.keep(key, rates)
        has_test = self.data.test_fraction > 0 or "test" in self.sources
        sealed = SealedPart(part_digest(test), lambda: test) if has_test else None
        return train, validation, sealed, rates

    @cached_property
    def _parts(self) -> Parts:
        """The deduplicated text; in memory only while its tokens are made."""
        texts = {name: list(joined(self._pieces(name))) for name in self.sources}
        data = self.data
        return deduplicated(
            texts["corpus"],
            data.deduplicate,
            texts.get("validation", data.validation_fraction),
            texts.get("test", data.test_fraction),
        )

    def _pieces(self, name: str) -> Iterator[Piece]:
        kept = self.found[name].pieces
        return iter(kept) if kept is not None else self.sources[name].pieces()


def part_digest(tokens: Tokens) -> str:
    """`tokens_digest`, found once for each part of what is in the cache."""
    if not isinstance(tokens, ShardedTokens):
        return tokens_digest(tokens)
    about = {"part of": whole_digest(tokens), "from": tokens.start, "to": tokens.stop}
    key = digest(about)
    if found := cache.recall(key):
        return str(found["digest"])
    found = tokens_digest(tokens)
    cache.keep(key, about | {"digest": found})
    return found
