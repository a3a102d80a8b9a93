"""Attention of requests that add a token, or a few, to what lies in the cache."""
