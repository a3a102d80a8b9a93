"""What the pod did when: the sidecar's own notes, and the way to the worker's."""
