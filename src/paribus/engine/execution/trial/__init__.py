"""A trial from its first step to its seal; parts of it load no torch."""
