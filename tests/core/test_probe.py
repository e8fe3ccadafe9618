from __future__ import annotations

import ast
import hashlib
import itertools
import json
import math
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.fixtures import import_or_skip, skip_because
from event_files import (
    DOUBLE,
    FLOAT,
    INT32,
    STRING,
    event,
    events_file,
    number,
    part,
    real,
    record,
    scalar,
    tensor,
    varint,
    write,
)
from ptjob_provider.core.in_pod import find_checkpoint, probe_outputs
from ptjob_provider.core.outputs.contract import OutputFacts

if TYPE_CHECKING:
    from types import ModuleType


def look_at_model(path: Path, root: Path, **asked: Any) -> OutputFacts:
    report = probe_outputs.inspect({"model": str(path), "tfevents": None, "roots": {"model": str(root)}, **asked})
    return OutputFacts.from_dict(report["model"])


def look_at_events(path: Path, root: Path, since: float | None = None, **asked: Any) -> OutputFacts:
    places = {"model": None, "tfevents": str(path), "roots": {"tfevents": str(root)}}
    request = {**places, "since": since, **asked}
    return OutputFacts.from_dict(probe_outputs.inspect(request)["tfevents"])


def scalars_of(tmp_path: Path, *events: bytes) -> dict[str, Any]:
    write(tmp_path / "tb" / "events.out.tfevents.1", *events)
    return dict(look_at_events(tmp_path / "tb", tmp_path).scalars)


@pytest.mark.parametrize("program", [probe_outputs, find_checkpoint])
def test_the_file_runs_in_an_old_python(program: ModuleType) -> None:
    """The job's image may have Python 3.6, and nothing of this package."""
    tree = ast.parse(Path(str(program.__file__)).read_text(), feature_version=(3, 6))
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]

    assert {str(module).split(".")[0] for module in modules} <= sys.stdlib_module_names - {"__future__", "dataclasses"}


