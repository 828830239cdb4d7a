"""From an image to its features: tiled (CPU), oblique (simulated views), dispatch (devices)."""
