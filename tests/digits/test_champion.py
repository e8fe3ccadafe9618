"""Tests of the champion: promotion of better models, concurrent and killed promotions, and rollback."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from digits.programs import DIGITS, NEEDED, TRAIN, Ended, Loaded, points
from digits.programs import run_loaded as run

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROMOTE, ROLLBACK, HERE = DIGITS / "promote.py", DIGITS / "rollback.py", DIGITS.parents[1] / "tests" / "digits"

pytestmark = NEEDED


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three models, each better than the previous one by more than ten images."""
    folder = tmp_path_factory.mktemp("models")
    batch = folder / "batch"
    assert run(DIGITS / "deliver.py", "--to", batch, "--count", "120").code == 0
    for name, epochs in (("poor", 2), ("fair", 4), ("good", 12)):
        assert run(TRAIN, "--data", batch, "--epochs", str(epochs), "--save_path", folder / f"{name}.pt").code == 0
    return {name: folder / f"{name}.pt" for name in ("poor", "fair", "good")}


def hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def promote(model: Path, champion: Path, *more: str | Path) -> Ended:
    """Run promote.py, which must succeed."""
    ended = run(PROMOTE, "--model_path", model, "--champion_dir", champion, *more)
    assert ended.code == 0, ended.output
    return ended


def current(folder: Path) -> dict[str, Any]:
    """Return the content of `current.json`; check that its model exists and has the recorded hash."""
    found: dict[str, Any] = json.loads((folder / "current.json").read_text())
    assert hash_of(folder / found["model"]) == found["sha256"]
    return found


def history(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "history").iterdir())]


@pytest.fixture
def champion(models: Mapping[str, Path], tmp_path: Path) -> Path:
    """A champion's folder in which the poor model was replaced by the fair one."""
    for name in ("poor", "fair"):
        promote(models[name], tmp_path / "champion")
    return tmp_path / "champion"


