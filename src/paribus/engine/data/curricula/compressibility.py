"""What repeats itself before what does not."""

from __future__ import annotations

import zlib

from paribus.engine.data.curricula import curriculum_key


@curriculum_key("compressibility", about="bytes that zlib needs for a byte: repetitive ones first")
def compressibility(text: str) -> float:
    """Compressed bytes per byte (DEFLATE at level 6): a bound on what a document's order-0
    statistics and repetitions leave to be learned. A short document compresses less."""
    content = text.encode("utf-8", "surrogatepass")
    return len(zlib.compress(content, 6)) / len(content)
