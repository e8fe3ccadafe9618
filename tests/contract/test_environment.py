"""Tests of a replica's environment: its variables, its paths, and its rank."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from worlds import STATE, condition, has_ended, held, is_running

if TYPE_CHECKING:
    from worlds import World

PRINT = "import json, os; print(json.dumps(dict(os.environ)))"
HERE = "; import pathlib; pathlib.Path('/state', os.environ['RANK']).touch()"
UNTIL_WORKERS = "\n" + held(until="2")
"""On a cluster, a worker waits for its master's DNS name before it begins: an ended master has none."""

MASTER = {"PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_NODE_RANK", "PET_MASTER_ADDR"}
STATIC = MASTER | {"PET_MASTER_PORT", "PET_NPROC_PER_NODE", "PET_NNODES"}
WATCHED = ("PET_", "MASTER_", "RANK", "WORLD_SIZE", "PYTHONUNBUFFERED")


async def test_ranks_find_exactly_what_the_operator_injects(world: World) -> None:
    """The variables of training-operator 1.9, with the values of each rank."""
    ref, _ = await world.run(world.job("env", PRINT + UNTIL_WORKERS, PRINT + HERE, workers=2, **STATE))

    master = await environment_of(world, ref, "env-master-0")
    worker = await environment_of(world, ref, "env-worker-1")

    assert set(master) == set(worker) == STATIC
    assert (master["RANK"], worker["RANK"], worker["PET_NODE_RANK"]) == ("0", "2", "2")
    assert (master["WORLD_SIZE"], master["PET_NNODES"], master["PET_NPROC_PER_NODE"]) == ("3", "3", "auto")
    assert master["PYTHONUNBUFFERED"] == "1"
    assert master["MASTER_PORT"] == worker["PET_MASTER_PORT"]


async def test_the_world_counts_processes(world: World) -> None:
    """With several processes per replica, WORLD_SIZE counts processes and RANK stays the replica's."""
    ref, _ = await world.run(world.job("nproc", PRINT, PRINT, spec={"nprocPerNode": "4"}))

    master = await environment_of(world, ref, "nproc-master-0")

    assert (master["WORLD_SIZE"], master["PET_NPROC_PER_NODE"], master["PET_NNODES"]) == ("8", "4", "2")


async def test_the_users_variables_are_expanded_and_the_operators_win(world: World) -> None:
    """`$(NAME)` is expanded as by the kubelet; users cannot set RANK; arguments may use the operator's variables."""
    env = [
        {"name": "BASE", "value": "/x"},
        {"name": "BELOW", "value": "$(BASE)/y $(UNKNOWN) $$(BASE)"},
        {"name": "RANK", "value": "7"},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    command = ["sh", "-c", 'echo "$BELOW|$RANK|$POD|$0|$1"', "$(BASE)", "$(RANK)-$(NOPE)"]

    ref, _ = await world.run(world.job("expand", command, container={"env": env}))

    assert await world.text(ref, "expand-master-0") == ["/x/y $(UNKNOWN) $(BASE)|0|expand-master-0|/x|0-$(NOPE)"]


async def test_a_claim_is_where_the_mounts_say(world: World) -> None:
    """Two jobs that mount a claim at different paths and sub-paths see the same files, in every kind of argument."""
    volume = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}]}
    write = {
        "volumeMounts": [{"name": "v", "mountPath": "/data"}],
        "env": [{"name": "OUT", "value": "/data/run/a.txt"}],
        "workingDir": "/data/run",
    }
    script = "mkdir -p /data/run && echo one > $OUT && echo two > b.txt && pwd | grep -q run && ls --directory=/x"
    ref, _ = await world.run(world.job("write", ["sh", "-c", f"{script} || true"], container=write, pod=volume))
    read = {"volumeMounts": [{"name": "v", "mountPath": "/in", "subPath": "run"}]}

    ref, seen = await world.run(world.job("read", ["cat", "/in/a.txt", "/in/b.txt"], container=read, pod=volume))

    assert await world.text(ref, "read-master-0") == ["one", "two"]
    assert condition(seen[-1].job, "Succeeded")


async def test_mounts_may_lie_in_one_another(world: World) -> None:
    """The longer path wins; a single file can be mounted."""
    pod = {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("outer", "inner")]}
    write = [{"name": "outer", "mountPath": "/data"}, {"name": "inner", "mountPath": "/data/in"}]
    read = [{"name": "inner", "mountPath": "/one", "subPath": "file"}]
    command = ["sh", "-c", "echo outer > /data/file; echo inner > /data/in/file"]
    await world.run(world.job("nested", command, container={"volumeMounts": write}, pod=pod))

    ref, _ = await world.run(world.job("one", ["cat", "/one"], container={"volumeMounts": read}, pod=pod))

    assert await world.text(ref, "one-master-0") == ["inner"]


async def test_an_empty_dir_is_new_for_each_pod(world: World) -> None:
    """It does not have another pod's files."""
    pod = {"volumes": [{"name": "s", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}]}
    mounts = {"volumeMounts": [{"name": "s", "mountPath": "/dev/shm"}]}  # noqa: S108 - a mount path
    script = ["sh", "-c", "ls -A /dev/shm | wc -l; touch /dev/shm/mine"]

    ref, _ = await world.run(world.job("scratch", script, script, container=mounts, pod=pod))

    assert await world.text(ref, "scratch-master-0") == ["0"]


async def test_a_relative_path_is_the_containers(world: World) -> None:
    """A relative path leads to a mount below the container's working directory."""
    pod = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "rel"}}]}
    container = {"volumeMounts": [{"name": "v", "mountPath": "/job/out"}], "workingDir": "/job"}

    await world.run(world.job("relative", ["sh", "-c", "echo here > out/file"], container=container, pod=pod))
    ref, _ = await world.run(world.job("absolute", ["cat", "/job/out/file"], container=container, pod=pod))

    assert await world.text(ref, "absolute-master-0") == ["here"]


async def test_sidecars_run_beside_the_training(world: World) -> None:
    """The pod has succeeded when all its containers have."""
    waits = {"command": ["sh", "-c", "until [ -e /state/go ]; do sleep 0.1; done"], **STATE["container"]}
    manifest = world.job("pair", "print('trained')", pod=STATE["pod"])
    containers = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]
    containers.append({"name": "beside", "image": world.image, **waits})
    ref = await world.submit(manifest)

    seen = await world.observe(ref, is_running)
    world.release()
    seen += await world.observe(ref, has_ended)

    assert {c["name"] for c in seen[-1].pods[0]["status"]["containerStatuses"]} == {"pytorch", "beside"}
    assert await world.text(ref, "pair-master-0") == ["trained"]
    assert any(is_running(one) for one in seen)


async def environment_of(world: World, ref: object, pod: str) -> dict[str, str]:
    """Return the variables that the operator sets, as the replica saw them."""
    (line,) = await world.text(ref, pod)
    return {name: value for name, value in json.loads(line).items() if name.startswith(WATCHED)}
