"""What Prometheus is told: counts of passes, and each resource as its stored status says it is."""
