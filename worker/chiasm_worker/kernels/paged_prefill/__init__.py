"""Attention of many new tokens of a request to what lies in the cache."""
