"""Images of patients: reading, canonical orientation, named channels, unified labels."""

from diptych.volumes.layout import PatientFiles, find_patients, patient_from_files
from diptych.volumes.nifti import Limits
from diptych.volumes.nifti_writer import write_nifti
from diptych.volumes.patient import read_patient, voxel_hash
from diptych.volumes.people import names_of, subject_of
from diptych.volumes.volume import ANATOMY_LABELS, CHANNELS, LESION_LABELS, Volume, mirror_anatomy

__all__ = [
    "ANATOMY_LABELS",
    "CHANNELS",
    "LESION_LABELS",
    "Limits",
    "PatientFiles",
    "Volume",
    "find_patients",
    "mirror_anatomy",
    "names_of",
    "patient_from_files",
    "read_patient",
    "subject_of",
    "voxel_hash",
    "write_nifti",
]
