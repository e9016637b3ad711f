"""Local machine: its environment, memory and speed."""
