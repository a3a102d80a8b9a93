"""What a person reads when the local cluster cannot do what was asked."""

from __future__ import annotations


class ClusterError(Exception):
    """One sentence: what is wrong, the value, and what to do next. Never shown with a traceback."""
