"""Reserve the batches that are new to a training, in the first task of a DAG that arriving data triggers.

    arrived = Asset("digits-batches", watchers=[AssetWatcher(name="drop", trigger=DataArrivalTrigger(source=DROP))])
    ledger = DataLedger("ledger_db", "digits")

    with DAG("digits_retraining", schedule=[arrived], max_active_runs=1):
        claim = ClaimBatchesOperator(task_id="claim", ledger=ledger, inlets=[arrived])
        train = PyTorchJobOperator(
            task_id="train",
            ledger=ledger,
            args=["--data={{ ti.xcom_pull('claim')['paths'] }}"],
            data_version="{{ ti.xcom_pull('claim')['version'] }}",
            …
        )
        claim >> train

Importing this module loads no SQLAlchemy.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, AssetAlias, BaseHook, BaseOperator, ObjectStoragePath, Variable
from airflow.sdk.definitions.asset import AssetRef

from ptjob_provider.airflow import compat, config
from ptjob_provider.airflow.compat import AirflowRuntimeError, AirflowSkipException
from ptjob_provider.airflow.task_session import airflow_errors
from ptjob_provider.core.errors import InvalidSpec, LedgerUnavailable
from ptjob_provider.core.outgoing import outgoing
from ptjob_provider.retraining.reservations import (
    LIST_LIMIT,
    Batch,
    ReservationState,
    batches_of,
    manifest_lines,
    may_reserve_more,
    reservation_state,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ptjob_provider.retraining.ledger import LedgerStore, OpenReservation, Reserved, Reserver
    from ptjob_provider.retraining.reservations import Handover

_PAGE = 50
"""Events per request: each may have a thousand batches."""

_OVERLAP = timedelta(minutes=10)
"""Time for which recorded events are read again, because an event may become visible later than its time."""

_NOT_HERE = (
    "the %s is not in this Airflow, and nothing shows that it ever was: its %d batches stay reserved, because it may "
    "train on them elsewhere. If it does not, free them in the ledger, claim %d: see docs/how-to/data-arrival.md"
)

_WITH_EVENTS = (Asset, AssetAlias, AssetRef)
_URL_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "options", "application_name")


@dataclass(frozen=True)
class DataLedger:
    """Record of the batches that trainings have used as new data.

    Args:
        ledger: id of an Airflow connection to PostgreSQL (or SQLite, with the file as its host), or an SQLAlchemy URL.
            Put a URL with a password into a connection. Airflow's own database cannot be used, because workers do not
            reach it. SQLite serves the workers of one machine.
        name: name of the ledger; each series of models needs another one. Several may share a database.
    """

    ledger: str
    name: str = "default"

    def open(self) -> LedgerStore:
        """Return the ledger's store, in a task; use it with `with`.

        Raises:
            InvalidSpec: the URL or the connection is not that of a possible ledger.
        """
        from ptjob_provider.retraining.ledger import LedgerStore  # noqa: PLC0415 - only tasks need SQLAlchemy

        return LedgerStore(self.ledger if "://" in self.ledger else _address(self.ledger), self.name)

    def check(self, context: Any) -> None:
        """Check that the run's batches are reserved for it; no other run gets them while this one is active.

        `PyTorchJobOperator(ledger=…)` does this before it trains. For other operators, set `pre_execute=ledger.check`.

        Raises:
            AirflowFailException: another run has the batches now, or this run has reserved none.
            AirflowException: the ledger did not respond.
        """
        with airflow_errors():
            self.confirm(context)

    def confirm(self, context: Any) -> None:
        """Do the same as `check`, but raise this package's errors instead of Airflow's."""
        with self.open() as store:
            store.check(_reserver(context["ti"], context["ti"].task_id))

    def report(self, context: Any) -> None:
        """Record that the training has succeeded, in case its run is deleted before another one reserves batches.

        Raises:
            LedgerUnavailable: the ledger did not respond.
        """
        if context["ti"].map_index is not None and context["ti"].map_index >= 0:
            return  # other instances of a mapped task may still fail
        with self.open() as store:
            store.report(_reserver(context["ti"], context["ti"].task_id))

    def folders(self, context: Any) -> list[str]:
        """Return the folders of the run's training data, each once.

        Raises:
            LedgerUnavailable: the ledger did not respond.
        """
        with self.open() as store:
            handover = store.handover(_reserver(context["ti"], context["ti"].task_id))
        return sorted({batch.uri.rstrip("/").rpartition("/")[0] or batch.uri for batch in handover.current})


class ClaimBatchesOperator(BaseOperator):
    """Reserves every batch that no successful training has used as new data; skips the run if there is none.

    The operator first records the batches in the assets' events: in the events that triggered the run, and in all
    others since the last reservation. So one run takes everything that has arrived, and a failed run loses no event.
    Then it queries Airflow for the state of the runs that have reserved batches before:

    - training succeeded: the batches are used for good
    - run ended without a successful training, or was deleted: the batches are new again
    - run still active, or one of another Airflow: the batches stay reserved

    A retried or cleared run gets its own batches again, plus later ones unless its training has begun or succeeded by
    then. Trainings marked as success by hand count as successful. A deleted run counts as trained if its training has
    recorded that in the ledger (`PyTorchJobOperator(ledger=…)`).

    The result is {version, new, new_ids, all, paths, batches, bytes, new_batches, new_bytes, ledger, manifest}: `new`
    has the addresses of the new batches, `all` those of the used and the new ones in the order of arrival, and `paths`
    is `all` joined by commas. The lists and `paths` are None above 1,000 batches. `version` is a text that identifies
    exactly this data.

    Args:
        ledger: a `DataLedger`, or its first argument.
        name: the ledger's name, if `ledger` is a text.
        training_task_id: the task that trains, and waits for its job; all instances of a mapped task must succeed.
        manifest: a file to write for the training, at a path or an address for `ObjectStoragePath` that workers and
            training can both reach; a template. It has one line per batch with a JSON object: id, uri, files, bytes,
            modified, new (true or false).
        inlets: the assets whose events have batches; those that triggered the run are always included.
    """

    template_fields: Sequence[str] = ("manifest",)
    ui_color = "#e3ead3"

    def __init__(
        self,
        *,
        ledger: DataLedger | str,
        name: str = "default",
        training_task_id: str = "train",
        manifest: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ledger = ledger if isinstance(ledger, DataLedger) else DataLedger(ledger, name)
        self.training_task_id = training_task_id
        self.manifest = manifest

    def execute(self, context: Any) -> dict[str, Any]:
        """Record the batches that have arrived, reserve the new ones, and return the training data."""
        with airflow_errors():
            if not self.dag.has_task(self.training_task_id):
                raise InvalidSpec.of("training_task_id", self.training_task_id, f"{self.dag_id} has no such task")
            training = self.dag.get_task(self.training_task_id)
            if not getattr(training, "partial_kwargs", vars(training)).get("wait_for_completion", True):
                allowed = "allowed: a task that waits for its job; when this one ends, nothing has been trained"
                raise InvalidSpec.of("training_task_id", self.training_task_id, allowed)
            with self.ledger.open() as store:
                self._record(store, context)
                reserved = self._reserve(store, _reserver(context["ti"], self.training_task_id))
        self._log_result(reserved)
        if not reserved.handover.new:
            raise AirflowSkipException("No new batches: every batch was trained or is reserved by another run")
        return self._hand_over(reserved.handover)

    def _record(self, store: LedgerStore, context: Any) -> None:
        triggering = context["triggering_asset_events"]
        assets: list[Asset | AssetAlias | AssetRef] = [asset for asset in triggering if isinstance(asset, Asset)]
        assets += [inlet for inlet in self.inlets if isinstance(inlet, _WITH_EVENTS) and inlet not in assets]
        added = 0
        for asset in assets:
            source = " ".join(filter(None, (getattr(asset, part, None) for part in ("name", "uri"))))
            for events in _pages(asset, _begin(store.read_until(source))):
                added += store.record(self._batches(events), source=source, until=_text(events[-1].timestamp))
        added += store.record(self._batches([event for events in triggering.values() for event in events]))
        self.log.info("%d batches were not known yet", added)

    def _batches(self, events: Sequence[Any]) -> list[Batch]:
        batches: list[Batch] = []
        for event in events:
            valid, problems = batches_of(event.extra)
            batches += valid
            for problem in problems:
                self.log.error("a batch in an event of %s is left out: %s", event.asset.uri, problem)
        return batches

    def _reserve(self, store: LedgerStore, run: Reserver) -> Reserved:
        with _asking("how the runs stand that have claimed batches, so nothing was claimed"):
            decisions = self._decisions(store, run)
            more = may_reserve_more(_training_states(run))
        return store.reserve(run, decisions, may_reserve_more=more)

    def _decisions(self, store: LedgerStore, own: Reserver) -> list[tuple[OpenReservation, ReservationState]]:
        """Return the state of each open reservation; the runs of other Airflows may still train on theirs.

        A Variable has the runs that this Airflow's database had when they held batches. After the restore of a backup,
        the Variable lacks the same runs as the database.
        """
        if is_copy := config.foreign_origin():
            self.log.warning("the batches of other runs stay reserved: %s", is_copy)
        key = f"ptjob_ledger_{hashlib.sha256(str(store).encode()).hexdigest()[:16]}"
        seen = set(json.loads(compat.variable(key) or "[]"))
        still, decisions = {str(own)}, []
        for reservation in store.open_reservations():
            run, owner = reservation.run, reservation.run.installation.name
            is_ours = own.installation.has(owner)
            is_own = str(run) == str(own) and (is_ours or not owner)
            state, is_going = ReservationState.TAKEN, None
            if is_own or not (is_copy or (owner and not is_ours)):
                training = _training_states(run)  # before the run's state: a run cleared in between counts as active
                is_going = is_own or _is_going(run)  # the batches of the run that asks are never free
                was_here = is_ours and str(run) in seen
                state = reservation_state(training, is_going=is_going, reported=reservation.reported, was_here=was_here)
                if is_going is None and state is ReservationState.TAKEN:
                    self.log.warning(_NOT_HERE, run, reservation.batches, reservation.id)
            if is_going is not None or str(run) in seen:
                still.add(str(run))
            decisions.append((reservation, state))
        if still != seen:
            Variable.set(key, json.dumps(sorted(still)), description=f"Runs that claimed batches of the {store}")
        return decisions

    def _log_result(self, reserved: Reserved) -> None:
        for each, state in reserved.settled:
            self.log.info("%d batches of the %s: %s", each.batches, each.run, state)
        new, earlier = reserved.handover.new, reserved.handover.earlier
        self.log.info("%d batches are new in this training; %d were in earlier ones", len(new), len(earlier))

    def _hand_over(self, handover: Handover) -> dict[str, Any]:
        if self.manifest:
            _write(self.manifest, "".join(manifest_lines(handover)))
        elif len(handover.current) > LIST_LIMIT:
            self.log.warning("more than %d batches: name a manifest, the result has no list of all", LIST_LIMIT)
        return dict(outgoing({**handover.to_dict(), "ledger": self.ledger.name, "manifest": self.manifest}))


def _training_states(run: Reserver) -> list[str]:
    """Return the states of the instances of a run's training task."""
    states = compat.task_instances().get_task_states(
        dag_id=run.dag_id, task_ids=[run.training_task_id], run_ids=[run.run_id]
    )
    of_run: Mapping[str, Any] = states.get(run.run_id) or {}
    return [str(getattr(state, "value", state) or "none") for state in of_run.values()]


