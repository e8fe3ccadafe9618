from __future__ import annotations

import re
from typing import Any

import pytest

from ends import LOST, MASTER, NAME_ERROR, VALUE_ERROR, WORKER, end, judged
from ptjob_provider.core.diagnosis import Cause, last_lines
from ptjob_provider.core.diagnosis.classify import classify
from ptjob_provider.core.history import ContainerKind
from ptjob_provider.core.in_pod import unpack_code
from rows import each_row

_STARTER = "standard_init_linux.go:228: exec user process caused: exec format error"
_CODE = r'add code="\." \(--code \.; in a pipeline, a folder as an artifact\)'
_NO_FILE = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"
_NO_SHARED_MEMORY = "RuntimeError: unable to write to file </torch_7_1>"
KEY_ERROR = VALUE_ERROR.replace("Value", "Key")


def raising(error: str) -> str:
    """Return a log that ends with this exception."""
    return VALUE_ERROR.replace("ValueError: bad batch", error)


class TestFinding:
    @each_row(
        ("more", "cause", "retryable"),
        [
            ({"message": NAME_ERROR}, Cause.PYTHON_EXCEPTION, False),
            ({"message": raising("RuntimeError: CUDA error: uncorrectable ECC error")}, Cause.PYTHON_EXCEPTION, True),
            ({"message": raising(f"{_NO_SHARED_MEMORY}: No space left on device (28)")}, Cause.SHARED_MEMORY, False),
            ({"code": 255}, Cause.EXIT_CODE, True),
            ({"code": 2, "message": "ls: cannot access 'x'"}, Cause.EXIT_CODE, True),
            ({"code": 2, "message": "usage: train.py [-h]\nno such file: x"}, Cause.EXIT_CODE, False),
            ({"code": 1, "message": _STARTER}, Cause.EXIT_CODE, False),
            ({"code": 126}, Cause.PROGRAM_MISSING, False),
            (
                {"code": 128, "reason": "ContainerCannotRun", "message": "permission denied"},
                Cause.PROGRAM_MISSING,
                False,
            ),
            ({"code": 130, "message": raising("KeyboardInterrupt")}, Cause.TERMINATED, True),
            ({"code": 137, "reason": "OOMKilled"}, Cause.OUT_OF_MEMORY, False),
            ({"code": 137, "message": VALUE_ERROR}, Cause.KILLED, True),
            ({"code": 137, "message": "slurmstepd: error: Detected 1 oom_kill event"}, Cause.OUT_OF_MEMORY, False),
            ({"code": 1, "signal": 9}, Cause.KILLED, True),
            ({"code": 1, "signal": 99}, Cause.CRASHED, True),
            ({"code": None}, Cause.UNKNOWN, True),
            ({"code": 137, "disruption": "SupervisorLost"}, Cause.SUPERVISOR_LOST, True),
            ({"code": 143, "disruption": "DeadlineExceeded: Pod was active"}, Cause.DEADLINE, False),
            ({"code": 143, "disruption": "EvictionByEvictionAPI: drained"}, Cause.EVICTED, True),
            ({"code": 137, "disruption": "NodeShutdown"}, Cause.NODE_LOST, True),
        ],
    )
    def test_an_end_is_classified_by_cause_and_retryability(
        self, more: dict[str, Any], cause: str, *, retryable: bool
    ) -> None:
        """Failures that would be the same in the next try are not retried; all others are.

        The recorded stories have the ends that a cluster can produce.
        """
        found = judged(end(**more))

        assert (found.cause, found.retryable) == (cause, retryable)

    @each_row(
        ("more", "words", "retryable"),
        [
            (
                {"code": 2, "message": "/opt/bin/python3: can't open file '/workspace/train.py': [Errno 2]"},
                _CODE,
                False,
            ),
            ({"message": raising("ModuleNotFoundError: No module named 'n'")}, _CODE, False),
            (
                {"reason": "StartError", "message": 'exec: "./a.sh": stat ./a.sh: no such file or directory'},
                _CODE,
                False,
            ),
            (
                {"message": raising(_NO_FILE.format("data.csv"))},
                f"Correct the path; if the file lies beside .*{_CODE}",
                True,
            ),
            ({"message": raising(_NO_FILE.format("conf/net.yaml"))}, _CODE, False),
            (
                {"code": 255, "message": "exec /app/train.sh: exec format error"},
                "of the nodes, or begin .* with #!",
                False,
            ),
            ({"message": raising("OSError: [Errno 24] Too many open files: '/d/1.png'")}, "ulimit -n", True),
            ({"message": raising("RuntimeError: received 0 items of ancdata")}, "set_sharing_strategy", True),
            (
                {"message": raising("torch.distributed.DistStoreError: 2/4 clients joined.")},
                "nproc_per_node.*torchrun",
                True,
            ),
        ],
    )
    def test_the_advice_says_what_helps(self, more: dict[str, Any], words: str, *, retryable: bool) -> None:
        """A folder of code is advised with the operator's field, the command's flag and a step's way."""
        found = judged(end(**more))

        assert re.search(words, found.resolution)
        assert found.retryable is retryable

    @each_row("path", ["/data.csv", "s3://bucket/data.csv"])
    def test_a_file_that_is_not_beside_the_program_is_not_sought_in_a_folder(self, path: str) -> None:
        assert "code=" not in judged(end(message=raising(_NO_FILE.format(path)))).resolution

    @pytest.mark.parametrize(
        "message",
        [
            raising("RuntimeError: [enforce fail at inline_container.cc:659] . unexpected pos 1152 vs 1046"),
            raising("RuntimeError: PytorchStreamWriter failed writing file data/0: file write failed"),
            f"{raising('OSError: [Errno 28] No space left on device')}\n{raising('RuntimeError: cannot save')}",
        ],
    )
    def test_a_disk_that_is_full_is_the_cause(self, message: str) -> None:
        found = judged(end(code=1, message=message))

        assert (found.cause, found.retryable, found.passes) == (Cause.DISK_FULL, True, False)
        assert "quota" in found.resolution

    @pytest.mark.parametrize(
        "error",
        [
            "torch.distributed.DistNetworkError: The server socket has failed to listen. port: 23456, name: EADDRINUSE",
            "RuntimeError: The server socket has failed to bind to 0.0.0.0:23456 (errno: 98 - Address already in use).",
        ],
    )
    def test_a_port_that_is_taken_is_no_lost_connection(self, error: str) -> None:
        """The others, which wait for rank 0, are the ones that lose a connection."""
        found = judged(end(MASTER, code=1, message=raising(error)), end(WORKER, code=1, message=LOST, at=59))

        assert (found.cause, found.replica, found.retryable) == (Cause.PYTHON_EXCEPTION, MASTER, True)
        assert "port" in found.resolution
        assert "torchrun" in found.resolution

    def test_code_that_was_not_unpacked_is_not_the_programs_fault(self) -> None:
        """The training's own container may unpack the code."""
        message = f"{unpack_code.FAILED}[Errno 28] No space left on device: '/ptjob-code/train.py'"

        found = judged(end(code=1, message=message))

        assert (found.cause, found.retryable) == (Cause.CODE, True)
        assert "could not unpack its code: [Errno 28] No space left on device" in found.summary

    @pytest.mark.parametrize(
        "first",
        [raising("TimeoutError: slow"), raising("requests.exceptions.HTTPError: 503 Server Error: Slow Down"), LOST],
    )
    def test_a_bug_that_a_lost_server_brought_to_light_is_retried(self, first: str) -> None:
        """The exception handler has a bug, but it runs only after the first error."""
        found = judged(
            end(message=f"{first}\nDuring handling of the above exception, another occurred:\n\n{NAME_ERROR}")
        )

        assert (found.retryable, found.exception) == (True, "NameError")

    @pytest.mark.parametrize(
        ("error", "retryable"),
        [
            ("AssertionError: \nThe NVIDIA driver on your system is too old (found version 10010).", False),
            ("AssertionError: \n\nThe NVIDIA driver on your system is too old (found version 10010).", True),
            ("ConfigError: no configuration\nConnectionError('the server is away')", True),
        ],
    )
    def test_the_further_lines_of_an_exception_are_read_as_well(self, error: str, *, retryable: bool) -> None:
        """The message of an exception ends at an empty line."""
        found = judged(end(message=raising(error)))

        assert found.retryable is retryable

    @pytest.mark.parametrize("mark", ["", "[rank0]: "])
    def test_the_exception_of_a_function_comes_with_its_file_and_line(self, mark: str) -> None:
        """`run_function` prints this line below the traceback; its file name is not a hint to the cause."""
        message = f"{VALUE_ERROR}raised in fit (dags/Timeout.py, line 14)\n".replace("bad batch", "must be one of a, b")

        found = judged(end(message="".join(f"{mark}{line}\n" for line in message.splitlines())))

        text = "exited with code 1: fit (dags/Timeout.py, line 14): ValueError: must be one of a, b"
        assert (text in found.summary, found.exception, found.retryable) == (True, "ValueError", False)

    def test_a_launchers_message_about_its_child_does_not_hide_the_cause(self) -> None:
        """Launchers such as `accelerate launch` raise an exception of their own after the program's."""
        launcher = "subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' returned exit status 1."
        pip = launcher.replace("'train.py'", "'-m', 'pip', 'install', 'timm'")

        retried = [judged(end(message=NAME_ERROR + raising(last))).retryable for last in (launcher, pip)]

        assert retried == [False, True]

    @pytest.mark.parametrize(
        ("text", "retryable"),
        [
            ("Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.90 GiB, this process has 14.10 GiB", False),
            ("Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 612.00 MiB already allocated)", True),
            ("Tried to allocate 20.00 GiB (GPU 0; 23.69 GiB total capacity; 612.00 MiB already allocated)", False),
        ],
    )
    def test_a_gpu_that_another_process_has_filled_may_be_free_the_next_time(
        self, text: str, *, retryable: bool
    ) -> None:
        """The batch size is not the cause if the process held and requested less than half of the GPU."""
        error = f"torch.OutOfMemoryError: CUDA out of memory. {text}"

        found = judged(end(message=raising(error)))

        assert (found.cause, found.retryable) == (Cause.GPU_OUT_OF_MEMORY, retryable)

    def test_a_process_of_torchrun_without_a_rank_is_the_pods(self) -> None:
        """A truncated block shows that there was a failure, but not of which rank."""
        block = "Root Cause (first observed failure):\n[0]:\n  time : now\n"

        classified = classify(end(), last_lines.lines_of(block))

        assert (classified.process, classified.cause) == ("", Cause.EXIT_CODE)

    def test_the_lines_of_another_rank_are_not_this_ones_reason(self) -> None:
        """With several processes per pod, each line has a rank, and only those of the failed rank count."""
        log = "".join(f"[rank0]: {line}\n" for line in LOST.splitlines())
        block = (
            "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -11 (pid: 4)\n"
        )

        classified = classify(end(), last_lines.lines_of(log + block))

        assert (classified.process, classified.cause, classified.did) == (
            "1",
            Cause.CRASHED,
            "died of SIGSEGV (exit code 139)",
        )


