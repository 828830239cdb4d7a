"""The alignment benchmark: cases, other methods, and calibration of the confidence."""
