"""A storm of resources against a real API server: who makes it, and what is counted of it."""
