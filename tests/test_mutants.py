"""The mutants that no test can kill: what is said of them is of code that is still there."""

from __future__ import annotations

import yaml

from pytorch_bridge.native.toolchain import ROOT
from pytorch_bridge.testing.mutants.__main__ import EQUIVALENT
from pytorch_bridge.testing.mutants.areas import AREAS, files_of


def test_explained_mutants_are_of_lines_that_are_there():
    files = {file for area in AREAS.values() for file in files_of(area, ROOT)}
    gone = []
    for entry in yaml.safe_load(EQUIVALENT.read_text()):
        assert entry.keys() - {"new"} == {"file", "line", "kind", "reason"}, entry
        assert entry["file"] in files, entry
        lines = (ROOT / entry["file"]).read_text().splitlines()
        if entry["line"] not in (line.strip() for line in lines):
            gone.append(entry)
    assert not gone, "remove these from equivalent.yaml, or say it of the line that is there now"


def test_files_of_the_areas():
    """An area without files would have no mutants, and so no survivors."""
    for name, area in AREAS.items():
        files = files_of(area, ROOT)
        assert len(files) > 8, name
        for file in files:
            assert "_gen" not in file
            assert not file.endswith("_test.go")
            assert all(area.stages(ROOT, file)), file


def test_tests_that_the_areas_name_are_there():
    for area in AREAS.values():
        for file in files_of(area, ROOT):
            for command in area.stages(ROOT, file):
                for word in command:
                    if word.startswith("tests/"):
                        assert (ROOT / word).is_file(), (file, word)
