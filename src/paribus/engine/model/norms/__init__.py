"""Norms of embeddings, in blocks, before the head, and of queries and keys.

A norm maps [..., width] to [..., width] and is built as `Norm(model, width, eps, bias)`; `eps` None
is its default. A new one is a file here, or a custom module at `block_norm`, `final_norm` or
`embedding`. A block sets `cast_output` if a product reads the norm.

They separate the effects of LayerNorm after the embedding, which at std 0.02 raises the norm of the
first block's input from about 0.02 sqrt(2 D) = 0.3 to sqrt(D) = 11.3 (D = 128): `fixed_scale` does
only that, `rms_free` adapts it, `rmsnorm` adds a gain, `layernorm` adds centring and a bias, and
`center` only centres.
"""
