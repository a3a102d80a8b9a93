"""From a projection to the cache: norm of heads, rotation, quantisation, write."""
