"""Tests of data arrival: which files form a batch, when a batch is announced, and that none is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptjob_provider.retraining.batches import (
    LONGEST_NAME,
    MOST_BATCHES,
    REMEMBERED,
    SWEEP,
    Arrivals,
    BatchRules,
    StoredFile,
    Watermark,
    group,
    payloads,
)
from ptjob_provider.retraining.reservations import batches_of
from ptjob_provider.retraining.troubles import SourceTrouble, Troubles, pause_after
from rows import each_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ptjob_provider.retraining.batches import ArrivedBatch

MARKED = BatchRules()
UNMARKED = BatchRules(marker=None)
FILES = BatchRules(batch="file", marker=None)
SETTLE = 60.0


def file(path: str, size: int = 1, mark: str = "1", modified: str = "2026-11-22T10:00:00+00:00") -> StoredFile:
    """Return a file as a store lists it."""
    return StoredFile(path, size, mark, modified)


def ids(*files: StoredFile, rules: BatchRules = UNMARKED) -> list[str]:
    """Return the batch ids of these files."""
    return [batch.id for batch in group(files, rules, began=0.0).batches]


class Watched:
    """A watcher that is given one listing after another."""

    def __init__(self, rules: BatchRules = MARKED, watermark: Watermark | None = None) -> None:
        self.rules = rules
        self.arrivals = Arrivals(rules, settle_seconds=SETTLE, watermark=watermark)

    def look(self, now: float, *files: StoredFile) -> list[str]:
        """Return the names of the batches that are announced."""
        return [batch.name for batch in self.announced(now, files)]

    def announced(self, now: float, files: Iterable[StoredFile]) -> list[ArrivedBatch]:
        """Return the batches that are announced after this listing."""
        listing = group(files, self.rules, began=now)
        ready = self.arrivals.ready(listing)
        self.arrivals.take(ready)
        self.arrivals.sweep(listing)
        return ready

    def restarted(self) -> Watched:
        """Return a watcher that continues from the stored watermark."""
        return Watched(self.rules, Watermark.from_pages(self.arrivals.watermark.pages()))


LONG = "b" * (LONGEST_NAME + 1)
DATA, MARKER = file("b/1.npz"), file("b/_SUCCESS", 0)


def test_the_size_of_a_batch_is_cut_to_what_an_event_can_hold() -> None:
    """A sparse file may report 8 EiB; the sum over 200 such batches still fits into an event."""
    listing = group([file("b/1", 2**63 - 1), file("b/2", 2**63 - 1)], UNMARKED, began=0.0)

    assert [batch.size for batch in listing.batches] == [2**53 - 1]
    (said,) = payloads("file:///drop", listing.batches * MOST_BATCHES, together=True)
    assert said["bytes"] < 2**63


@each_row("path", ["b/_temporary/0/x", "b/.part-0", "_logs/x", ".hidden/x", "b/.x/y"])
def test_hidden_names_are_no_data(path: str) -> None:
    """As in Spark, names with a leading dot or underscore are work in progress."""
    assert ids(file(path), file("c/1")) == ids(file("c/1"))
    assert ids(file(path), rules=FILES) == []


def test_the_pattern_chooses_batches_by_name() -> None:
    listing = group([file("day-1/x"), file("tmp/x")], BatchRules(pattern="day-*"), began=0.0)

    assert [batch.name for batch in listing.batches] == ["day-1"]


@each_row(
    "other",
    [
        [file("b/2.npz")],
        [file("b/x/1.npz")],
        [replace(DATA, size=2)],
        [replace(DATA, mark="2")],
        [DATA, file("b/2.npz")],
    ],
)
def test_another_content_is_another_id(other: list[StoredFile]) -> None:
    assert ids(*other) != ids(DATA)


def test_the_id_does_not_depend_on_marker_or_dates() -> None:
    """Touching the marker again changes nothing, and the clock of a store may be wrong."""
    first, second = file("b/1"), file("b/2")

    assert ids(first, second) == ids(first, second, MARKER, rules=MARKED)
    assert ids(replace(first, modified="2030-01-01T00:00:00+00:00"), second) == ids(first, second)


def test_a_marked_batch_is_announced_once_two_listings_agree() -> None:
    """The first listing may contain the marker and lack a file that was written before it."""
    watched = Watched()

    assert watched.look(0, DATA) == []
    assert watched.look(10, DATA, MARKER) == []
    assert watched.look(11, DATA, file("b/2.npz"), MARKER) == []
    assert watched.look(12, DATA, file("b/2.npz"), MARKER) == ["b"]
    assert watched.look(13, DATA, file("b/2.npz"), MARKER) == []


def test_the_same_listing_confirms_nothing() -> None:
    """The same listing is evaluated again after a part of its batches was announced."""
    watched = Watched()

    assert watched.look(5, DATA, MARKER) == []
    assert watched.look(5, DATA, MARKER) == []


def test_a_batch_without_marker_settles() -> None:
    """A batch settles when it has not changed for that time on the watcher's clock."""
    watched = Watched(UNMARKED)

    assert watched.look(0, DATA) == []
    assert watched.look(50, DATA) == []
    assert watched.look(55, replace(DATA, size=9)) == []
    assert watched.look(110, replace(DATA, size=9)) == []
    assert watched.look(115, replace(DATA, size=9)) == ["b"]


