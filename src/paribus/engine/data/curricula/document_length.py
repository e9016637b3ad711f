"""Short documents before long ones."""

from __future__ import annotations

from paribus.engine.data.curricula import curriculum_key


@curriculum_key("document_length", about="characters of the document: short ones first")
def document_length(text: str) -> float:
    """Characters. Short before long, as Spitkovsky, Alshawi & Jurafsky 2010 (Baby Steps)."""
    return len(text)
