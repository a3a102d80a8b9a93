"""The sidecar: the front door of a pod, in front of one worker on a Unix socket."""
