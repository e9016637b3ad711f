"""Kernels in C++ for a CPU, and how PyTorch calls them; only `paribus.engine.ops` does."""
