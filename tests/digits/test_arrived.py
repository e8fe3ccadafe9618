"""Tests of training on batches of digits that arrive as files."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest

import s3_server
from cluster.fixtures import skip_because
from digits.programs import DIGITS, NEEDED, TRAIN, load, run_ranks
from digits.programs import run_loaded as run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

pytestmark = NEEDED


@pytest.fixture(scope="module")
def incoming(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two batches of 60 and 90 images, written by deliver.py."""
    folder = tmp_path_factory.mktemp("incoming")
    for name, first, count in (("001", 0, 60), ("002", 60, 90)):
        delivered = run(DIGITS / "deliver.py", "--to", folder / name, "--first", str(first), "--count", str(count))
        assert delivered.code == 0, delivered.output
    return folder


@pytest.fixture
def arrived(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load("arrived", monkeypatch)


@pytest.fixture
def held_out(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load("data", monkeypatch).load().held_out


def write(path: Path, images: Any, labels: Any) -> None:
    """Write a file of a batch with any content."""
    import numpy as np  # noqa: PLC0415 - comes with an extra

    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, images=images, labels=labels)


def file_facts(path: Path) -> dict[str, Any]:
    """Return the expected record of a file that was read."""
    content = path.read_bytes()
    return {"path": path.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def read_files(batch: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the recorded files of a batch."""
    return [{name: file[name] for name in ("path", "bytes", "sha256")} for file in batch["files"]]


def test_two_ranks_train_on_what_has_arrived_and_rank_0_says_what_it_has_read(incoming: Path, tmp_path: Path) -> None:
    """A batch given twice, by address and by manifest, is read once; each file is recorded with its hash."""
    manifest = tmp_path / "manifest.txt"
    manifest.write_text(f'{incoming}/002\n\n{{"id": "001@0", "uri": "file://{incoming}/001"}}\n')
    model = tmp_path / "models" / "1" / "model.pt"

    ranks = run_ranks(
        TRAIN, "--data", f"{incoming}/001,{incoming}/002", "--data", f"@{manifest}", "--epochs=1", "--save_path", model
    )

    assert [rank.code for rank in ranks] == [0, 0], ranks[0].output
    assert "rank 0 of 2 on cpu, 105 of 210 images per rank" in ranks[0].output
    found = json.loads((model.parent / "trained_on.json").read_text())
    assert [batch["uri"] for batch in found["batches"]] == [
        f"{incoming}/001",
        f"{incoming}/002",
        f"file://{incoming}/001",
    ]
    assert read_files(found["batches"][1]) == [
        file_facts(incoming / "002" / f"part-00{number}.npz") for number in (0, 1)
    ]
    assert [file["images"] for file in found["batches"][1]["files"]] == [45, 45]
    assert found["parameters"] == ranks[0].find(r"parameters agree on 2 ranks: (\w+)")
    assert sorted(path.name for path in model.parent.iterdir()) == ["model.pt", "trained_on.json"]


def test_a_batch_in_a_bucket_is_delivered_and_trained_on_as_one_in_a_folder(incoming: Path, tmp_path: Path) -> None:
    """A real S3 server; both programs are configured by the variables of Amazon's own tools."""
    skip_because(s3_server.unmet())
    batch, model = "s3://training-data/incoming/001", tmp_path / "model.pt"
    with s3_server.running() as server:
        server.files.mkdir("training-data")
        env = {
            "AWS_ACCESS_KEY_ID": s3_server.OWNER,
            "AWS_SECRET_ACCESS_KEY": server.password,
            "AWS_ENDPOINT_URL": server.endpoint,
        }
        delivered = run(DIGITS / "deliver.py", "--to", batch, "--first", "0", "--count", "60", env=env)
        trained = run(TRAIN, "--data", batch, "--epochs", "1", "--save_path", model, env=env)

    assert delivered.code == 0, delivered.output
    assert trained.code == 0, trained.output
    (found,) = json.loads(model.with_name("trained_on.json").read_text())["batches"]
    assert found["uri"] == batch
    assert read_files(found) == [file_facts(path) for path in sorted((incoming / "001").glob("*.npz"))]


def test_the_data_version_of_the_environment_is_written_down(incoming: Path, tmp_path: Path) -> None:
    ended = run(
        TRAIN,
        *("--data", incoming / "001", "--epochs", "1"),
        env={"PTJOB_MODEL_PATH": str(tmp_path / "model.pt"), "PTJOB_DATA_VERSION": "v7"},
    )

    assert ended.code == 0, ended.output
    assert json.loads((tmp_path / "trained_on.json").read_text())["data_version"] == "v7"


def test_a_checkpoint_of_other_data_counts_for_nothing(incoming: Path, tmp_path: Path) -> None:
    """A run that is restarted with more batches trains on them instead of resuming."""
    places = ("--checkpoint_dir", tmp_path, "--epochs", "1")

    first = run(TRAIN, "--data", incoming / "001", *places)
    again = run(TRAIN, "--data", incoming / "001", *places)
    other = run(TRAIN, "--data", f"{incoming}/001,{incoming}/002", *places)

    assert [first.code, again.code, other.code] == [0, 0, 0]
    assert "resumed" not in first.output
    assert f"resumed from {tmp_path} after epoch 1" in again.output
    assert "resumed" not in other.output
    assert "epoch 1/1 loss=" in other.output


def test_ranks_that_read_different_files_do_not_train(incoming: Path) -> None:
    """Every rank detects data that changes while it is read."""
    ranks = run_ranks(TRAIN, "--epochs=1", "--data", each=[[incoming / "001"], [incoming / "002"]])

    assert [rank.code for rank in ranks] == [1, 1]
    for rank in ranks:
        assert "the data were written while they were read" in rank.output


def test_no_batch_is_refused_as_an_argument() -> None:
    """For example an empty template: the program must not train on other data."""
    ended = run(TRAIN, "--data", " , ")

    assert ended.code == 2
    assert "--data names no batch" in ended.output


def test_held_out_images_are_not_trained_on_whoever_delivers_them(
    arrived: ModuleType, held_out: Any, tmp_path: Path
) -> None:
    """The other images of the same file are used."""
    known = (held_out.tensors[0][:3, 0] * 16).numpy()
    strange = 16 - known
    write(tmp_path / "batch" / "a.npz", [*known, *strange], [1, 2, 3, 4, 5, 6])

    found = arrived.read([str(tmp_path / "batch")], held_out)

    assert found.left_out == 3
    assert found.images.tensors[1].tolist() == [4, 5, 6]
    assert found.batches[0]["files"][0]["images"] == 6


def test_only_data_files_are_read_by_name_wherever_they_lie(arrived: ModuleType, held_out: Any, tmp_path: Path) -> None:
    """Markers, hidden files and hidden folders are ignored; the order is always the same."""
    for number, name in enumerate(("b/2.npz", "a/1.npz", "0.npz", "_draft/9.npz", ".old.npz")):
        write(tmp_path / name, [[[number] * 8] * 8], [number])
    (tmp_path / "_SUCCESS").touch()

    found = arrived.read([str(tmp_path)], held_out)

    assert [file["path"] for file in found.batches[0]["files"]] == ["0.npz", "a/1.npz", "b/2.npz"]
    assert found.images.tensors[1].tolist() == [2, 1, 0]


def test_a_batch_may_be_one_file(arrived: ModuleType, held_out: Any, tmp_path: Path) -> None:
    write(tmp_path / "one.npz", [[[1] * 8] * 8], [1])

    found = arrived.read([f"file://{tmp_path}/one.npz"], held_out)

    assert found.batches[0]["files"][0]["path"] == "one.npz"


def test_a_batch_is_taken_away_by_delivering_it_empty(arrived: ModuleType, held_out: Any, tmp_path: Path) -> None:
    """It is read like any other batch, and adds no images."""
    write(tmp_path / "001" / "part-000.npz", PIXELS, [1])
    assert run(DIGITS / "deliver.py", "--to", tmp_path / "002", "--count", "0").code == 0

    found = arrived.read([f"{tmp_path}/001", f"{tmp_path}/002"], held_out)

    assert found.images.tensors[1].tolist() == [1]
    assert [file["images"] for file in found.batches[1]["files"]] == [0, 0]


PIXELS = [[[1] * 8] * 8]
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a folder that is not there": (lambda path: path, "there is nothing at this address; bring it back, or leave it"),
    "a folder without data": (
        lambda path: (path.mkdir(), (path / "_SUCCESS").touch()),
        r"no file in it ends with \.npz",
    ),
    "half a file": (
        lambda path: (
            write(path / "a.npz", PIXELS, [1]),
            (path / "a.npz").write_bytes((path / "a.npz").read_bytes()[:-9]),
        ),
        r"a\.npz: it is no \.npz file with",
    ),
    "objects": (lambda path: write(path / "a.npz", PIXELS, [{}]), r"a\.npz: it is no \.npz file .*allow_pickle"),
    "one number": (lambda path: write(path / "a.npz", 1, 1), r"images have the shape \(\), labels \(\); allowed are"),
    "broken labels": (
        lambda path: write(path / "a.npz", PIXELS, [1.5]),
        "labels float64; allowed are numbers and whole",
    ),
    "a label too many": (
        lambda path: write(path / "a.npz", PIXELS, [11]),
        "image 0 has the label 11; allowed are 0 to 9",
    ),
    "no number": (
        lambda path: write(path / "a.npz", [[[float("nan")] * 8] * 8], [1]),
        "a pixel is not between 0 and 16",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_batch_is_refused_with_its_address_and_the_reason(
    what: str, arrived: ModuleType, held_out: Any, tmp_path: Path
) -> None:
    make, reason = REFUSED[what]
    make(tmp_path / "batch")

    with pytest.raises(SystemExit, match=rf"^{tmp_path}/batch(/a\.npz)?: ") as refused:
        arrived.read([str(tmp_path / "batch")], held_out)

    assert refused.match(reason)


@pytest.mark.parametrize(
    ("address", "reason"), [("pvc://digits/incoming", "pvc"), ("@/nowhere/manifest", "there is no such manifest")]
)
def test_an_address_that_nothing_reads_is_refused(
    address: str, reason: str, arrived: ModuleType, held_out: Any
) -> None:
    """A claim is mounted, so the training gets a path."""
    with pytest.raises(SystemExit, match=reason):
        arrived.read(arrived.addresses([address]), held_out)
