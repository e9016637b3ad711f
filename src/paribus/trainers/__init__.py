"""Trainers that ship besides the engine: programs, and finished runs of other programs."""
