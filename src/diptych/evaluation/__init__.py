"""Evaluation: how good retrieval is, beside what would be possible and what chance gives.

overlaps          label overlap between slices
retrieval_score   mean Dice of what was found, beside oracle and chance
compare_metrics   every metric on patients with known labels

Stands beside training; knows retrieval and everything below it.
"""
