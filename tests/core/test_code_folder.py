"""Tests of a local code folder in a job: its archive, the Secret with it, and the pods of each kind."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import runpy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from fakes import MemoryStore, ScriptedBackend
from ptjob_provider.core import kinds
from ptjob_provider.core.code.folder import with_packed_folder
from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.in_pod import unpack_code
from ptjob_provider.core.kinds.code import DEFAULT_WORKING_DIR, in_pieces, with_archive_on, writable_claims
from ptjob_provider.core.kinds.trainjob import template_of
from ptjob_provider.core.local.backend import LocalBackend
from ptjob_provider.core.local.config import LocalConfig
from ptjob_provider.core.run.submit import ensure_submitted
from ptjob_provider.core.spec import TrainingJob
from ptjob_provider.core.spec.code import PackedCode
from recorded import OWNER

if TYPE_CHECKING:
    from pathlib import Path

    from ptjob_provider.core.kinds.kind import Rendered

IMAGE = "registry.example/digits:1"
TRAIN = ["python3", "train.py"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "project" / "net").mkdir(parents=True)
    (tmp_path / "project" / "train.py").write_text("from net import SIZE\nprint(SIZE)\n")
    (tmp_path / "project" / "net" / "__init__.py").write_text("SIZE = 3\n")
    return tmp_path / "project"


def job_of(folder: Path, **given: Any) -> TrainingJob:
    """Return a job with the packed folder, as started from the parent folder."""
    values = {"name": "digits", "namespace": "team", "image": IMAGE, "code": folder.name, "command": TRAIN, **given}
    return with_packed_folder(TrainingJob.parse(**values), beside=folder.parent)


def code_of(job: TrainingJob) -> PackedCode:
    assert isinstance(job.code, PackedCode)
    return job.code


def render(job: TrainingJob, attempt: int = 1) -> Rendered:
    return kinds.named(job.kind or "PyTorchJob").render(job, owner=OWNER, attempt=attempt)


def pods(made: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pod spec of each role of a job's object."""
    spec = made["spec"]
    roles = [*spec.get("pytorchReplicaSpecs", {}).values(), *spec.get("replicaSpecs", ())]
    return [role["template"]["spec"] for role in roles] or [template_of(spec)["spec"]]


def secret_of(job: TrainingJob) -> dict[str, Any]:
    found = render(job).secret
    assert found is not None
    return found


