"""Training and recording of trials. The module `stacks` does not import PyTorch."""
