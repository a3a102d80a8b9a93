"""Model families: which weights, which positions, which vision tower."""