def archive_volume(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = [each for each in pod["volumes"] if each["name"] == "code-archive"]
    return found


@pytest.mark.parametrize("kind", ["PyTorchJob", "PyTorchTrainingJob"])
def test_an_init_container_unpacks_the_folder_in_every_pod(folder: Path, kind: str) -> None:
    """It comes first and has the image and user of the training, whose command stays and runs in the folder."""
    warm = {"name": "warm", "image": IMAGE}
    user = {"runAsUser": 1000, "runAsGroup": 100}
    job = job_of(
        folder, kind=kind, workers=2, worker={"cpu": "2"}, init_containers=[warm], container_security_context=user
    )

    made = pods(render(job).manifest)

    assert len(made) == 2
    for pod in made:
        (unpacking, other), (training,) = pod["initContainers"], pod["containers"]
        assert (unpacking["name"], unpacking["image"], other["name"]) == ("unpack-code", IMAGE, "warm")
        assert unpacking["command"][-2:] == [code_of(job).digest, "/ptjob-code"]
        assert user.items() <= unpacking["securityContext"].items()
        assert (training["command"], training["workingDir"]) == (TRAIN, "/ptjob-code")
        mounts = {each["name"]: each["mountPath"] for each in unpacking["volumeMounts"]}
        assert mounts == {"code-folder": "/ptjob-code", "code-archive": "/etc/ptjob-code"}
        assert {"name": "code-folder", "mountPath": "/ptjob-code"} in training["volumeMounts"]


def test_a_train_job_unpacks_the_folder_in_front_of_its_command(folder: Path) -> None:
    """It can add no init container and no working directory, so it requires a command."""
    (pod,) = pods(render(job_of(folder, kind="TrainJob", args=["--fast"])).manifest)
    (training,) = pod["containers"]
    assert training["command"][-4:] == [code_of(job_of(folder)).digest, "/ptjob-code", *TRAIN]
    assert training["command"][0] == "python3"
    assert (training["args"], "initContainers" in pod, "workingDir" in training) == (["--fast"], False, False)
    assert {each["name"] for each in training["volumeMounts"]} >= {"code-folder", "code-archive"}
    with pytest.raises(InvalidSpec, match=r"command: .* a TrainJob unpacks the folder"):
        render(job_of(folder, kind="TrainJob", command=None))


@pytest.mark.parametrize("kind", ["PyTorchJob", "PyTorchTrainingJob", "TrainJob"])
async def test_the_archive_is_in_a_secret_that_the_job_names(folder: Path, kind: str) -> None:
    """The name of the Secret cannot be guessed; a user's own volume keeps its Secret."""
    own = {"name": "own", "secret": {"secretName": "digits-code"}}
    job, backend = job_of(folder, kind=kind, volumes=[own]), ScriptedBackend()

    submission = await ensure_submitted(backend, job, owner=OWNER, store=MemoryStore(), exact_name=True)

    secret, (made,) = backend.secrets[submission.ref.name], backend.jobs.values()
    (pod,) = pods(made)
    assert archive_volume(pod)["secret"]["secretName"] == secret["metadata"]["name"]
    assert secret["metadata"]["name"].startswith("digits-code-")
    assert own in pod["volumes"]
    data = gzip.decompress(base64.b64decode(secret["stringData"][unpack_code.ARCHIVE]))
    assert hashlib.sha256(data).hexdigest() == code_of(job).digest
    assert submission.code_revision == {"digest": f"sha256:{code_of(job).digest}", "commit": None, "dirty": None}


@pytest.mark.parametrize(
    "source", [{"secret": {"secretName": "mine"}}, {"persistentVolumeClaim": {"claimName": "code-archive"}}]
)
async def test_a_users_volume_that_is_called_like_a_folders_is_left_alone(folder: Path, source: dict[str, Any]) -> None:
    """A job with a code folder refuses a volume of this name."""
    own = {"name": "code-archive", **source}
    password = {"GIT_SYNC_PASSWORD": "tops3cret"}
    backend, job = ScriptedBackend(), job_of(folder, code="https://g/x.git", env=password, volumes=[own])

    await ensure_submitted(backend, job, owner=OWNER, store=MemoryStore())

    (made,) = backend.jobs.values()
    (pod,) = pods(made)
    assert own in pod["volumes"]
    with pytest.raises(InvalidSpec, match=r"volumes: 'code-archive' is not allowed; allowed: another name"):
        render(job_of(folder, volumes=[own]))


async def test_an_adopted_job_gets_the_archive_that_its_create_did_not_store(folder: Path, caplog: Any) -> None:
    """The Secret has the name that the job refers to; the log mentions no credentials."""
    backend, job = ScriptedBackend(), job_of(folder)
    backend.submits = ["lost"]

    await ensure_submitted(backend, job, owner=OWNER, store=MemoryStore())
    again = await ensure_submitted(backend, job, owner=OWNER, store=MemoryStore())

    (made,) = backend.jobs.values()
    (pod,) = pods(made)
    assert again.adopted
    assert archive_volume(pod)["secret"]["secretName"] == backend.secrets[again.ref.name]["metadata"]["name"]
    assert "Secret" not in caplog.text


async def test_a_running_job_is_followed_though_its_folder_has_become_too_large(folder: Path) -> None:
    """The pods of the adopted job need the old archive, so the new one is not stored."""
    backend, store = ScriptedBackend(), MemoryStore()
    first = await ensure_submitted(backend, job_of(folder), owner=OWNER, store=store)
    before = dict(backend.secrets)
    (folder / "train.py").write_text("print(2)\n")

    again = await ensure_submitted(backend, job_of(folder), owner=OWNER, store=store)

    assert (again.ref, again.adopted, again.spec_changed) == (first.ref, True, True)
    assert backend.secrets == before


def test_the_content_of_the_folder_is_part_of_what_is_asked_for(folder: Path) -> None:
    """Unchanged files keep the hash in every attempt; a changed file changes it."""
    first, again = render(job_of(folder)), render(job_of(folder), attempt=2)
    (folder / "train.py").write_text("print('changed')\n")

    assert first.spec_hash == again.spec_hash
    assert render(job_of(folder)).spec_hash != first.spec_hash


async def test_a_folder_that_is_too_large_for_this_machine_is_refused(folder: Path, tmp_path: Path) -> None:
    """The error names the size, the limit, the largest files and what to do."""
    (folder / "data").mkdir()
    (folder / "data" / "model.pt").touch()
    os.truncate(folder / "data" / "model.pt", 65_000_000)
    words = r"^code: 65.0 MB are not allowed; allowed: 64.0 MB on this machine; the largest are data/ .* build an image"

    with pytest.raises(InvalidSpec, match=words):
        await ensure_submitted(
            LocalBackend(LocalConfig(root=tmp_path / "root")), job_of(folder), owner=OWNER, store=MemoryStore()
        )


@pytest.mark.parametrize("kind", ["PyTorchJob", "PyTorchTrainingJob"])
def test_a_folder_that_no_secret_can_hold_is_unpacked_from_a_claim(folder: Path, kind: str) -> None:
    """Only a claim that every pod writes to is used; only the unpacking container mounts it, read-only."""
    job = job_of(folder, kind=kind, workers=2, volumes=["data:/data:ro", "runs:/runs"])
    rendered = render(job)

    assert writable_claims(rendered.manifest) == ["runs"]
    manifest = with_archive_on(rendered.manifest, "runs", code_of(job).digest)

    for pod in pods(manifest):
        name = next(
            each["name"] for each in pod["volumes"] if each.get("persistentVolumeClaim") == {"claimName": "runs"}
        )
        mount = {"name": name, "mountPath": "/mnt/ptjob-code", "subPath": ".ptjob/code", "readOnly": True}
        unpacking, *others = [*pod["initContainers"], *pod["containers"]]
        assert unpacking["volumeMounts"][-1] == mount
        assert f"/mnt/ptjob-code/{code_of(job).digest}.tar.gz" in unpacking["command"]
        assert all(mount not in each["volumeMounts"] for each in others)


def test_a_train_job_unpacks_such_a_folder_from_where_it_mounts_the_claim(folder: Path) -> None:
    """Its container can mount each volume only once, so it must mount the whole claim."""
    job = job_of(folder, kind="TrainJob", workers=2, volumes=["part/sub:/part", "runs:/runs"])
    rendered = render(job)

    assert writable_claims(rendered.manifest) == ["runs"]
    manifest = with_archive_on(rendered.manifest, "runs", code_of(job).digest)

    command = manifest["spec"]["trainer"]["command"]
    assert f"/runs/.ptjob/code/{code_of(job).digest}.tar.gz" in command
    assert {**manifest["spec"], "trainer": None} == {**rendered.manifest["spec"], "trainer": None}


def test_a_claim_of_some_pods_has_no_folder_for_all(folder: Path) -> None:
    """The pods without the claim could not unpack it; a manifest without claims is no error."""
    rendered = render(job_of(folder, workers=2, volumes=["runs:/runs"]))
    workers = rendered.manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    for each in workers["containers"]:
        each["volumeMounts"] = [mount for mount in each["volumeMounts"] if mount["name"] != "runs"]

    assert writable_claims(rendered.manifest) == []
    assert writable_claims({"spec": {}}) == []


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"working_dir": "/training/"}, "/training"),
        ({"kind": "TrainJob"}, "/ptjob-code"),
        ({"code": "https://git.example/team/mnist.git"}, f"{DEFAULT_WORKING_DIR}/code"),
    ],
)
def test_code_does_not_take_the_place_of_a_volume(folder: Path, given: dict[str, Any], path: str) -> None:
    """What the training writes there would go with the pod."""
    render(job_of(folder, **given, volumes=[f"runs:{path}/runs"]))
    with pytest.raises(InvalidSpec, match=rf"working_dir: a volume is mounted at {path}, where the code goes;"):
        render(job_of(folder, **given, volumes=[f"runs:{path}"]))


