"""How much of a block's K and V says no more than the block's mean."""
