"""Synthetic glioma patients with everything real data lack: exact labels and the same brain without the tumour.

make_phantom(seed)            one patient in memory
write_phantoms(folder, …)     many, as BraTS folders, in parallel and resumable
"""

from __future__ import annotations

from diptych.phantom.phantom_config import PhantomConfig
from diptych.phantom.phantom_folders import WriteReport, write_phantom, write_phantoms
from diptych.phantom.phantom_patient import Phantom, make_phantom, phantom_key

__all__ = [
    "Phantom",
    "PhantomConfig",
    "WriteReport",
    "make_phantom",
    "phantom_key",
    "write_phantom",
    "write_phantoms",
]
