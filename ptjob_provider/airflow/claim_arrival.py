"""Former path of `ClaimArrivalTrigger`, now in `retraining.triggers`: rows of Airflow's database and DAGs name it."""

from ptjob_provider.retraining.triggers import ClaimArrivalTrigger

__all__ = ["ClaimArrivalTrigger"]