def test_a_model_file_is_described(tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.write_bytes(b"x" * 3_000_000)
    os.utime(model, (1.0, 1_800_000_000.5))

    facts = look_at_model(model, tmp_path)

    digest = hashlib.sha256(b"x" * 3_000_000).hexdigest()
    expected = OutputFacts(exists=True, files=1, bytes=3_000_000, sha256=digest, modified_at=1_800_000_000.5)
    assert facts == expected


def test_a_person_can_check_the_digest_of_a_model_directory(tmp_path: Path) -> None:
    """The command in the module's docstring gives the same digest; the newest file's time is the directory's."""
    skip_because("" if shutil.which("sha256sum") else "coreutils are not installed")
    model = tmp_path / "model"
    for name in ("a/x", "a-b/x", "a.txt", "é", "z/ y"):
        (model / name).parent.mkdir(parents=True, exist_ok=True)
        (model / name).write_text(name)
        os.utime(model / name, (1.0, 1000.0))
    os.utime(model / "a-b" / "x", (1.0, 2000.0))

    facts = look_at_model(model, tmp_path)

    command = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum"
    digest = subprocess.run(["sh", "-c", command], cwd=model, capture_output=True, check=True, text=True).stdout[:64]
    assert facts == OutputFacts(exists=True, is_dir=True, files=5, bytes=19, sha256=digest, modified_at=2000.0)


def test_an_empty_model_directory_has_no_digest(tmp_path: Path) -> None:
    (tmp_path / "model" / "empty").mkdir(parents=True)

    assert look_at_model(tmp_path / "model", tmp_path) == OutputFacts(exists=True, is_dir=True)


def test_a_file_name_that_is_no_text_does_no_harm(tmp_path: Path) -> None:
    """Linux allows any bytes; the report stays valid JSON that every database accepts."""
    directory = tmp_path / "tb" / os.fsdecode(b"run\xff")
    write(directory / "events.out.tfevents.1", event(1, scalar("a\0b", 1.0), scalar("x", 1.0)))
    write(tmp_path / "tb" / "events.out.tfevents.1", event(1, scalar("x", 2.0)))

    facts = look_at_events(tmp_path / "tb", tmp_path)

    assert facts.scalars == {"a\ufffdb": 1.0, "run\ufffd/x": 1.0, "x": 2.0}


def test_links_within_the_root_are_followed_to_a_file(tmp_path: Path) -> None:
    """`model.pt -> epoch3.pt` is a usual thing to write; the root itself may be reached through a link, too."""
    (tmp_path / "claim" / "out").mkdir(parents=True)
    (tmp_path / "claim" / "epoch3.pt").write_bytes(b"abc")
    (tmp_path / "claim" / "out" / "model.pt").symlink_to(tmp_path / "claim" / "epoch3.pt")
    root = tmp_path / "mounted"
    root.symlink_to("claim")

    assert look_at_model(root / "out" / "model.pt", root).bytes == 3
    assert look_at_model(root / "out", root).bytes == 3


def test_an_output_that_leaves_its_root_is_not_looked_at(tmp_path: Path) -> None:
    """Neither a link nor a path leaves a claim, also not into one whose name has the same prefix."""
    for name in ("claim", "claim2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "secret").write_bytes(b"abc")
    (tmp_path / "claim" / "model.pt").symlink_to(tmp_path / "claim2" / "secret")

    for path in ("model.pt", "../claim2/secret"):
        facts = look_at_model(tmp_path / "claim" / path, tmp_path / "claim")

        assert not facts.exists
        assert "is outside of" in facts.problem


def test_links_in_a_directory_are_not_followed_out_of_the_root_or_to_directories(tmp_path: Path) -> None:
    """The first problems are reported: a million bad links do not make a report of megabytes."""
    model = tmp_path / "claim" / "model"
    (model / "sub").mkdir(parents=True)
    (model / "weights").write_bytes(b"abc")
    (tmp_path / "secret").write_bytes(b"secret")
    (model / "away").symlink_to(tmp_path / "secret")
    (model / "dangling").symlink_to("nothing")
    (model / "latest").symlink_to("sub")
    os.mkfifo(model / "pipe")
    for index in range(4):
        (model / f"rest{index}").symlink_to("nothing")

    facts = look_at_model(model, tmp_path / "claim")

    assert (facts.files, facts.bytes) == (1, 3)
    assert facts.problem == (
        f"away: a link that leaves {tmp_path}/claim, not followed; dangling: No such file or directory; "
        "latest: a link to a directory, not followed; pipe: not a file; rest0: No such file or directory; and 3 more"
    )


def test_a_pipe_is_no_output(tmp_path: Path) -> None:
    """Opening one would block forever."""
    os.mkfifo(tmp_path / "model.pt")

    facts = look_at_model(tmp_path / "model.pt", tmp_path)

    assert (facts.exists, facts.problem) == (False, "it is neither a file nor a directory")


@pytest.mark.parametrize("target", ["nothing", "model.pt", "file/model.pt"])
def test_a_link_to_nothing_is_missing(tmp_path: Path, target: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "model.pt").symlink_to(target)

    assert look_at_model(tmp_path / "model.pt", tmp_path) == OutputFacts(exists=False)


def test_a_root_that_is_not_there_verifies_nothing(tmp_path: Path) -> None:
    """The claim is not mounted, which is not the training's fault."""
    with pytest.raises(FileNotFoundError):
        look_at_model(tmp_path / "claim" / "model.pt", tmp_path / "claim")


def test_a_way_that_cannot_be_gone_verifies_nothing(tmp_path: Path) -> None:
    """The name is longer than any file system allows, which stands for all storage errors."""
    with pytest.raises(OSError, match="File name too long"):
        look_at_model(tmp_path / ("x" * 300), tmp_path)


def test_a_path_that_is_not_absolute_is_refused(tmp_path: Path) -> None:
    """It would depend on the program's working directory."""
    with pytest.raises(ValueError, match=r"not an absolute path: 'model\.pt'"):
        look_at_model(Path("model.pt"), tmp_path)


def refuse(monkeypatch: pytest.MonkeyPatch, error: OSError, *, name: bytes = b"", mode: str = "rb") -> None:
    """Let opening a file of this name in this mode fail: root may open everything, whatever its permissions are."""

    def opened(path: bytes, how: str) -> Any:
        if path.endswith(name) and how == mode:
            raise error
        return Path(os.fsdecode(path)).open(how)

    monkeypatch.setattr(probe_outputs, "open", opened, raising=False)


def test_a_file_that_cannot_be_read_and_a_directory_that_vanishes_are_named_and_make_no_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory's digest without one of its files would be another model's."""
    (tmp_path / "model" / "gone").mkdir(parents=True)
    for name in ("a", "b", "c"):
        (tmp_path / "model" / name).write_bytes(b"abc")
    scandir = os.scandir

    def vanish(path: bytes) -> Any:
        if path.endswith(b"gone/"):
            Path(os.fsdecode(path)).rmdir()
        return scandir(path)

    monkeypatch.setattr(os, "scandir", vanish)
    refuse(monkeypatch, PermissionError(13, "Permission denied"), name=b"b")

    facts = look_at_model(tmp_path / "model", tmp_path)

    assert (facts.files, facts.bytes, facts.sha256) == (3, 9, "")
    assert facts.problem == "b: Permission denied; gone/: No such file or directory"


def test_files_of_earlier_trainings_are_not_read(tmp_path: Path) -> None:
    """A fixed directory keeps yesterday's longer training, whose values are not today's."""
    old = write(tmp_path / "tb" / "events.out.tfevents.1", event(900, scalar("acc", 0.9)))
    later = event(100, scalar("acc", 0.5), wall_time=2000.0)
    new = write(tmp_path / "tb" / "events.out.tfevents.2", event(99, scalar("old", 1.0), wall_time=1999.0), later)
    os.utime(old, (1000.0, 1000.0))
    os.utime(new, (2000.0, 2000.0))

    facts = look_at_events(tmp_path / "tb", tmp_path, since=2000.0)

    assert (facts.scalars, facts.last_step) == ({"acc": 0.5}, 100)
    assert (facts.files, facts.modified_at) == (2, 2000.0)


def test_the_run_is_a_part_of_the_name_where_two_runs_have_the_tag(tmp_path: Path) -> None:
    """Directories are runs, as in TensorBoard; files that are not event files are ignored."""
    write(tmp_path / "tb" / "events.out.tfevents.1", event(1, scalar("loss", 1.0)))
    write(tmp_path / "tb" / "lr" / "0.1" / "events.out.tfevents.1", event(1, scalar("loss", 2.0)))
    (tmp_path / "tb" / "notes.txt").write_text("no events")
    (tmp_path / "tb" / "tfevents.d").mkdir()

    facts = look_at_events(tmp_path / "tb", tmp_path)

    assert facts.scalars == {"loss": 1.0, "lr/0.1/loss": 2.0}
    assert (facts.files, facts.problem) == (2, "")


def test_a_tag_alone_names_a_scalar_of_the_only_run_that_has_it(tmp_path: Path) -> None:
    """No DAG could name the folders of Hugging Face's Trainer, of Lightning and of `add_hparams`."""
    write(tmp_path / "runs/Nov27_00-26-05_host" / "events.out.tfevents.1", event(1, scalar("train/loss", 1.0)))
    write(tmp_path / "events.out.tfevents.1", event(1, scalar("other", 2.0)))

    facts = look_at_events(tmp_path, tmp_path, curves=True)

    assert facts.scalars == {"train/loss": 1.0, "other": 2.0}
    assert facts.curves == {"train/loss": [[1, 1.0]], "other": [[1, 2.0]]}


def test_a_run_of_this_attempt_takes_the_place_of_an_earlier_ones(tmp_path: Path) -> None:
    """Lightning counts its versions on at each retry; a tag that only the earlier attempt wrote stays."""
    first = [event(5, scalar("loss", 0.5), scalar("setup", 1.0), wall_time=110.0)]
    write(tmp_path / "version_0" / "events.out.tfevents.1", *first)
    write(tmp_path / "version_1" / "events.out.tfevents.2", event(3, scalar("loss", 0.25), wall_time=210.0))

    facts = look_at_events(tmp_path, tmp_path, since=100.0, started=200.0)
    together = look_at_events(tmp_path, tmp_path, since=100.0, started=100.0)

    assert facts.scalars == {"loss": 0.25, "setup": 1.0}
    assert together.scalars == {"setup": 1.0, "version_0/loss": 0.5, "version_1/loss": 0.25}


def test_no_scalar_is_lost_to_another_of_the_same_name(tmp_path: Path) -> None:
    """The run `val` and a tag that begins with `val/`, and two runs with a tag that begins with a slash."""
    names = [("", "val/loss"), ("val", "loss"), ("train", "loss"), ("a", "/loss"), ("b", "/loss")]
    for value, (run, tag) in enumerate(names):
        write(tmp_path / run / "events.out.tfevents.1", event(1, scalar(tag, value)))

    found = look_at_events(tmp_path, tmp_path).scalars

    assert sorted(found.values()) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert {"a//loss", "b//loss"} <= set(found)


def test_a_single_event_file_may_be_the_output(tmp_path: Path) -> None:
    path = write(tmp_path / "events.out.tfevents.1", event(1, scalar("loss", 1.0)))

    facts = look_at_events(path, tmp_path)

    assert (facts.scalars, facts.is_dir, facts.sha256) == ({"loss": 1.0}, False, "")


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (number(1, FLOAT) + part(4, struct.pack("<f", 1.5)), 1.5),
        (number(1, FLOAT) + part(5, struct.pack("<f", 1.5)), 1.5),
        (number(1, FLOAT) + real(5, 1.5), 1.5),
        (number(1, FLOAT) + part(2, b""), 0.0),
        (number(1, DOUBLE) + part(2, b"") + part(6, struct.pack("<d", 0.1)), 0.1),
        (number(1, DOUBLE) + varint(6 << 3 | 1) + struct.pack("<d", 0.1), 0.1),
    ],
)
def test_a_scalar_may_be_a_tensor(tmp_path: Path, content: bytes, value: float) -> None:
    """As TensorFlow 2 and torch's new style write it: as bytes or typed, packed or not, absent for zero."""
    assert scalars_of(tmp_path, event(1, tensor("loss", content))) == {"loss": value}


