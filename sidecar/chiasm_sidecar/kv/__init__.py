"""The block service: cache blocks beyond the worker's own memory, and the guard before each.

service > session > store > tiers. Design note: ../../../docs/tiers.md.
"""
