"""Held-out measurements of a trained model."""

from paribus.evaluation.heldout import Heldout, evaluate_heldout

__all__ = ["Heldout", "evaluate_heldout"]
