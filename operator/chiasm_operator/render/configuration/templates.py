"""Templates by which a server's agent writes a source: one JSON object of all its entries.

A secret that is not there, or that the role may not read, is an error of the agent, which tries
again; a file is written whole or not at all.
"""

from __future__ import annotations

import json

from chiasm_contract.api.environments import Source

from chiasm_operator.render.configuration.resolved import api_path

# How often a kv secret is looked at: it has no lease that would tell.
STATIC_INTERVAL = "1m"
# Both run as the pod's user, who alone may read what they write.
FILE_MODE = "0600"


def template(source: Source) -> str:
    """The template of one source."""
    # A string of JSON is one of Go's templates too.
    words = [json.dumps(word) for word in (api_path(source), *_arguments(source))]
    data = ".Data.data" if source.kv else ".Data"
    return f"{{{{ with secret {' '.join(words)} }}}}{{{{ {data} | toJSON }}}}{{{{ end }}}}"


def _arguments(source: Source) -> list[str]:
    """What is written to the server to have a certificate made; everything else is read."""
    pki = source.pki
    return [f"common_name={pki.common_name}", f"ttl={pki.ttl_seconds}s"] if pki else []
