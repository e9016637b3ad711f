"""Shipped trainers besides the engine: external programs."""
