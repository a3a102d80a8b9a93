"""What `bench/dashboards.py` watches, and by what: pods under load, an operator, a Prometheus."""
