"""Attention of text rows to the K and V of media items."""
