"""Normalisation of rows, with a residual added before."""
