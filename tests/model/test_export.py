"""A saved model comes back the same; anything else is refused in one line that names the file."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from diptych.errors import ModelError
from diptych.model import load_model, save_model
from tests.model.tiny import tiny_images, tiny_network


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tiny_network(anatomy_classes=7), tmp_path / "model")
    return tmp_path / "model"


def test_loaded_model_gives_the_same_ids(folder: Path) -> None:
    expected, found = (
        network.encode(tiny_images(16)) for network in (tiny_network(anatomy_classes=7), load_model(folder))
    )
    assert torch.equal(found.normal, expected.normal)
    assert torch.equal(found.abnormal, expected.abnormal)


def test_loaded_model_gives_bitwise_the_same_pictures(folder: Path) -> None:
    expected = tiny_network(anatomy_classes=7).eval().decompose(tiny_images())
    assert torch.equal(load_model(folder).decompose(tiny_images()).reconstruction, expected.reconstruction)


def test_fingerprint_is_kept(folder: Path) -> None:
    assert load_model(folder).fingerprint == tiny_network(anatomy_classes=7).fingerprint


def test_fingerprint_changes_with_one_code() -> None:
    network = tiny_network()
    before = network.fingerprint
    network.normal_quantizer.codebook[3, 2] += 1e-3
    assert network.fingerprint != before


def test_fingerprint_changes_with_the_field_of_view() -> None:
    assert tiny_network().fingerprint != tiny_network(field_mm=None).fingerprint


def test_card_names_the_model_and_its_limits(folder: Path) -> None:
    card = (folder / "README.md").read_text()
    assert load_model(folder).fingerprint in card
    assert "not a medical device" in card


def edit_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_model(folder: Path, **changes: Any) -> None:
    edit_config(folder, model={**json.loads((folder / "config.json").read_text())["model"], **changes})


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    state = load_file(folder / "model.safetensors")
    change(state)
    save_file(state, folder / "model.safetensors")


def flip_one_byte(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(bytes(content))


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def put_pickle(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(pickle.dumps({"weights": [1, 2, 3]}))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json: not there"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors: not there"),
    "broken JSON": (lambda folder: (folder / "config.json").write_text("{"), "config.json: cannot be read as JSON"),
    "not text": (lambda folder: (folder / "config.json").write_bytes(b"\xff\xfe"), "cannot be read as JSON"),
    "other JSON": (lambda folder: (folder / "config.json").write_text("[1]"), "not the config of a Diptych model"),
    "newer format": (lambda folder: edit_config(folder, version=2), "model format 2, but this Diptych reads 1"),
    "no fingerprint": (lambda folder: edit_config(folder, fingerprint=None), "fingerprint .* is missing"),
    "wrong fingerprint": (lambda folder: edit_config(folder, fingerprint="0" * 64), "not 000000000000 as recorded"),
    "other config": (lambda folder: edit_model(folder, ema_decay=0.9), "changed or mixed up"),
    "unknown field": (lambda folder: edit_model(folder, dropout=0.5), "dropout"),
    "impossible config": (lambda folder: edit_model(folder, widths=[8, 8]), "widths"),
    "config of another type": (lambda folder: edit_model(folder, widths="wide"), "config.json"),
    "config beyond memory": (lambda folder: edit_model(folder, codebook_size=10**12), "config asks for"),
    "flipped byte": (flip_one_byte, "changed or mixed up"),
    "cut short": (cut, "not a safetensors file"),
    "pickle": (put_pickle, "not a safetensors file"),
    "wrong shape": (
        lambda folder: edit_weights(folder, lambda s: s.update({"encoder.trunk.0.bias": torch.zeros(9)})),
        r"encoder.trunk.0.bias is float32 \(9,\), the config asks for float32 \(8,\)",
    ),
    "wrong type": (
        lambda folder: edit_weights(folder, lambda s: s.update({"encoder.trunk.0.bias": torch.zeros(8).half()})),
        "is float16",
    ),
    "missing tensor": (lambda folder: edit_weights(folder, lambda s: s.popitem()), "1 tensors missing or unknown"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_anything_else_is_refused(folder: Path, case: str) -> None:
    spoil, message = REFUSED[case]
    spoil(folder)
    with pytest.raises(ModelError, match=message) as refusal:
        load_model(folder)
    assert "\n" not in str(refusal.value)


def test_a_model_is_read_without_torchs_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing or allocating on torch's device without memory imports six hundred modules: a second each time."""
    monkeypatch.setitem(sys.modules, "torch.fx.experimental.symbolic_shapes", None)
    load_model(folder)
