"""Records in a Valkey (or Redis 7) that replicas share: `tier.py` is the tier, `scripts.py` what
the server runs for it, `logins.py` and `clients.py` how credentials change while it serves."""

from chiasm_sidecar.kv.tiers.valkey.tier import OVERHEAD_BYTES, ValkeyTier

__all__ = ["OVERHEAD_BYTES", "ValkeyTier"]
