"""The alignment benchmark: cases, other methods, and the calibration of the confidence."""
