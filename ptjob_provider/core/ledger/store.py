"""The ledger itself: tables in PostgreSQL or SQLite, and claims that no two runs can both have.

Every change is one transaction that holds the ledger's row, so that changes of one ledger follow each other. Nobody is
asked anything while it is held: what was asked before is only believed if the claim has not changed since (`number`).
"""

from __future__ import annotations

import importlib.util
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from ptjob_provider.core.errors import ClaimLost, InvalidSpec, LedgerUnavailable
from ptjob_provider.core.ledger.batch import Batch
from ptjob_provider.core.ledger.handover import Handover
from ptjob_provider.core.ledger.standing import Standing
from ptjob_provider.core.ledger.tables import BATCHES, CLAIMS, LEDGERS, READ, TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

_INSERTS: Mapping[str, Any] = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
_PATIENCE = 60
"""Seconds that a change waits for another one of the same ledger; each takes a fraction of one."""
_MAKING = 7_304_651
"""Advisory lock of PostgreSQL while the tables are made: `IF NOT EXISTS` alone fails when two make them at once."""

_OPEN, _HAD, _RELEASED = "open", "had", "released"


@dataclass(frozen=True, kw_only=True)
class Claimant:
    """A DAG run that trains on what it claims, and which of its tasks does."""

    dag_id: str
    run_id: str
    training_task_id: str

    def __str__(self) -> str:
        return f"run {self.run_id} of {self.dag_id}"


@dataclass(frozen=True, kw_only=True)
class OpenClaim:
    """A claim of which the ledger does not know yet how it ended.

    Attributes:
        id: its own.
        number: counts what has happened to it; a decision about it holds while this stays.
        claimant: whose it is.
        reported: whether the training has said that it succeeded.
        batches: how many.
    """

    id: int
    number: int
    claimant: Claimant
    reported: bool
    batches: int


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """What a run was given, and what became of others' claims on the way.

    Attributes:
        handover: its data; nothing in `new` if there is nothing to train for.
        settled: claims that were open, with how they stand now.
    """

    handover: Handover
    settled: Sequence[tuple[OpenClaim, Standing]]


