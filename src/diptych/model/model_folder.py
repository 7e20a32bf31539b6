"""A trained network as a folder: weights, config, fingerprint and a card for people; and what a network takes over.

Nothing is pickled; `stored_model.py` reads the files. A network of another shape can take over every layer that both
have at the same resolution.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from diptych.errors import ModelError
from diptych.files import replacing, write_json, write_text
from diptych.model.network import FeatureDecomposingNetwork, fingerprint
from diptych.model.stored_model import CARD, CONFIG, FORMAT, VERSION, WEIGHTS, StoredModel


def save_model(network: FeatureDecomposingNetwork, folder: Path, *, notes: str = "") -> str:
    """Write the network to `folder`, which is made; returns the fingerprint.

    Args:
        network: what to save.
        folder: where to.
        notes: paragraphs for the model card: data, settings, results.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()}
    identity = fingerprint(network.config, state)
    with replacing(folder / WEIGHTS) as part:
        save_file(state, part)
    description = {"format": FORMAT, "version": VERSION, "fingerprint": identity, "model": network.config.to_dict()}
    write_json(folder / CONFIG, description)
    write_text(folder / CARD, _card(network, identity, notes))
    return identity


def load_model(folder: Path | str | None = None) -> FeatureDecomposingNetwork:
    """Read a network that `save_model` wrote, or a shipped one by name, in evaluation mode; else a `ModelError`.

    Without a folder, it is the shipped model that commands take by default.
    """
    return network_of(StoredModel.read(folder))


def network_of(stored: StoredModel) -> FeatureDecomposingNetwork:
    """The network that a stored model is, in evaluation mode."""
    with torch.device("meta"):  # shapes only: nothing is allocated for a config that does not fit its weights
        network = FeatureDecomposingNetwork(stored.config)
    _require_fitting(stored, network.state_dict())
    stored.require_whole()
    network.load_state_dict({name: torch.tensor(array) for name, array in stored.arrays.items()}, assign=True)
    return network.to(memory_format=torch.channels_last).eval()  # type: ignore[call-overload, no-any-return]


def _require_fitting(stored: StoredModel, expected: dict[str, Tensor]) -> None:
    """Refuse weights that are not those of the config."""
    path = stored.folder / WEIGHTS
    if wrong := sorted(stored.arrays.keys() ^ expected.keys()):
        raise ModelError(f"{path}: {len(wrong)} tensors missing or unknown, such as {wrong[0]}; export the model again")
    for name, array in stored.arrays.items():
        found, wanted = f"{array.dtype.name} {array.shape}", _describe(expected[name])
        if found != wanted:
            raise ModelError(
                f"{path}: {name} is {found}, the config asks for {wanted}; "
                "weights and config belong to different models"
            )


def _describe(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _card(network: FeatureDecomposingNetwork, identity: str, notes: str) -> str:
    config = network.config
    parameters = sum(parameter.numel() for parameter in network.parameters())
    size, grid = ("x".join(map(str, pair)) for pair in (config.image_size, config.latent_size))
    about = network.description
    anatomy = ", ".join(one.name for one in about.anatomy) or "none"
    lesion = ", ".join(f"{one.value} {one.abbreviation} ({one.name})" for one in about.lesion)
    return f"""# Diptych model {identity[:12]}

**Research use only, not a medical device.**

A feature decomposing network (Kobayashi et al.): it reads an axial brain MR slice as a normal and an abnormal code.

| | |
|---|---|
| fingerprint | `{identity}` |
| input | {", ".join(about.channels)}; {size} pixels, z-scores clipped to [-3, 5] |
| lesion | {lesion} |
| codes | two {grid} grids, {config.codebook_size} codes of width {config.code_width} each |
| anatomy | {anatomy} |
| parameters | {parameters:,} |
| made with | torch {torch.__version__} |

Codes are patient data: the decoder turns them back into an image. Guard them like images.

{notes.strip() or "Data, settings, results per class and failure modes: not recorded yet."}
"""


CLIMB = re.compile(r"(segmentation_decoder\.climb|image_decoder\.(?:upsamples|blocks))\.(\d+)\.(.+)")
"""Lists of layers that climb to full resolution, and are so counted from their end."""
IMAGE_AXIS = {"encoder.trunk.0.weight": 1, "image_decoder.out.weight": 0, "image_decoder.out.bias": 0}
"""Weights that have one axis per channel of the image."""
CODEBOOKS = ("normal_quantizer.", "abnormal_quantizer.")


def layers_in_common(source: FeatureDecomposingNetwork, target: FeatureDecomposingNetwork) -> dict[str, Tensor]:
    """The weights of `source` that fit into `target`, by the target's names; channels are taken over by name."""
    places = _places(source.description.channels, target.description.channels)
    theirs = {
        _from_full_resolution(name, source): _with_channels(name, tensor, places)
        for name, tensor in source.state_dict().items()
    }
    found = {}
    for name, tensor in target.state_dict().items():
        other = theirs.get(_from_full_resolution(name, target))
        if other is not None and other.shape == tensor.shape and not name.startswith(CODEBOOKS):
            found[name] = other
    return found


def _places(theirs: tuple[str, ...], wanted: tuple[str, ...]) -> list[int] | None:
    """Where the wanted channels are among theirs; None unless all are."""
    return [theirs.index(name) for name in wanted] if set(wanted) <= set(theirs) else None


def _with_channels(name: str, tensor: Tensor, places: list[int] | None) -> Tensor:
    """A weight with the wanted channels only, where it has an axis for them."""
    if places is None or name not in IMAGE_AXIS:
        return tensor
    return tensor.index_select(IMAGE_AXIS[name], torch.tensor(places))


def _from_full_resolution(name: str, network: FeatureDecomposingNetwork) -> str:
    """The name of a weight with the place in its list of layers counted from full resolution."""
    found = CLIMB.fullmatch(name)
    if found is None:
        return name
    layers, place, rest = found.groups()
    return f"{layers}.{int(place) - len(network.get_submodule(layers))}.{rest}"  # type: ignore[arg-type]
