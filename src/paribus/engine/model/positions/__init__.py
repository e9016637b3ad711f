"""Position encodings, built as `Positions(model)`.

The class attribute `stands` declares the place in the model:

    "embedding"    forward(positions_T) -> [T, D], added to the token embeddings
    "attention"    forward(q_BHTK, k_BGTK, positions_T) -> rotated q and k, in every attention
    "nowhere"      never called

`positions_T` are relative to the start of the window, even if a cache holds earlier tokens.
"""