def _is_going(run: Reserver) -> bool | None:
    """Return whether a run is queued or running; None if the run does not exist."""

    def count(**filters: Any) -> int:
        return int(compat.task_instances().get_dr_count(dag_id=run.dag_id, run_ids=[run.run_id], **filters))

    return None if not count() else not count(states=["success", "failed"])


@contextmanager
def _asking(what: str) -> Iterator[None]:
    """Raise LedgerUnavailable if Airflow does not respond to the block's requests."""
    try:
        yield
    except AirflowRuntimeError as error:
        raise LedgerUnavailable(f"Airflow did not say {what}: {error}") from error


def _reserver(ti: Any, training_task_id: str) -> Reserver:
    from ptjob_provider.retraining.ledger import Reserver  # noqa: PLC0415 - only tasks need SQLAlchemy

    with _asking("which installation this is"):
        installation = config.read()
    return Reserver(installation=installation, dag_id=ti.dag_id, run_id=ti.run_id, training_task_id=training_task_id)


def _pages(asset: Any, after: datetime | None) -> Iterator[list[Any]]:
    """Yield an asset's events in pages, oldest first.

    Raises:
        LedgerUnavailable: Airflow did not respond.
    """
    limit = _PAGE
    while True:
        with _asking(f"which events {asset!r} has"):
            events = compat.asset_events(asset, after=after, limit=limit)
        if events:
            yield events
        if len(events) < limit:
            return
        if events[-1].timestamp == after:  # more events have this time than a page holds
            limit *= 2
        after = events[-1].timestamp


