"""Submit or adopt: the only way to create a job. Afterwards exactly one job of this owner exists and is ours to follow.

What is found decides (each row has a test):

    store          under the name             what happens
    ------------   ------------------------   --------------------------------------------------------------
    nothing        nothing                    attempt 1 is created
    nothing        ours, live                 adopted (a lost store must not train twice)
    nothing        ours, finished             the next attempt is created
    nothing        ours, of this very try     adopted: it has ended before the answer to its create came
    nothing        ours, being deleted        waited for until nothing of it runs, then the next attempt is created
    nothing        somebody else's            the next attempt is created, under another name
    nothing        somebody else's, and the   JobAlreadyExists that says whose
                   name is given exactly
    open intent    nothing                    the create never arrived: it is repeated
    open intent    ours                       the create did arrive: adopted, finished or not
    open intent    somebody else's            the next attempt is created
    uid            that uid                   adopted, finished or not
    delivered      that uid, live             adopted (a task that only submits)
    delivered      that uid, finished         it is stopped, the next attempt created
    uid            nothing, or another uid    the job is gone: the next attempt is created
    ended          whatever                   the old job is stopped, its pods waited for, the next attempt created
    cleared        whatever                   the same
    uid            that uid, somebody else's  nothing is stopped, the next attempt is created

"Delivered" is an attempt whose success a try has handed on before the task was cleared; see `attempts.is_delivered`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from ptjob_provider.core import attempts, kinds
from ptjob_provider.core.api_errors import TIMEOUT, ApiErrors
from ptjob_provider.core.attempts import AttemptRecord, Claim, Plan
from ptjob_provider.core.errors import (
    ClusterUnavailable,
    InvalidSpec,
    JobAlreadyExists,
    JobNotFound,
    KindNotServed,
)
from ptjob_provider.core.identity import (
    INTENT_ANNOTATION,
    OUTPUTS_ANNOTATION,
    JobRef,
    Manifest,
    Owner,
    attempt_of,
    owner_in,
)
from ptjob_provider.core.kinds import code
from ptjob_provider.core.outputs import CLOCK_SKEW, ResolvedOutputs
from ptjob_provider.core.stopping import STOP_TIMEOUT, stop_and_wait
from ptjob_provider.core.tensorboard import url_of
from ptjob_provider.core.versions import known_fields

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ptjob_provider.core.attempts import AttemptStore
    from ptjob_provider.core.backend import Backend
    from ptjob_provider.core.outputs import OutputReport
    from ptjob_provider.core.spec import Installation, TrainingJob

logger = logging.getLogger(__name__)

_STOP_INTERVAL = 0.2

_MOST_NAMES = 5
"""Names of attempts that may be taken by others before one call gives up: so many are no collision of hashes."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job that exists, and all that another process needs to follow it: JSON-safe, without any secret.

    Attributes:
        ref: which object.
        attempt: which attempt of its owner.
        adopted: the job was there before this try.
        spec_changed: the adopted job was made from another specification than the one asked for now.
        ranks: pod name → rank, of all replicas.
        gpus_of: pod name → GPUs asked for.
        outputs: what the job was told to write, and where.
        first_started_at: RFC 3339; outputs must not be older.
        tensorboard_url: where the TensorBoard beside it is reached; "" if there is none, or nobody has looked.
        instance: the installation that created it, "" if it does not say.
    """

    ref: JobRef
    attempt: int
    adopted: bool
    spec_changed: bool
    ranks: Mapping[str, int]
    gpus_of: Mapping[str, int]
    outputs: ResolvedOutputs
    first_started_at: str
    tensorboard_url: str = ""
    instance: str = ""

    @property
    def rank0(self) -> str:
        """The pod whose log is the job's log."""
        return min(self.ranks, key=lambda name: self.ranks[name])

    @classmethod
    def of(cls, job: Mapping[str, Any], *, adopted: bool = True, spec_hash: str = "", since: str | None = None) -> Self:
        """Read everything from the job's object, whoever created it.

        Args:
            job: the object as the back-end returned it.
            adopted: whether it was there before.
            spec_hash: of the specification that is asked for now; empty skips the comparison.
            since: when the first attempt was created; default this job's creation.
        """
        meta = job["metadata"]
        declared = (meta.get("annotations") or {}).get(OUTPUTS_ANNOTATION)
        replicas = kinds.replicas(job)
        return cls(
            ref=JobRef.of(job),
            attempt=attempt_of(job),
            adopted=adopted,
            spec_changed=bool(spec_hash) and attempts.spec_changed(job, spec_hash),
            ranks={replica.name: replica.rank for replica in replicas},
            gpus_of={replica.name: replica.gpus for replica in replicas},
            outputs=ResolvedOutputs.from_dict(json.loads(declared) if declared else {}),
            first_started_at=since or meta["creationTimestamp"],
            tensorboard_url=url_of(job),
            instance=owner_in(job).instance,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields for a trigger or another process."""
        names = ("attempt", "adopted", "spec_changed", "first_started_at", "tensorboard_url", "instance")
        plain = {name: getattr(self, name) for name in names}
        maps = {"ranks": dict(self.ranks), "gpus_of": dict(self.gpus_of)}
        return {**plain, **maps, "ref": self.ref.to_dict(), "outputs": self.outputs.to_dict()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Rebuild what `to_dict` returned, in this version or another."""
        values = known_fields(cls, fields)
        ref, outputs = JobRef.from_dict(values.pop("ref")), ResolvedOutputs.from_dict(values.pop("outputs"))
        return cls(ref=ref, outputs=outputs, **values)


async def ensure_submitted(
    backend: Backend,
    job: TrainingJob,
    *,
    owner: Owner,
    store: AttemptStore,
    clear_number: int = 0,
    tries_before_clear: int = 0,
    exact_name: bool = False,
    installation: Installation | None = None,
    api_error_timeout: float = TIMEOUT,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Submission:
    """Create the job or adopt the one that is there, as the module's table says; safe to repeat after any failure.

    The record is saved before the create, so that whoever comes after a kill knows what may exist. A refusal of the
    create is final; one of a question about a job that may exist is waited out for `api_error_timeout` seconds.

    Raises:
        InvalidSpec, UnsupportedByBackend: nothing was started.
        JobAlreadyExists: the name, which was given exactly, belongs to somebody else; or those of five attempts do.
        ClusterUnavailable: no answer, or the old attempt's pods did not go in time; a retry goes on from here.
    """
    submitter = _Submitter(
        backend=backend,
        job=job,
        owner=owner,
        store=store,
        clear_number=clear_number,
        tries_before_clear=tries_before_clear,
        exact_name=exact_name,
        installation=installation,
        api_error_timeout=api_error_timeout,
        sleep=sleep,
        record=store.load(),
    )
    return await submitter.run()


@dataclass(kw_only=True)
class _Submitter:
    """One call of `ensure_submitted`.

    Attributes:
        record: what the store held when this try began; None if its finished job is nobody's any more.
        first_started_at: when the first attempt since the last clear was created, once that is known.
        spec_hash: of the specification that is asked for now; all attempts have the same.
        kind: that the job is made as.
        not_made: why it is of none of the kinds before that.
        intent: tells what this call has created from what was there under the same name.
        rendered: what was made of the specification, by kind and attempt.
        taken: how many names were somebody else's.
        secret_name: the name by which the job that is adopted refers to its Secret.
    """

    backend: Backend
    job: TrainingJob
    owner: Owner
    store: AttemptStore
    clear_number: int
    tries_before_clear: int
    exact_name: bool
    installation: Installation | None
    api_error_timeout: float
    sleep: Callable[[float], Awaitable[None]]
    record: AttemptRecord | None
    first_started_at: str | None = None
    spec_hash: str = ""
    kind: str = kinds.DEFAULT.KIND
    not_made: list[str] = field(default_factory=list)
    intent: str = field(default_factory=lambda: uuid4().hex)
    rendered: dict[tuple[str, int], kinds.Rendered] = field(default_factory=dict)
    taken: int = 0
    secret_name: str = ""

    async def run(self) -> Submission:
        """Have the job, and all that it needs; a try before this one may have come no further than the job itself."""
        submission = await self._submitted()
        rendered = self._render(submission.attempt)
        if submission.adopted and rendered.secret is not None:
            _, secret = code.with_secret_named({}, rendered.secret, self.secret_name)
            await self.backend.give_secret(submission.ref, secret)
        for change in () if submission.spec_changed else rendered.changes:
            logger.warning("%s: %s", submission.ref, change)
        return submission

    async def _submitted(self) -> Submission:
        self.kind = self.job.named_kind or (self.record.kind if self.record else kinds.DEFAULT.KIND)
        first = self._render(1)  # a wrong specification ends here, before anything is stopped or created
        self.spec_hash = first.spec_hash
        plan = attempts.plan(self.record, clear_number=self.clear_number)
        record = self.record
        if record is None or plan is Plan.START:
            return await self._start(1, first)
        if attempts.is_delivered(record, tries_before_clear=self.tries_before_clear):
            self.record = None
        elif record.clear_number == self.clear_number:
            self.first_started_at = record.first_started_at
        if plan is Plan.RESUME:
            return await self._resume(record)
        return await self._replace(record)

    async def _resume(self, record: AttemptRecord) -> Submission:
        found = await self._find(record.kind, record.namespace, record.name)
        if found is None and record.uid is None:
            return await self._start(record.attempt)
        if found is not None and self._claim(found) is Claim.ADOPT and record.uid in {None, found["metadata"]["uid"]}:
            return self._adopt(found)
        return await self._replace(record)

    async def _replace(self, record: AttemptRecord) -> Submission:
        found = await self._find(record.kind, record.namespace, record.name)
        if found is not None and self._claim(found) is not Claim.FOREIGN:
            await self._stop(JobRef.of(found))
        elif record.uid is not None and (found is None or found["metadata"]["uid"] != record.uid):
            ref = JobRef(kind=record.kind, namespace=record.namespace, name=record.name, uid=record.uid)
            await self._stop(ref)
        return await self._start(record.attempt + 1)

    async def _start(self, attempt: int, rendered: kinds.Rendered | None = None) -> Submission:
        rendered = rendered or self._render(attempt)
        meta = rendered.manifest["metadata"]
        meta["annotations"] = {**(meta.get("annotations") or {}), INTENT_ANNOTATION: self.intent}
        self._save(attempt, meta, uid=None)
        try:
            ref = await self._create(rendered)
        except JobAlreadyExists:
            return await self._resolve_conflict(attempt, rendered)
        except KindNotServed as error:
            return await self._start(attempt, self._rendered_otherwise(attempt, error))
        except ClusterUnavailable:
            found = await self._find(self.kind, meta["namespace"], meta["name"])
            if found is None or self._claim(found) is not Claim.ADOPT:
                raise
            return self._adopt(found)
        try:
            created = await self._get(ref.kind, ref.namespace, ref.name)
        except JobNotFound as error:
            raise JobNotFound(f"{ref} was deleted as soon as it was created") from error
        return self._adopt(created, adopted=False)

    async def _create(self, rendered: kinds.Rendered) -> JobRef:
        if rendered.secret is None:
            return await self.backend.submit(rendered.manifest)
        ref = await self.backend.submit(rendered.manifest, secret=rendered.secret)
        logger.warning(
            "%s: the values of %s are in the Secret %s now, which goes with the job; a Secret of your own would keep "
            "them out of what you write: code={..., 'secret': NAME}",
            ref,
            ", ".join(code.variables_of(rendered.secret["stringData"])),
            rendered.secret["metadata"]["name"],
        )
        return ref

    async def _resolve_conflict(self, attempt: int, rendered: kinds.Rendered) -> Submission:
        meta = rendered.manifest["metadata"]
        found = await self._find(self.kind, meta["namespace"], meta["name"])
        if found is None:
            raise ClusterUnavailable(
                f"{meta['namespace']}/{meta['name']}: the name was taken and is free again; try again"
            )
        claim = self._claim(found)
        if claim is Claim.FOREIGN:
            self._pass_over(found)
            return await self._start(attempt + 1)
        if claim is Claim.ADOPT:
            return self._adopt(found)
        if self.exact_name or found["metadata"].get("deletionTimestamp"):
            await self._stop(JobRef.of(found))
        return await self._start(attempt + 1)

    def _pass_over(self, found: Manifest) -> None:
        """Leave somebody else's job alone, and say so.

        Raises:
            JobAlreadyExists: no attempt of this call gets another name.
        """
        self.taken += 1
        text = (
            f"{JobRef.of(found)}: the name belongs to a {found['kind']} that this task did not create: {_whose(found)}"
        )
        if self.exact_name:
            advice = "choose another name, or have whoever it belongs to delete that job"
        elif self.taken == _MOST_NAMES:
            advice = f"the names of the {self.taken - 1} attempts before it are taken, too; choose another name"
        else:
            logger.warning("%s; the next attempt has another name", text)
            return
        raise JobAlreadyExists(f"{text}; {advice}", code=409, reason="AlreadyExists")

    async def _stop(self, ref: JobRef) -> None:
        """Stop a job; where the next one gets the same name, wait until the name is free."""
        errors = self._errors(ref.namespace, ref.name)
        await errors.answer(lambda: stop_and_wait(self.backend, ref, sleep=self.sleep), though_away=False)
        waited = 0.0
        while self.exact_name and (found := await self._find(ref.kind, ref.namespace, ref.name)):
            if JobRef.of(found) != ref:
                return
            if waited >= STOP_TIMEOUT:
                raise ClusterUnavailable(f"{ref}: deleted {waited:.0f} s ago and still there; look at its finalizers")
            await self.sleep(_STOP_INTERVAL)
            waited += _STOP_INTERVAL

    def _claim(self, found: Manifest) -> Claim:
        phase = kinds.read_status(found).phase
        return attempts.claim(found, phase=phase, owner=self.owner, record=self.record, intent=self.intent)

    def _adopt(self, found: Manifest, *, adopted: bool = True) -> Submission:
        meta = found["metadata"]
        self.secret_name = code.secret_name(meta["name"], (meta.get("annotations") or {}).get(INTENT_ANNOTATION, ""))
        created_at = meta["creationTimestamp"]
        self.first_started_at = self.first_started_at or created_at
        submission = Submission.of(found, adopted=adopted, spec_hash=self.spec_hash, since=self.first_started_at)
        self._save(submission.attempt, meta, uid=submission.ref.uid)
        return submission

    def _save(self, attempt: int, meta: Mapping[str, Any], *, uid: str | None) -> None:
        self.store.save(
            AttemptRecord(
                attempt=attempt,
                name=meta["name"],
                namespace=meta["namespace"],
                uid=uid,
                kind=self.kind,
                clear_number=self.clear_number,
                first_started_at=self.first_started_at,
            )
        )

    def _rendered_otherwise(self, attempt: int, error: KindNotServed) -> kinds.Rendered:
        """Return the job as the next kind; one that names its kind, or a manifest, is of that kind or of none."""
        if self.job.named_kind is not None:
            raise error
        self.not_made.append(str(error))
        names = list(kinds.KINDS)
        for kind in names[names.index(self.kind) + 1 :]:
            self.kind = kind
            try:
                rendered = self._render(attempt)
            except InvalidSpec as refused:
                self.not_made.append(f"as a {kind} it cannot be made: {refused}")
            else:
                self.spec_hash = rendered.spec_hash
                return rendered
        raise KindNotServed("; ".join(self.not_made)) from error

    async def _find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        try:
            return await self._get(kind, namespace, name)
        except JobNotFound:
            return None

    async def _get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return a job that exists, or may."""
        errors = self._errors(namespace, name)
        return await errors.answer(lambda: self.backend.get(kind, namespace, name), though_away=False)

    def _errors(self, namespace: str, name: str) -> ApiErrors:
        return ApiErrors(f"{namespace}/{name}", logger.warning, timeout=self.api_error_timeout)

    def _render(self, attempt: int) -> kinds.Rendered:
        """Return the job as it is submitted; made once, for an installation's own code may have a part in it."""
        found = self.rendered.get((self.kind, attempt))
        if found is None:
            found = kinds.named(self.kind).render(
                self.job,
                owner=self.owner,
                attempt=attempt,
                exact_name=self.exact_name,
                installation=self.installation,
            )
            if found.secret is not None:
                name = code.secret_name(found.manifest["metadata"]["name"], self.intent)
                manifest, secret = code.with_secret_named(found.manifest, found.secret, name)
                found = replace(found, manifest=manifest, secret=secret)
            self.rendered[self.kind, attempt] = found
        return found


def _whose(found: Manifest) -> str:
    owner = owner_in(found)
    if not owner.instance:
        return "it does not say who did"
    return f"it was created for {', '.join(f'{key}={value}' for key, value in owner.ids.items())} of {owner.instance!r}"


async def with_tensorboard(backend: Backend, submission: Submission, job: TrainingJob) -> Submission:
    """Have what a job that is there asks for beside it, and return the submission with where that is reached.

    Apart from submitting, which it may take longer than: whoever calls it knows the job by then, and can stop it.
    """
    if job.tensorboard is None:
        return submission
    return replace(submission, tensorboard_url=await backend.ensure_tensorboard(submission.ref))


async def inspect_outputs(backend: Backend, submission: Submission, *, curves: bool = False) -> OutputReport | None:
    """Look at the outputs that the job was told to write, with curves if they are wanted; None if there are none.

    Raises:
        OutputsNotVerified: they could not be looked at.
    """
    outputs = submission.outputs
    if outputs.model is None and outputs.tfevents is None:
        return None
    since = datetime.fromisoformat(submission.first_started_at) - CLOCK_SKEW
    return await backend.inspect_outputs(submission.ref, outputs, since=since, curves=curves)


def deliver_attempt(store: AttemptStore, *, by_try: int) -> None:
    """Note which try hands on the success of the recorded attempt: after a clear its finished job is history."""
    record = store.load()
    if record is not None:
        store.save(replace(record, delivered_by=by_try))


def conclude_attempt(store: AttemptStore) -> None:
    """Mark the recorded attempt as ended: the next try starts a new one instead of adopting it."""
    record = store.load()
    if record is not None:
        store.save(replace(record, ended=True))
