"""The sidecar's part of a checkup: what `judging` finds in what `looking` reads."""
