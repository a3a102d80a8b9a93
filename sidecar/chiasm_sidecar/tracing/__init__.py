"""Traces of requests: `tracer` makes spans, `outbox` sends them, `attributes` names what they say.

Only there where a collector is configured; without one nothing of this runs.
"""
