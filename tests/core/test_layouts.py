"""Tests of what is said about a source whose files make no complete batch."""

from __future__ import annotations

from ptjob_provider.retraining.batches import BatchRules, Listing, StoredFile, group
from rows import each_row

PARTITIONED = ("year=2026/month=11/day=27/a.parquet", "year=2026/month=11/day=28/a.parquet")


def listed(*paths: str, rules: BatchRules | None = None) -> Listing:
    return group([StoredFile(path, 1, "1") for path in paths], rules or BatchRules(), began=0.0)


@each_row(
    ("paths", "rules", "found"),
    [
        ((), {}, "it has no data yet"),
        (("_temporary/0/a",), {}, "it has no data yet"),
        ((), {"batch": "file", "marker": None}, "it has no data yet"),
        (("a.parquet", "b.parquet"), {}, "'a.parquet': batch='file'"),
        (("2026/11/27/a", "2026/11/27/_SUCCESS"), {}, "'2026/11/27/_SUCCESS', 3 folders deep: depth=3 reads that"),
        (("a/x", "a/_success"), {}, "1 folder deep: marker='_success' reads that"),
        (("a/x", "a/_SUCCESS.txt"), {}, "marker='_SUCCESS.txt' reads that"),
        (("a/b/x", "a/b/_success", "a/b/_SUCCESS"), {}, "2 folders deep: depth=2 reads that"),
        (
            ("a/x", "a/_started_1", "a/_committed_1"),
            {},
            "marker=None reads that",
        ),
        (PARTITIONED, {}, "3 folders deep: marker=None, depth=3 reads that"),
        (("a/x",), {}, "'a/x', 1 folder deep: marker=None reads that"),
        (("a/x",), {"marker": None, "depth": 2}, "depth=1 reads that"),
        (("a",), {"marker": None}, "batch='file'"),
        (("a/x",), {"marker": None, "pattern": "b"}, "it has 'a/x', 1 folder deep, and no name that pattern='b' takes"),
    ],
)
def test_the_advice_about_a_source_without_a_batch_names_the_argument_that_reads_it(
    paths: tuple[str, ...], rules: dict[str, object], found: str
) -> None:
    assert found in listed(*paths, rules=BatchRules(**rules)).advice  # type: ignore[arg-type]


@each_row(
    ("paths", "rules"),
    [
        (("a/x", "a/_SUCCESS", "b.txt"), {}),
        (("2026/11/27/a", "2026/11/27/_SUCCESS"), {"depth": 3}),
        (PARTITIONED, {"depth": 3, "marker": None}),
        (("a",), {"batch": "file", "marker": None}),
    ],
)
def test_a_source_with_a_batch_needs_no_advice(paths: tuple[str, ...], rules: dict[str, object]) -> None:
    listing = listed(*paths, rules=BatchRules(**rules))  # type: ignore[arg-type]

    assert listing.batches
    assert listing.advice == ""


def test_the_advice_makes_batches_of_nested_folders() -> None:
    files = ("2026/11/27/a", "2026/11/27/deep/b", "2026/11/27/_SUCCESS", "2026/11/_tmp/x", "2026/notes")

    (batch,) = listed(*files, rules=BatchRules(depth=3)).batches

    assert (batch.name, batch.files, batch.is_marked) == ("2026/11/27", 2, True)
    assert batch.to_dict("s3://in")["uri"] == "s3://in/2026/11/27"
