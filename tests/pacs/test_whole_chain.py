"""The whole chain as a user sees it: phantom study, Orthanc, watcher, real intake, archive, search, results, read."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from diptych.cli.app import app
from diptych.pacs.orthanc import find_orthanc


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_demonstration_takes_a_study_in_and_gives_results_back(tmp_path: Path) -> None:
    if find_orthanc() is None:
        pytest.skip("no Orthanc with its DICOMweb plugin here (apt-get install orthanc orthanc-dicomweb)")
    asked = ["pacs", "demo", "--out", str(tmp_path / "demo"), "--patients", "2", "--studies", "1"]
    said = CliRunner().invoke(app, asked)
    assert said.exit_code == 0, said.output
    assert "in the archive" in said.output
    assert "sent again, 0 were stored" in said.output
    for modality in ("SEG", "SR", "MR", "OT"):
        assert f"of {modality}: Diptych" in said.output
