"""Diptych reads a medical image as two panels, anatomy and disease, and searches an archive by either.

Research use only, not a medical device.
"""
