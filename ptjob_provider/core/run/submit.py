"""Create an owner's job or adopt the existing one, so that exactly one job of this owner exists afterwards.

All jobs are created here. The store's record and the object that has the job's name decide (each row has a test; "ours"
is a job of this owner):

    store          object with the name       what happens
    ------------   ------------------------   --------------------------------------------------------------
    nothing        nothing                    attempt 1 is created
    nothing        ours, unfinished           adopted (a lost store must not train twice)
    nothing        ours, finished             the next attempt is created
    nothing        ours, of this very try     adopted: it ended before its create request was answered
    nothing        ours, being deleted        once nothing of it runs, the next attempt is created
    nothing        another owner's            JobAlreadyExists, which names the owner
    open intent    nothing                    the create request never arrived: it is repeated
    open intent    ours                       the create request did arrive: adopted, finished or not
    open intent    another owner's            the next attempt is created
    uid            that uid                   adopted, finished or not
    delivered      that uid, unfinished       adopted (a task that only submits)
    delivered      that uid, finished         the job is stopped, the next attempt is created
    uid            nothing, or another uid    the job is gone: the next attempt is created
    unverified     nothing, or another uid    OutputsNotVerified: it has succeeded, and is not trained again
    ended          anything                   the old job is stopped and, after its last pod, the next one created
    cleared        anything                   the same
    cleared intent nothing                    it is created anew: the server refuses one of two creates of a name
    uid            that uid, another owner's  nothing is stopped, the next attempt is created

"Delivered": a try delivered the result of the attempt before the task was cleared; see `attempts.is_delivered`.
"Unverified": the attempt's job has succeeded, and its outputs could not be inspected.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict, Unpack
from uuid import uuid4

from ptjob_provider.core import kinds
from ptjob_provider.core.errors import (
    ClusterError,
    ClusterUnavailable,
    InvalidSpec,
    JobAlreadyExists,
    JobNotFound,
    KindNotServed,
    OutputsNotVerified,
    PTJobError,
)
from ptjob_provider.core.identity import (
    ADOPTED_ANNOTATION,
    CHECKPOINT_ANNOTATION,
    CODE_ANNOTATION,
    EARLIER_ANNOTATION,
    FIRST_ANNOTATION,
    INTENT_ANNOTATION,
    LEAVE_RUNNING_ANNOTATION,
    PREEMPTIONS_ANNOTATION,
    SPEC_HASH_ANNOTATION,
    JobRef,
    Manifest,
    Owner,
    annotation_of,
    attempt_of,
    owner_in,
)
from ptjob_provider.core.kinds import code
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.core.outputs.contract import ResolvedOutputs
from ptjob_provider.core.run import attempts
from ptjob_provider.core.run.api_errors import TIMEOUT, ApiErrors
from ptjob_provider.core.run.attempts import AttemptRecord, Ownership
from ptjob_provider.core.run.cleanup import stop_and_wait
from ptjob_provider.core.run.resume import found_checkpoint
from ptjob_provider.core.spec.code import PackedCode
from ptjob_provider.core.status import parse_instant
from ptjob_provider.core.tensorboard import url_of
from ptjob_provider.core.versions import known_fields, read_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from ptjob_provider.core.backend import Backend, Observation
    from ptjob_provider.core.outputs.contract import OutputReport
    from ptjob_provider.core.run.attempts import AttemptStore
    from ptjob_provider.core.spec import Installation, TrainingJob

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """An existing job, with everything that another process needs to follow the job: JSON-safe, without secrets.

    Attributes:
        ref: the job.
        attempt: the number of its owner's attempt.
        adopted: the job existed before this try.
        spec_changed: the adopted job was created from a different specification than the requested one.
        ranks: pod name → rank, of all replicas.
        gpus_of: pod name → number of requested GPUs.
        outputs: the declared outputs.
        first_started_at: RFC 3339 creation time of the first attempt; outputs must not be older.
        tensorboard_url: address of the job's TensorBoard; "" if there is none or it is unknown.
        instance: the installation that created it; "" if unknown.
        code_revision: {digest, commit, dirty} of the folder that was submitted with the job; None if there is none.
        adopted_by: ids of the tries that had adopted the job when this submission was made: the newest before, and this
            one, whose id may not have arrived; "" for none.
        earlier: summaries of the task's earlier attempts, oldest first; not serialized, because the job has them.
        preemptions: {node, cause, seconds_lost} of each earlier attempt that the platform ended.
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
    code_revision: Mapping[str, Any] | None = None
    adopted_by: tuple[str, ...] = ("",)
    earlier: Sequence[Mapping[str, Any]] = field(default=(), compare=False)
    preemptions: tuple[Mapping[str, Any], ...] = ()

    def is_taken_over(self, job: Mapping[str, Any]) -> bool:
        """Return whether a later try has adopted the job since this submission was made."""
        return annotation_of(job, ADOPTED_ANNOTATION) not in self.adopted_by

    @property
    def rank0(self) -> str:
        """Return the name of rank 0's pod, whose log is the job's log; "" for a job that requests no pods."""
        return min(self.ranks, key=lambda name: self.ranks[name], default="")

    @classmethod
    def of(cls, job: Mapping[str, Any], *, adopted: bool = True, spec_hash: str = "", since: str | None = None) -> Self:
        """Build a submission from the job's object; the job may have been created by another program.

        Args:
            job: the object from the back-end.
            adopted: the job existed before this try.
            spec_hash: hash of the requested specification; "" skips the comparison.
            since: creation time of the first attempt; None: as the job has it.
        """
        replicas = kinds.replicas(job)
        return cls(
            ref=JobRef.of(job),
            attempt=attempt_of(job),
            adopted=adopted,
            spec_changed=bool(spec_hash) and annotation_of(job, SPEC_HASH_ANNOTATION) != spec_hash,
            ranks={replica.name: replica.rank for replica in replicas},
            gpus_of={replica.name: replica.gpus for replica in replicas},
            outputs=ResolvedOutputs.of(job),
            first_started_at=since or first_start(job),
            tensorboard_url=url_of(job),
            instance=owner_in(job).instance,
            code_revision=outgoing(read_object(annotation_of(job, CODE_ANNOTATION))) or None,
            adopted_by=(annotation_of(job, ADOPTED_ANNOTATION),),
            earlier=attempts.earlier_in(job),
            preemptions=earlier_preemptions(job),
        )

    def resized(self, job: Mapping[str, Any]) -> Self:
        """Return the submission with the job's current replicas; itself if they are the same or unknown."""
        replicas = kinds.replicas(job)
        ranks = {replica.name: replica.rank for replica in replicas}
        gpus_of = {replica.name: replica.gpus for replica in replicas}
        if not ranks or (ranks, gpus_of) == (self.ranks, self.gpus_of):
            return self
        return replace(self, ranks=ranks, gpus_of=gpus_of)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-safe fields for a trigger or another process."""
        fields = {**asdict(self), "outputs": self.outputs.to_dict()}
        del fields["earlier"]
        return fields

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Self:
        """Rebuild a submission from the value of `to_dict`, of this version of the package or another."""
        values = known_fields(cls, written)
        ref, outputs = JobRef.from_dict(values.pop("ref")), ResolvedOutputs.from_dict(values.pop("outputs"))
        values |= {name: tuple(values[name]) for name in ("adopted_by", "preemptions") if name in values}
        return cls(ref=ref, outputs=outputs, **values)


class SubmitOptions(TypedDict, total=False):
    """Options of `ensure_submitted`.

    Attributes:
        clear_number: changes when the task is cleared; a record with another number is obsolete.
        tries_before_clear: number of the last try before the last clear, see `attempts.is_delivered`.
        exact_name: use the job's name without the hash that distinguishes jobs.
        installation: the installation's settings for every job.
    """

    clear_number: int
    tries_before_clear: int
    exact_name: bool
    installation: Installation | None


def first_start(job: Mapping[str, Any]) -> str:
    """Return the creation time of the first attempt, as RFC 3339: noted on a later attempt, else this job's."""
    noted = annotation_of(job, FIRST_ANNOTATION)
    return noted if parse_instant(noted) else str(job["metadata"]["creationTimestamp"])


