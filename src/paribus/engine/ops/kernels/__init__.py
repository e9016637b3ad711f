"""C++ kernels for CPUs and their PyTorch bindings, internal to `paribus.engine.ops`."""
