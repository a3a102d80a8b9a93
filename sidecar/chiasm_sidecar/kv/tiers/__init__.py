"""Places for records, one module each behind the interface in base.py, and what bounds them.

Must not know: connections, slots, which tier comes first. Nothing here decides whether a record may
be used: what comes out of a tier is judged before anyone gets it.
"""
