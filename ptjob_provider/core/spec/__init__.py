"""User-facing specification of a job: `TrainingJob` and its parts, frozen and validated, independent of CRDs."""

from __future__ import annotations

from ptjob_provider.core.spec.code import CodeSource
from ptjob_provider.core.spec.elastic import ElasticPolicy
from ptjob_provider.core.spec.environment import EnvVar
from ptjob_provider.core.spec.installation import Installation, job_template
from ptjob_provider.core.spec.job import JOB_FIELDS, Outputs, TrainingJob
from ptjob_provider.core.spec.resources import Resources
from ptjob_provider.core.spec.roles import RoleFields
from ptjob_provider.core.spec.tensorboard import TensorBoard
from ptjob_provider.core.spec.volumes import PodVolume, VolumeMount

__all__ = [
    "JOB_FIELDS",
    "CodeSource",
    "ElasticPolicy",
    "EnvVar",
    "Installation",
    "Outputs",
    "PodVolume",
    "Resources",
    "RoleFields",
    "TensorBoard",
    "TrainingJob",
    "VolumeMount",
    "job_template",
]
