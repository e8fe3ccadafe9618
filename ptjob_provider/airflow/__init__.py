"""The Airflow adapter: operator, trigger, sensor, hook and links. It maps; what happens is decided in `core`."""
