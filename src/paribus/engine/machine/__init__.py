"""This machine: its memory, its speed, and a description for the record."""