@pytest.mark.parametrize(
    "value",
    [
        tensor("t", number(1, STRING) + part(8, b"text")),
        tensor("t", number(1, INT32) + number(7, 7)),
        tensor("t", number(1, FLOAT) + part(2, part(2, number(1, 1))) + real(5, 1.0)),
        tensor("t", number(1, FLOAT) + part(2, part(2, b"")) + real(5, 1.0)),
        tensor("t", number(1, FLOAT) + real(5, 1.0), plugin="custom"),
        part(1, part(1, b"t") + part(4, b"image")),
    ],
)
def test_values_that_are_no_scalars_are_left_out(tmp_path: Path, value: bytes) -> None:
    """Texts, images, histograms and tensors with dimensions; their steps are ignored too."""
    found = scalars_of(tmp_path, event(7, value), event(1, scalar("loss", 1.0)))

    assert found == {"loss": 1.0}
    assert look_at_events(tmp_path / "tb", tmp_path).last_step == 1


@pytest.mark.parametrize(("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_a_loss_that_is_no_number_is_seen(tmp_path: Path, value: float, text: str) -> None:
    """JSON has no number for it, so it is a string that `float()` parses."""
    found = scalars_of(tmp_path, event(1, scalar("loss", value)))

    assert found == {"loss": text}


@given(st.integers(min_value=0))
@settings(max_examples=50)
def test_a_file_that_was_cut_off_gives_what_is_whole(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    """A training that was killed while it wrote leaves such a file; that is not a problem."""
    tmp_path = tmp_path_factory.mktemp("cut")
    whole = events_file(*(event(step, scalar("loss", float(step))) for step in range(1, 4)))
    sizes = [
        len(events_file(*(event(step, scalar("loss", float(step))) for step in range(1, last)))) for last in range(2, 5)
    ]
    size = cut % len(whole)
    (tmp_path / "events.out.tfevents.1").write_bytes(whole[:size])

    facts = look_at_events(tmp_path, tmp_path)

    assert facts.last_step == (sum(size >= needed for needed in sizes) or None)
    assert facts.problem == ""


HUGE = struct.pack("<Q", 1 << 62)


@pytest.mark.parametrize(
    ("behind", "problem"),
    [
        (HUGE + struct.pack("<I", probe_outputs._masked_crc32c(HUGE)), ""),
        (b"\0" * 100, "events.out.tfevents.1: no event file from byte {} on"),
    ],
    ids=["a last record that was being written", "no event file"],
)
def test_events_before_a_record_that_ends_too_early_are_read(tmp_path: Path, behind: bytes, problem: str) -> None:
    """No memory is allocated for the length that a record says to have."""
    good = events_file(event(1, scalar("loss", 1.0)))
    (tmp_path / "events.out.tfevents.1").write_bytes(good + behind)

    facts = look_at_events(tmp_path, tmp_path)

    assert (facts.scalars, facts.problem) == ({"loss": 1.0}, problem.format(len(good)))


GARBAGE = st.binary(max_size=200)
DAMAGED_VALUE = st.builds(
    lambda garbage, field: event(1, part(1, part(1, b"bad") + part(field, garbage))),
    st.binary(max_size=60),
    st.sampled_from([1, 2, 5, 8, 9]),
)


@given(GARBAGE | GARBAGE.map(record) | DAMAGED_VALUE.map(record))
@settings(max_examples=500)
def test_garbage_is_a_problem_and_no_crash(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    """Whatever bytes are in a file, a record or a value, the report is JSON, and contains what was read before."""
    tmp_path = tmp_path_factory.mktemp("garbage")
    (tmp_path / "events.out.tfevents.1").write_bytes(events_file(event(1, scalar("good", 1.0))) + garbage)

    facts = look_at_events(tmp_path, tmp_path)

    assert facts.scalars["good"] == 1.0
    assert json.dumps(facts.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    "damaged",
    [
        b"\xff",
        part(5, b"\x0a\xff"),
        b"\xff" * 11,
        varint(5 << 3 | 3),
        part(5, tensor("t", number(1, FLOAT) + part(5, b"xy"))),
        varint(1 << 3 | 1) + b"short",
    ],
)
def test_a_damaged_record_is_skipped_and_counted(tmp_path: Path, damaged: bytes) -> None:
    write(tmp_path / "events.out.tfevents.1", damaged, event(1, scalar("loss", 1.0)), damaged)

    facts = look_at_events(tmp_path, tmp_path)

    assert facts.scalars == {"loss": 1.0}
    assert facts.problem == "events.out.tfevents.1: 2 records are no events"


def test_a_record_of_megabytes_is_not_read(tmp_path: Path) -> None:
    """It holds images; the scalars behind it are reported."""
    path = write(tmp_path / "events.out.tfevents.1")
    with path.open("ab") as stream:
        stream.write(record(b"\0" * (probe_outputs._MAX_RECORD + 1)) + record(event(1, scalar("loss", 1.0))))

    facts = look_at_events(tmp_path, tmp_path)

    assert (facts.scalars, facts.problem) == ({"loss": 1.0}, "")


def test_the_numbers_of_tags_and_curves_are_bounded(tmp_path: Path) -> None:
    """The first by name are kept, however many there are and in whatever order they come."""
    tags = [f"tag{index:03}" for index in range(probe_outputs.MAX_TAGS + 50)]
    values = [event(step, scalar(tag, step)) for step in (1, 2) for tag in reversed(tags)]
    write(tmp_path / "events.tfevents.1", *values, event(3, scalar("a" * 300, 1.0)))

    facts = look_at_events(tmp_path, tmp_path, curves=True)

    assert facts.scalars == dict.fromkeys(tags[: probe_outputs.MAX_TAGS], 2.0)
    assert list(facts.curves) == tags[: probe_outputs.MAX_CURVES]


def test_curves_are_reported_if_they_are_requested(tmp_path: Path) -> None:
    """Points by step; a resumed training overwrites the points that it writes again; NaN is a string."""
    write(tmp_path / "events.tfevents.1", *(event(step, scalar("loss", 4.0 / step)) for step in (1, 2, 4)))
    again = [(4, 0.5), (8, math.nan)]
    write(tmp_path / "events.tfevents.2", *(event(step, scalar("loss", value), wall_time=2.0) for step, value in again))

    assert look_at_events(tmp_path, tmp_path).curves == {}
    assert look_at_events(tmp_path, tmp_path, curves=True).curves == {
        "loss": [[1, 4.0], [2, 2.0], [4, 0.5], [8, "NaN"]]
    }


@pytest.mark.parametrize(
    "count", [1, probe_outputs.MAX_POINTS, probe_outputs.MAX_POINTS + 1, 5 * probe_outputs.MAX_POINTS + 3]
)
def test_a_long_curve_is_thinned_out_evenly_and_keeps_its_end(tmp_path: Path, count: int) -> None:
    """A training of a million steps is reported in as many points as a chart shows."""
    write(tmp_path / "events.tfevents.1", *(event(step, scalar("loss", float(step))) for step in range(count)))

    (points,) = look_at_events(tmp_path, tmp_path, curves=True).curves.values()

    steps = [step for step, _ in points]
    gaps = [after - before for before, after in itertools.pairwise(steps)]
    assert steps[-1] == count - 1
    assert min(count, probe_outputs.MAX_POINTS / 4) <= len(steps) <= probe_outputs.MAX_POINTS
    assert not gaps or max(gaps) <= 2 * min(gaps[:-1] or gaps)


def test_torchs_own_writer_is_read(tmp_path: Path) -> None:
    """Old and new style, double precision, groups of scalars, and all that is not a scalar."""
    import_or_skip("tensorboard")
    tensorboard = import_or_skip("torch.utils.tensorboard")
    torch = import_or_skip("torch")
    with tensorboard.SummaryWriter(str(tmp_path / "tb")) as writer:
        for step in range(5):
            writer.add_scalar("loss/train", 1.0 / (step + 1), step)
            writer.add_scalar("new", step + 0.1, step, new_style=True)
            writer.add_scalar("double", step + 0.1, step, new_style=True, double_precision=True)
            writer.add_scalars("group", {"a": step, "b": -step}, step)
        writer.add_text("text", "words", 9)
        writer.add_histogram("histogram", torch.arange(10.0), 9)
        writer.add_hparams({"lr": 0.1}, {"hparam/acc": 0.5}, run_name="hp")

    facts = look_at_events(tmp_path / "tb", tmp_path)

    assert facts.scalars == {
        "loss/train": pytest.approx(0.2),
        "new": pytest.approx(4.1),
        "double": 4.1,
        "group_a/group": 4.0,
        "group_b/group": -4.0,
        "hparam/acc": 0.5,
    }
    assert (facts.last_step, facts.problem) == (4, "")


RECORDS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.floats(0, 9, width=32)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(files=st.lists(RECORDS, min_size=1, max_size=3))
def test_the_greatest_step_counts_and_of_the_same_step_the_last_record(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[int, int, float]]]
) -> None:
    """A training that was resumed repeats steps in a new file; its records have a later time."""
    folder = tmp_path_factory.mktemp("tb")
    for index, records in enumerate(files):
        encoded = [event(step, scalar("loss", value), wall_time=when) for step, when, value in records]
        write(folder / f"events.out.tfevents.{index}", *encoded)
    kept = sorted((record for records in files for record in records), key=lambda record: record[:2])

    facts = look_at_events(folder, folder, curves=True)

    assert facts.last_step == (kept[-1][0] if kept else None)
    assert facts.scalars == ({"loss": kept[-1][2]} if kept else {})
    assert [step for step, _ in facts.curves.get("loss", ())] == sorted({step for step, *_ in kept})


def curve(*times: float, tag: str = "loss") -> list[bytes]:
    return [event(step, scalar(tag, 1.0), wall_time=when) for step, when in enumerate(times)]


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        (curve(1, 2, 3), curve(1.5, 2.5), True),
        (curve(1, 2, 3), curve(4, 5), False),
        (curve(1, 2, 3), curve(1.5, 2.5, tag="acc"), False),
    ],
)
def test_two_writers_of_a_tag_are_named_and_a_restart_is_not(
    tmp_path: Path, first: list[bytes], second: list[bytes], *, named: bool
) -> None:
    """Two ranks or two jobs in one folder write at the same time; a restarted training writes after the one before."""
    write(tmp_path / "events.out.tfevents.1.a", *first)
    write(tmp_path / "events.out.tfevents.2.b", *second)

    found = look_at_events(tmp_path, tmp_path, since=0.5).remarks

    assert len(found) == named
    assert all("loss has two writers" in text and "1.a, events.out.tfevents.2.b" in text for text in found)


