from __future__ import annotations

import json

from ends import end, judged
from recorded import DATA

ENOUGH = 0.8
"""Share of the hopeless endings that must be refused."""


def test_no_real_ending_is_refused_that_a_retry_may_mend() -> None:
    """Test ends of real trainings from public threads, labelled by people who did not know the rule.

    Both verdicts are right for the label `unclear`.
    """
    files = (DATA / "endings.jsonl", DATA / "endings-held-out.jsonl")
    rows = [json.loads(line) for file in files if file.exists() for line in file.read_text().splitlines()]
    verdicts = [(row, judged(end(code=row["exit_code"], message=row["log"])).retryable) for row in rows]

    refused = [_told(row) for row, retryable in verdicts if row["label"] == "retry" and not retryable]
    hopeless = [(row, retryable) for row, retryable in verdicts if row["label"] == "hopeless"]
    retried = [_told(row) for row, retryable in hopeless if retryable]

    right = len(hopeless) - len(retried)
    count = f"{right} of {len(hopeless)} hopeless endings are refused, {len(refused)} are that may be retried"
    text = "\n  ".join([count, "refused:", *refused, "hopeless and retried:", *retried])
    assert not refused, text
    assert right >= ENOUGH * len(hopeless) > 0, text


def _told(row: dict[str, str]) -> str:
    return f"{row['id']} ({row['why']}; {row['source']}): {row['log'].splitlines()[-1][:120]}"
