"""Replicas of one model: what a trainer asks of them, and how they can be held."""

from paribus.engine.training.replicas.protocol import ForwardBackward, Replicas
from paribus.engine.training.replicas.stacked import StackedReplicas

__all__ = ["ForwardBackward", "Replicas", "StackedReplicas"]
