"""The decoder's building blocks as plain functions and small classes over tensors."""
