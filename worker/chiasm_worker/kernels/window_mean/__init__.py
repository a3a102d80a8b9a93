"""Vision tokens pooled: the mean of each window of a grid."""
