"""The inner layers of blocks: x [..., D] -> [..., D], built as `MLP(model)`.

A new one is a file here, or a module of the user's own at `mlp`.
"""