def listed(top: Path, root: Path) -> dict[str, Any]:
    return probe_outputs.listing({"model": str(top), "roots": {"model": str(root)}})


def test_a_file_that_was_there_before_the_start_is_older_whatever_its_time_is(tmp_path: Path) -> None:
    """A clock that was ahead gives a file a time in the future; a copy may keep the time of its original."""
    (tmp_path / "model").write_bytes(b"abc")
    os.utime(tmp_path / "model", (4e9, 4e9))
    before = json.loads(json.dumps(listed(tmp_path / "model", tmp_path)))

    unchanged = look_at_model(tmp_path / "model", tmp_path, since=1e9, before=before)
    (tmp_path / "new").write_bytes(b"xyz")
    os.utime(tmp_path / "new", (4e9, 4e9))
    (tmp_path / "new").replace(tmp_path / "model")
    replaced = look_at_model(tmp_path / "model", tmp_path, since=1e9, before=before)

    assert (unchanged.is_stale, replaced.is_stale) == (True, False)


def test_a_listing_names_all_files_of_an_output(tmp_path: Path) -> None:
    """Names need not be text, and nothing need be there."""
    for name in (b"a", b"sub/b\xff"):
        path = tmp_path / "model" / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "model" / "nowhere").symlink_to("nothing")

    assert listed(tmp_path / "absent", tmp_path) == {"model": {}}
    assert sorted(listed(tmp_path / "model", tmp_path)["model"]) == ["a", "sub/b\udcff"]


