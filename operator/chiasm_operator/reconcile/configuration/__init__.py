"""Configuration and secrets that pods take up while they run: who may take what, and when.

A value that is alike for every pod is tried by one pod of each revision, then allowed to the
others. Everything is decided from what pods report and what is already allowed, which lies beside
the traffic plan; whoever is killed in between goes on from there.

Must not know: values, the server that has them, clocks.
"""

from chiasm_operator.reconcile.configuration.decide import Configured, decide

__all__ = ["Configured", "decide"]
