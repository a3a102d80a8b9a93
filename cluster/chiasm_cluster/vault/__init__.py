"""An OpenBao and a Valkey in a local cluster: where secrets come from, and what they are for."""