def test_a_rewritten_batch_is_announced_again_when_it_has_settled() -> None:
    """The marker belongs to the first version, so it does not apply to the second one, or ask for a second look."""
    watched = Watched()
    watched.look(0, DATA, MARKER)
    assert watched.arrivals.needs_confirmation(group([DATA, MARKER], MARKED, began=0.0))
    assert watched.look(1, DATA, MARKER) == ["b"]
    late = file("b/late.npz")
    listing = group([DATA, late, MARKER], MARKED, began=2.0)

    assert watched.look(2, DATA, late, MARKER) == []
    assert not watched.arrivals.needs_confirmation(listing)
    assert watched.look(3, DATA, late, MARKER) == []
    assert watched.look(62, DATA, late, MARKER) == ["b"]


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([DATA, StoredFile("b/_SUCCESS", is_folder=True)], "its _SUCCESS is a folder"),
        ([MARKER], "no data"),
        ([file("a\nb/1"), file("a\nb/_SUCCESS")], "cannot be printed"),
        ([file(f"{LONG}/1"), file(f"{LONG}/_SUCCESS")], "more than 487 characters"),
        ([DATA, MARKER, StoredFile("b/", is_folder=True, trouble="/b may not be read")], "/b may not be read"),
    ],
    ids=["a folder as marker", "a marker alone", "a broken name", "a long name", "a folder that may not be read"],
)
def test_a_malformed_batch_is_reported_and_waits(files: list[StoredFile], said: str) -> None:
    watched = Watched()
    good = (file("good/1"), file("good/_SUCCESS"))
    listing = group([*files, *good], MARKED, began=0.0)

    assert [said in text for text in listing.oddities.values()] == [True]
    assert watched.look(0, *files, *good) == []
    assert watched.look(1, *files, *good) == ["good"]


def test_a_folder_of_batches_that_cannot_be_read_is_reported_and_its_batches_wait() -> None:
    """The marker of a batch may be in a listing that ends before its data."""
    watched = Watched(BatchRules(depth=2))
    cut = StoredFile("2026/", is_folder=True, trouble="it has more than 100,000 files and folders")
    files = [file("2026/11/1"), file("2026/11/_SUCCESS"), file("2026/12/_SUCCESS"), cut]
    good = (file("2025/11/1"), file("2025/11/_SUCCESS"))
    hidden = StoredFile("_logs/", is_folder=True, trouble="'_logs' may not be read")

    assert group([*files, *good, hidden], watched.rules, began=0.0).oddities == {"2026": cut.trouble}
    assert watched.look(0, *files, *good) == []
    assert watched.look(1, *files, *good) == ["2025/11"]


def test_a_batch_with_the_longest_name_can_be_reserved() -> None:
    listing = group([file(f"{'b' * LONGEST_NAME}/1")], UNMARKED, began=0.0)

    (event,) = payloads("s3://bucket", listing.batches, together=False)

    assert listing.oddities == {}
    assert [len(batch.id) for batch in batches_of(event)[0]] == [500]


def test_a_deleted_batch_is_forgotten_after_a_day_and_not_before() -> None:
    """A truncated listing must not cause a second announcement when the batch reappears."""
    watched = Watched()
    other = (file("c/1"), file("c/_SUCCESS"))
    watched.look(0, DATA, MARKER, *other)
    assert watched.look(1, DATA, MARKER, *other) == ["b", "c"]

    assert watched.look(SWEEP + 1, *other) == []
    assert watched.look(SWEEP + 2, DATA, MARKER, *other) == []
    assert len(watched.arrivals.watermark) == 2
    for now in (2 * SWEEP + 1, 3 * SWEEP + 1, 2 * SWEEP + REMEMBERED):
        watched.look(now, *other)
    assert len(watched.arrivals.watermark) == 2
    watched.look(3 * SWEEP + REMEMBERED, *other)
    assert len(watched.arrivals.watermark) == 1