def earlier_preemptions(job: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the ends of earlier attempts that the platform caused, as noted on the job."""
    noted = outgoing(read_object(annotation_of(job, PREEMPTIONS_ANNOTATION))).get("ended")
    return tuple(each for each in noted if isinstance(each, dict)) if isinstance(noted, list) else ()


async def ensure_submitted(
    backend: Backend,
    job: TrainingJob,
    *,
    owner: Owner,
    store: AttemptStore,
    api_error_timeout: float = TIMEOUT,
    on_known: Callable[[Submission], Awaitable[None]] | None = None,
    tell: Callable[[str], None] = logger.warning,
    **options: Unpack[SubmitOptions],
) -> Submission:
    """Create the job or adopt the existing one, as in the module's table; safe to repeat after any failure.

    The record is saved before the create request, so that after a kill a later process knows which job may exist. A
    refused create request is final. Other refused requests about a job that may exist are repeated for
    `api_error_timeout` seconds. `on_known` is called as soon as the job is known to exist. `tell` takes a sentence
    about the checkpoint from which an attempt after the first goes on, see `resume`.

    Raises:
        InvalidSpec, UnsupportedByBackend: nothing was started.
        JobAlreadyExists: another owner's job has the name.
        OutputsNotVerified: the job succeeded, and is gone before its outputs were inspected.
        ClusterUnavailable: no answer, or the old attempt's pods were not gone in time; a retry continues from there.
    """
    submitter = _Submitter(
        backend=backend,
        job=job,
        owner=owner,
        store=store,
        api_error_timeout=api_error_timeout,
        on_known=on_known,
        tell=tell,
        record=store.load(),
        **options,
    )
    return await submitter.run()


@dataclass(kw_only=True)
class _Submitter:
    """One call of `ensure_submitted`.

    Attributes:
        record: the store's record when this try began; None if its finished job is obsolete.
        first_started_at: creation time of the first attempt since the last clear, once known.
        preemptions: ends of the attempts since the last clear that the platform caused.
        spec_hash: hash of the requested specification; the same for all attempts.
        kind: the kind of the job to create.
        not_made: the kinds tried so far, and why the job could not be created as each.
        intent: random id written on the objects that this call creates, to recognize them.
        variables: variables of an attempt after the first, see `resume`; None before the look at its checkpoints.
        checkpoint_step: step of the checkpoint that this attempt is given; None if unknown.
        rendered: the rendered specification, by kind and attempt.
        secret_name: the name of the Secret that the adopted job refers to.
        earlier: summaries of the attempts before the one that is created or adopted.
    """

    backend: Backend
    job: TrainingJob
    owner: Owner
    store: AttemptStore
    api_error_timeout: float
    on_known: Callable[[Submission], Awaitable[None]] | None
    tell: Callable[[str], None]
    record: AttemptRecord | None
    clear_number: int = 0
    tries_before_clear: int = 0
    exact_name: bool = False
    installation: Installation | None = None
    first_started_at: str | None = None
    preemptions: tuple[Mapping[str, Any], ...] = ()
    spec_hash: str = ""
    kind: str = kinds.DEFAULT.KIND
    not_made: dict[str, str] = field(default_factory=dict)
    intent: str = field(default_factory=lambda: uuid4().hex)
    variables: Mapping[str, str] | None = None
    checkpoint_step: int | None = None
    rendered: dict[tuple[str, int], kinds.Rendered] = field(default_factory=dict)
    secret_name: str = ""
    earlier: Sequence[Mapping[str, Any]] = ()

    @property
    def _preferred(self) -> str | None:
        return self.installation.kind if self.installation else None

    async def run(self) -> Submission:
        """Create or adopt the job, and create its Secret if an interrupted try has created only the job."""
        submission = await self._submitted()
        if submission.adopted:
            submission = replace(submission, adopted_by=(*submission.adopted_by, self.intent))
        if self.on_known is not None:
            await self.on_known(submission)
        if submission.adopted:
            await self._note(submission.ref)
        rendered = self._render(submission.attempt)
        if submission.adopted and rendered.secret is not None and self._has_same_folder(submission):
            _, secret = code.with_secret_named({}, rendered.secret, self.secret_name)
            ref, errors = submission.ref, self._errors(submission.ref.namespace, submission.ref.name)
            await errors.answer(lambda: self.backend.give_secret(ref, secret), though_away=False)
        for change in () if submission.spec_changed else rendered.changes:
            logger.warning("%s: %s", submission.ref, change)
        return submission

    async def _note(self, ref: JobRef) -> None:
        """Note on an adopted job that this try follows it: a frozen follower of an earlier try must not stop it.

        This try also decides anew which parts of the job may run although no task follows it, see
        `orphans.with_leave_running`.
        """
        mark = (self.job.annotations or {}).get(LEAVE_RUNNING_ANNOTATION)
        notes = {ADOPTED_ANNOTATION: self.intent, LEAVE_RUNNING_ANNOTATION: mark}
        try:
            await self.backend.patch(ref, {"metadata": {"annotations": notes}})
        except ClusterError as error:  # following the job matters more
            logger.warning("%s: an earlier try that was frozen may stop it, for want of a note: %s", ref, error)

    def _has_same_folder(self, submission: Submission) -> bool:
        """Return whether the job was created with the same folder; its pods accept no other archive."""
        requested, existing = self.job.code, submission.code_revision or {}
        return not isinstance(requested, PackedCode) or requested.code_revision["digest"] == existing.get("digest")

    async def _submitted(self) -> Submission:
        self.kind = self.record.kind if self.record else self._preferred or kinds.DEFAULT.KIND
        self.kind = self.job.named_kind or self.kind
        self.spec_hash = self._render(1).spec_hash  # an invalid job fails here, before anything is stopped or created
        record = self.record
        if record is None:
            return await self._start(1)
        if attempts.is_delivered(record, tries_before_clear=self.tries_before_clear):
            self.record = None
        elif record.clear_number == self.clear_number:
            self.first_started_at, self.preemptions = record.first_started_at, tuple(record.preemptions)
        if attempts.is_over(record, clear_number=self.clear_number):
            return await self._replace(record)
        return await self._adopt_recorded(record)

    async def _adopt_recorded(self, record: AttemptRecord) -> Submission:
        job = await self._find(record.kind, record.namespace, record.name)
        if job is None and record.uid is None:
            return await self._start(record.attempt)
        if job is not None and self._ownership(job) is Ownership.ADOPT and record.uid in {None, job["metadata"]["uid"]}:
            return self._adopt(job)
        if record.unverified and self.record is not None:
            raise OutputsNotVerified.of_gone(record.ref)
        return await self._replace(record)

    async def _replace(self, record: AttemptRecord) -> Submission:
        job = await self._find(record.kind, record.namespace, record.name)
        self.earlier = record.earlier
        if job is None and record.uid is None and not record.ended:  # its create request may still arrive
            return await self._start(record.attempt)
        if job is not None and self._ownership(job) is not Ownership.FOREIGN:
            self.earlier = max(record.earlier, attempts.with_own(job), key=_last_attempt)
            await self._stop(JobRef.of(job))
        elif record.uid is not None and (job is None or job["metadata"]["uid"] != record.uid):
            await self._stop(record.ref)
        return await self._start(record.attempt + 1)

    async def _start(self, attempt: int) -> Submission:
        if self.first_started_at and self.variables is None:
            since, patience = datetime.fromisoformat(self.first_started_at), self.api_error_timeout
            one = self._render(1)
            found = await found_checkpoint(self.backend, one, since=since, patience=patience, tell=self.tell)
            self.variables, self.checkpoint_step = found
        rendered = self._render(attempt)
        meta = rendered.manifest["metadata"]
        meta["annotations"] = {**(meta.get("annotations") or {}), **self._notes()}
        self._save(attempt, meta, kind=self.kind, uid=None)
        try:
            ref = await self._create(rendered)
        except JobAlreadyExists:
            return await self._resolve_conflict(attempt, rendered)
        except KindNotServed as error:
            self._choose_another_kind(attempt, error)
            return await self._start(attempt)
        except ClusterUnavailable:
            job = await self._find(self.kind, meta["namespace"], meta["name"])
            if job is None or self._ownership(job) is not Ownership.ADOPT:
                raise
            return await self._resolve_conflict(attempt, rendered)
        except PTJobError:
            self._save(attempt, meta, kind=self.kind, uid=None, refused=True)
            raise
        try:
            created = await self._get(ref.kind, ref.namespace, ref.name)
        except JobNotFound as error:
            raise JobNotFound(f"{ref} was deleted as soon as it was created") from error
        return self._adopt(created, adopted=False)

    def _notes(self) -> dict[str, str]:
        """Return the annotations of a new attempt about this call and about the attempts before."""
        notes = {INTENT_ANNOTATION: self.intent}
        if self.first_started_at:
            notes[FIRST_ANNOTATION] = self.first_started_at
        if self.earlier:
            notes[EARLIER_ANNOTATION] = json.dumps(outgoing(self.earlier))
        if self.checkpoint_step is not None:
            notes[CHECKPOINT_ANNOTATION] = str(self.checkpoint_step)
        if self.preemptions:
            notes[PREEMPTIONS_ANNOTATION] = json.dumps({"ended": self.preemptions}, separators=(",", ":"))
        return notes

    async def _create(self, rendered: kinds.Rendered) -> JobRef:
        if rendered.secret is None:
            return await self.backend.submit(rendered.manifest)
        tar = self.job.code.tar if isinstance(self.job.code, PackedCode) else None
        ref = await self.backend.submit(rendered.manifest, secret=rendered.secret, archive=tar)
        if not (self.job.code and self.job.code.folder):
            logger.warning(
                "%s: the values of %s are in the Secret %s now, which goes with the job; a Secret of your own would "
                "keep them out of what you write: code={..., 'secret': NAME}",
                ref,
                ", ".join(code.variables_of(rendered.secret["stringData"])),
                rendered.secret["metadata"]["name"],
            )
        return ref

    async def _resolve_conflict(self, attempt: int, rendered: kinds.Rendered) -> Submission:
        meta = rendered.manifest["metadata"]
        job = await self._find(self.kind, meta["namespace"], meta["name"])
        if job is None:
            raise ClusterUnavailable(
                f"{meta['namespace']}/{meta['name']}: the name was taken and is free again; try again"
            )
        ownership = self._ownership(job)
        if ownership is Ownership.FOREIGN:
            raise JobAlreadyExists(
                f"{JobRef.of(job)}: the name belongs to a {job['kind']} that this task did not create: {_whose(job)}; "
                "choose another name, or have its owner delete that job",
                code=409,
                reason="AlreadyExists",
            )
        is_late = self._is_of_cleared_intent(attempt, job)
        if ownership is Ownership.ADOPT and not is_late:
            return self._adopt(job)
        self.earlier = attempts.with_own(job)
        if is_late or self.exact_name or job["metadata"].get("deletionTimestamp"):
            await self._stop(JobRef.of(job))
        return await self._start(attempt + 1)

    def _is_of_cleared_intent(self, attempt: int, job: Manifest) -> bool:
        """Return whether the job was created by a request from before the clear that arrived late."""
        record = self.record
        if record is None or record.attempt != attempt or record.clear_number == self.clear_number:
            return False
        known = self.store.load()  # a try since the clear may have created the job, while this one was frozen
        if known is not None and (known.uid, known.clear_number) == (job["metadata"]["uid"], self.clear_number):
            return False
        return annotation_of(job, INTENT_ANNOTATION) != self.intent

    async def _stop(self, ref: JobRef) -> None:
        """Stop a job; if the next job must have the same name, wait until the name is free."""

        async def judge(observation: Observation) -> str:
            is_ours = observation.job is not None and self._ownership(observation.job) is not Ownership.FOREIGN
            return "a new attempt takes its place" if is_ours else ""

        errors = self._errors(ref.namespace, ref.name)
        await errors.answer(
            lambda: stop_and_wait(self.backend, ref, judge=judge, frees_name=self.exact_name),
            though_away=False,
        )

    def _ownership(self, job: Manifest) -> Ownership:
        phase = kinds.read_status(job).phase
        return attempts.ownership_of(job, phase=phase, owner=self.owner, record=self.record, intent=self.intent)

    def _adopt(self, job: Manifest, *, adopted: bool = True) -> Submission:
        meta = job["metadata"]
        self.secret_name = code.secret_name(meta["name"], annotation_of(job, INTENT_ANNOTATION))
        self.first_started_at = self.first_started_at or first_start(job)
        self.earlier = attempts.earlier_in(job)
        self.preemptions = self.preemptions or earlier_preemptions(job)
        submission = Submission.of(job, adopted=adopted, spec_hash=self.spec_hash, since=self.first_started_at)
        before = self.record
        unverified = before is not None and before.unverified and before.uid == submission.ref.uid
        self._save(submission.attempt, meta, kind=submission.ref.kind, uid=submission.ref.uid, unverified=unverified)
        return submission

    def _save(self, attempt: int, meta: Manifest, *, kind: str, uid: str | None, **flags: bool) -> None:
        self.store.save(
            AttemptRecord(
                attempt=attempt,
                name=meta["name"],
                namespace=meta["namespace"],
                uid=uid,
                kind=kind,
                clear_number=self.clear_number,
                first_started_at=self.first_started_at,
                earlier=[*self.earlier],
                preemptions=[*self.preemptions],
                **flags,
            )
        )

    def _choose_another_kind(self, attempt: int, error: KindNotServed) -> None:
        """Render the job as the next kind; raise the error for a job that names its kind or is a manifest."""
        if self.job.named_kind is not None:
            raise error
        self.not_made[self.kind] = str(error)
        for kind in [each for each in kinds.in_order(self._preferred) if each not in self.not_made]:
            self.kind = kind
            try:
                self.spec_hash = self._render(attempt).spec_hash
            except InvalidSpec as invalid:
                self.not_made[kind] = f"as a {kind} it cannot be made: {invalid}"
            else:
                return
        raise KindNotServed("; ".join(self.not_made.values())) from error

    async def _find(self, kind: str, namespace: str, name: str) -> Manifest | None:
        try:
            return await self._get(kind, namespace, name)
        except JobNotFound:
            return None

    async def _get(self, kind: str, namespace: str, name: str) -> Manifest:
        """Return a job that exists or may exist; repeat refused requests."""
        errors = self._errors(namespace, name)
        return await errors.answer(lambda: self.backend.get(kind, namespace, name), though_away=False)

    def _errors(self, namespace: str, name: str) -> ApiErrors:
        return ApiErrors(f"{namespace}/{name}", logger.warning, timeout=self.api_error_timeout)

    def _render(self, attempt: int) -> kinds.Rendered:
        """Return the job rendered for an attempt; renders only once, because the installation's hook may take part."""
        rendered = self.rendered.get((self.kind, attempt))
        if rendered is None:
            rendered = kinds.named(self.kind).render(
                self.job,
                owner=self.owner,
                attempt=attempt,
                exact_name=self.exact_name,
                installation=self.installation,
                variables=self.variables,
            )
            if rendered.secret is not None:
                name = code.secret_name(rendered.manifest["metadata"]["name"], self.intent)
                manifest, secret = code.with_secret_named(rendered.manifest, rendered.secret, name)
                rendered = replace(rendered, manifest=manifest, secret=secret)
            self.rendered[self.kind, attempt] = rendered
        return rendered


def _last_attempt(summaries: Sequence[Mapping[str, Any]]) -> int:
    return summaries[-1]["attempt"] if summaries else 0


def _whose(job: Manifest) -> str:
    owner = owner_in(job)
    if not owner.instance:
        return "it does not say who did"
    return f"it was created for {', '.join(f'{key}={value}' for key, value in owner.ids.items())} of {owner.instance!r}"


async def inspect_outputs(backend: Backend, submission: Submission, *, curves: bool = False) -> OutputReport | None:
    """Inspect the declared outputs, with curves on request, and return the report; None if none are declared.

    Raises:
        OutputsNotVerified: the outputs could not be inspected, or nothing was reported about one.
    """
    outputs = submission.outputs
    if not outputs.verified:
        return None
    since = datetime.fromisoformat(submission.first_started_at)
    report = await backend.inspect_outputs(submission.ref, outputs, since=since, curves=curves)
    if missing := report.lacks(outputs):
        raise OutputsNotVerified(f"{submission.ref}: nothing was reported about its {' and '.join(missing)}")
    return report


def deliver_attempt(store: AttemptStore, *, by_try: int) -> None:
    """Record which try delivers the result of the recorded attempt; after a clear, its finished job is obsolete."""
    record = store.load()
    if record is not None:
        store.save(replace(record, delivered_by=by_try, unverified=False))


def note_unverified(store: AttemptStore) -> None:
    """Record that the job of the recorded attempt succeeded, so that no retry trains again if the job is gone."""
    record = store.load()
    if record is not None:
        store.save(replace(record, unverified=True))


def conclude_attempt(
    store: AttemptStore, *summaries: Mapping[str, Any], preemptions: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """Mark the recorded attempt as ended, so that the next try starts a new attempt instead of adopting the job.

    Its summary is kept with the record, because its job may be deleted, and so are `preemptions`: the ends by the
    platform, including its own. None: as recorded.
    """
    record = store.load()
    if record is not None:
        earlier = attempts.newest([*record.earlier, *summaries])
        noted = record.preemptions if preemptions is None else [*preemptions]
        store.save(replace(record, ended=True, earlier=earlier, preemptions=noted))
