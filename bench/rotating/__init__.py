"""Secrets that change under load: the cluster, the clients, what goes wrong, and what leaks."""
