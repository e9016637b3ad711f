"""Norms for embeddings, blocks, the input of the head, queries and keys.

A norm maps [..., width] to [..., width] and is built as `Norm(model, width, eps, bias)`; `eps` None
means its default. Add a norm as a file in this folder, or as a custom module at `block_norm`,
`final_norm` or `embedding`. A block sets `cast_output` if only matrix products read the norm's
output.

The norms separate the effects of LayerNorm after the embedding, which at std 0.02 raises the norm
of the first block's input from about 0.02 sqrt(2 D) = 0.3 to sqrt(D) = 11.3 (D = 128).
`fixed_scale` only rescales, `rms_free` rescales each vector, `rmsnorm` adds a gain, `layernorm`
adds centering and a bias, and `center` only centers.
"""
