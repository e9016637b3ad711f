"""Replicas of one model: what a trainer asks of them, and how they can be held."""

from paribus.training.replicas.protocol import ForwardBackward, Replicas
from paribus.training.replicas.stacked import StackedReplicas

__all__ = ["ForwardBackward", "Replicas", "StackedReplicas"]
