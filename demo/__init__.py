"""A real Airflow on this machine: what `make demo` shows and `tests/airflow_stack` uses; never part of the wheel."""
