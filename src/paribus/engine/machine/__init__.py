"""Local machine: environment, memory and speed."""