def test_records_of_a_file_that_is_new_count_whatever_their_time_is(tmp_path: Path) -> None:
    """A program may give its records times of its own; a file that goes on is read from the start on."""
    write(tmp_path / "events.out.tfevents.1", event(1, scalar("old", 1.0), wall_time=5.0))
    before = {"tfevents": listed(tmp_path, tmp_path)["model"]}
    write(
        tmp_path / "events.out.tfevents.1",
        event(1, scalar("old", 1.0), wall_time=5.0),
        event(2, scalar("on", 1.0), wall_time=100.0),
    )
    write(tmp_path / "events.out.tfevents.2", event(1, scalar("own", 1.0), wall_time=0.0))

    assert look_at_events(tmp_path, tmp_path, since=100.0, before=before).scalars == {"on": 1.0, "own": 1.0}


def test_a_model_directory_is_as_new_as_its_newest_file_and_older_ones_are_named(tmp_path: Path) -> None:
    """A shard of an earlier run is a part of what the next program loads, so its digest counts it."""
    for name, when in (("shard-1", 2000.0), ("shard-2", 1000.0)):
        (tmp_path / "model").mkdir(exist_ok=True)
        (tmp_path / "model" / name).write_bytes(b"abc")
        os.utime(tmp_path / "model" / name, (when, when))

    mixed = look_at_model(tmp_path / "model", tmp_path, since=1500.0)
    older = look_at_model(tmp_path / "model", tmp_path, since=2500.0)

    assert (mixed.is_stale, older.is_stale) == (False, True)
    assert mixed.remarks == ["shard-2: older than the job, and counted as a part of the model"]
    assert (mixed.files, mixed.sha256) == (2, older.sha256)


