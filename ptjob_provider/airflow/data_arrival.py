"""Former path of `DataArrivalTrigger`, now in `retraining.triggers`: rows of Airflow's database and DAGs name it."""

from ptjob_provider.retraining.triggers import DataArrivalTrigger

__all__ = ["DataArrivalTrigger"]
