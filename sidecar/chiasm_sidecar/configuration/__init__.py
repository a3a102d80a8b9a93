"""Configuration and secrets of the pod, taken up and changed while it serves.

    delivered.py, vault/   what is there now            offers.py  what that is: id and entries
    decide.py              what to do about it, pure    proofs.py  used once, really
    current.py             what the parts read          shared.py, leases.py  one source each
    desk.py                all sources: start, reload, report, end

What is in use stays in use until something better is proved. No value, token or id of a lease gets
into a log, a message, a repr, a state or a metric.
"""
