"""Grafana's dashboards."""
