"""Normalizations: of embeddings, in blocks, before the head, of queries and keys.

Each maps [..., width] to [..., width] and is built as `Norm(model, width, eps, bias)`; an `eps` of
None is the norm's own. A new one is a file here, or a module of the user's own at `block_norm`,
`final_norm` or `embedding`. Where what reads a norm multiplies, its block sets `cast_output`.

Why the mechanisms, in the embedding stage: at init std 0.02 LayerNorm lifts the norm of the first
block's input from about 0.02 sqrt(2 D) = 0.3 to sqrt(D) = 11.3 (D = 128), some 35 times.
`fixed_scale` does only that, `rms_free` makes it adaptive, `rmsnorm` adds a gain, `layernorm` adds
centring and a bias, and `center` does nothing but centre.
"""
