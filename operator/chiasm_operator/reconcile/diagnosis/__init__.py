"""Kubernetes' own words about pods and refusals, turned into a reason and what to do about it.

Must not know: what is rendered, beyond a `Target` and names of volumes; the status.
"""
