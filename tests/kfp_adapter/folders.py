"""A component that writes a directory of code, and a function that imports it. kfp reads annotations as objects."""

from pathlib import Path

from kfp import dsl


def write_code(code: dsl.Output[dsl.Artifact]):  # noqa: ANN201 - kfp reads it
    import pathlib  # noqa: PLC0415 - only this function's source runs

    pathlib.Path(code.path, "parts").mkdir(parents=True)
    pathlib.Path(code.path, "parts", "net.py").write_text("SIZE = 3\n")


def sized() -> int:
    from parts import net  # noqa: PLC0415 - only the job's pods have it

    return int(net.SIZE)


def write_folder(folder: Path) -> None:
    """Write the directory that an importer loads, with a size of 4."""
    (folder / "parts").mkdir(parents=True)
    (folder / "parts" / "net.py").write_text("SIZE = 4\n")
