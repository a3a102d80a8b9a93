"""Records in the memory of other replicas: where they lie is asked, then they themselves.

    asker                                        peer
      HELLO, nonce           ── control ──►        nonce, proof of the secret
      DESCRIBE               ──         ──►        its region and how to reach it
      LOOKUP keys            ──         ──►        offset and generation of each slot
      READ those slots       ──         ──►        their bytes, in pieces       (transport stream)
      read of those slots    ── one-sided: nobody at the peer's end runs for it (transport nixl)

Nothing here decides whether a record may be used: what was read is judged like that of any tier.
"""
