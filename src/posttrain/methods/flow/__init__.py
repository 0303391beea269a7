"""Flow and diffusion policies."""
