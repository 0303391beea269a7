"""Agents of several turns."""
