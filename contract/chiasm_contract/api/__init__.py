"""The custom resources: pydantic models, and the CRD that is generated from them."""