@pytest.mark.parametrize(("age", "is_stale"), [(0.5, False), (1.5, True), (100.0, True)])
def test_a_file_is_dated_by_the_clock_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, *, is_stale: bool
) -> None:
    """The machine that inspects is an hour ahead of the storage; no allowance is left, and no file either."""
    model = tmp_path / "out" / "model"
    model.parent.mkdir()
    model.write_bytes(b"abc")
    now = model.stat().st_mtime
    os.utime(model, (now - age, now - age))
    monkeypatch.setattr(probe_outputs.time, "time", lambda: now + 3600)

    facts = look_at_model(model, tmp_path, since=now + 3600 - 1, reads_clock=True)

    assert (facts.is_stale, facts.in_doubt, facts.remarks) == (is_stale, False, [])
    assert [each.name for each in model.parent.iterdir()] == ["model"]


def test_a_file_that_a_killed_inspection_left_is_no_part_of_the_model(tmp_path: Path) -> None:
    """Its empty file would be newer than the job, and change the digest."""
    (tmp_path / "weights").write_bytes(b"abc")
    without = look_at_model(tmp_path, tmp_path)
    (tmp_path / f"{os.fsdecode(probe_outputs.CLOCK_FILE)}1").touch()

    assert look_at_model(tmp_path, tmp_path) == without


