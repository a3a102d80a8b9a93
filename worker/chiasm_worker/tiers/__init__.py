"""Cache blocks beyond the worker's own memory, read and written through the sidecar's service.

    event loop        client: the socket; asks, hands slots back, stores
    engine's thread   exchange: takes what came into the pool, offers what became findable
    both              link: the connection's staging slots, and the counters

A record from outside becomes findable only through gate.py, which judges it. Whatever fails here
ends in computing again; no error of a tier reaches a request.

Must not know: torch, HTTP, which tiers there are, any of their paths or credentials.
"""
