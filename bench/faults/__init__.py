"""Faults for bench/guard_faults.py: what lies under a key, and what happens meanwhile."""
