"""What `bench/dashboards.py` watches, and by what: a loaded cluster, a Prometheus, promtool."""
