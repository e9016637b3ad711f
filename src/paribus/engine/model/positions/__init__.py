"""Position encodings, built as `Positions(model)`.

The class attribute `stands` declares where an encoding is applied:

    "embedding"    forward(positions_T) -> [T, D], added to the token embeddings
    "attention"    forward(q_BHTK, k_BGTK, positions_T) -> rotated q and k, in every attention
    "nowhere"      never called

`positions_T` are 0-based from the start of the sequence, including cached tokens.
"""
