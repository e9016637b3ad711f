"""The inner layers of blocks, one file each: x [..., D] -> [..., D], built as `MLP(model)`."""
