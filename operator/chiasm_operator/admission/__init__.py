"""The validating webhook: the second line, behind the CEL rules of the CRD.

`review` decides, `envelope` speaks the API server's words, `certificates` says when keys change,
`upkeep` makes it so in the cluster, `server` answers over TLS. The service works without any of
it: an operator that is down blocks neither an apply nor a deletion.
"""
