from __future__ import annotations

import json
import os
import re
from pathlib import Path

from cluster.layout import HOME
from ptjob_provider.core.diagnosis import Cause, Diagnosis
from ptjob_provider.core.diagnosis.causes import CAUSES
from recorded import DATA, recorded
from rows import each_row
from story import STORIES, read, tell

PLACES_OF_THIS_MACHINE = (f"{Path.home()}/", f"{Path.home().resolve()}/", str(HOME.parent))


class TestStories:
    @each_row("name", STORIES)
    def test_the_report_of_a_recorded_story_is_the_agreed_one(self, name: str) -> None:
        """Texts and fields are those of the golden file (rewrite it with PTJOB_WRITE_GOLDEN=1)."""
        golden = DATA / "golden" / f"{name}.txt"
        if os.environ.get("PTJOB_WRITE_GOLDEN"):
            golden.write_text(tell(name))

        assert tell(name) == golden.read_text()

    @each_row("name", [name for name in STORIES if "recorded" in recorded(name)])
    def test_a_recorded_story_names_nothing_of_its_machine(self, name: str) -> None:
        """Addresses are documentation addresses, timestamps are of one day, and the cluster's name does not occur."""
        text = (DATA / f"{name}.yaml").read_text()

        addresses = set(re.findall(r"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])", text))
        assert all(address.startswith(("192.0.2.", "127.", "0.0.0.0")) for address in addresses)  # noqa: S104
        assert set(re.findall(r"\b20\d\d-\d\d-\d\d", text)) <= {"2026-11-20"}
        assert not re.search(r"managedFields|test-[0-9a-f]{8}|token-", text)
        assert not any(place in text for place in PLACES_OF_THIS_MACHINE)

    @each_row("name", [name for name in STORIES if read(name).diagnosis])
    def test_a_diagnosis_crosses_processes(self, name: str) -> None:
        """The worker raises what a trigger diagnosed."""
        found = read(name).diagnosis
        assert found is not None

        restored = Diagnosis.from_dict(json.loads(json.dumps(found.to_dict())))

        assert restored == found

    def test_every_cause_has_its_advice(self) -> None:
        """Otherwise a new cause would fail when it occurs, without a resolution and a retry rule."""
        assert set(CAUSES) == set(Cause)

    def test_no_advice_has_the_spelling_of_one_place_alone(self) -> None:
        """The same texts appear in Airflow, in a pipeline and at a command line: no `memory=`, no `--memory`."""
        texts = [tell(name) for name in STORIES] + [info.advice for info in CAUSES.values()]

        assert re.findall(r"[Cc]orrect \w+=|[Rr]aise (?:\w+=|--)", "\n".join(texts)) == []