def test_a_folder_that_is_not_packed_cannot_be_rendered() -> None:
    """A pipeline step runs in a pod that does not have the folder."""
    with pytest.raises(InvalidSpec, match=r"code: '.' is not allowed; .*an address"):
        render(TrainingJob.parse(name="digits", image=IMAGE, command=TRAIN, code="."))


# --- the program in the pod


def delivered(job: TrainingJob, place: Path) -> Path:
    """Return the path of the program in a folder with the contents of the mounted Secrets."""
    place.mkdir()
    for secret in in_pieces(secret_of(job)):
        for name, text in secret["stringData"].items():
            (place / name).write_text(text)
    return place / unpack_code.PROGRAM


def test_the_program_becomes_the_training_in_the_folder(folder: Path, tmp_path: Path) -> None:
    """It can run again after a container restart; files that the training wrote stay."""
    (folder / "link.py").symlink_to("train.py")
    program = delivered(job := job_of(folder), tmp_path / "volume")
    command = [sys.executable, "-I", str(program), code_of(job).digest, str(tmp_path / "pod"), *TRAIN]

    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        (tmp_path / "pod" / "epoch").write_text("1")

    assert (done.stdout, done.stderr) == ("3\n", "")
    assert (tmp_path / "pod" / "epoch").read_text() == "1"
    missing = subprocess.run([*command[:-2], "no-such-program"], capture_output=True, text=True, check=False)
    assert (missing.returncode, missing.stderr) == (127, 'exec: "no-such-program": No such file or directory\n')