class TestTail:
    @pytest.mark.parametrize(
        ("log", "errors"),
        [
            (
                f"{VALUE_ERROR}\nThe above exception was the direct cause:\n\n{KEY_ERROR}",
                ("ValueError: bad batch", "KeyError: bad batch"),
            ),
            (VALUE_ERROR.partition("\n")[2], ("ValueError: bad batch",)),
            (f"{VALUE_ERROR}Exception ignored in: <function Pool.__del__>\n{KEY_ERROR}", ("ValueError: bad batch",)),
            (
                'Traceback (most recent call last):\nloss 0.3\n  File "a.py", line 1\nloss 0,2\nKeyError: 3',
                ("KeyError: 3",),
            ),
            ("ValueError: caught and logged", ()),
        ],
        ids=["a chain", "2 KiB without the head", "ignored in a destructor", "cut by another process", "no traceback"],
    )
    def test_a_log_has_the_exceptions_of_its_tracebacks(self, log: str, errors: tuple[str, ...]) -> None:
        """The last exception of a chain ended the program."""
        assert last_lines.python_errors(log.splitlines()) == errors

    @pytest.mark.parametrize("text", ["{", "{}", '{"message": 3}', '{"message": {}}'])
    def test_json_that_is_no_error_file_is_skipped(self, text: str) -> None:
        """A program may print its own JSON."""
        assert [error for error in last_lines.python_errors([text]) if error != "3"] in ([], [""])

    def test_a_progress_bar_shows_its_last_state(self) -> None:
        assert last_lines.lines_of(" 0%\r 50%\r100%\r\ndone\n") == ("100%", "done")

    def test_an_image_that_was_pulled_and_cannot_be_unpacked_is_named_with_the_reason(self) -> None:
        error = 'failed to pull and unpack image "r.io/a:1": no space left'

        assert last_lines.runtime_error(error) == "r.io/a:1: no space left"

    def test_a_long_text_is_cut(self) -> None:
        assert last_lines.clip("a\n" * 400, 9) == "a a a a …"


class TestCode:
    """Failures of the container that fetches the code."""

    FAILED = "code sync failed: there is no such branch or tag: git says “couldn't find remote ref x”"

    @pytest.mark.parametrize(("code", "retryable"), [(1, False), (75, True)])
    def test_a_failed_fetch_of_the_code_is_the_cause_with_its_reason(self, code: int, *, retryable: bool) -> None:
        """Its exit code says if a retry may help."""
        found = judged(end(code=code, message=f"x\n{self.FAILED}\n", container="init-code", kind=ContainerKind.INIT))

        assert (found.cause, found.retryable) == (Cause.CODE, retryable)
        assert found.summary.endswith(f"could not fetch the code: {self.FAILED.partition(': ')[2]}")

    @pytest.mark.parametrize(
        "more", [{"container": "init-code"}, {"container": "init-code", "message": "x"}, {"message": FAILED}]
    )
    def test_a_container_without_the_fetch_message_is_classified_by_its_exit_code(self, more: dict[str, Any]) -> None:
        """Other sources are git-sync's own image and a training that prints the same text."""
        assert judged(end(code=2, **more)).cause is Cause.EXIT_CODE
