"""Execution of external programs, and description of the machine that they run on.

This package depends only on the standard library.
"""
