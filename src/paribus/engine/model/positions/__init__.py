"""Position encodings, built as `Positions(model)`.

The class attribute `stands` is their place in the model:

    "embedding"    forward(positions_T) -> [T, D], added to the token embeddings
    "attention"    forward(q_BHTK, k_BGTK, positions_T) -> rotated q and k, in every attention
    "nowhere"      never called

`positions_T` count from the start of the window, also if a cache holds earlier tokens.
"""
