"""Lesion labels from a five-fold ensemble. Start with `trainer.py` for training and `predict.py` for use."""

from diptych.annotation.lesions.options import LesionOptions
from diptych.annotation.lesions.predict import predict_lesions
from diptych.annotation.lesions.trainer import train_lesions

__all__ = ["LesionOptions", "predict_lesions", "train_lesions"]