@pytest.mark.parametrize("kind", ["PyTorchJob", "PyTorchTrainingJob", "TrainJob"])
def test_a_program_that_somebody_else_puts_into_the_jobs_secret_is_not_run(
    folder: Path, tmp_path: Path, kind: str
) -> None:
    """The job names its Secret before the Secret exists, so another account may create it first."""
    job, volume, target = job_of(folder, kind=kind), tmp_path / "volume", tmp_path / "pod"
    program = delivered(job, volume)
    (pod,) = pods(render(job).manifest)
    container = next(iter(pod.get("initContainers") or pod["containers"]))
    paths = {"/etc/ptjob-code": str(volume), "/ptjob-code": str(target), "python": sys.executable}
    command = [sys.executable, *container["command"][1:]]
    for path, here in paths.items():
        command = [here + word.removeprefix(path) if word.startswith(path) else word for word in command]

    assert subprocess.run(command, capture_output=True, text=True, check=False).stderr == ""
    assert (target / "net" / "__init__.py").exists()
    program.write_text("open('planted', 'w')")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert not (tmp_path / "planted").exists()
    assert done.returncode == 1
    assert done.stderr.startswith(f"{unpack_code.FAILED}somebody else has created the Secret")


@pytest.mark.parametrize(("digest", "words"), [("0" * 64, "another version of the code"), (None, "Not a directory")])
def test_code_that_cannot_be_unpacked_is_reported(folder: Path, tmp_path: Path, digest: str | None, words: str) -> None:
    program = delivered(job := job_of(folder), tmp_path / "volume")
    sys_argv = [digest or code_of(job).digest, str(folder / "train.py" / "x")]

    with pytest.raises(SystemExit, match=f"{unpack_code.FAILED}.*{words}"):
        runpy.run_path(str(program))["main"](sys_argv)


def test_the_program_unpacks_from_the_claim_what_no_secret_has(folder: Path, tmp_path: Path) -> None:
    """A truncated archive is reported like any other broken one."""
    job = job_of(folder)
    data, file = base64.b64decode(code_of(job).archive), tmp_path / f"{code_of(job).digest}.tar.gz"
    file.write_bytes(data)

    unpack_code.main([str(file), str(tmp_path / "pod")])

    assert (tmp_path / "pod" / "net" / "__init__.py").read_text() == "SIZE = 3\n"
    file.write_bytes(data[:-9])
    with pytest.raises(SystemExit, match=f"{unpack_code.FAILED}Compressed file ended"):
        unpack_code.main([str(file), str(tmp_path / "pod")])
