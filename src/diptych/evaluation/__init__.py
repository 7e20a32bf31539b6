"""Evaluation: how good a model is, beside what would be possible, what chance gives and what else one could use.

part, parts/       a part answers one question with words, tables and figures; each can be run alone
context            patients, model and seed that all parts share, and what is worked out once
manifest, runner   what figures follow from; run, keep, go on
report             one page, Markdown, JSON, CSV, terminal
overlaps, retrieval_score, compare_metrics, scored, bootstrap     label overlap, scores, trials, intervals
answers, own_answers, fusion, baselines                           ways of searching, in one harness

Stands beside training; knows retrieval and everything below it.
"""
