"""The user's specification of a job: `TrainingJob` and its parts, immutable and validated, independent of CRDs."""

from __future__ import annotations

from ptjob_provider.core.spec.code import CodeSource
from ptjob_provider.core.spec.job import (
    JOB_FIELDS,
    ElasticPolicy,
    Installation,
    RoleFields,
    TensorBoard,
    TrainingJob,
    job_template,
    kind_name,
)
from ptjob_provider.core.spec.pods import EnvVar, PodVolume, Resources, VolumeMount
