"""Feature extraction on the CPU (tiled), from simulated views (oblique), on devices (dispatch)."""
