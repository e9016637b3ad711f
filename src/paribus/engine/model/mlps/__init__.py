"""MLPs of blocks: modules that map [..., D] to [..., D], built as `MLP(model)`.

Add an MLP as a file in this folder, or as a custom module at `model.modules.mlp`.
"""
