"""A real Kubernetes on this machine, for the demo and the tests: built once, started in seconds.

    cli > up, teardown, status, load > node, images, build > host > state

`state` names everything a cluster consists of, `host` is the only package that changes the
machine, `node` says what runs, `images` makes and imports our three images. Nothing here knows
what Chiasm's operator, worker or sidecar do.
"""
