"""Running external programs: processes, output, and a description of the machine.

This package needs only the standard library.
"""
