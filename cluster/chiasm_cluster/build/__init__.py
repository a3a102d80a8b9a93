"""Builds the cluster's programs from their Go modules, once, into the user's cache folder."""
