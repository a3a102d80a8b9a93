"""Which revision answers: the plan, the draw, the pins, the counts, the way to the other side."""
