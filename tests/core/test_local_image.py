from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ptjob_provider.core.errors import InvalidSpec
from ptjob_provider.core.local.image import ImageFacts, command_line, read_image, with_interpreter
from rows import each_row

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def context(tmp_path: Path) -> Path:
    """Return a build context with some files."""
    (tmp_path / "src/inner").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    for name in ("train.py", "other/a.py", "src/a.py", "src/b.py", "src/inner/c.py"):
        (tmp_path / name).write_text("x")
    return tmp_path


def read(context: Path, text: str) -> tuple[ImageFacts, list[str]]:
    """Return the facts of a Dockerfile, and what of it is not applied."""
    (context / "Dockerfile").write_text(text)
    return read_image(context, python="/py", image="i")


def test_commands_are_read_in_their_exec_and_shell_forms(context: Path) -> None:
    """A shell form becomes a command of /bin/sh."""
    both, _ = read(context, 'FROM x\nENTRYPOINT ["python", "t.py"]\nCMD echo $HOME && ls\n')
    neither, _ = read(context, "FROM x\nENTRYPOINT [1]\n")

    assert both.entrypoint == ["python", "t.py"]
    assert both.cmd == ["/bin/sh", "-c", "echo $HOME && ls"]
    assert neither.entrypoint == ["/bin/sh", "-c", "[1]"]


def test_the_last_instruction_of_each_kind_counts(context: Path) -> None:
    """This is Docker's rule; an instruction may span several lines with comments in between."""
    facts, _ = read(context, "FROM x\nCMD a\nCMD b \\\n  # why\n  c\nWORKDIR /a\nWORKDIR b\nENV A=1 B=2\nENV A 3 4\n")

    assert facts.cmd[-1].split() == ["b", "c"]
    assert facts.working_dir == "/a/b"
    assert facts.env == {"A": "3 4", "B": "2"}


def test_variables_are_substituted(context: Path) -> None:
    text = "ARG TAG=3\nFROM x:$TAG\nARG D=/d\nARG NONE\nENV E=$D/e\nWORKDIR ${E}/w\nCOPY train.py $E/\n"
    facts, _ = read(context, text)

    assert facts.working_dir == "/d/e/w"
    assert facts.env == {"E": "/d/e"}
    assert set(facts.files) == {"/d/e/train.py"}


@each_row(
    ("copy", "files"),
    [
        ("COPY train.py /app/train.py", {"/app/train.py": "train.py"}),
        ("COPY train.py /app/", {"/app/train.py": "train.py"}),
        ("COPY --chown=1:1 --chmod=755 train.py x", {"/w/x": "train.py"}),
        ("COPY src /s", {"/s/a.py": "src/a.py", "/s/b.py": "src/b.py", "/s/inner": "src/inner"}),
        (
            "COPY src/ train.py /s/",
            {f"/s/{n}": f"src/{n}" for n in ("a.py", "b.py", "inner")} | {"/s/train.py": "train.py"},
        ),
        ("COPY src/*.py /s/", {"/s/a.py": "src/a.py", "/s/b.py": "src/b.py"}),
        ("COPY src/inner /usr/bin", {"/usr/bin/c.py": "src/inner/c.py"}),
        ("COPY empty /e", {}),
        ("COPY src /s\nCOPY other /s", {"/s/a.py": "other/a.py", "/s/b.py": "src/b.py", "/s/inner": "src/inner"}),
    ],
)
def test_copied_files_are_found_in_the_context(context: Path, copy: str, files: dict[str, str]) -> None:
    """Docker's rules: the content of a directory is copied, and a file keeps its name below a directory."""
    found, _ = read(context, f"FROM x\nWORKDIR /w\n{copy}\n")

    assert found.files == {place: str(context / file) for place, file in files.items()}


def test_directories_of_the_image_are_known(context: Path) -> None:
    """They are WORKDIR and copy targets, except for directories that every system has."""
    facts, _ = read(context, "FROM x\nWORKDIR /w\nCOPY src /s\nCOPY src /usr/bin\nCOPY src /\n")

    assert set(facts.directories) == {"/w", "/s"}


def test_only_the_last_stage_counts(context: Path) -> None:
    """A stage that builds on an earlier one lacks what that has; the notice says so."""
    text = (
        "FROM x AS base\nENV A=1\nWORKDIR /w\nCOPY other /o\nCMD old\nFROM --platform=linux/amd64 base\nENV C=3\n"
        "COPY train.py /w/\n"
    )
    facts, unapplied = read(context, text)

    assert facts.env == {"C": "3"}
    assert (facts.working_dir, facts.cmd, set(facts.files)) == ("", (), {"/w/train.py"})
    assert facts.directories == ["/w"]
    assert unapplied == ["stages before the last"]


def test_instructions_that_are_not_applied_are_listed_once(context: Path) -> None:
    """These are instructions that a build executes, and files that are not in the context or not plainly named."""
    text = (
        '# a comment\nFROM x\nLABEL a=b\nSHELL ["bash", "-c"]\nRUN one\nRUN two\nUSER 5\nCOPY --from=build /a /b\n'
        "COPY ../secret /a\nCOPY no*thing /a\nADD train.py /data\n"
        "COPY <<END /f\nENV A=1\nEND\nRUN <<-'EOF'\nCMD no\nEOF\n"
    )

    assert read(context, text)[1] == [
        *("SHELL", "RUN", "USER", "COPY --from=build /a /b", "COPY ../secret /a", "COPY no*thing /a"),
        *("ADD", "COPY <<END /f"),
    ]


def test_a_directory_without_a_dockerfile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="a directory with a Dockerfile"):
        read_image(tmp_path, python="/py", image="i")


IMAGE = ImageFacts(python="/py", entrypoint=["python", "train.py"], cmd=["--epochs", "1"], env={}, files={"/a": "/b"})


@each_row(
    ("container", "runs"),
    [
        ({}, ["python", "train.py", "--epochs", "1"]),
        ({"args": ["--epochs", "9"]}, ["python", "train.py", "--epochs", "9"]),
        ({"command": ["sh"], "args": ["-c", "x"]}, ["sh", "-c", "x"]),
        ({"command": [], "args": None}, ["python", "train.py", "--epochs", "1"]),
    ],
)
def test_command_replaces_the_entrypoint_and_args_replace_cmd(container: dict[str, Any], runs: list[str]) -> None:
    """These are the four cases of Kubernetes."""
    assert command_line(container, IMAGE) == runs


@each_row(
    ("argv", "runs"),
    [
        (["python", "x"], ["/py", "x"]),
        (["/usr/bin/python3.11", "x"], ["/py", "x"]),
        (["torchrun", "x"], ["/py", "-m", "torch.distributed.run", "x"]),
        (["python-config"], ["python-config"]),
        (["./python"], ["./python"]),
        (["sh", "-c", "python"], ["sh", "-c", "python"]),
    ],
)
def test_this_machines_interpreter_stands_in_for_the_images(argv: list[str], runs: list[str]) -> None:
    assert with_interpreter(argv, "/py") == runs
