"""How one revision takes another's place: who is stable, who gets which share, how many pods.

`seen` reads the facts, `asked` what people want, `capacity` counts pods and shares, `steps` and
`actions` move along, `decide` puts it together, `said` tells. Nothing here acts: a decision is
made from what is observed each time, and what may only happen after something else waits until
that is observed. So whoever is killed between two writes goes on from where the cluster is.

Order up: pods ready for the share, plan written, every entry sidecar follows it, onward. Order
down: plan written, followed, answers ended, pods gone. Must not know: clocks, Kubernetes clients.
"""

from __future__ import annotations

from chiasm_operator.reconcile.rollout.asked import Asked
from chiasm_operator.reconcile.rollout.decide import Decision, decide
from chiasm_operator.reconcile.rollout.seen import Seen, Standing, look

__all__ = ["Asked", "Decision", "Seen", "Standing", "decide", "look"]