def test_an_empty_source_makes_nothing_forgotten() -> None:
    """An unmounted volume looks empty."""
    watched = Watched()
    watched.look(0, DATA, MARKER)
    watched.look(1, DATA, MARKER)

    for day in range(1, 5):
        watched.look(day * REMEMBERED)

    assert len(watched.arrivals.watermark) == 1


def test_the_watermark_of_ten_thousand_batches_is_three_pages() -> None:
    """Each page is below the 64 KB at which Airflow warns; a new batch changes only the last page."""
    files = [file(f"batch-{number:05d}/1") for number in range(10_000)]
    watermark = Watermark()
    watermark.add(group(files, UNMARKED, began=0.0).batches)
    before = watermark.pages()
    watermark.add(group([file("one-more/1")], UNMARKED, began=0.0).batches)
    after = watermark.pages()

    assert [len(page) for page in before] == [63_468, 63_468, 59_736]
    assert before[:-1] == after[:-1]
    assert Watermark.from_pages(after).pages() == after


@pytest.mark.parametrize("page", [None, 7, "no base64!", "AAAA"])
def test_a_page_that_cannot_be_read_is_empty(page: object) -> None:
    """Its batches are announced again with the same ids."""
    assert len(Watermark.from_pages([page])) == 0


def test_a_batch_that_only_one_of_two_assets_has_is_announced_again() -> None:
    """An asset that was added later has had no event for these batches."""
    one, two = (group([file(f"{name}/1")], UNMARKED, began=0.0).batches for name in "ab")
    first, second = Watermark(), Watermark()
    first.add([*one, *two])
    second.add(one)

    assert first.common(second).keys() == second.keys()


def test_an_event_says_what_arrived() -> None:
    batches = group([file("b/1", 3), file("b/2", 4, modified="2026-11-22T11:00:00+00:00")], UNMARKED, began=0.0).batches

    (said,) = payloads("s3://bucket/incoming/", batches, together=False)

    assert said == {
        "source": "s3://bucket/incoming/",
        "version": batches[0].id,
        "batches": [
            {
                "id": batches[0].id,
                "uri": "s3://bucket/incoming/b",
                "files": 2,
                "bytes": 7,
                "modified": "2026-11-22T11:00:00+00:00",
            }
        ],
        "files": 2,
        "bytes": 7,
    }
    assert batches[0].id == "b@" + batches[0].stamp.hex()


@pytest.mark.parametrize(("together", "expected"), [(True, [MOST_BATCHES, MOST_BATCHES, 1]), (False, [1] * 401)])
def test_many_batches_are_several_events(together: bool, expected: list[int]) -> None:  # noqa: FBT001
    """One event per batch, or as many batches per event as the limit allows; the version identifies the content."""
    batches = group([file(f"{number:04d}/1") for number in range(401)], UNMARKED, began=0.0).batches

    said = list(payloads("/in", batches, together=together))
    again = list(payloads("/in", batches[:MOST_BATCHES][::-1], together=together))

    assert [len(each["batches"]) for each in said] == expected
    assert len({each["version"] for each in said}) == len(expected)
    if together:
        assert again[0]["version"] == said[0]["version"]
        assert said[0]["version"].startswith("200-batches@")


def test_trouble_is_said_once_and_once_that_it_is_over() -> None:
    troubles = Troubles("s3://b")
    denied, away = SourceTrouble("permission", "it may not be listed"), SourceTrouble("slow", "no answer")

    said = [troubles.failed(each, now) for now, each in enumerate([denied, denied, away, denied])]

    assert [bool(text) for text in said] == [True, False, True, False]
    assert str(said[0]).startswith("s3://b: it may not be listed. Nothing is lost")
    assert troubles.failures == 4
    assert troubles.worked(10.0) == "s3://b: can be listed again, 10 s and 4 attempts after the first failure"
    assert troubles.worked(11.0) is None
    assert troubles.failed(denied, 12.0) is not None
    assert troubles.worked(13.0) == "s3://b: can be listed again, 1 s and 1 attempt after the first failure"


