"""Tests of the judge of a trial: a judge that finds no problem would let every schedule pass."""

from __future__ import annotations

from dataclasses import replace

from preempted.judgement import problems, sentences
from preempted.program import lines_of
from preempted.schedule import By, Moment, Schedule, Strike
from preempted.trial import Evidence
from rows import each_row

STRIKE = Strike(by=By.EVICTION, moment=Moment.AFTER, rank=0, later=0, offset=1, reason="")
SCHEDULE = replace(Schedule.draw(1), strikes=(STRIKE,))
RECORD = """\
1 0 10.0 start 0
1 0 11.0 step 7
1 0 12.0 saves 7
1 0 13.0 saved 7
1 0 14.0 step 8
1 0 15.0 step 9
2 0 20.0 start 7 step-7.state
2 0 21.0 step 8
2 0 22.0 end
"""
GIVEN = "it gets pvc://state/p1/checkpoints/step-7.state as PTJOB_RESUME_FROM, step 7 (the newest)"
RESUMED = "attempt 2 resumed at step 7 of 100,000; 2 steps (1 s) repeated"
BEGAN = "attempt 2 began at step 0 although a checkpoint of step 7 was there: the program does not resume"


def evidence(record: str = RECORD, *notices: str, cause: str = "evicted", count: int = 1, **more: object) -> Evidence:
    """Return the evidence of a task whose first job was evicted, without problems by default."""
    lost = {"node": "node", "cause": cause, "seconds_lost": 5.0}
    good = Evidence(
        schedule=SCHEDULE,
        result={"attempt": 2, "preemptions": [lost] * count},
        record=lines_of(record),
        notices=[*(notices or (GIVEN, RESUMED))],
        attempts={"a": 1, "b": 2},
        together=1,
        outcomes=["attempt"],
    )
    return replace(good, **more)  # type: ignore[arg-type]


def test_a_training_that_survived_is_good() -> None:
    assert (problems(evidence()), sentences(evidence())) == ([], 1)


@each_row(
    ("wrong", "found"),
    [
        (evidence(result=None), "no result"),
        (evidence(problem="it was not over"), "not over"),
        (evidence(attempts={"a": 1, "b": 2, "c": 2}), "jobs of the attempts [1, 2, 2] were created"),
        (evidence(attempts={"b": 2}), "jobs of the attempts [2] were created"),
        (evidence(RECORD.replace("2 0", "3 0")), "the attempts [1, 3] ran"),
        (evidence(together=2), "2 jobs had not ended at a time"),
        (evidence(RECORD + "1 0 20.5 step 10\n"), "attempt 2 began before"),
        (evidence(outcomes=["replaced"]), "0 strikes ended a job"),
        (evidence(count=2), "1 strikes ended a job"),
        (evidence(cause="node_lost"), "is counted as node_lost"),
        (evidence(RECORD.replace(" step-7.state", "")), "was given nothing, and step-7.state was saved last"),
        (evidence(RECORD, RESUMED), "the log does not say that attempt 2 gets step-7.state"),
        (evidence(RECORD, GIVEN, RESUMED.replace("2 steps", "3 steps")), "the one before had reached 9"),
        (evidence(RECORD, GIVEN, RESUMED.replace("2 steps (1 s)", "no step")), "the one before had reached 9"),
        (evidence(RECORD, GIVEN, RESUMED.replace("step 7", "step 6")), "began after step 7"),
        (evidence(RECORD, GIVEN, BEGAN), "began after step 7"),
    ],
)
def test_whatever_is_wrong_is_found(wrong: Evidence, found: str) -> None:
    assert any(found in each for each in problems(wrong)), problems(wrong)
