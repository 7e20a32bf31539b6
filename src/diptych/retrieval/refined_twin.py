"""The refined healthy twin: the patient's own image, with the lesion painted over by the model's refiner.

    refiner = TwinRefiner.open(folder, network)
    healthy = refiner(image, lesion)

Outside the lesion every pixel is the scanned one. Inside it everything is generated, like the decoded twin that guides
it; that guide is decoded from the image *without* its lesion, so that nothing of the lesion can come through. The file
`refiner.safetensors` lies beside the model and belongs to exactly that model. Fitting one is `fitting/refiner_fit.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from diptych.errors import ModelError
from diptych.metrics.model_file import Companion
from diptych.model import FeatureDecomposingNetwork
from diptych.model.refiner import Refiner, filled, void_of
from diptych.slices import FILL

REFINER_FILE = "refiner.safetensors"
REFINER = Companion(
    file=REFINER_FILE,
    format="diptych-refiner",
    version="1",
    called="a refiner of healthy twins",
    command="diptych fit refiner STORE --model MODEL",
)


@dataclass(frozen=True, eq=False)
class TwinRefiner:
    """A network with the refiner that was fitted to it."""

    network: FeatureDecomposingNetwork
    refiner: Refiner

    @classmethod
    def open(cls, folder: Path | str, network: FeatureDecomposingNetwork) -> TwinRefiner | None:
        """The refiner in a model's folder, None where there is none; one of another model is refused."""
        found = REFINER.read(Path(folder), fingerprint=network.fingerprint)
        if found is None:
            return None
        refiner = Refiner(network.config.channels)
        try:
            refiner.load_state_dict({name: torch.from_numpy(array) for name, array in found[0].items()})
        except RuntimeError:
            raise ModelError(f"{Path(folder) / REFINER_FILE}: does not fit the model; {REFINER.way_out}") from None
        return cls(network, refiner.eval())

    def save(self, folder: Path | str) -> Path:
        """Write the refiner beside its model, whole or not at all."""
        state = {name: tensor.detach().cpu().numpy() for name, tensor in self.refiner.state_dict().items()}
        return REFINER.write(Path(folder), state, fingerprint=self.network.fingerprint)

    def __call__(self, image: NDArray[np.float32], lesion: NDArray[np.integer]) -> NDArray[np.float32]:
        """A slice `[C, H, W]` without its lesion `[H, W]`; without any lesion it is the slice itself."""
        images = torch.from_numpy(np.array(image, dtype=np.float32))[None]
        void = void_of(torch.from_numpy(lesion > 0)[None]) & (images > FILL).any(dim=1)
        return np.asarray(self.paint(images, void)[0].numpy())

    @torch.no_grad()
    def paint(self, images: Tensor, void: Tensor) -> Tensor:
        """Images `[B, C, H, W]` whose void `[B, H, W]` is painted anew."""
        painted: Tensor = self.refiner(images, void, decoded_guide(self.network, images, void))
        return painted


@torch.no_grad()
def decoded_guide(network: FeatureDecomposingNetwork, images: Tensor, void: Tensor) -> Tensor:
    """The healthy twin that the model decodes when it is not shown what lies in the void."""
    return network.decode_twin(network.encode(filled(images, void, FILL)).normal)
