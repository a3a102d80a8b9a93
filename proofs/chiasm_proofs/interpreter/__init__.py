"""What Triton's interpreter proves: equality, bounds, races; and that it is to be believed."""
