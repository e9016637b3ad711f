"""C++ kernels for CPUs and their PyTorch bindings, for use by `paribus.engine.ops` only."""
