"""MLP modules, which map [..., D] to [..., D] and are built as `MLP(model)`.

Add an MLP as a file in this folder, or as a custom module at `model.modules.mlp`.
"""
