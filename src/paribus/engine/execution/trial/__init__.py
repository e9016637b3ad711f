"""Training and recording of trials; `stacks` can be imported without torch."""
