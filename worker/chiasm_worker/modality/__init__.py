"""Media of each kind, from bytes to what an encoder takes, with an identity."""
