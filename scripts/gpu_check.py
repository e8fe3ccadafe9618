"""Try the package on this machine's NVIDIA GPU, and print a table of what was expected and seen: `make gpu-check`.

The jobs are processes of this machine. Each case has a time limit, all of them together eight minutes, and what was
started is ended, also after Ctrl-C and errors. For some seconds the first GPU's memory is full: nobody else should use
it. Nothing is downloaded: PyTorch with CUDA, scikit-learn and what this package needs have to be installed before
(`make env-airflow`), which is checked first. Without `transformers` and `accelerate`, the case of Hugging Face's
Trainer is left out and says so.

Without an NVIDIA GPU one line says so, and the exit code is 0. With one, the exit code is 0 only if every case is as
expected; `--write` then writes what was seen into the README. `--dry-run` needs no GPU and proves nothing about one:
the trainings use the CPU, and stand-ins raise the errors of CUDA.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
LIMIT = 42
"""Seconds for each of the eight cases on a GPU."""
END_LIMIT = 10
"""Seconds for the end of a case's jobs."""
DRY_LIMIT = 300
"""Seconds for each of both in a dry run, whose machine may be busy."""

_DRIVER = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia/version")
"""Files of NVIDIA's driver, at least one of which a machine or a container with a GPU has."""

_TITLE = "NVIDIA GPU, PyTorch, NCCL"
_NEVER_TRIED = re.compile(r"Never tried: (?:real GPUs and NCCL|NCCL between GPUs), ")
_ENOUGH = 0.8
_WATCHDOG = (
    "  what():  [PG ID 0 PG GUID 0(default_pg) Rank 0] Process group watchdog thread terminated with exception: "
)
_FULL = (
    "CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 78.00 MiB is "
    "free. Including non-PyTorch memory, this process has 79.02 GiB memory in use."
)
_ASSERTED = "CUDA error: device-side assert triggered"


# The programs of the jobs; each is a process of its own.


def digits(dry_run: bool) -> dict[str, Any]:  # noqa: FBT001 - it travels as a job's argument
    """Train scikit-learn's digits on all ranks of the job, with NCCL, and return what it ran on."""
    import torch  # noqa: PLC0415 - it takes seconds, and the check itself does without
    from sklearn.datasets import load_digits  # noqa: PLC0415
    from torch import distributed, nn  # noqa: PLC0415

    distributed.init_process_group("gloo" if dry_run else "nccl")
    device = torch.device("cpu" if dry_run else "cuda")
    rank, size, data = distributed.get_rank(), distributed.get_world_size(), load_digits()
    images = torch.tensor(data.data[rank::size] / 16, dtype=torch.float32, device=device)
    labels = torch.tensor(data.target[rank::size], device=device)
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    model = nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    right = (model(images).argmax(dim=1) == labels).float().mean()
    distributed.all_reduce(right)
    backend, accuracy = distributed.get_backend(), round(right.item() / size, 3)
    distributed.destroy_process_group()
    return {"backend": backend, "device": device.type, "ranks": size, "accuracy": accuracy}


def turn(dry_run: bool, release: str) -> dict[str, Any]:  # noqa: FBT001
    """Use the GPU until a file exists, and return the machine's time before and after."""
    import torch  # noqa: PLC0415

    began = time.monotonic()
    torch.ones(8, device="cpu" if dry_run else "cuda").sum().item()
    while not Path(release).exists() and time.monotonic() < began + DRY_LIMIT:
        time.sleep(0.1)
    return {"began": began, "ended": time.monotonic(), "device": os.environ["CUDA_VISIBLE_DEVICES"]}


def fill_memory(dry_run: bool) -> None:  # noqa: FBT001
    """Allocate a GPU's memory until it is full."""
    import torch  # noqa: PLC0415

    if dry_run:
        raise torch.OutOfMemoryError(_FULL)
    held = []
    while True:
        held.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))


def fail_assert(dry_run: bool) -> None:  # noqa: FBT001
    """Index a tensor on the GPU out of its bounds."""
    import torch  # noqa: PLC0415

    if dry_run:
        raise RuntimeError(_ASSERTED)
    torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")].sum().item()