def _begin(until: str | None) -> datetime | None:
    return datetime.fromisoformat(until) - _OVERLAP if until else None


def _text(instant: datetime) -> str:
    """Return the instant as a text that sorts by time."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds")


def _write(manifest: str, text: str) -> None:
    """Write the manifest atomically, so that no training reads an incomplete one."""
    target = ObjectStoragePath(manifest)
    if target.protocol not in {"", "file"}:  # an object store shows only complete objects
        target.write_bytes(text.encode())
        return
    path = Path(target.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text)
    partial.replace(path)


def _address(conn_id: str) -> str:
    """Return the SQLAlchemy URL of a connection's database.

    Raises:
        InvalidSpec: the connection is not one to PostgreSQL or SQLite.
    """
    from sqlalchemy import URL  # noqa: PLC0415 - only tasks need SQLAlchemy

    conn = BaseHook.get_connection(conn_id)
    if conn.conn_type == "sqlite":
        return f"sqlite:///{conn.host or conn.schema or ''}"
    if conn.conn_type not in {"postgres", "postgresql"}:
        raise InvalidSpec.of(f"ledger: the connection {conn_id}", conn.conn_type, "allowed: postgres, sqlite")
    more = {name: str(value) for name, value in conn.extra_dejson.items() if name in _URL_OPTIONS}
    url = URL.create("postgresql", conn.login, conn.password, conn.host, conn.port, conn.schema, more)
    return url.render_as_string(hide_password=False)
