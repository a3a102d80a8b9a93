"""Attention over packed batches and cache blocks: one interface, one implementation per file."""
