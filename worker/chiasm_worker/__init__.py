"""The worker: one vision-language model behind a Unix socket.

server > engine > sched > kvcache; models > layers > attention. `sched` and `kvcache` know no torch.
"""

import os

# How often torch's OpenMP threads look for new work before they sleep. libgomp reads it when torch
# is loaded, so it stands before any import of torch here. Its own 300,000 keep a thread up to 14 ms
# on the very core that the one it waits for may need; the gaps of a step are below .1 ms. With two
# threads on two cores that others used too, a stream became twice as fast.
os.environ.setdefault("GOMP_SPINCOUNT", "30000")
