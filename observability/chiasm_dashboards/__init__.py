"""Grafana dashboards as data: a module for each, listed by `boards.py`, written by `grafana.py`.

Must not know: Helm, where Prometheus is.
"""
