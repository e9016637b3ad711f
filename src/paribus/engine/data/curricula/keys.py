"""The keys that ship."""

from __future__ import annotations

import zlib

from paribus.engine.data.curricula import curriculum_key


@curriculum_key("compressibility", about="bytes that zlib needs for a byte: repetitive ones first")
def compressibility(text: str) -> float:
    """Return compressed bytes per byte (DEFLATE at level 6).

    A bound on what a document's order-0 statistics and repetitions leave to be learned. A short
    document compresses less.
    """
    content = text.encode("utf-8", "surrogatepass")
    return len(zlib.compress(content, 6)) / len(content)


@curriculum_key("document_length", about="characters of the document: short ones first")
def document_length(text: str) -> float:
    """Count characters: short before long, as Spitkovsky, Alshawi & Jurafsky 2010 (Baby Steps)."""
    return len(text)