@pytest.mark.parametrize(
    ("age", "is_stale", "in_doubt"), [(-121, False, False), (-119, False, True), (119, False, True), (121, True, False)]
)
def test_two_minutes_are_allowed_and_in_doubt_where_the_clock_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, *, is_stale: bool, in_doubt: bool
) -> None:
    """A claim that is full or cannot be written to; the warning names the file."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(b"abc")
    os.utime(tmp_path / "model" / "weights", (5000.0 - age, 5000.0 - age))
    refuse(monkeypatch, OSError(30, "Read-only file system"), mode="wb")

    facts = look_at_model(tmp_path / "model", tmp_path, since=5000.0, reads_clock=True)

    assert (facts.is_stale, facts.in_doubt) == (is_stale, in_doubt)
    assert any("weights: may be" in text and "(Read-only file system)" in text for text in facts.remarks) == in_doubt


def test_clocks_that_cannot_be_compared_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(b"abc")
    now = (tmp_path / "model").stat().st_mtime
    request = {"model": str(tmp_path / "model"), "roots": {"model": str(tmp_path)}, "since": now + 60}

    apart = probe_outputs.inspect({**request, "reads_clock": True, "doubt": "the node is an hour ahead"})
    compared = probe_outputs.inspect({**request, "reads_clock": True})

    assert (apart["clock"], apart["model"]["in_doubt"]) == (None, True)
    assert (compared["clock"] >= now, compared["model"]["is_stale"]) == (True, True)
