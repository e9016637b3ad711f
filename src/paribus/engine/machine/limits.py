"""How far a machine is tried out; whoever asks loads no PyTorch."""

WARM_UP_STEPS = 3  # before steps are timed
LARGEST_STATE_BYTES = 4 * 2**30  # of training states that are held only to be timed
