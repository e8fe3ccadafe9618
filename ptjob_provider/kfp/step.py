"""Runs in the step's pod: submits or adopts the job, follows it with its log on standard output, writes the outputs.

It maps the component's inputs to the core's types, and the core's conclusion to an exit code. It imports neither kfp
nor Airflow for that.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from ptjob_provider.core.conclusion import raise_for, said_of_success
from ptjob_provider.core.errors import InvalidSpec, JobFailed, PTJobError
from ptjob_provider.kfp.artifacts import Artifacts, ModelArtifact
from ptjob_provider.kfp.mounted import must_enter_own_claim
from ptjob_provider.kfp.place import find_place
from ptjob_provider.kfp.request import Request
from ptjob_provider.kfp.steplog import Masking, StepLog
from ptjob_provider.kfp.stopping import ToldToStop
from ptjob_provider.kfp.training import Training

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ptjob_provider.kfp.artifacts import StepOutputs

EXIT_FAILED, EXIT_USAGE, EXIT_TRY_AGAIN, EXIT_STOPPED = 1, 2, 75, 143
"""The job failed; the request is wrong; another try may help (sysexits' EX_TEMPFAIL); SIGTERM, as in a shell."""

_INPUT = "--executor_input"


def run(
    given: Mapping[str, Any], environ: Mapping[str, str] = os.environ, words: Sequence[str] = sys.argv
) -> StepOutputs:
    """Run the whole step, write its artifacts and return its output parameters.

    Args:
        given: the component's inputs and output artifacts, by name.
        environ: environment of this process.
        words: its command line, which has all inputs of the task, including those that the component does not declare.

    Raises:
        SystemExit: the job did not succeed; standard output has the reason, with the diagnosis first.
    """
    log = StepLog(Masking(()))
    try:
        request, place = Request.parse({**_inputs(words), **given}), find_place(environ)
        log = StepLog(Masking(place.secrets))
        if request.model_artifact is ModelArtifact.COPY and place.local is None:
            must_enter_own_claim()
        return _train(Training(request=request, place=place, log=log), _artifacts(given))
    except PTJobError as error:
        log.failure(str(error))
        sys.exit(_exit_code(error))
    except ToldToStop as told:
        log.notice(f"the step was told to stop: {told.said}")
        sys.exit(EXIT_STOPPED)


def _inputs(words: Sequence[str]) -> Mapping[str, Any]:
    """Return the parameters on the command line of kfp's runtime."""
    if _INPUT not in words:
        return {}
    given = json.loads(words[words.index(_INPUT) + 1])
    found: Mapping[str, Any] = given["inputs"].get("parameterValues", {})
    return found


def _train(training: Training, artifacts: Artifacts) -> StepOutputs:
    ref, conclusion = asyncio.run(training.until_end())
    try:
        raise_for(ref, conclusion, deletes=training.request.on_finish_action.deletes(succeeded=False))
    except JobFailed:
        asyncio.run(training.act_on_finished(ref, succeeded=False))
        raise
    training.log.notice(said_of_success(ref, conclusion.result or {}))
    model_artifact, local = training.request.model_artifact, training.place.local
    outputs = artifacts.write(conclusion.result or {}, model_artifact=model_artifact, local=local)
    asyncio.run(training.act_on_finished(ref, succeeded=True))
    return outputs


def _artifacts(given: Mapping[str, Any]) -> Artifacts:
    parts = {name: given[name] for name in ("metrics", "curves", "report")}
    return Artifacts(model=given["trained_model"], **parts)


def _exit_code(error: PTJobError) -> int:
    if isinstance(error, InvalidSpec):
        return EXIT_USAGE
    return EXIT_TRY_AGAIN if error.retryable else EXIT_FAILED
