"""The operator: turns MultimodalInference resources into pods that serve.

`handlers` (routing only) > `supervisor` (one task per resource) > `passes` (one look and one
step) > `reconcile` (pure) > `render` (pure); `cluster` and `podstate` are the only I/O.
"""