@each_row(
    ("failures", "poll", "least", "most"),
    [(0, 60, 60, 66), (1, 60, 60, 90), (3, 60, 240, 360), (40, 60, 900, 1350), (1, 1, 5, 7.5), (1, 3600, 3600, 5400)],
)
def test_trouble_makes_looks_rarer_and_never_more_frequent(
    failures: int, poll: float, least: float, most: float
) -> None:
    """The jitter adds up to half of the pause."""
    assert pause_after(failures, poll, 0.0) == least
    assert pause_after(failures, poll, 1.0) == pytest.approx(most)


NAMES = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), NAMES, st.integers(1, 90)),
        st.tuples(st.just("mark"), NAMES, st.just(0)),
        st.tuples(st.just("delete"), NAMES, st.just(0)),
        st.tuples(st.just("look"), NAMES, st.integers(1, 200)),
        st.tuples(st.just("kill before it is written"), NAMES, st.just(0)),
        st.tuples(st.just("lose the watermark"), NAMES, st.just(0)),
        st.tuples(st.just("cut a listing short"), NAMES, st.integers(1, 200)),
    ),
    max_size=40,
)


class Scenario:
    """A store, its consecutive watchers, and all events."""

    def __init__(self, rules: BatchRules) -> None:
        self.rules = rules
        self.store: dict[str, StoredFile] = {}
        self.watched = Watched(rules)
        self.written = self.watched
        self.events: Counter[str] = Counter()
        self.now = 0.0

    def play(self, what: str, name: str, amount: int) -> None:
        """Apply one step."""
        self.now += amount
        getattr(self, what.replace(" ", "_"))(name, amount)

    def write(self, name: str, amount: int) -> None:
        self.store[f"{name}/{amount}"] = file(f"{name}/{amount}", amount, str(self.now))

    def mark(self, name: str, _amount: int) -> None:
        self.store[f"{name}/_SUCCESS"] = file(f"{name}/_SUCCESS", 0)

    def delete(self, name: str, _amount: int) -> None:
        self.store = {path: each for path, each in self.store.items() if not path.startswith(name)}

    def look(self, _name: str = "", _amount: int = 0) -> None:
        self._list(list(self.store.values()))
        self.written = self.watched.restarted()

    def cut_a_listing_short(self, _name: str, _amount: int) -> None:
        self._list(list(self.store.values())[: len(self.store) // 2])
        self.written = self.watched.restarted()

    def kill_before_it_is_written(self, _name: str, _amount: int) -> None:
        self._list(list(self.store.values()))
        self.watched = self.written.restarted()

    def lose_the_watermark(self, _name: str, _amount: int) -> None:
        self.watched = self.written = Watched(self.rules)

    def settle(self) -> None:
        """Let time pass without a change in the store."""
        for _ in range(3):
            self.now += 2 * SETTLE
            self.look()

    def _list(self, files: list[StoredFile]) -> None:
        self.events.update(batch.id for batch in self.watched.announced(self.now, files))


@settings(max_examples=300, deadline=None)
@given(steps=STEPS, rules=st.sampled_from([MARKED, UNMARKED]))
def test_no_complete_batch_is_lost_whatever_happens(steps: list[tuple[str, str, int]], rules: BatchRules) -> None:
    """Each complete batch in the final store was announced, and its id depends only on its content."""
    scenario = Scenario(rules)

    for step in steps:
        scenario.play(*step)
    scenario.settle()
    before = Counter(scenario.events)
    scenario.settle()

    batches = group(scenario.store.values(), rules, began=scenario.now).batches
    expected = {batch.id for batch in batches if batch.is_marked or not rules.has_markers}
    assert expected <= set(before)
    assert scenario.events == before
    scenario.play("lose the watermark", "", 0)
    scenario.settle()
    assert scenario.events - before == Counter(expected)


PATHS = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1), min_size=1, max_size=3)
STORED = st.builds(StoredFile, PATHS.map("/".join), st.integers(0, 9), st.text(max_size=3))


@given(st.lists(STORED, max_size=12), st.randoms(use_true_random=False), st.booleans())
def test_any_listing_makes_the_same_batches_in_any_order(
    files: list[StoredFile],
    random: object,
    whole: bool,  # noqa: FBT001
) -> None:
    rules = FILES if whole else UNMARKED
    once = list({each.path: each for each in files}.values())
    shuffled = list(once)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert group(once, rules, began=0.0) == group(shuffled, rules, began=0.0)
