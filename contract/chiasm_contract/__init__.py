"""What operator, worker and sidecar agree on: names, configuration, identity, messages, errors.

Knows only pydantic and the standard library; imports none of the parts.
"""
