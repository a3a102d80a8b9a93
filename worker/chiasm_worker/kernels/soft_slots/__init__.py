"""Vision tokens pooled into learned slots: each slot attends to all tokens of its picture."""