def fail_assert_with_nccl(dry_run: bool) -> None:  # noqa: FBT001
    """Do the same in a process group, and give NCCL's watchdog the time to see it and abort the process."""
    if dry_run:
        print(f"{_WATCHDOG}{_ASSERTED}", file=sys.stderr, flush=True)
        os.abort()
    import torch  # noqa: PLC0415
    from torch import distributed  # noqa: PLC0415

    distributed.init_process_group("nccl")
    distributed.all_reduce(torch.ones(4, device="cuda"))
    distributed.all_reduce(torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")])
    time.sleep(20)
    torch.cuda.synchronize()


def hugging_face(dry_run: bool) -> dict[str, Any]:  # noqa: FBT001
    """Train a tiny model, which is made here, with Hugging Face's Trainer."""
    import torch  # noqa: PLC0415

    transformers = importlib.import_module("transformers")  # it may not be installed
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = transformers.BertForSequenceClassification(transformers.BertConfig(vocab_size=100, **sizes))
    rows = [{"input_ids": torch.arange(8), "labels": torch.tensor(number % 2)} for number in range(32)]
    chosen = transformers.TrainingArguments("out", max_steps=5, report_to=[], use_cpu=dry_run, save_strategy="no")
    steps = transformers.Trainer(model=model, args=chosen, train_dataset=rows).train().global_step
    return {"device": next(model.parameters()).device.type, "steps": steps}


def facts(dry_run: bool) -> dict[str, Any]:  # noqa: FBT001
    """Return what is installed, and the names of the GPUs; a dry run has one that its name calls a stand-in."""
    needed = ("torch", "sklearn", "aiohttp", "click", "dockerfile_parse", "pathspec", "psutil", "yaml")
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        return {"missing": missing}
    import torch  # noqa: PLC0415

    found = {"torch": torch.__version__, "nccl": "none"}
    if dry_run:
        return {**found, "gpus": ["stand-in for a GPU"]}
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    if gpus and torch.distributed.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {**found, "gpus": gpus}


PROGRAMS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (digits, turn, fill_memory, fail_assert, fail_assert_with_nccl, hugging_face, facts)
}


# The check.


@dataclass(frozen=True)
class Row:
    """Row of the table; `is_good` is None for a case that was left out."""

    case: str
    expected: str
    seen: str
    is_good: bool | None

    def __str__(self) -> str:
        verdict = "left out" if self.is_good is None else "yes" if self.is_good else "NO"
        return f"| {self.case} | {self.expected} | {self.seen} | {verdict} |"


