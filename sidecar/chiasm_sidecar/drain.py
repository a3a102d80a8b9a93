"""`python -m chiasm_sidecar.drain`: tells the sidecar of this container that its pod goes.

The kubelet runs it as the sidecar's preStop hook, at the same moment as the worker's: a native
sidecar gets SIGTERM only after the worker has ended, too late to send clients elsewhere. A signal
and not a path on a port, for whatever reaches the port could then take pods out of service.
Standard library only and nothing of ours: it starts in some tens of milliseconds.
"""

from __future__ import annotations

import os
import signal

DRAIN_SIGNAL = signal.SIGUSR1

# The process that a container was started with.
_SIDECAR_PID = 1

if __name__ == "__main__":
    os.kill(_SIDECAR_PID, DRAIN_SIGNAL)
