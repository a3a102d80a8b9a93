"""What the chosen environment of `spec.config` makes of a pod, and what its sources come down to.

    references   which fields take a value from a source      faults     what cannot be served
    resolved     what `sidecar.json` says of each source      pod        volumes, variables, tokens
    agent        the server's agent, rendered by us           injector   annotations for a webhook
    templates    what both of these agents write              digest     the key of values' names
    pulling      credentials of nodes, which pods never have

The objects of other projects that bring sources into the cluster are in `render/delivery`.

Pure functions of a Target. Must not know: a value of any source, Kubernetes clients, clocks.
"""
