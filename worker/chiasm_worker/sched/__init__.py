"""Chooses what one model step computes. Must not know torch, models or HTTP."""
