"""Alignment of templates with images by diffusion and continuation."""