class LedgerStore:
    """One ledger of a database; a context manager.

    Args:
        url: SQLAlchemy's, of PostgreSQL or SQLite. A SQLite file serves one machine.
        name: several ledgers of one database do not meet: each model line has one.

    Raises:
        InvalidSpec: there can be no ledger at that address.
    """

    def __init__(self, url: str, name: str) -> None:
        self._engine = _engine(url)
        self._name = name

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._engine.dispose()

    def record(self, batches: Sequence[Batch], *, source: str | None = None, until: str = "") -> int:
        """Write down batches that are not known yet, in this order, and return how many those were.

        Args:
            batches: what arrived; known ones stay as they are.
            source: whose events told of them; None: of no matter.
            until: up to when that source's events are written down now, a text that sorts by time.
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
        """Return up to when a source's events are written down; None if none are."""
        with self._change() as connection:
            return self._read(connection, source)

    def open_claims(self) -> list[OpenClaim]:
        """Return the claims of which it must be asked how they ended."""
        count = sa.select(sa.func.count()).where(BATCHES.c.claim_id == CLAIMS.c.id).scalar_subquery()
        query = sa.select(CLAIMS, count.label("batches")).where(self._of(CLAIMS), CLAIMS.c.state == _OPEN)
        with self._change() as connection:
            return [_open_claim(row) for row in connection.execute(query.order_by(CLAIMS.c.id))]

    def claim(
        self, claimant: Claimant, standings: Sequence[tuple[OpenClaim, Standing]], *, may_claim_more: bool
    ) -> Claimed:
        """Settle what is decided about others' claims, and give this run its own batches and those that are new.

        Args:
            claimant: the run.
            standings: what was decided about open claims, its own one included if its training has succeeded.
            may_claim_more: False gives it its own batches only.
        """
        with self._change() as connection:
            settled = [(claim, self._settle(connection, claim, standing, claimant)) for claim, standing in standings]
            if may_claim_more:
                self._take(connection, claimant)
            handover = self._handover(connection, claimant)
        return Claimed(handover=handover, settled=settled)

    def handover(self, claimant: Claimant) -> Handover:
        """Return what the run trains on, as it is now."""
        with self._change() as connection:
            return self._handover(connection, claimant)

    def check(self, claimant: Claimant) -> None:
        """Return if the batches of this run's claim are still its own; no one else can have them while it trains.

        Raises:
            ClaimLost: they are not, or it has claimed none.
        """
        with self._change() as connection:
            found = self._latest(connection, claimant)
            if found is None:
                raise ClaimLost(
                    f"The {claimant} has claimed no batches in the ledger {self._name}, so it must not train on any. "
                    "Clear its claim as well; if it has none, name the ledger that it claims from."
                )
            if found.state == _RELEASED:
                raise ClaimLost(
                    f"The batches that the {claimant} had claimed were given to run {found.released_to} after it had "
                    "failed, so they must not be new in this training. Clear its claim as well: it then gets what is "
                    "new now."
                )
            change = CLAIMS.update().where(CLAIMS.c.id == found.id)
            connection.execute(change.values(number=found.number + 1, reported=False))

    def report(self, claimant: Claimant) -> None:
        """Write down that this run's training has succeeded, for the day when Airflow has forgotten the run."""
        with self._change() as connection:
            if (found := self._latest(connection, claimant)) is not None:
                connection.execute(CLAIMS.update().where(CLAIMS.c.id == found.id).values(reported=True))

    def _settle(self, connection: sa.Connection, claim: OpenClaim, standing: Standing, claimant: Claimant) -> Standing:
        """Write down what was decided, unless the claim has changed since it was looked at; return what holds."""
        if standing is Standing.TAKEN:
            return standing
        unchanged = (CLAIMS.c.id == claim.id, CLAIMS.c.number == claim.number, CLAIMS.c.state == _OPEN)
        given_to = {"released_to": claimant.run_id} if standing is Standing.FREE else {}
        state = _HAD if standing is Standing.HAD else _RELEASED
        done = connection.execute(CLAIMS.update().where(*unchanged).values(state=state, **given_to))
        if not done.rowcount:
            return Standing.TAKEN
        if standing is Standing.FREE:
            connection.execute(BATCHES.update().where(BATCHES.c.claim_id == claim.id).values(claim_id=None))
        return standing

    def _take(self, connection: sa.Connection, claimant: Claimant) -> None:
        free = (self._of(BATCHES), BATCHES.c.claim_id.is_(None))
        own = self._latest(connection, claimant)
        if own is not None and own.state == _OPEN:
            changed = {"number": own.number + 1, "reported": False, "training_task_id": claimant.training_task_id}
            connection.execute(CLAIMS.update().where(CLAIMS.c.id == own.id).values(changed))
            claim_id = own.id
        elif connection.scalar(sa.select(BATCHES.c.id).where(*free).limit(1)) is None:
            return
        else:
            values = {**vars(claimant), "ledger": self._name, "state": _OPEN, "number": 1, "reported": False}
            (claim_id,) = connection.execute(CLAIMS.insert().values(values)).inserted_primary_key or (None,)
        connection.execute(BATCHES.update().where(*free).values(claim_id=claim_id))

    def _handover(self, connection: sa.Connection, claimant: Claimant) -> Handover:
        own = sa.and_(*self._by(claimant))  # a claim that was released has none
        new = self._batches(connection, own)
        return Handover(earlier=self._batches(connection, sa.and_(CLAIMS.c.state == _HAD, sa.not_(own))), new=new)

    def _latest(self, connection: sa.Connection, claimant: Claimant) -> sa.Row[Any] | None:
        query = sa.select(CLAIMS).where(*self._by(claimant)).order_by(CLAIMS.c.id.desc()).limit(1)
        return connection.execute(query).one_or_none()

    def _batches(self, connection: sa.Connection, whose: sa.ColumnElement[bool]) -> list[Batch]:
        joined = sa.select(BATCHES).join(CLAIMS, BATCHES.c.claim_id == CLAIMS.c.id)
        rows = connection.execute(joined.where(self._of(BATCHES), whose).order_by(BATCHES.c.id))
        return [_batch(row) for row in rows]

    def _by(self, claimant: Claimant) -> tuple[sa.ColumnElement[bool], ...]:
        return self._of(CLAIMS), CLAIMS.c.dag_id == claimant.dag_id, CLAIMS.c.run_id == claimant.run_id

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
        """Return the statement that leaves rows as they are which have these values already, but for one column."""
        statement = _INSERTS[self._engine.dialect.name](table)
        if update:
            newer = {update: statement.excluded[update]}
            return statement.on_conflict_do_update(index_elements=list(unless), set_=newer)
        return statement.on_conflict_do_nothing(index_elements=list(unless))

    @contextmanager
    def _change(self) -> Iterator[sa.Connection]:
        """Have the ledger for oneself; what was changed is there afterwards, or nothing of it if this raises."""
        try:
            with self._engine.begin() as connection:
                self._lock(connection)
                yield connection
        except sa.exc.DBAPIError as error:
            where = self._engine.url.render_as_string(hide_password=True)
            said = next(iter(str(error.orig).strip().splitlines()), type(error).__name__)
            raise LedgerUnavailable(f"The ledger {self._name} at {where} did not answer: {said}") from error

    def _lock(self, connection: sa.Connection) -> None:
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PATIENCE}s'")
            connection.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_PATIENCE}s'")
        if not sa.inspect(connection).has_table(LEDGERS.name):
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MAKING})")
            TABLES.create_all(connection)
        connection.execute(self._insert(LEDGERS, ("name",)), [{"name": self._name}])
        connection.execute(sa.select(LEDGERS).where(LEDGERS.c.name == self._name).with_for_update())


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        raise InvalidSpec(
            "ledger: this is no address of a database; such as postgresql+psycopg2://… or sqlite:///…"
        ) from None
    kind = parsed.get_backend_name()
    if kind not in _INSERTS:
        raise InvalidSpec.of("ledger", f"{parsed.drivername}://…", "postgresql and sqlite can keep it")
    if kind == "sqlite":
        return _sqlite(parsed)
    patience = {"connect_timeout": 10, "keepalives_idle": 30, "tcp_user_timeout": _PATIENCE * 1000}
    return _create(_with_driver(parsed), connect_args=patience)


