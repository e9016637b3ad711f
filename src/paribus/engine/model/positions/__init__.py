"""Positions: how a model knows the order of tokens.

Each is built as `Positions(model)` and says by `stands` where it stands:

    "embedding"    forward(positions_T) -> [T, D], added to the token embeddings
    "attention"    forward(q_BHTK, k_BGTK, positions_T) -> the same two, in every attention
    "nowhere"      it is never called

`positions_T` are the places in the window, from 0, also where a cache has read the text before.
"""
