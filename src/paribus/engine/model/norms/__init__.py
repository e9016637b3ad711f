"""Normalization layers for embeddings, blocks, the head's input, queries and keys.

A norm maps [..., width] to [..., width] and is built as `Norm(model, width, eps, bias)`, where an
`eps` of None selects its default. Add a norm as a file in this folder, or as a custom module at
`block_norm`, `final_norm` or `embedding`. `cast_output` allows an output in the autocast dtype; it
is set if only matrix products use the output.

The norms isolate the effects of LayerNorm after the embedding. With D = 128 and an initial std of
0.02, LayerNorm raises the L2 norm of the first block's input from about 0.02 sqrt(2 D) = 0.3 to
sqrt(D) = 11.3. `fixed_scale` multiplies by a constant, `rms_free` rescales each vector, `rmsnorm`
adds a gain, `layernorm` adds centering and a bias, and `center` only centers.
"""
