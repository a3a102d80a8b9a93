"""What `bench/kernels.py` measures with: a GPU's ceilings, and who stands beside our kernels."""
