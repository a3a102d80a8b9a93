"""Proofs of the worker's Triton kernels that need no GPU; for tests and benchmarks, not shipped."""
