"""A trial from its first step to its seal; `stacks` can be imported without torch."""
