"""Local machine: software environment, memory and step times."""