def test_only_a_model_that_is_better_by_the_margin_becomes_the_champion(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """The first model needs no comparison; both are evaluated on the same images; the scalars record the decision."""
    folder, logs = tmp_path / "champion", tmp_path / "logs"

    first = promote(models["fair"], folder, "--log_dir", logs / "1")
    worse = promote(models["poor"], folder, "--log_dir", logs / "2")
    hardly = promote(models["good"], folder, "--margin", "0.5", "--log_dir", logs / "3")
    better = promote(models["good"], folder, "--margin", "0.01", "--log_dir", logs / "4")

    assert "it is the champion, number 1" in first.output
    assert "is not better by a margin of 0.0: refused; the champion is number 1" in worse.output
    assert "is not better by a margin of 0.5: refused" in hardly.output
    assert "it is the champion, number 2" in better.output
    figures = {
        tag: [points(logs / number, f"promotion/{tag}")[0] for number in "1234"] for tag in ("promoted", "generation")
    }
    assert figures == {"promoted": [1, 0, 0, 1], "generation": [1, 1, 1, 2]}
    assert points(logs / "2", "champion/accuracy")[0] == pytest.approx(history(folder)[0]["accuracy"])
    assert current(folder)["sha256"] == hash_of(models["good"])


def test_a_model_whose_training_came_to_nothing_is_refused_also_where_nobody_is_in_service(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """Its parameters and loss are NaN, but its accuracy is a number."""
    import torch  # noqa: PLC0415 - an extra

    state = torch.load(models["good"], weights_only=True)
    torch.save({name: torch.full_like(values, torch.nan) for name, values in state.items()}, tmp_path / "model.pt")

    refused = promote(tmp_path / "model.pt", tmp_path / "champion")

    assert "refused; the champion is nobody" in refused.output
    assert not list((tmp_path / "champion").rglob("*.json"))


def test_a_model_that_is_written_again_where_it_was_trained_leaves_the_champion_as_it_is(
    models: Mapping[str, Path], tmp_path: Path
) -> None:
    """A cleared run may overwrite its own model; the champion is a copy. A model with another hash is refused."""
    model = tmp_path / "model.pt"
    shutil.copy(models["fair"], model)
    meant = hash_of(model)
    promote(model, tmp_path / "champion", "--sha256", meant)

    shutil.copy(models["good"], model)
    other = run(PROMOTE, "--model_path", model, "--champion_dir", tmp_path / "champion", "--sha256", meant)

    assert other.code == 1
    assert f"its sha256 is {hash_of(model)}, not {meant}: it was written again meanwhile" in other.output
    assert current(tmp_path / "champion")["sha256"] == meant


def test_the_better_of_two_concurrent_promotions_is_the_champion(
    models: Mapping[str, Path], champion: Path, tmp_path: Path
) -> None:
    """Both have read the same champion; the second one then compares with the first one's model."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    (poorest := champion / "history" / "00000002.json").unlink()  # both see the poor model as the champion
    (champion / "current.json").unlink()
    command = (HERE / "met.py", meeting, PROMOTE, "--champion_dir", champion, "--model_path")

    started = [Loaded(*command, models[name]) for name in ("fair", "good")]
    fair, good = [process.end() for process in started]

    assert [fair.code, good.code] == [0, 0], fair.output + good.output
    assert len(list(meeting.iterdir())) == 2
    assert current(champion)["sha256"] == hash_of(models["good"])
    assert "it is the champion" in good.output
    was_first = "it is the champion, number 2" in good.output
    assert ("refused; the champion is number 2" if was_first else "it is the champion, number 2") in fair.output
    assert len(history(champion)) == (2 if was_first else 3)
    assert poorest.exists()


def rounds(folder: Path, program: Path, *arguments: str | Path) -> list[dict[str, Any]]:
    """Return the rounds in which the program was killed before one of its steps and started again."""
    ended = run(HERE / "struck.py", folder, program, *arguments)
    assert ended.code == 0, ended.output
    decisions = [json.loads(line[6:]) for line in ended.output.splitlines() if line.startswith("round ")]
    assert [each["killed"] for each in decisions] == [True] * (len(decisions) - 1) + [False]
    return decisions


def assert_whole(seen: Mapping[str, Any], sizes: set[int]) -> None:
    """Assert that readers find a current decision whose model is complete."""
    by_number = {decision["generation"]: decision for decision in seen["history"]}
    assert seen["current"] == by_number[seen["current"]["generation"]]
    assert {seen["models"][decision["model"]] for decision in seen["history"]} <= sizes


def test_a_promotion_that_is_killed_before_any_of_its_steps_is_finished_by_the_next_try(
    models: Mapping[str, Path], champion: Path
) -> None:
    """Readers always find a complete champion, the old or the new one; the next try ends as if nothing had happened."""
    decisions = rounds(champion, PROMOTE, "--model_path", models["good"], "--champion_dir", champion)

    sizes = {path.stat().st_size for path in models.values()}
    assert len(decisions) > 8
    for each in decisions:
        assert each["code"] == 0
        assert_whole(each["left"], sizes)
        assert_whole(each["then"], sizes)
        assert each["left"]["current"]["generation"] in {2, 3}
        assert each["then"]["current"]["sha256"] == hash_of(models["good"])
        assert [decision["generation"] for decision in each["then"]["history"]] == [1, 2, 3]
    assert {len(each["left"]["history"]) for each in decisions} == {2, 3}


def test_a_promotion_that_was_taken_back_is_not_made_again_by_a_retry(
    models: Mapping[str, Path], champion: Path, tmp_path: Path
) -> None:
    """The rollback stands: a try that does not know of its earlier success reports the current champion."""
    assert run(ROLLBACK, "--by", "a person", "--champion_dir", champion).code == 0

    ended = promote(models["fair"], champion, "--log_dir", tmp_path / "logs")

    assert "was promoted before, and replaced since: refused; the champion is number 3" in ended.output
    assert points(tmp_path / "logs", "promotion/promoted") == {0: 0}
    assert current(champion)["sha256"] == hash_of(models["poor"])


def test_the_way_back_goes_further_each_time_and_also_forward_again(
    models: Mapping[str, Path], champion: Path, tmp_path: Path
) -> None:
    """Each rollback returns to the previous champion, up to the first one; a number selects any of them."""
    promote(models["good"], champion)
    back = (ROLLBACK, "--champion_dir", champion, "--by")

    ended = [run(*back, by, "--save_path", tmp_path / by / "model.pt", "--log_dir", tmp_path / by) for by in ("a", "b")]
    too_far = run(*back, "c")
    forward = run(*back, "d", "--to", "3")
    nowhere = run(*back, "e", "--to", "17")

    assert [each.code for each in ended] == [0, 0], ended[0].output
    found = [hash_of(tmp_path / by / "model.pt") for by in ("a", "b")]
    assert found == [hash_of(models["fair"]), hash_of(models["poor"])]
    assert points(tmp_path / "b", "promotion/generation") == {0: 5}
    assert too_far.code == 1
    assert "there is no champion before number 5; allowed: 1, 2, 3, 4, 5" in too_far.output
    assert forward.code == 0
    assert current(champion)["sha256"] == hash_of(models["good"])
    assert "there is no champion number 17; allowed: 1, 2, 3, 4, 5, 6" in nowhere.output


def test_a_rollback_that_a_later_promotion_overruled_is_not_repeated(
    models: Mapping[str, Path], champion: Path
) -> None:
    """A task that is cleared weeks later must not undo a later promotion."""
    assert run(ROLLBACK, "--by", "a run", "--champion_dir", champion).code == 0
    promote(models["good"], champion)

    ended = run(ROLLBACK, "--by", "a run", "--champion_dir", champion)

    assert ended.code == 1
    assert "rollback a run: already done, with champion 3; the champion is 4 now: use another --by" in ended.output
    assert current(champion)["sha256"] == hash_of(models["good"])


@pytest.mark.parametrize("harm", ["changed", "is not there"])
def test_a_champion_whose_file_is_not_what_it_was_is_an_error(
    harm: str, models: Mapping[str, Path], champion: Path
) -> None:
    """Nothing is promoted over it or trained from it; the error recommends a rollback to an intact champion."""
    model = champion / current(champion)["model"]
    model.write_bytes(b"bits") if harm == "changed" else model.unlink()

    promoted = run(PROMOTE, "--model_path", models["good"], "--champion_dir", champion)
    started = run(TRAIN, "--start_from", champion, "--epochs", "1")
    back = run(ROLLBACK, "--champion_dir", champion, "--by", "me")

    assert [promoted.code, started.code, back.code] == [1, 1, 0]
    for ended in (promoted, started):
        assert f"champion 2: {model} {harm}" in ended.output.replace("has changed", "changed")
        assert "return to another one: rollback.py" in ended.output
    assert current(champion)["sha256"] == hash_of(models["poor"])


def test_a_training_starts_from_the_champion_where_there_is_one(
    models: Mapping[str, Path], champion: Path, tmp_path: Path
) -> None:
    """With a tiny learning rate the accuracy equals the champion's; without a champion it starts from scratch."""
    command = (TRAIN, "--epochs", "1", "--lr", "1e-12", "--save_path", tmp_path / "model.pt", "--start_from")

    warm = run(*command, champion)
    score = warm.find(r"held-out accuracy (\S+) \(")
    fresh = run(*command, tmp_path / "nothing")

    assert [warm.code, fresh.code] == [0, 0], warm.output
    assert f"starts from champion number 2 in {champion}" in warm.output
    assert float(score) == pytest.approx(current(champion)["accuracy"], abs=1e-4)
    assert "starts from" not in fresh.output
