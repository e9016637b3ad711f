"""Trainers that do not use the built-in engine, for external programs and finished runs."""
