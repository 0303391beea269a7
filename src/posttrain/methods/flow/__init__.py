"""Flows and diffusion."""
