"""The pod template of a revision: containers, placement, and what it mounts.

Must not know: Deployments, roles of revisions.
"""

from chiasm_operator.render.pod.secret_use import SecretUse
from chiasm_operator.render.pod.template import MODEL_VOLUME, render

__all__ = ["MODEL_VOLUME", "SecretUse", "render"]
