"""Ledger in PostgreSQL or SQLite: store which batches trainings have used, and reserve new ones for one run at a time.

Every change is one transaction that locks the ledger's row, which serializes the changes of one ledger. Airflow is not
queried while the row is locked: a decision from an earlier query is applied only if the reservation has not changed
since then (`number`).
"""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ptjob_provider.core.errors import InvalidSpec, LedgerUnavailable, ReservationLost
from ptjob_provider.core.identity import Instance
from ptjob_provider.retraining.reservations import Batch, Handover, ReservationState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

TABLES = sa.MetaData()

_NAME = sa.String(250)
_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")  # SQLite auto-increments only this integer type

LEDGERS = sa.Table("ptjob_ledgers", TABLES, sa.Column("name", _NAME, primary_key=True))
"""One row per ledger; every change of the ledger locks it."""

CLAIMS = sa.Table(
    "ptjob_claims",
    TABLES,
    sa.Column("id", _NUMBER, primary_key=True),
    sa.Column("ledger", _NAME, nullable=False),
    sa.Column("dag_id", _NAME, nullable=False),
    sa.Column("run_id", _NAME, nullable=False),
    sa.Column("training_task_id", _NAME, nullable=False),
    sa.Column("state", sa.String(10), nullable=False),  # open, had or released
    sa.Column("number", sa.Integer, nullable=False),
    sa.Column("reported", sa.Boolean, nullable=False),
    sa.Column("released_to", _NAME),
    sa.Column("installation", _NAME),  # None: reserved by a version without this column
    sa.Column("claimed_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Index("ptjob_claims_of_run", "ledger", "dag_id", "run_id"),
    sa.Index("ptjob_claims_by_state", "ledger", "state"),
)

BATCHES = sa.Table(
    "ptjob_batches",
    TABLES,
    sa.Column("id", _NUMBER, primary_key=True),  # the order of arrival
    sa.Column("ledger", _NAME, nullable=False),
    sa.Column("batch_id", sa.String(500), nullable=False),
    sa.Column("uri", sa.String(2000), nullable=False),
    sa.Column("files", sa.BigInteger),
    sa.Column("bytes", sa.BigInteger),
    sa.Column("modified", sa.String(40), nullable=False),
    sa.Column("recorded_at", sa.DateTime(timezone=True), server_default=sa.func.now()),
    sa.Column("claim_id", sa.ForeignKey(CLAIMS.c.id)),
    sa.UniqueConstraint("ledger", "batch_id"),
    sa.Index("ptjob_batches_by_claim", "claim_id"),
    sa.Index("ptjob_batches_of_ledger", "ledger", "claim_id"),
)
"""One row per arrived batch; new until a run has reserved it."""

READ = sa.Table(
    "ptjob_read",
    TABLES,
    sa.Column("ledger", _NAME, primary_key=True),
    sa.Column("source", sa.String(2000), primary_key=True),
    sa.Column("until", sa.String(40), nullable=False),
)
"""Position up to which a source's events are recorded."""

_INSERTS: Mapping[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_TIMEOUT = 60
"""Maximum seconds that a change waits for another change of the same ledger; each takes a fraction of a second."""
_CREATION_LOCK = 7_304_651
"""Key of PostgreSQL's advisory lock for creating the tables: of two concurrent `IF NOT EXISTS`, one would fail."""

_OPEN, _HAD, _RELEASED = "open", "had", "released"


@dataclass(frozen=True, kw_only=True)
class Reserver:
    """A DAG run that reserves batches, and its training task.

    Attributes:
        installation: the run's Airflow; its name is "" in a reservation that does not have it.
    """

    installation: Instance
    dag_id: str
    run_id: str
    training_task_id: str

    def __str__(self) -> str:
        return f"run {self.run_id} of {self.dag_id}"


@dataclass(frozen=True, kw_only=True)
class OpenReservation:
    """A reservation whose outcome the ledger does not know yet.

    Attributes:
        id: id of the reservation.
        number: counts changes of the reservation; a decision about it is valid while the number is unchanged.
        run: the run that has reserved the batches.
        reported: whether the training has reported its success.
        batches: number of batches.
    """

    id: int
    number: int
    run: Reserver
    reported: bool
    batches: int


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """Result of a reservation.

    Attributes:
        handover: the run's data; `new` is empty if there is nothing to train on.
        settled: the reservations that were open before, with their current states.
    """

    handover: Handover
    settled: Sequence[tuple[OpenReservation, ReservationState]]


class LedgerStore:
    """One ledger of a database; a context manager.

    Args:
        url: SQLAlchemy URL of a PostgreSQL or SQLite database. A SQLite file serves one machine.
        name: name of the ledger; a database may have several, one for each series of models.

    Raises:
        InvalidSpec: the URL is invalid, or is that of another kind of database.
    """

    def __init__(self, url: str, name: str) -> None:
        self._engine = _engine(url)
        self._name = name

    def __str__(self) -> str:
        return f"ledger {self._name} at {self._engine.url.render_as_string(hide_password=True)}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    def record(self, batches: Sequence[Batch], *, source: str | None = None, until: str = "") -> int:
        """Add the batches that the ledger does not have, in this order, and return their number.

        Args:
            batches: the arrived batches.
            source: the source of their events; None: no position is stored.
            until: position up to which the source's events are recorded now, as a text that sorts by time.
        """
        with self._change() as connection:
            before = self._count(connection)
            if batches:
                connection.execute(self._insert(BATCHES, ("ledger", "batch_id")), [self._row(each) for each in batches])
            if source is not None and until > (self._read(connection, source) or ""):
                row = {"ledger": self._name, "source": source, "until": until}
                connection.execute(self._insert(READ, ("ledger", "source"), update="until"), [row])
            return self._count(connection) - before

    def read_until(self, source: str) -> str | None:
        """Return the position up to which a source's events are recorded; None for none."""
        with self._change() as connection:
            return self._read(connection, source)

    def open_reservations(self) -> list[OpenReservation]:
        """Return the reservations whose outcome is unknown; the caller queries Airflow for it."""
        count = sa.select(sa.func.count()).where(BATCHES.c.claim_id == CLAIMS.c.id).scalar_subquery()
        query = sa.select(CLAIMS, count.label("batches")).where(self._of(CLAIMS), CLAIMS.c.state == _OPEN)
        with self._change() as connection:
            return [_open_reservation(row) for row in connection.execute(query.order_by(CLAIMS.c.id))]

    def reserve(
        self, run: Reserver, decisions: Sequence[tuple[OpenReservation, ReservationState]], *, may_reserve_more: bool
    ) -> Reserved:
        """Apply decisions about reservations, reserve all new batches for this run, and return the run's data.

        Args:
            run: the run.
            decisions: decisions about open reservations, including the run's own.
            may_reserve_more: False: reserve no further batches.
        """
        with self._change() as connection:
            settled = [(each, self._settle(connection, each, state, run)) for each, state in decisions]
            if may_reserve_more:
                self._take(connection, run)
            handover = self._handover(connection, run)
        return Reserved(handover=handover, settled=settled)

    def handover(self, run: Reserver) -> Handover:
        """Return the run's current data."""
        with self._change() as connection:
            return self._handover(connection, run)

    def check(self, run: Reserver) -> None:
        """Check that this run still holds its batches; no other run can reserve them while this one trains.

        Raises:
            ReservationLost: another run has the batches, or this run has reserved none.
        """
        with self._change() as connection:
            reservation = self._latest(connection, run)
            if reservation is None:
                raise ReservationLost(
                    f"The {run} has claimed no batches in the ledger {self._name}, so it must not train on any. "
                    "Clear its claim as well; if it has none, name the ledger that it claims from."
                )
            if reservation.state == _RELEASED:
                raise ReservationLost(
                    f"The batches that the {run} had claimed were given to run {reservation.released_to} after it had "
                    "failed, so they must not be new in this training. Clear its claim as well: it then gets what is "
                    "new now."
                )
            changed = {"number": reservation.number + 1, "reported": False, "installation": run.installation.name}
            connection.execute(CLAIMS.update().where(CLAIMS.c.id == reservation.id).values(changed))

    def report(self, run: Reserver) -> None:
        """Record that this run's training has succeeded, in case the run is deleted from Airflow."""
        with self._change() as connection:
            if (reservation := self._latest(connection, run)) is not None:
                connection.execute(CLAIMS.update().where(CLAIMS.c.id == reservation.id).values(reported=True))

    def _settle(
        self, connection: sa.Connection, reservation: OpenReservation, decision: ReservationState, run: Reserver
    ) -> ReservationState:
        """Apply a decision unless the reservation has changed since; return the current state."""
        if decision is ReservationState.TAKEN:
            return decision
        unchanged = (CLAIMS.c.id == reservation.id, CLAIMS.c.number == reservation.number, CLAIMS.c.state == _OPEN)
        given_to = {"released_to": run.run_id} if decision is ReservationState.FREE else {}
        state = _HAD if decision is ReservationState.HAD else _RELEASED
        done = connection.execute(CLAIMS.update().where(*unchanged).values(state=state, **given_to))
        if not done.rowcount:
            return ReservationState.TAKEN
        if decision is ReservationState.FREE:
            connection.execute(BATCHES.update().where(BATCHES.c.claim_id == reservation.id).values(claim_id=None))
        return decision

    def _take(self, connection: sa.Connection, run: Reserver) -> None:
        free = (self._of(BATCHES), BATCHES.c.claim_id.is_(None))
        own = self._latest(connection, run)
        if own is not None and own.state == _OPEN:
            changed = {**_fields(run), "number": own.number + 1, "reported": False}
            connection.execute(CLAIMS.update().where(CLAIMS.c.id == own.id).values(changed))
            claim_id = own.id
        elif connection.scalar(sa.select(BATCHES.c.id).where(*free).limit(1)) is None:
            return
        else:
            values = {**_fields(run), "ledger": self._name, "state": _OPEN, "number": 1, "reported": False}
            (claim_id,) = connection.execute(CLAIMS.insert().values(values)).inserted_primary_key or (None,)
        connection.execute(BATCHES.update().where(*free).values(claim_id=claim_id))

    def _handover(self, connection: sa.Connection, run: Reserver) -> Handover:
        own = sa.and_(*self._by(run))  # a released reservation has no batches
        new = self._batches(connection, own)
        return Handover(earlier=self._batches(connection, sa.and_(CLAIMS.c.state == _HAD, sa.not_(own))), new=new)

    def _latest(self, connection: sa.Connection, run: Reserver) -> sa.Row[Any] | None:
        query = sa.select(CLAIMS).where(*self._by(run)).order_by(CLAIMS.c.id.desc()).limit(1)
        return connection.execute(query).one_or_none()

    def _batches(self, connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Batch]:
        joined = sa.select(BATCHES).join(CLAIMS, BATCHES.c.claim_id == CLAIMS.c.id)
        rows = connection.execute(joined.where(self._of(BATCHES), condition).order_by(BATCHES.c.id))
        return [_batch(row) for row in rows]

    def _by(self, run: Reserver) -> tuple[sa.ColumnElement[bool], ...]:
        """Return the conditions of the run's reservations; one without an installation may be its own, too."""
        names = [run.installation.name, *run.installation.aliases]
        is_own = sa.or_(CLAIMS.c.installation.in_(names), CLAIMS.c.installation.is_(None))
        return self._of(CLAIMS), CLAIMS.c.dag_id == run.dag_id, CLAIMS.c.run_id == run.run_id, is_own

    def _of(self, table: sa.Table) -> sa.ColumnElement[bool]:
        return table.c.ledger == self._name

    def _count(self, connection: sa.Connection) -> int:
        return connection.scalar(sa.select(sa.func.count()).select_from(BATCHES).where(self._of(BATCHES))) or 0

    def _read(self, connection: sa.Connection, source: str) -> str | None:
        return connection.scalar(sa.select(READ.c.until).where(self._of(READ), READ.c.source == source))

    def _row(self, batch: Batch) -> dict[str, Any]:
        fields = batch.to_dict()
        return {"ledger": self._name, "batch_id": fields.pop("id"), **fields}

    def _insert(self, table: sa.Table, unless: Sequence[str], *, update: str = "") -> Any:
        """Return an insert that, of a row with the same `unless` columns, changes at most the `update` column."""
        statement = _INSERTS[self._engine.dialect.name](table)
        if update:
            newer = {update: statement.excluded[update]}
            return statement.on_conflict_do_update(index_elements=list(unless), set_=newer)
        return statement.on_conflict_do_nothing(index_elements=list(unless))

    @contextmanager
    def _change(self) -> Iterator[sa.Connection]:
        """Lock the ledger for one transaction; an error rolls it back."""
        try:
            with self._engine.begin() as connection:
                self._lock(connection)
                yield connection
        except sa.exc.DBAPIError as error:
            message = next(iter(str(error.orig).strip().splitlines()), type(error).__name__)
            raise LedgerUnavailable(f"The {self} did not answer: {message}") from error

    def _lock(self, connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_TIMEOUT}s'")
            connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_TIMEOUT}s'")
        if not sa.inspect(connection).has_table(LEDGERS.name):
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_CREATION_LOCK})")
            TABLES.create_all(connection)
        connection.execute(self._insert(LEDGERS, ("name",)), [{"name": self._name}])
        connection.execute(sa.select(LEDGERS).where(LEDGERS.c.name == self._name).with_for_update())
        columns = sa.inspect(connection).get_columns(CLAIMS.name)
        if not any(column["name"] == CLAIMS.c.installation.name for column in columns):
            # Like all use of this table, after the row's lock; in the other order, two processes could deadlock.
            unless = "IF NOT EXISTS " if connection.dialect.name == "postgresql" else ""
            connection.exec_driver_sql(f"ALTER TABLE {CLAIMS.name} ADD COLUMN {unless}installation VARCHAR(250)")


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise InvalidSpec(
            "ledger: not a database address; give one such as postgresql+psycopg2://… or sqlite:///…"
        ) from None
    kind = parsed.get_backend_name()
    if kind not in _INSERTS:
        raise InvalidSpec.of("ledger", f"{parsed.drivername}://…", "allowed: postgresql, sqlite")
    if kind == "sqlite":
        return _sqlite(parsed)
    timeouts = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": _TIMEOUT * 1000}
    return _create(_with_driver(parsed), connect_args=timeouts)


