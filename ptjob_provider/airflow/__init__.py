"""Airflow adapter: operator, trigger, sensor, hook and links. It maps arguments; `core` makes the decisions."""
