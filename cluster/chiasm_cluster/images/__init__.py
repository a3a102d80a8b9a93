"""Makes our container images from the Dockerfiles without an engine, and brings them to nodes."""
