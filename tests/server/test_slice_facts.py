"""What a reader is told of a slice in numbers: lesions known and predicted apart, signal, windows, levels."""

from __future__ import annotations

import gzip
from pathlib import Path

import httpx
import numpy as np
import pytest

from diptych.server.channel_images import read_signal
from diptych.volumes import write_nifti
from tests.server.conftest import API


def test_known_and_predicted_areas_stand_apart(client: httpx.Client) -> None:
    volume = client.get(f"{API}/volumes/Case-1").json()
    place = int(np.argmax(volume["lesion_area"]))
    facts = client.get(f"{API}/volumes/Case-1/slices/{volume['z_indices'][place]}/lesion").json()
    assert facts["known"]["whole_mm2"] == pytest.approx(volume["lesion_area"][place], rel=0.3)
    assert sum(facts["known"]["areas_mm2"].values()) == pytest.approx(facts["known"]["whole_mm2"], abs=0.5)
    assert set(facts["predicted"]["areas_mm2"]) == set(facts["known"]["areas_mm2"])
    assert facts["known"]["side"] in ("left", "right", "both")


def test_a_signal_tells_its_window_and_voxels(client: httpx.Client) -> None:
    volume = client.get(f"{API}/volumes/Case-1").json()
    signal = client.get(f"{API}/volumes/Case-1/signals/t1gd").json()
    assert signal["window"] == volume["windows"]["t1gd"]
    assert signal["range"][0] <= signal["mean"] <= signal["range"][1]
    assert len(signal["voxel_mm"]) == 3


def test_the_usual_window_does_not_clip_what_enhances(tmp_path: Path) -> None:
    voxels = np.random.default_rng(1).normal(100, 12, (40, 40, 20)).clip(1).astype(np.float32)
    voxels[10:18, 10:18, 8:14] = 260  # a hundredth of the brain, and much brighter
    path = tmp_path / "t1gd.nii.gz"
    write_nifti(path, voxels, np.diag([-1.0, -1.0, 1.0, 1.0]))
    low, high = read_signal(path).window
    assert high == pytest.approx(260, rel=0.05)
    assert 0 < low < voxels.min() + 60


def test_a_level_keeps_far_slices_out(client: httpx.Client) -> None:
    subject = {"volume": "Case-1", "z": client.get(f"{API}/volumes/Case-1").json()["z_indices"][1]}
    position = client.post(f"{API}/subjects/view", json={"subject": subject}).json()["position"]
    search = {"subject": subject, "by": "normal", "level_mm": 30}
    found = client.post(f"{API}/search", json=search).json()["matches"]
    assert found
    assert all(abs(match["position"] - position) * 140 <= 30 for match in found)


def test_text_goes_out_packed_and_pictures_as_they_are(client: httpx.Client) -> None:
    answer = client.get(f"{API}/volumes/Case-1", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    plain = client.get(f"{API}/volumes/Case-1", headers={"Accept-Encoding": "identity"})
    assert plain.content == answer.content
    assert len(gzip.compress(plain.content)) < len(plain.content)
    z = answer.json()["representative_z"]
    picture = client.get(f"{API}/volumes/Case-1/slices/{z}/image.png", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in picture.headers
