"""MLPs of blocks: x [..., D] -> [..., D], built as `MLP(model)`.

A new one is a file here, or a custom module at `model.modules.mlp`.
"""
