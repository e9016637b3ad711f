"""Programs of other people: run and ended, their output read, their machine described.

This needs the standard library alone.
"""