def _with_driver(url: sa.URL) -> sa.URL:
    """Return the URL with an installed driver if it names none."""
    if "+" in url.drivername:
        return url
    driver = "psycopg2" if importlib.util.find_spec("psycopg2") else "psycopg"
    return url.set(drivername=f"postgresql+{driver}")


def _sqlite(url: sa.URL) -> sa.Engine:
    if not (url.database or "").startswith("/"):
        allowed = "allowed: the absolute path of a file, as in sqlite:////srv/ledger.db, or as a connection's host"
        raise InvalidSpec.of("ledger", f"sqlite:///{url.database or ''}", allowed)
    engine = _create(url, connect_args={"timeout": _TIMEOUT})

    @sa.event.listens_for(engine, "connect")
    def disable_implicit_transactions(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # else Python's driver begins a transaction only at the first write

    @sa.event.listens_for(engine, "begin")
    def lock_file(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _create(url: sa.URL, connect_args: Mapping[str, Any]) -> sa.Engine:
    try:
        return sa.create_engine(url, poolclass=sa.NullPool, connect_args=dict(connect_args))
    except (ImportError, sa.exc.NoSuchModuleError) as error:
        raise InvalidSpec(f"ledger: the driver of {url.drivername} is not installed here: {error}") from error


def _fields(run: Reserver) -> dict[str, str]:
    return {**vars(run), "installation": run.installation.name}


def _open_reservation(row: sa.Row[Any]) -> OpenReservation:
    names = {"dag_id": row.dag_id, "run_id": row.run_id, "training_task_id": row.training_task_id}
    run = Reserver(installation=Instance(row.installation or ""), **names)
    return OpenReservation(id=row.id, number=row.number, run=run, reported=row.reported, batches=row.batches)


def _batch(row: sa.Row[Any]) -> Batch:
    return Batch(id=row.batch_id, uri=row.uri, files=row.files, bytes=row.bytes, modified=row.modified)
