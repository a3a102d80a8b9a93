"""Records read one-sidedly by NIXL: for networks with hardware for it (docs/tiers.md)."""
