"""Evaluation: how good retrieval is, beside what would be possible and what chance gives.

overlaps          label overlap between slices           retrieval_score   mean Dice of what was found, oracle, chance

Stands beside training; knows retrieval and everything below it.
"""
