"""The worker: one vision-language model behind a Unix socket.

server > engine > sched > kvcache; models > layers > attention. `sched` and `kvcache` know no torch.
"""

from chiasm_worker.settings import shorten_spinning

shorten_spinning()
