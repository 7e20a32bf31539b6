"""One archive on many machines."""
