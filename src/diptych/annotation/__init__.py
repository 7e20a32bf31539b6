"""Labels for patients that have none: anatomy from an atlas, lesions from an ensemble, experts' edits in and out."""
