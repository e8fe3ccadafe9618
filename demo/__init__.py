"""A real Airflow on this machine, for `make demo` and `tests/airflow_stack`; never part of the wheel."""
