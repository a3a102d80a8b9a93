"""Matrix products with weights of 4 or 8 bits, group scales and zero points."""