class Check:
    """The cases, with a folder for their jobs that nothing else uses."""

    def __init__(self, folder: Path, gpus: int, *, dry_run: bool) -> None:
        self._folder = folder
        self._gpus = gpus
        self._dry_run = dry_run
        self._deadline = 0.0
        self._limits = (DRY_LIMIT, DRY_LIMIT) if dry_run else (LIMIT, END_LIMIT)
        self._device = "cpu" if dry_run else "cuda"
        self._arguments = ["--dry-run"] if dry_run else []

    def rows(self, words: list[str]) -> Iterator[Row]:
        """Yield the row of each case whose name has one of the words, or of every case."""
        cases = {
            "digits with NCCL, ptjob run": self._digits_by_command,
            "digits with NCCL, train()": self._digits_by_function,
            "two jobs share one GPU in turn": self._in_turn,
            "GPU out of memory": lambda: self._failed("fill_memory", {"gpu_out_of_memory"}),
            "device-side assert": lambda: self._failed("fail_assert", {"python_exception"}),
            "device-side assert beside NCCL": lambda: self._failed(
                "fail_assert_with_nccl", {"crashed", "python_exception"}
            ),
            "more GPUs than there are": self._too_many,
            "Hugging Face's Trainer": self._hugging_face,
        }
        for case, look in cases.items():
            if not words or any(word in case for word in words):
                self._deadline = time.monotonic() + self._limits[0]
                row = _row(case, look)
                self._end_jobs()
                yield row

    def close(self) -> None:
        """Delete the jobs and the folder; jobs that cannot be deleted stay, in the folder that the error names."""
        self._end_jobs()
        shutil.rmtree(self._folder)

    def _end_jobs(self) -> None:
        """Delete all jobs: one that is left would keep its GPU from the next.

        Raises:
            SystemExit: they could not be deleted in time.
        """
        self._deadline = time.monotonic() + self._limits[1]
        try:
            names = self._ptjob("list", "-o", "name").stdout.split()
            ended = not names or self._ptjob("delete", *names).returncode == 0
        except subprocess.TimeoutExpired:
            ended = False
        if not ended:
            raise SystemExit(f"the jobs in {self._folder} could not be deleted: PTJOB_LOCAL_ROOT=… ptjob delete NAME …")

    def _digits_by_command(self) -> tuple[str, str, bool]:
        ranks = min(self._gpus, 2)
        done = self._ptjob("run", "--name", "digits", "--gpus", "1", "--workers", str(ranks), *self._program("digits"))
        return self._trained(done, ranks)

    def _digits_by_function(self) -> tuple[str, str, bool]:
        return self._trained(self._python(str(__file__), "--program", "train", *self._arguments), 1)

    def _trained(self, done: subprocess.CompletedProcess[str], ranks: int) -> tuple[str, str, bool]:
        expected = {"backend": "gloo" if self._dry_run else "nccl", "device": self._device, "ranks": ranks}
        told = _last_json(done)
        is_good = expected.items() <= told.items() and told["accuracy"] >= _ENOUGH
        return f"{_words(expected)}, accuracy >= {_ENOUGH}", _words(told), is_good

    def _in_turn(self) -> tuple[str, str, bool]:
        release, one = self._folder / "release", {"PTJOB_LOCAL_GPUS": "1"}
        for name in ("first", "second"):
            words = self._program("turn", str(release))
            self._ptjob("submit", "--name", name, "--gpus", "1", *words, **one)
            self._until(name, lambda told: told["phase"] == "Running" or "Insufficient" in told["waiting"])
        waiting = self._job("second")["waiting"]
        release.touch()
        for name in ("first", "second"):
            self._until(name, lambda told: told["phase"] in {"Succeeded", "Failed"})
        first, second = (_last_json(self._ptjob("logs", name)) for name in ("first", "second"))
        was_waiting, was_after = "Insufficient nvidia.com/gpu" in waiting, first["ended"] <= second["began"]
        seen = f"the second {'waited: Insufficient nvidia.com/gpu' if was_waiting else 'did not wait'}"
        seen += (
            f"; GPU {first['device']}, then GPU {second['device']}; {'' if was_after else 'not '}one after the other"
        )
        is_good = was_waiting and was_after and first["device"] == second["device"] != ""
        return "the second waits for the first, on one GPU", seen, is_good

    def _failed(self, program: str, causes: set[str]) -> tuple[str, str, bool]:
        name = program.replace("_", "-")
        self._ptjob("run", "--name", name, "--gpus", "1", *self._program(program))
        return judge(self._job(name), causes)

    def _too_many(self) -> tuple[str, str, bool]:
        done = self._ptjob("run", "--name", "too-many", "--gpus", str(self._gpus + 1), *self._program("digits"))
        is_absent = "too-many" not in self._ptjob("list", "-o", "name").stdout.split()
        seen = f"exit code {done.returncode}, {'no job' if is_absent else 'a job'}: {done.stderr.strip()}"
        return "exit code 2, no job", seen, is_absent and done.returncode == 2  # noqa: PLR2004 - sysexits

    def _hugging_face(self) -> tuple[str, str, bool | None]:
        expected = {"device": self._device, "steps": 5}
        for name in ("transformers", "accelerate"):
            if importlib.util.find_spec(name) is None:
                return _words(expected), f"{name} is not installed", None
        told = _last_json(self._ptjob("run", "--name", "trainer", "--gpus", "1", *self._program("hugging_face")))
        return _words(expected), _words(told), told == expected

    def _program(self, name: str, *more: str) -> list[str]:
        path = ["--env", f"PYTHONPATH={os.environ['PYTHONPATH']}"] if os.environ.get("PYTHONPATH") else []
        return [*path, "--", "python", str(Path(__file__).resolve()), "--program", name, *self._arguments, *more]

    def _job(self, name: str) -> dict[str, Any]:
        return dict(json.loads(self._ptjob("get", name, "-o", "json").stdout))

    def _until(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> None:
        while not holds(self._job(name)):
            time.sleep(0.2)

    def _ptjob(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self._python("-c", "from ptjob_provider.cli import main; main()", *words, **more)

    def _python(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run Python to its end, or to the case's; what else the user has set for `ptjob` does not count."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PTJOB_", "AIRFLOW__PTJOB__"))}
        own |= {"PTJOB_BACKEND": "local", "PTJOB_LOCAL_ROOT": str(self._folder), "NO_COLOR": "1"}
        own |= {"PTJOB_LOCAL_GPUS": str(self._gpus), **more}
        own["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        left = max(self._deadline - time.monotonic(), 0.1)
        return subprocess.run(
            [sys.executable, *words], env=own, capture_output=True, text=True, timeout=left, check=False
        )


def judge(job: Mapping[str, Any], causes: set[str]) -> tuple[str, str, bool]:
    """Return what is expected of a failed job, what its diagnosis says, and whether they agree."""
    expected = f"{' or '.join(sorted(causes))}, no retry"
    why = job["diagnosis"]
    if not why:
        return expected, f"it is {job['phase']}", False
    seen = f"{why['cause']}, {'retry' if why['retryable'] else 'no retry'}: {why['summary']}"
    return expected, seen, why["cause"] in causes and not why["retryable"]


def with_result(readme: str, found: Mapping[str, Any], day: str) -> str:
    """Return the README with what was tried; NCCL between GPUs was only tried if there are two.

    Raises:
        ValueError: the README has no table of what was tried.
    """
    row = f"| {_TITLE} | {len(found['gpus'])} × {found['gpus'][0]}, {found['torch']}, {found['nccl']} | {day} |\n"
    lines = [line for line in readme.splitlines(keepends=True) if not line.startswith(f"| {_TITLE} |")]
    lines.insert(next(number for number, line in enumerate(lines) if line.startswith("| Benchmarks |")), row)
    rest = "Never tried: " if len(found["gpus"]) > 1 else "Never tried: NCCL between GPUs, "
    return _NEVER_TRIED.sub(rest, "".join(lines))


def main() -> int:
    """Run one program of a job, or the check; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dry-run", action="store_true", help="on the CPU, with stand-ins for the errors of a GPU")
    parser.add_argument("--write", action="store_true", help="write what was seen into the README, if all is well")
    parser.add_argument("--program", choices=["train", *PROGRAMS], help=argparse.SUPPRESS)
    parser.add_argument("words", nargs="*", help="only the cases with one of these in their name")
    chosen = parser.parse_args()
    if chosen.program == "train":
        from ptjob_provider import train  # noqa: PLC0415 - it takes a second

        env = {"PYTHONPATH": os.environ["PYTHONPATH"]}
        print("\n" + json.dumps(train(digits, chosen.dry_run, gpus=1, env=env)["return_value"]))
        return 0
    if chosen.program:
        print(json.dumps(PROGRAMS[chosen.program](chosen.dry_run, *chosen.words)))
        return 0
    if not chosen.dry_run and not any(Path(file).exists() for file in _DRIVER):
        print("This machine has no NVIDIA GPU: nothing was tried, and the README stays as it is.")
        return 0
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda number, _: sys.exit(128 + number))
    return _check(chosen)


def _check(chosen: argparse.Namespace) -> int:
    words = [sys.executable, str(__file__), "--program", "facts", *(["--dry-run"] if chosen.dry_run else [])]
    asked = subprocess.run(
        words, capture_output=True, text=True, timeout=DRY_LIMIT if chosen.dry_run else LIMIT, check=False
    )
    found = _last_json(asked)
    if lacks := _lacking(found):
        print(lacks)
        return 1
    print(f"{', '.join(found['gpus'])}; PyTorch {found['torch']}, NCCL {found['nccl']}\n")
    print("| case | expected | seen | ok |\n|---|---|---|---|", flush=True)
    check = Check(Path(tempfile.mkdtemp(prefix="ptjob-gpu-")), len(found["gpus"]), dry_run=chosen.dry_run)
    rows = []
    try:
        for row in check.rows(chosen.words):
            print(row, flush=True)
            rows.append(row)
    finally:
        check.close()
    is_good = bool(rows) and all(row.is_good is not False for row in rows)
    if is_good and chosen.write and not chosen.words and not chosen.dry_run:
        README.write_text(with_result(README.read_text(), found, f"{datetime.now(UTC):%Y-%m-%d}"))
        print("\nThe README has it.")
    if chosen.dry_run:
        print("\nA dry run: the GPU is a stand-in, and so are the errors. The README stays as it is.")
    return 0 if is_good else 1


def _lacking(found: Mapping[str, Any]) -> str:
    """Return what the check lacks; "" for nothing."""
    if "missing" in found:
        return f"{', '.join(found['missing'])} is not installed; `make env-airflow` does it, given a package index"
    if "gpus" not in found:
        return f"PyTorch cannot be used: {_words(found)}"
    if not found["gpus"]:
        return f"This machine has an NVIDIA GPU, but PyTorch {found['torch']} finds none"
    return ""


def _row(case: str, look: Callable[[], tuple[str, str, bool | None]]) -> Row:
    """Return a case's row; whatever goes wrong in it is its own."""
    try:
        expected, seen, is_good = look()
    except subprocess.TimeoutExpired:
        return Row(case, "an end in time", "none", is_good=False)
    except Exception as error:  # noqa: BLE001 - the other cases run nevertheless
        return Row(case, "an answer", f"{type(error).__name__}: {error}", is_good=False)
    return Row(case, expected, " ".join(seen.split()).replace("|", "/"), is_good)


def _last_json(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return the object that a program printed last, or its exit code and last error."""
    for line in reversed(done.stdout.splitlines()):
        if line.startswith('{"'):
            return dict(json.loads(line))
    return {"exit code": done.returncode, "error": (done.stderr.strip().splitlines() or ["none"])[-1]}


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


if __name__ == "__main__":
    sys.exit(main())
