"""Held-out measurements of a trained model."""

from paribus.evaluation.heldout import evaluate_heldout

__all__ = ["evaluate_heldout"]
