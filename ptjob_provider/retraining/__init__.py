"""Retraining when data arrives: sources, watchers, ledger and their Airflow classes."""