def _with_driver(url: sa.URL) -> sa.URL:
    """Return the address with a driver that is there, if it names none."""
    if "+" in url.drivername:
        return url
    driver = "psycopg2" if importlib.util.find_spec("psycopg2") else "psycopg"
    return url.set(drivername=f"postgresql+{driver}")


def _sqlite(url: sa.URL) -> sa.Engine:
    engine = _create(url, connect_args={"timeout": _PATIENCE})

    @sa.event.listens_for(engine, "connect")
    def leave_transactions_to_us(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # else Python's driver begins them, at the first write only

    @sa.event.listens_for(engine, "begin")
    def take_the_file(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _create(url: sa.URL, connect_args: Mapping[str, Any]) -> sa.Engine:
    try:
        return sa.create_engine(url, poolclass=sa.NullPool, connect_args=dict(connect_args))
    except (ImportError, sa.exc.NoSuchModuleError) as error:
        raise InvalidSpec(f"ledger: the driver of {url.drivername} is not installed here: {error}") from error


def _open_claim(row: sa.Row[Any]) -> OpenClaim:
    claimant = Claimant(dag_id=row.dag_id, run_id=row.run_id, training_task_id=row.training_task_id)
    return OpenClaim(id=row.id, number=row.number, claimant=claimant, reported=row.reported, batches=row.batches)


def _batch(row: sa.Row[Any]) -> Batch:
    return Batch(id=row.batch_id, uri=row.uri, files=row.files, bytes=row.bytes, modified=row.modified)
