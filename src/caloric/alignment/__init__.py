"""Alignment of whole images by diffusion and continuation."""
