"""Softmax of long rows."""
