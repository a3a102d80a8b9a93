"""Asks a HashiCorp Vault or an OpenBao, through hvac: `faults.py` says what went wrong in words
that never quote the server, `server.py` logs in, `session.py` is what one token can do."""
