"""What is served, and how it looks: the archive, volumes, slices and files."""

from __future__ import annotations

import gzip
from io import BytesIO

import httpx
import numpy as np
import pytest
from PIL import Image

from tests.server.conftest import API, KEYS

KINDS = ("image", "reconstruction", "twin", "mask", "label", "anatomy", "difference", "thumbnail")


def picture(client: httpx.Client, path: str) -> Image.Image:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "image/png"
    return Image.open(BytesIO(answer.content))


def test_health_says_what_it_is_not_for(client: httpx.Client) -> None:
    health = client.get(f"{API}/health").json()
    assert (health["status"], health["token_needed"]) == ("ok", False)
    assert health["notice"] == "Research use only, not a medical device."


def test_the_archive_describes_itself(client: httpx.Client) -> None:
    archive = client.get(f"{API}/archive").json()
    assert (archive["patients"], archive["volumes"], archive["sources"], archive["tags"]) == (
        3,
        3,
        ["noise"],
        ["first"],
    )
    assert archive["model"]["image_size"] == [32, 64]
    assert archive["default_metric"] == "euclidean"
    assert [one["name"] for one in archive["lesion_classes"]] == ["NET", "ED", "ET"]


def test_volumes_are_listed_page_by_page(client: httpx.Client) -> None:
    page = client.get(f"{API}/volumes", params={"offset": 1, "limit": 1}).json()
    assert (page["total"], [one["volume_key"] for one in page["items"]]) == (3, ["Case-2"])


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"text": "case-3"}, ["Case-3"]),
        ({"text": "NOISE"}, list(KEYS)),
        ({"source": "other"}, []),
        ({"tag": "first"}, list(KEYS)),
        ({"has_lesion": False}, []),
        ({"has_lesion": True}, list(KEYS)),
    ],
)
def test_volumes_can_be_filtered(client: httpx.Client, asked: dict[str, str], found: list[str]) -> None:
    listed = client.get(f"{API}/volumes", params=asked).json()["items"]
    assert [one["volume_key"] for one in listed] == found


def test_patients_are_listed_with_their_volumes(client: httpx.Client) -> None:
    assert client.get(f"{API}/patients", params={"text": "2"}).json() == {
        "total": 1,
        "items": [{"patient_key": "Case-2", "volumes": ["Case-2"]}],
    }


def test_one_volume_in_full(client: httpx.Client) -> None:
    volume = client.get(f"{API}/volumes/Case-1").json()
    assert len(volume["z_indices"]) == len(volume["lesion_area"]) == volume["slices"]
    assert volume["lesion_source"] == "labels"
    assert set(volume["channel_urls"]) == {"t1", "t1gd", "t2", "flair"}
    assert set(volume["label_urls"]) == {"lesion"}


def test_every_address_leads_somewhere(client: httpx.Client) -> None:
    volume = client.get(f"{API}/volumes/Case-1").json()
    urls = [volume["thumbnail_url"], *volume["channel_urls"].values(), *volume["label_urls"].values()]
    assert [client.get(url).status_code for url in urls] == [200] * len(urls)


@pytest.mark.parametrize("kind", KINDS)
def test_all_pictures_of_a_slice_share_one_frame(client: httpx.Client, kind: str) -> None:
    drawn = picture(client, f"{API}/volumes/Case-1/slices/4/{kind}.png?size=120&channel=flair")
    assert drawn.size == (100, 120)  # a field of 120 x 100 mm
    assert drawn.mode == ("RGBA" if kind in ("mask", "label", "anatomy", "difference") else "L")


def test_the_image_is_the_scan_and_its_label_lies_on_the_lesion(client: httpx.Client) -> None:
    scan = np.asarray(picture(client, f"{API}/volumes/Case-1/slices/4/image.png?size=120"))
    label = np.asarray(picture(client, f"{API}/volumes/Case-1/slices/4/label.png?size=120"))[..., 3] > 0
    assert scan[60, 50] > 0
    assert scan[0, 0] == 0
    rows, columns = np.nonzero(label)
    assert abs(rows.mean() - 59.5) < 2
    assert abs(columns.mean() - 49.5) < 2


def test_a_window_brightens_the_picture(client: httpx.Client) -> None:
    plain = np.asarray(picture(client, f"{API}/volumes/Case-1/slices/4/image.png")).mean()
    bright = np.asarray(picture(client, f"{API}/volumes/Case-1/slices/4/image.png?low=0&high=60")).mean()
    assert bright > plain


def test_a_picture_is_sent_once(client: httpx.Client) -> None:
    path = f"{API}/volumes/Case-1/slices/4/image.png"
    first = client.get(path)
    assert client.get(path, headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert first.headers["cache-control"] == "private, no-cache"
    assert "max-age" in client.get(f"{path}?v=1").headers["cache-control"]


def test_files_come_whole_or_in_parts(client: httpx.Client) -> None:
    path = f"{API}/volumes/Case-2/channels/t2.nii.gz"
    whole = client.get(path)
    assert gzip.decompress(whole.content)[344:348] == b"n+1\0"
    part = client.get(path, headers={"Range": "bytes=10-19"})
    assert (part.status_code, part.content) == (206, whole.content[10:20])
    assert client.get(path, headers={"If-None-Match": whole.headers["etag"]}).status_code == 304
    assert client.get(path, headers={"Range": "bytes=99999999-"}).status_code == 416


@pytest.mark.parametrize(
    "path",
    [
        "volumes/Nobody",
        "volumes/Case-1/slices/999/image.png",
        "volumes/Case-1/labels/anatomy.nii.gz",
        "volumes/..%2f..%2fetc%2fpasswd/channels/t1.nii.gz",
        "volumes/%2e%2e/channels/t1.nii.gz",
        "jobs/none",
        "uploads/none",
        "nothing",
    ],
)
def test_what_is_not_there_is_a_404_of_the_one_shape(client: httpx.Client, path: str) -> None:
    answer = client.get(f"{API}/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    "path",
    [
        "volumes/Case-1/slices/-1/image.png",
        "volumes/Case-1/slices/x/image.png",
        "volumes/Case-1/slices/4/photo.png",
        "volumes/Case-1/slices/4/image.png?size=5000",
        "volumes/Case-1/slices/4/image.png?low=3",
        "volumes/Case-1/slices/4/image.png?low=3&high=1",
        "volumes/Case-1/slices/4/image.png?low=nan&high=1",
        "volumes/Case-1/channels/t9.nii.gz",
        "volumes?limit=100000",
    ],
)
def test_what_cannot_be_is_a_422_of_the_one_shape(client: httpx.Client, path: str) -> None:
    answer = client.get(f"{API}/{path}")
    assert answer.status_code == 422
    assert set(answer.json()["error"]) <= {"code", "message", "detail"}
    assert "\n" not in answer.json()["error"]["message"]
