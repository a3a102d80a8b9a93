"""The gated feed-forward's activation and product in one pass."""
