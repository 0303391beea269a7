"""Helpers of tasks: reading rows of data, generating tasks, images and templates."""
