"""For bench/canary_abort.py: a cluster whose workers are stand-ins, and who watches and asks it."""
