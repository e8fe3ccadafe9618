"""Former path of `ClaimBatchesOperator` and `DataLedger`, now in `retraining.operators`: DAGs name it."""

from ptjob_provider.retraining.operators import ClaimBatchesOperator, DataLedger

__all__ = ["ClaimBatchesOperator", "DataLedger"]
