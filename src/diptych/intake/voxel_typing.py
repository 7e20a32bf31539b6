"""Which sequence an image is, told by its voxels alone: for series whose tags and names say nothing.

All series of a study that may be one of the four are brought to one of them, its brain is stripped, and the channel
check asks which order of channels is most likely, by what each image looks like and how the images go together. What is
not clearly likelier than anything else is left for the user to name. Takes some ten seconds per series, so it is asked
only where nothing else tells. Stripping is made for T1: on others it finds the brain well enough to compare inside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from diptych.errors import VolumeError
from diptych.intake.resampling import Placed, even_grid, resample, smooth
from diptych.intake.rigid_registration import Effort, register
from diptych.intake.series import Series
from diptych.intake.series_typing import Choice
from diptych.intake.skull_strip import brain_mask
from diptych.volumes.channel_check import describe_images, likely_channels
from diptych.volumes.volume import CHANNELS

WORKING_MM = 3.0
CLEAR, CLEAR_OF_ALL = 6.0, 4.0
"""How much likelier than the next best order; less is enough where all four are there. Of 100 training patients with
four channels, 92 are told and one of these wrongly; with T1, T2 and FLAIR 75 and two (LOG.md)."""
NEEDED = ({"flair"}, {"t1", "t1gd"})
"""What no patient can be taken in without; FLAIR and T1Gd alone look alike to what is compared here."""
QUICK = Effort(levels=Effort().levels[:1])


def told_by_voxels(unknown: Sequence[Series], known: Mapping[str, Series], never: frozenset[str]) -> list[Choice]:
    """Channels of unknown series; nothing where the answer is not clear or there are more series than channels.

    Args:
        unknown: Series that neither timing nor words tell.
        known: Channel to a series, where one was told.
        never: Channels that a user has spoken about: nothing is to be told about these.
    """
    series = [*known.values(), *unknown]
    if not 3 <= len(series) + bool(known) <= len(CHANNELS) + bool(known):  # two unknown images go together in many ways
        return []
    heads = [Placed(np.maximum(one.load(), 0.0), one.affine) for one in series]
    finest = min(range(len(heads)), key=lambda place: max(heads[place].grid.spacing))
    try:
        mask = brain_mask(heads[finest])
        ways = [np.eye(4) if head is heads[finest] else register(heads[finest], head, effort=QUICK).transform
                for head in heads]  # fmt: skip
    except VolumeError:
        return []
    grid = even_grid(heads[finest].grid, WORKING_MM)
    inside = resample(Placed(mask.astype(np.float32), heads[finest].affine), grid) > 0.5
    images = [resample(smooth(head, WORKING_MM), grid, way) for head, way in zip(heads, ways, strict=True)]
    found = describe_images(np.stack(images) * inside, grid.spacing)
    likely = None if found is None else likely_channels(found, dict(enumerate(known)), never=never, needed=NEEDED)
    if likely is None or likely.margin < (CLEAR_OF_ALL if len(series) == len(CHANNELS) else CLEAR):
        return []
    return [
        Choice(channel, one, ("told by its voxels beside the other series",))
        for channel, one in zip(likely.channels[len(known) :], unknown, strict=True)
    ]
