"""Lesion labels from a five-fold ensemble. Start with `trainer.py` for training and `predict.py` for use."""

from diptych.annotation.lesions.cross_validation import train_lesions
from diptych.annotation.lesions.lesion_options import LesionOptions
from diptych.annotation.lesions.prediction import predict_lesions

__all__ = ["LesionOptions", "predict_lesions", "train_lesions"]
