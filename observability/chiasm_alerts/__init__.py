"""Alert rules that are too many and too alike to be written by hand."""
