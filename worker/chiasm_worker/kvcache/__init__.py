"""Bookkeeping of cache blocks: specs, pool, tables, prefix identity.

Must not know: torch, models, text.
"""
