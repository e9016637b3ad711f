"""Trainers that ship besides the engine: programs."""
