"""Tests of masking on the cluster: secrets in the environment of a training do not appear in the step's output."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Any

from cluster.tenants import service_account
from kfp_cluster.lab import new_run
from kfp_cluster.step_pod import Try
from kfp_cluster.stock_role import STOCK

if TYPE_CHECKING:
    from kfp_cluster.lab import Lab

TELLS = "import os; print('token', os.environ['TOKEN'], flush=True); raise TypeError('not ' + os.environ['WHOLE'])"


def telling(lab: Lab, run: str, canary: str) -> dict[str, Any]:
    """Return a pipeline whose training prints one key of a Secret and raises an error with another."""
    lab.deposit(run, token=canary, WHOLE=f"whole-{canary}")
    env = {"TOKEN": {"secret": run, "key": "token"}}
    return lab.pipeline(command=["python", "-c", TELLS], env=env, env_from=[{"secretRef": {"name": run}}])


def test_secrets_in_the_output_of_a_program_are_masked(lab: Lab) -> None:
    """In the log, in the diagnosis on the job, and in the note on the step's pod."""
    canary, run = f"canary-{secrets.token_hex(8)}", new_run("tells")

    step = lab.start(Try(run=run, retry=0), telling(lab, run, canary))

    assert step.wait() == 1
    assert "token ***" in step.log().splitlines()
    assert "TypeError: not ***" in step.log()
    kept = [job["metadata"] for job in lab.jobs(run)] + [pod["metadata"] for pod in lab.objects("pods")]
    assert canary not in step.log() + json.dumps(kept)


def test_without_the_right_to_read_secrets_the_log_says_what_is_not_masked(lab: Lab) -> None:
    """The missing permission has no other effect."""
    canary, run, account = f"canary-{secrets.token_hex(8)}", new_run("unread"), "unread"
    rules = [rule for rule in STOCK if "secrets" not in rule["resources"]]
    service_account(lab.cluster, lab.namespace, rules, name=account)

    step = lab.start(Try(run=run), telling(lab, run, canary), account=account)

    assert step.wait() == 1
    (said,) = [text for text in step.notices() if 'cannot get resource "secrets"' in text]
    assert "are not masked here" in said
    assert f"token {canary}" in step.log().splitlines()
