"""Whole images: diffusion and continuation."""
